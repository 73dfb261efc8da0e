/** The server's routes, and its errors in words. */

import { t } from "./i18n.js";

const KEY = "openmanus_token";

/** What the server refused, or that it did not answer (`status` 0). */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Take the token out of the address, if `openmanus serve` opened the page with one. */
export function adoptToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  keepToken(token);
  history.replaceState(null, "", location.pathname + location.search);
}

/** Remember the token that a person typed. */
export function keepToken(token) {
  localStorage.setItem(KEY, token.trim());
}

/** Sign out, here and on the server. */
export async function signOut() {
  await ask("DELETE", "/session");
  localStorage.removeItem(KEY);
}

/** Whether people sign in at an identity provider, at `/app/login`. */
export async function canSignIn() {
  const response = await fetch("/app/login/info", { cache: "no-store" });
  return response.ok && (await response.json()).sign_in;
}

let onRefused = () => {};

/** Say what is to happen when the server does not accept the token. */
export function whenRefused(listener) {
  onRefused = listener;
}

function headers(extra = {}) {
  const token = localStorage.getItem(KEY);
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

async function ask(method, path, body, signal, more = {}) {
  const options = { method, signal, cache: "no-store", headers: headers(), ...more };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(`/app/api${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(t("The server does not answer. Is it still running?"), 0);
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  throw refusal(response.status, await response.text());
}

function refusal(status, text) {
  if (status === 401) onRefused();
  return new ApiError(detailOf(text) ?? t("The server answered with {status}.", { status }), status);
}

function detailOf(text) {
  try {
    const { detail } = JSON.parse(text);
    return typeof detail === "string" ? detail : detail ? JSON.stringify(detail) : null;
  } catch {
    return null;
  }
}

const at = (thread, rest = "") => `/threads/${encodeURIComponent(thread)}${rest}`;
const segments = (path) => path.split("/").map(encodeURIComponent).join("/");

export const me = () => ask("GET", "/me");
export const options = () => ask("GET", "/options");
export const createThread = async () => (await ask("POST", "/threads", {})).id;
export const thread = (id) => ask("GET", at(id));
export const startRun = (id, body) => ask("POST", at(id, "/runs"), body);
export const stop = (id) => ask("POST", at(id, "/stop"), {});
export const steer = (id, text, files) => ask("POST", at(id, "/steer"), { text, files });
export const checkpoints = async (id) => (await ask("GET", at(id, "/checkpoints"))).checkpoints;
export const changes = (id, before, after) => ask("GET", at(id, `/changes?${new URLSearchParams({ before, after })}`));
export const files = (id) => ask("GET", at(id, "/files"));
export const allowScripts = async (file) => (await ask("POST", file.scripts, {})).url;
export const browser = (id) => ask("GET", at(id, "/browser"));
export const desktop = (id) => ask("GET", at(id, "/desktop"));
export const changeThread = (id, change) => ask("PATCH", at(id), change);
export const changeThreads = (ids, action) => ask("POST", "/threads/bulk", { ids, action });
export const shares = async (id) => (await ask("GET", at(id, "/shares"))).count;
export const share = async (id) => (await ask("POST", at(id, "/shares"), {})).url;
export const unshare = (id) => ask("DELETE", at(id, "/shares"));
export const output = (id) => ask("GET", at(id, "/output"));
export const notes = () => ask("GET", "/memory");
export const note = (path) => ask("GET", `/memory/note?${new URLSearchParams({ path })}`);
export const saveNote = (note) => ask("PUT", "/memory/note", note);
export const deleteNote = (path) => ask("DELETE", `/memory/note?${new URLSearchParams({ path })}`);
export const extensions = (agent) => ask("GET", `/extensions?${new URLSearchParams({ agent })}`);
export const usage = (by, since) => ask("GET", `/usage?${new URLSearchParams({ by, since })}`);
export const inbox = () => ask("GET", "/inbox");
export const changeTrigger = (name, action) => ask("POST", `/triggers/${encodeURIComponent(name)}/${action}`);
export const replay = (number, action) => ask("POST", `/deliveries/${number}/${action}`);
export const setup = () => ask("GET", "/setup");
export const offeredModels = (choice) => ask("POST", "/setup/models", choice);
export const giveInput = (place, value) => ask("POST", "/setup/inputs", { place, value });
export const chooseModel = (choice) => ask("POST", "/setup", choice);
export const startDemo = async () => (await ask("POST", "/demo", {})).id;

export const beginTakeover = async (id, worker, force) => (await ask("POST", at(id, "/takeover"), { worker, force })).id;
export const takeoverInput = (id, takeover, inputs) => ask("POST", at(id, `/takeover/${takeover}/input`), inputs);
export const endTakeover = (id, takeover, more) => ask("DELETE", at(id, `/takeover/${takeover}`), undefined, undefined, more);
export const takeoverFrames = (id, takeover, signal) =>
  fetch(`/app/api${at(id, `/takeover/${takeover}/frames`)}`, { headers: headers(), signal, cache: "no-store" });

/** Fetch a thread in a form: `markdown`, or `html`, which plays it. */
export async function exported(id, form) {
  const response = await fetch(`/app/api${at(id, `/export?form=${form}`)}`, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw refusal(response.status, await response.text());
  return response.blob();
}

export function threads({ q = "", before = null, limit = 50, archived = false, batch = false }, signal) {
  const query = new URLSearchParams({ limit: String(limit) });
  if (q) query.set("q", q);
  if (before) query.set("before", before);
  if (archived) query.set("archived", "true");
  if (batch) query.set("batch", "true");
  return ask("GET", `/threads?${query}`, undefined, signal);
}

/** Ask for a thread's events behind one; the answer stays open. */
export function openEvents(id, seq, signal) {
  const address = `/app/api${at(id, "/events")}?from=${seq}`;
  return fetch(address, { headers: headers({ Accept: "text/event-stream" }), signal, cache: "no-store" });
}

/**
 * Send a file into the workspace.
 *
 * XMLHttpRequest, because fetch tells nothing of how far an upload got.
 *
 * @param {(share: number) => void} onProgress  Gets 0 to 1.
 * @returns {{done: Promise<object>, cancel: () => void}}
 */
export function upload(id, path, file, { replace = false, onProgress }) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.open("PUT", `/app/api${at(id, `/files/${segments(path)}`)}${replace ? "?replace=1" : ""}`);
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => event.total && onProgress(event.loaded / event.total);
    request.onload = () =>
      request.status < 300 ? resolve(JSON.parse(request.responseText))
        : reject(refusal(request.status, request.responseText));
    request.onerror = () => reject(new ApiError(t("The upload broke off. Try it again."), 0));
    request.onabort = () => reject(new ApiError(t("The upload was cancelled."), 0));
    request.send(file);
  });
  return { done, cancel: () => request.abort() };
}

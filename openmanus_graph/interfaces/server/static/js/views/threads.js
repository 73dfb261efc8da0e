/** The list of threads: searched on the server, fetched by pages, drawn as far as it is in sight. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { ago, groupName, groupRank, unmarkedLine } from "../format.js";
import { t, tn } from "../i18n.js";
import { statusWord } from "../words/status.js";
import { virtualList } from "../virtual.js";
import { confirmDeletion } from "./dialogs.js";

const PAGE = 50;
const REFRESH_MS = 10_000;
const AT_ONCE = { archive: 500, unarchive: 500, delete: 25 }; // deleting takes longer
const CONTROLS = "a, button, input";
const UNDOES = { archive: "unarchive", unarchive: "archive" };

/**
 * Build the list.
 *
 * @param {object} actions  `open(id)`, `create()`, `removed(id)`, `problem(error)`, `answered(yes)`:
 *   whether the server does; `waiting(yes)`: whether a thread waits for the person.
 */
export function createThreads(actions) {
  const content = h("div.rows", { role: "list", aria: { label: t("Threads") } });
  const viewport = h("div.thread-list", {}, content);
  const search = h("input", { type: "search", id: "thread-search", placeholder: t("Search in all threads"),
    aria: { label: t("Search threads") }, on: { input: () => later(searchNow, 200) } });
  const archivedToggle = button(t("Archived"), () => showArchived(!archived), { kind: "chip" });
  const batchToggle = button(t("Batches"), () => showBatches(!batch), { kind: "chip", title: t("Threads of openmanus batch and eval") });
  const selectToggle = button(t("Select"), () => select(!selecting), { kind: "chip" });
  const note = h("div.muted.note", { role: "status" });
  const done = h("div.note.done", { role: "status" });
  const chosen = h("span", { role: "status" });
  const archiveChosen = button(t("Archive"), () => change(picked(), archived ? "unarchive" : "archive"), { kind: "chip" });
  const deleteChosen = button(t("Delete"), () => change(picked(), "delete"), { kind: "chip danger" });
  const bulk = h("div.note.bulk", { role: "group", aria: { label: t("Selected threads") }, hidden: true }, chosen,
    h("div.chips", {}, button(t("Select all"), () => pick(rows), { kind: "chip" }), archiveChosen, deleteChosen));
  const element = h("div.sidebar", { id: "threads", aria: { label: t("Threads") } },
    h("h1.sr-only.narrow-only", {}, t("Threads")),
    h("div.side-head", {}, button(t("New task"), actions.create, { kind: "primary wide", iconName: "plus" }), search,
      h("div.chips", {}, archivedToggle, batchToggle, selectToggle)),
    bulk, done, note, viewport);
  let rows = [];
  let next = null;
  let loading = null;
  let current = null;
  let timer = null;
  let revision = 0;
  let archived = false;
  let batch = false;
  let selecting = false;
  let lastPicked = null;
  const selected = new Set();

  const list = virtualList(viewport, content, {
    estimate: 58,
    render: (row) => drawRow(h("div.thread", { role: "listitem" }), row),
    update: (item, row) => drawRow(item, row),
    onScroll: ({ last }) => {
      markStop();
      if (next && !loading && last > rows.length - 12) more();
    },
  });
  content.addEventListener("focusin", () => markStop());
  element.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const index = list.indexOf(event.target.closest(".row")) + by;
    if (!by || !rows[index]) return;
    event.preventDefault();
    focusRow(index);
  });

  function focusRow(index) {
    if (rows[index]) list.reveal(index).querySelector(selecting ? "input" : "a").focus({ preventScroll: true });
    else search.focus();
  }

  /** The list is one stop for Tab, however long it is; arrows lead through it. */
  function markStop() {
    const items = [...content.children];
    const stop = items.find((item) => item.contains(document.activeElement))
      ?? items.find((item) => item.rowKey === current) ?? items[0];
    for (const item of items) {
      for (const control of item.querySelectorAll(CONTROLS)) control.tabIndex = item === stop ? 0 : -1;
    }
  }

  function drawRow(item, row) {
    const title = row.title || t("Untitled");
    const open = (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      actions.open(row.id);
    };
    const link = h("a.thread-link", { href: `/app/t/${encodeURIComponent(row.id)}`, on: { click: open },
      aria: { current: row.id === current ? "page" : undefined } },
    h("span.thread-title", { title }, title),
    row.found && h("span.thread-found", {}, unmarkedLine(row.found)),
    h("span.thread-meta", {}, h(`span.dot.${row.status}`, { aria: { hidden: "true" } }),
      h("span", {}, statusWord(row.status)), h("span", {}, row.agent), h("span", {}, ago(row.updated))));
    const tool = (act, iconName, text) => button("", act, { kind: "icon quiet small", iconName, title: text });
    const tools = selecting ? h("input.thread-check", { type: "checkbox", checked: selected.has(row.id),
      aria: { label: t("Select the thread {title}", { title }) }, on: { click: (event) => toggle(row, event) } })
      : h("div.thread-tools", {},
        tool(() => pin(row), row.pinned ? "unpin" : "pin", row.pinned ? t("Unpin the thread {title}", { title }) : t("Pin the thread {title}", { title })),
        tool(() => change([row], row.archived ? "unarchive" : "archive"), row.archived ? "unarchive" : "archive",
          row.archived ? t("Take the thread {title} out of the archive", { title }) : t("Archive the thread {title}", { title })),
        tool(() => change([row], "delete"), "trash", t("Delete the thread {title}", { title })));
    const at = [...item.querySelectorAll(CONTROLS)].indexOf(document.activeElement);
    fill(item, row.heading && h("h2.thread-group", {}, row.heading), h("div.thread-row", {}, link, tools));
    const controls = [...item.querySelectorAll(CONTROLS)];
    if (at >= 0) (controls[at] ?? link).focus({ preventScroll: true });
    for (const control of controls) control.tabIndex = at < 0 ? -1 : 0;
    return item;
  }

  async function pin(row) {
    try {
      await api.changeThread(row.id, { pinned: !row.pinned });
      await searchNow();
      focusRow(rows.findIndex((one) => one.id === row.id));
    } catch (error) {
      actions.problem(error);
    }
  }

  /** Archive or delete threads, a group after another, and offer to undo it if that can be done. */
  async function change(threads, action) {
    const [{ title }] = threads;
    if (action === "delete" && !await confirmDeletion(threads.length === 1
      ? t("Delete the thread {title}? Its files stay in the workspace.", { title: title || t("Untitled") })
      : tn(threads.length, "Delete {n} thread? Its files stay in the workspace.", "Delete {n} threads? Their files stay in their workspaces."))) return;
    const index = rows.indexOf(threads[0]);
    const ids = threads.map((one) => one.id);
    const changed = [];
    const refused = {};
    try {
      for (let at = 0; at < ids.length; at += AT_ONCE[action]) {
        const answer = await api.changeThreads(ids.slice(at, at + AT_ONCE[action]), action);
        changed.push(...answer.done);
        Object.assign(refused, answer.refused);
        remove(new Set(answer.done));
        report(changed, action);
      }
      const [why] = Object.values(refused);
      if (why) throw new Error(`${tn(Object.keys(refused).length, "{n} thread was not changed:", "{n} threads were not changed:")} ${why}`);
    } catch (error) {
      actions.problem(error);
    }
    if (action === "delete") changed.forEach((id) => actions.removed(id));
    if (changed.length) focusRow(Math.min(index, rows.length - 1));
    refresh();
  }

  function remove(ids) {
    loading?.abort(); // it may know them still
    loading = null;
    rows = rows.filter((one) => !ids.has(one.id));
    for (const id of ids) selected.delete(id);
    draw();
  }

  function report(ids, action) {
    const words = {
      archive: () => tn(ids.length, "{n} thread archived.", "{n} threads archived."),
      unarchive: () => tn(ids.length, "{n} thread is back in the list.", "{n} threads are back in the list."),
      delete: () => tn(ids.length, "{n} thread deleted.", "{n} threads deleted."),
    }[action]();
    fill(done, h("span", {}, words), UNDOES[action] && button(t("Undo"), async () => {
      fill(done);
      try {
        await api.changeThreads(ids, UNDOES[action]);
        await searchNow();
      } catch (error) {
        actions.problem(error);
      }
      focusRow(rows.findIndex((one) => one.id === ids[0]));
    }, { kind: "link" }));
  }

  const picked = () => rows.filter((one) => selected.has(one.id));

  function pick(threads, on = true) {
    for (const { id } of threads) {
      if (on) selected.add(id);
      else selected.delete(id);
    }
    redraw();
  }

  function toggle(row, event) {
    const [from, to] = [rows.findIndex((one) => one.id === lastPicked), rows.findIndex((one) => one.id === row.id)];
    const several = event.shiftKey && from >= 0 ? rows.slice(Math.min(from, to), Math.max(from, to) + 1) : [row];
    lastPicked = row.id;
    pick(several, event.target.checked);
  }

  function select(on) {
    selecting = on;
    selected.clear();
    selectToggle.setAttribute("aria-pressed", String(on));
    redraw();
  }

  function showArchived(on) {
    archived = on;
    archivedToggle.setAttribute("aria-pressed", String(on));
    archiveChosen.querySelector("span").textContent = on ? t("Unarchive") : t("Archive");
    select(false);
    searchNow();
  }

  function showBatches(on) {
    batch = on;
    batchToggle.setAttribute("aria-pressed", String(on));
    select(false);
    searchNow();
  }

  function take(threads) {
    revision += 1;
    return threads.map((one) => ({ ...one, key: one.id, revision }));
  }

  function redraw() {
    for (const row of rows) row.revision += 0.001;
    draw();
  }

  function draw() {
    let rank = -1;
    const now = new Date();
    for (const row of rows) {
      const own = row.pinned ? 0 : groupRank(row.updated, now);
      const heading = own > rank ? groupName(own, row.updated, now) : ""; // one that began before may end later
      rank = Math.max(rank, own);
      if (row.heading !== heading) row.revision += 0.001;
      row.heading = heading;
    }
    list.set(rows);
    note.textContent = rows.length ? "" : search.value ? t("No thread matches.") : archived ? t("No thread is archived.") : t("No threads yet.");
    bulk.hidden = !selecting;
    chosen.textContent = tn(selected.size, "{n} selected", "{n} selected");
    archiveChosen.disabled = deleteChosen.disabled = !selected.size;
  }

  function later(action, wait) {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  }

  /** Fetch the first page again; what was known behind it stays, if nothing is missing between. */
  async function refresh() {
    await fetchPage(null, (page) => {
      const fresh = new Map(page.threads.map((one) => [one.id, one.place]));
      const end = BigInt(page.threads.at(-1)?.place ?? 0);
      const joined = page.next && rows.some((one) => fresh.get(one.id) === one.place);
      const kept = joined ? rows.filter((one) => BigInt(one.place) < end && !fresh.has(one.id)) : [];
      if (!kept.length) next = page.next;
      rows = [...take(page.threads), ...kept];
    });
  }

  function searchNow() {
    rows = [];
    next = null;
    viewport.scrollTop = 0;
    loading?.abort();
    loading = null;
    return refresh();
  }

  function more() {
    return fetchPage(next, (page) => {
      const known = new Set(rows.map((one) => one.id));
      rows = [...rows, ...take(page.threads.filter((one) => !known.has(one.id)))];
      next = page.next;
    });
  }

  async function fetchPage(before, use) {
    if (loading) return;
    const mine = new AbortController();
    loading = mine;
    try {
      const page = await api.threads({ q: search.value.trim(), before, limit: PAGE, archived, batch }, mine.signal);
      if (loading !== mine) return;
      use(page);
      draw();
      if (!search.value && !archived && !batch) actions.waiting(rows.some((row) => row.status === "waiting"));
      actions.answered(true);
    } catch (error) {
      if (error.status === 0) actions.answered(false);
      else if (error.name !== "AbortError") note.textContent = error.message;
    } finally {
      if (loading === mine) loading = null;
    }
  }

  setInterval(() => { if (!document.hidden) refresh(); }, REFRESH_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  archivedToggle.setAttribute("aria-pressed", "false");
  batchToggle.setAttribute("aria-pressed", "false");
  selectToggle.setAttribute("aria-pressed", "false");

  return {
    element,
    search,
    refresh,
    /** Mark the thread that is open. */
    select(id) {
      if (id === current) return;
      current = id;
      if (id) fill(done); // what was done to the open thread is still to be read
      redraw();
    },
    /** Bring the newest thread into sight. */
    toTop() {
      viewport.scrollTop = 0;
    },
  };
}

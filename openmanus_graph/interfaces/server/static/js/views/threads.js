/** The list of threads: searched on the server, fetched by pages, drawn as far as it is in sight. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { ago } from "../format.js";
import { t } from "../i18n.js";
import { statusWord } from "../words/status.js";
import { virtualList } from "../virtual.js";

const PAGE = 50;
const REFRESH_MS = 10_000;

/**
 * Build the list.
 *
 * @param {object} actions  `open(id)`, `create()`, `removed(id)`, `problem(error)`.
 */
export function createThreads(actions) {
  const content = h("div.rows", { role: "list", aria: { label: t("Threads") } });
  const viewport = h("div.thread-list", {}, content);
  const search = h("input", { type: "search", id: "thread-search", placeholder: t("Search in all threads"),
    aria: { label: t("Search threads") }, on: { input: () => later(searchNow, 200) } });
  const note = h("div.muted.note", { role: "status" });
  const element = h("div.sidebar", { id: "threads", aria: { label: t("Threads") } },
    h("h1.sr-only.narrow-only", {}, t("Threads")),
    h("div.side-head", {}, button(t("New task"), actions.create, { kind: "primary wide", iconName: "plus" }), search),
    note, viewport);
  let rows = [];
  let next = null;
  let loading = null;
  let current = null;
  let timer = null;
  let revision = 0;

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
    list.reveal(index).querySelector("a").focus({ preventScroll: true });
  });

  /** The list is one stop for Tab, however long it is; arrows lead through it. */
  function markStop() {
    const items = [...content.children];
    const stop = items.find((item) => item.contains(document.activeElement))
      ?? items.find((item) => item.rowKey === current) ?? items[0];
    for (const item of items) {
      for (const control of item.children) control.tabIndex = item === stop ? 0 : -1;
    }
  }

  function drawRow(item, row) {
    const open = (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      actions.open(row.id);
    };
    const link = h("a.thread-link", { href: `/app/t/${encodeURIComponent(row.id)}`, on: { click: open },
      aria: { current: row.id === current ? "page" : undefined } },
    h("span.thread-title", { title: row.title }, row.title || t("Untitled")),
    row.found && h("span.thread-found", {}, row.found),
    h("span.thread-meta", {}, h(`span.dot.${row.status}`, { aria: { hidden: "true" } }),
      h("span", {}, statusWord(row.status)), h("span", {}, row.agent), h("span", {}, ago(row.updated))));
    const remove = button("", () => removeThread(row), { kind: "icon quiet", iconName: "trash",
      title: t("Delete the thread {title}", { title: row.title || t("Untitled") }) });
    const focused = item.contains(document.activeElement);
    fill(item, link, remove);
    if (focused) link.focus({ preventScroll: true });
    link.tabIndex = remove.tabIndex = focused ? 0 : -1;
    return item;
  }

  async function removeThread(row) {
    if (!window.confirm(t("Delete the thread {title}? Its files stay in the workspace.", { title: row.title || t("Untitled") }))) return;
    try {
      await api.deleteThread(row.id);
      rows = rows.filter((one) => one.id !== row.id);
      draw();
      actions.removed(row.id);
      search.focus();
    } catch (error) {
      actions.problem(error);
    }
  }

  function take(threads) {
    revision += 1;
    return threads.map((one) => ({ ...one, key: one.id, revision }));
  }

  function draw() {
    list.set(rows);
    note.textContent = rows.length ? "" : search.value ? t("No thread matches.") : t("No threads yet.");
  }

  function later(action, wait) {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  }

  /** Fetch the first page again; what is there behind its last known thread stays. */
  async function refresh() {
    await fetchPage(null, (page) => {
      const fresh = new Set(page.threads.map((one) => one.id));
      const seam = rows.findLastIndex((one) => fresh.has(one.id)); // -1: what is between is not known
      const kept = page.next && seam >= 0 ? rows.slice(seam + 1) : [];
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
      const page = await api.threads({ q: search.value.trim(), before, limit: PAGE }, mine.signal);
      if (loading !== mine) return;
      use(page);
      draw();
    } catch (error) {
      if (error.name !== "AbortError") note.textContent = error.message;
    } finally {
      if (loading === mine) loading = null;
    }
  }

  setInterval(() => { if (!document.hidden) refresh(); }, REFRESH_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

  return {
    element,
    search,
    refresh,
    /** Mark the thread that is open. */
    select(id) {
      if (id === current) return;
      current = id;
      for (const row of rows) row.revision += 0.001;
      list.set(rows);
    },
  };
}

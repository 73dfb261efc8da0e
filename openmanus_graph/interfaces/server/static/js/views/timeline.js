/** What happened, row by row: a windowed list that stays at the end while one is there. */

import { h, button, plain } from "../dom.js";
import { callTitle, duration } from "../format.js";
import { t } from "../i18n.js";
import { shownRows } from "../reducer.js";
import { virtualList } from "../virtual.js";
import { renderRow, updateRow } from "./rows.js";

/**
 * Build the timeline.
 *
 * @param {object} actions  `canGoBack(row)`, `file(path)` and `openFile(path)`; where it can be done,
 *   `goBack(row)`; where it works now, `output()`, which resolves to the newest line of what
 *   runs, by its resource; else `now()`, the time of what is shown.
 */
export function createTimeline(actions) {
  const content = h("div.rows", {});
  const viewport = h("div.timeline", { tabIndex: 0, role: "feed", aria: { label: t("What the agent does"), busy: "false" } }, content);
  const latest = button(t("Latest"), () => list.toEnd(), { kind: "latest", iconName: "down", hidden: true });
  const element = h("div.timeline-box", {}, viewport, latest);
  const open = new Map(); // what the person opened or closed, by row
  const chosen = new Map(); // of what was done again: the version that is shown, by the first one's row
  let rows = [];
  let session = null;

  const now = actions.now ?? Date.now;
  const context = {
    ...actions,
    isOpen: (row) => open.get(row.key),
    toggle(row, wanted = true) {
      open.set(row.key, wanted);
      redraw(row);
    },
    chosen: chosenOf,
    choose(versions, index) {
      chosen.set(versions[0].key, index);
      for (const row of versions) row.revision += 0.001;
      draw(0);
      list.reveal(rows.indexOf(versions[index]))?.focus({ preventScroll: true });
    },
    callName(callId) {
      const row = session.model.rows.findLast((one) => one.callId === callId);
      return row ? callTitle(row) : "";
    },
    isRunning: () => session?.model.status === "running",
    canGoBack: (row) => !row.open && !row.dropped && !row.ns && actions.canGoBack(),
  };

  const list = virtualList(viewport, content, {
    estimate: 44,
    follow: true,
    kept: (all) => (all.at(-1)?.kind === "final" ? all.findLastIndex((row) => (row.kind === "final" ? row.answer : row.kind === "think" && row.text && !row.ns)) : -1),
    render: (row) => renderRow(row, context),
    update: (item, row) => keepFocus(item, () => updateRow(item, row, context)),
    onScroll: ({ atEnd }) => { latest.hidden = atEnd || !rows.length; },
  });

  function redraw(row) {
    row.revision += 0.001; // the view changed, not what it shows
    draw(0);
  }

  function chosenOf(versions) {
    return chosen.get(versions[0].key) ?? versions.length - 1;
  }

  function draw(from) {
    const next = shownRows(session.model, (row) => open.get(row.key), chosenOf);
    list.set((rows = next), { from: next === session.model.rows ? from : 0 });
  }

  // A running call shows how long it has been running.
  setInterval(() => {
    if (session?.connection.connected === false) return; // nobody knows
    for (const item of content.querySelectorAll(".took[data-since]")) {
      const since = Date.parse(item.dataset.since);
      if (since) item.textContent = duration(Math.max(0, (now() - since) / 1000));
    }
    showOutput();
  }, 1000);
  let asking = false;

  /** Show what running calls have written by now. */
  async function showOutput() {
    const running = [...content.querySelectorAll(".preview[data-live]")].filter((one) => one.dataset.live);
    if (!actions.output || !running.length || asking || document.hidden) return;
    asking = true;
    try {
      const lines = await actions.output();
      for (const one of running) {
        one.textContent = plain(lines[one.dataset.live] ?? "");
        one.hidden = !one.textContent;
      }
    } catch {
      // the connection's own banner says it
    } finally {
      asking = false;
    }
  }

  return {
    element,
    viewport,
    show(next) {
      const known = next === session ? rows.length : 0;
      if (next !== session) {
        session = next;
        open.clear();
        chosen.clear();
        list.reset();
      }
      viewport.setAttribute("aria-busy", String(session.model.status === "running"));
      draw(known);
    },
    /** Redraw all rows in sight: what may be done with them changed. */
    refresh() {
      for (const row of rows) row.revision += 0.001;
      if (session) draw(0);
    },
    toEnd() {
      chosen.clear();
      if (session) draw(0);
      list.toEnd();
    },
    /** Move the focus by rows; from outside it begins with the last one. */
    move(by) {
      const current = document.activeElement?.closest?.(".row");
      const at = content.contains(current) ? list.indexOf(current) + by : rows.length - 1;
      const index = Math.min(Math.max(at, 0), rows.length - 1);
      if (index >= 0) list.reveal(index)?.focus({ preventScroll: true });
    },
    toggleFocused() {
      document.activeElement?.closest?.(".row")?.querySelector(".call-head")?.click();
    },
  };
}

/** A redraw must not take the focus from a control: the same one gets it again. */
function keepFocus(item, redraw) {
  const focused = item.contains(document.activeElement) ? document.activeElement : null;
  const controls = (root) => [...root.querySelectorAll("button, a, pre, [tabindex]")];
  const position = focused && focused !== item ? controls(item).indexOf(focused) : -1;
  redraw();
  if (position >= 0) (controls(item)[position] ?? item).focus({ preventScroll: true });
}

/** The dialog of what a step changed in the files, side by side. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";

const PLACE = /^@@ -(\d+)(?:,\d+)? \+(\d+)/;

/** Build the dialog; `open(thread, before, after)` shows what differs between two snapshots. */
export function createChanges() {
  const body = h("div.changes", { tabIndex: 0, role: "group", aria: { labelledby: "changes-title" } });
  const dialog = h("dialog.preview-dialog", { aria: { labelledby: "changes-title" } },
    h("header", {}, h("div.grow", {}, h("h2", { id: "changes-title" }, "What changed in the files")),
      button("Close", () => dialog.close(), { iconName: "cross" })),
    body);
  dialog.addEventListener("close", () => fill(body));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  return {
    element: dialog,
    async open(thread, before, after) {
      fill(body, h("p.empty", { role: "status" }, "Comparing…"));
      dialog.showModal();
      try {
        const { changes, truncated } = await api.changes(thread, before, after);
        const more = truncated && h("p.empty", {}, "More files changed: openmanus diff shows all.");
        fill(body, [...changes.map(fileOf), more]);
      } catch (error) {
        fill(body, h("p.error", { role: "alert" }, error.message));
      }
    },
  };
}

function fileOf(change) {
  const rows = rowsOf(change.diff);
  if (!rows.length) return h("p", {}, change.diff);
  return h("details", { open: true },
    h("summary", {}, h("span.tag", {}, change.change), " ", change.path),
    h("table.diff", {}, h("tbody", {}, rows.map(([before, after]) =>
      h("tr", {}, cells(before, "gone"), cells(after, "new"))))));
}

function cells(side, kind) {
  if (!side) return [h("td.number", {}), h("td.none", {})];
  return [h("td.number", {}, side.number), h(side.changed ? `td.${kind}` : "td", {}, side.text)];
}

/**
 * Put the lines of a unified diff side by side.
 *
 * @param {string} diff
 * @returns {Array<[object|null, object|null]>}  Old and new line: `number`, `text`, `changed`.
 */
export function rowsOf(diff) {
  const rows = [];
  let removed = [];
  let before = 0;
  let after = 0;
  const flush = () => {
    rows.push(...removed.map((line) => [line, null]));
    removed = [];
  };
  for (const line of diff.split("\n").slice(2)) {
    const mark = line[0];
    const text = line.slice(1);
    const place = PLACE.exec(line);
    if (place) {
      flush();
      [before, after] = [Number(place[1]), Number(place[2])];
    } else if (mark === "-") {
      removed.push({ number: before++, text, changed: true });
    } else if (mark === "+") {
      rows.push([removed.shift() ?? null, { number: after++, text, changed: true }]);
    } else if (mark === " ") {
      flush();
      rows.push([{ number: before++, text }, { number: after++, text }]);
    }
  }
  flush();
  return rows;
}

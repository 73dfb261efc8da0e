/** The dialog of what a step changed in the files, side by side. */

import * as api from "../api.js";
import { sideBySide } from "../diff.js";
import { button, fill, h } from "../dom.js";
import { bytes } from "../format.js";
import { t, tn } from "../i18n.js";

const MOST_ROWS = 1500;
const WORDS = { added: t("added"), removed: t("removed"), changed: t("changed") };
const KINDS = { file: t("file"), folder: t("folder"), link: t("link"), "left out": t("left out") };

/** Build the dialog; `open(thread, before, after)` shows what differs between two snapshots. */
export function createChanges() {
  const body = h("div.changes", { tabIndex: 0, role: "group", aria: { labelledby: "changes-title" } });
  const dialog = h("dialog.preview-dialog", { aria: { labelledby: "changes-title" } },
    h("header", {}, h("div.grow", {}, h("h2", { id: "changes-title" }, t("What changed in the files"))),
      button(t("Close"), () => dialog.close(), { iconName: "cross" })),
    body);
  dialog.addEventListener("close", () => fill(body));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  return {
    element: dialog,
    async open(thread, before, after) {
      fill(body, h("p.empty", { role: "status" }, t("Loading…")));
      dialog.showModal();
      try {
        const { changes, truncated } = await api.changes(thread, before, after);
        const more = truncated && h("p.empty", {}, t("More files changed: openmanus diff shows all."));
        fill(body, [...changes.map(fileOf), more]);
      } catch (error) {
        fill(body, h("p.error", { role: "alert" }, error.message));
      }
    },
  };
}

function fileOf(change) {
  const rows = sideBySide(change.diff);
  const count = (side) => rows.filter((row) => row[side]?.changed).length;
  const left = rows.length - MOST_ROWS;
  return h("details.diff", { open: true },
    h("summary.diff-head", {},
      h("span.diff-path", {}, h("span.tag", {}, WORDS[change.change]), ` ${change.path}`),
      rows.length > 0 && h("span.diff-count", {},
        h("span.plus", {}, `+${count("after")}`), " ", h("span.minus", {}, `−${count("before")}`))),
    rows.length === 0 && h("p.diff-facts", {}, `${entryOf(change.before)} → ${entryOf(change.after)}`),
    h("table.sides", {},
      h("colgroup", {}, h("col.numbers", {}), h("col", {}), h("col.numbers", {}), h("col", {})),
      h("tbody", {}, rows.slice(0, MOST_ROWS).map(rowOf))),
    left > 0 && h("div.line.skipped", {}, tn(left, "{n} more line", "{n} more lines")));
}

/** Say what a path was or is, where its lines are not compared. */
function entryOf(entry) {
  if (!entry) return t("nothing");
  const facts = { file: [bytes(entry.size), entry.mode], folder: [entry.mode], link: [entry.target] }[entry.kind] ?? [];
  return [KINDS[entry.kind], ...facts].join(" · ");
}

function rowOf({ before, after, skipped }) {
  if (skipped) return h("tr.line-skipped", {}, h("td", { colSpan: 4 }, tn(skipped, "{n} equal line", "{n} equal lines")));
  const equal = before && !before.changed;
  return h(equal ? "tr.line-equal" : "tr", {}, cellsOf(before, "removed"), cellsOf(after, "added"));
}

function cellsOf(line, kind) {
  if (!line) return [h("td.number.none", {}), h("td.none", {})];
  const number = h("td.number", {}, line.number);
  if (!line.changed) return [number, h("td", {}, line.text)];
  return [number, h(`td.${kind}`, {}, h("span.sr-only", {}, `${WORDS[kind]}: `), line.text)];
}

/** An edit as lines that were taken out and put in. */

import { changedLines } from "../diff.js";
import { h } from "../dom.js";
import { t, tn } from "../i18n.js";

const SIGNS = { added: "+", removed: "−", same: " " };
const MOST_LINES = 1500;

/** Return the element of an edit, as `editOf` returns it. */
export function difference(edit) {
  const lines = changedLines(edit.before, edit.after);
  const count = (kind) => lines.filter((line) => line.kind === kind).length;
  const left = lines.length - MOST_LINES;
  return h("div.diff", { tabIndex: 0, role: "group", aria: { label: t("Changes to {path}", { path: edit.path }) } },
    h("div.diff-head", {}, h("span.diff-path", {}, edit.path),
      h("span.diff-count", {}, h("span.plus", {}, `+${count("added")}`), " ", h("span.minus", {}, `−${count("removed")}`))),
    h("div.diff-lines", {}, lines.slice(0, MOST_LINES).map(lineOf),
      left > 0 && h("div.line.skipped", {}, tn(left, "{n} more line", "{n} more lines"))));
}

function lineOf({ kind, text }) {
  if (kind === "skipped") return h("div.line.skipped", {}, tn(Number(text), "{n} equal line", "{n} equal lines"));
  const word = { added: t("added"), removed: t("removed") }[kind];
  return h(`div.line.${kind}`, {}, h("span.sign", { aria: { hidden: "true" } }, SIGNS[kind]),
    word && h("span.sr-only", {}, `${word}: `), h("span.text", {}, text || " "));
}

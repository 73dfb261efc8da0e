/** What an edit changes, line by line: jsdiff compares, this leaves out what stays the same. Pure. */

import { diffLines } from "../vendor/jsdiff/diff/line.js";

const CONTEXT_LINES = 3;
const MOST_CHARS = 400_000;
const TIMEOUT_MS = 300;

/** Return the edit that a call asks for, `{path, before, after}`, or null. */
export function editOf(tool, args) {
  if (tool !== "str_replace_editor" || typeof args?.path !== "string") return null;
  const texts = {
    str_replace: [args.old_str, args.new_str ?? ""],
    insert: ["", args.new_str],
    create: ["", args.file_text],
  }[args.command];
  if (!texts?.every((text) => typeof text === "string") || texts.join("").length > MOST_CHARS) return null;
  return { path: args.path, command: args.command, before: texts[0], after: texts[1] };
}

/**
 * Compare two texts.
 *
 * @returns {Array<{kind: "same"|"added"|"removed"|"skipped", text: string}>}  One entry a line;
 *   `skipped` has the number of equal lines that are left out as its text.
 */
export function changedLines(before, after) {
  const changes = diffLines(ended(before), ended(after), { timeout: TIMEOUT_MS })
    ?? [{ removed: true, value: before }, { added: true, value: after }]; // it took too long
  return changes.flatMap(({ added, removed, value }, position) => {
    const lines = value.replace(/\n$/, "").split("\n");
    const kind = added ? "added" : removed ? "removed" : "same";
    const kept = lines.map((text) => ({ kind, text }));
    if (kind !== "same") return kept;
    const head = position === 0 ? 0 : CONTEXT_LINES;
    const tail = position === changes.length - 1 ? 0 : CONTEXT_LINES;
    const left = lines.length - head - tail;
    if (left <= 1) return kept;
    return [...kept.slice(0, head), { kind: "skipped", text: String(left) }, ...kept.slice(lines.length - tail)];
  });
}

function ended(text) {
  return text && !text.endsWith("\n") ? `${text}\n` : text;
}

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)/;

/**
 * Put the lines of a unified diff side by side.
 *
 * @param {string} diff
 * @returns {Array<{before?: object, after?: object, skipped?: number}>}  A row each: the old and the
 *   new line (`number`, `text`, `changed`), or how many equal lines are left out. None if it is not a diff.
 */
export function sideBySide(diff) {
  const rows = [];
  let removed = [];
  let before = 1;
  let after = 1;
  const flush = () => {
    rows.push(...removed.map((line) => ({ before: line })));
    removed = [];
  };
  for (const line of diff.split("\n").slice(2)) {
    const text = line.slice(1);
    const hunk = HUNK.exec(line);
    if (hunk) {
      flush();
      if (Number(hunk[1]) > before) rows.push({ skipped: Number(hunk[1]) - before });
      [before, after] = [Number(hunk[1]), Number(hunk[2])];
    } else if (line[0] === "-") {
      removed.push({ number: before++, text, changed: true });
    } else if (line[0] === "+") {
      rows.push({ before: removed.shift(), after: { number: after++, text, changed: true } });
    } else if (line[0] === " ") {
      flush();
      rows.push({ before: { number: before++, text }, after: { number: after++, text } });
    }
  }
  flush();
  return rows;
}

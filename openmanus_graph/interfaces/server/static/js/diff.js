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

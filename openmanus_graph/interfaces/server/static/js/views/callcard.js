/** One tool call: what is run, how it went, and on demand all of its arguments and output. */

import { h, icon } from "../dom.js";
import { copyButton } from "./copy.js";
import { callSummary, duration, firstLine } from "../format.js";

const SHOWN_CHARS = 60_000;

/** Return the label and the elements of a call's row. */
export function callCard(row, context) {
  const open = context.isOpen(row) ?? row.ok === false;
  const [state, word] = stateOf(row);
  const summary = callSummary(row.args);
  const head = h("button.call-head", {
    type: "button",
    aria: { expanded: String(open) },
    on: { click: () => context.toggle(row, !open) },
  },
    h(`span.state.${state}`, { title: word }, state === "running" ? h("span.spinner") : icon(ICONS[state])),
    h("span.tool", {}, row.tool),
    h("span.summary", {}, summary),
    h("span.took", { data: { since: state === "running" ? row.ts : "" } },
      row.seconds === null ? word : duration(row.seconds)),
    icon(open ? "up" : "down"),
  );
  const preview = !open && row.ok !== null && firstLine(row.output, 160);
  return [
    `${row.tool}, ${word}`,
    h(`div.call.${state}`, {}, head,
      preview && h("div.preview", {}, preview),
      open && details(row)),
  ];
}

const ICONS = { ok: "check", bad: "cross", waiting: "hand", cut: "stop" };

function stateOf(row) {
  if (row.waiting) return ["waiting", "waits for you"];
  if (row.cut) return ["cut", "cut off"];
  if (row.ok === null) return ["running", "running"];
  return row.ok ? ["ok", "done"] : ["bad", "failed"];
}

function details(row) {
  return h("div.call-body", {},
    Object.entries(row.args ?? {}).map(([name, value]) => argument(name, value)),
    row.ok !== null && section("Output", row.output || "(nothing)", row.ok ? "" : "bad"));
}

function argument(name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  if (text.length < 80 && !text.includes("\n")) {
    return h("div.arg", {}, h("span.arg-name", {}, name), " ", h("code", {}, text));
  }
  return section(name, text);
}

function section(name, text, kind = "") {
  const left = text.length - SHOWN_CHARS;
  const shown = left > 0 ? `${text.slice(0, SHOWN_CHARS)}\n… ${left} more characters` : text;
  return [
    h("div.arg-head", {}, h("span.arg-name", {}, name), copyButton(text, name)),
    h(kind ? `pre.code.${kind}` : "pre.code", { tabIndex: 0, aria: { label: name }, role: "group" }, shown),
  ];
}

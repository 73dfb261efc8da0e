/** One tool call: what is run, how it went, and on demand all of its arguments and output. */

import { copyButton } from "../copy.js";
import { editOf } from "../diff.js";
import { h, icon } from "../dom.js";
import { callTitle, duration, firstLine, withoutMark } from "../format.js";
import { colour } from "../highlight.js";
import { t } from "../i18n.js";
import { markdown } from "../markdown.js";
import { difference } from "./difference.js";

/** What these return is shown by other rows. */
const SAID_ELSEWHERE = new Set(["delegate", "terminate", "planning"]);
const SHOWN_CHARS = 60_000;
const LIVE = { bash: "bash", python_execute: "python" };
const CODE = { code: "python", command: "bash" };

/** Return the label and the elements of a call's row. */
export function callCard(row, context) {
  const open = context.isOpen(row) ?? row.ok === false;
  const [state, word] = stateOf(row);
  const edit = editOf(row.tool, row.args);
  const title = callTitle(row);
  const head = h("button.call-head", {
    type: "button",
    aria: { expanded: String(open) },
    on: { click: () => context.toggle(row, !open) },
  },
    h(`span.state.${state}`, { title: word }, state === "running" ? h("span.spinner") : icon(ICONS[state])),
    h("span.summary", { title }, title),
    !title.startsWith(row.tool) && h("span.tool", {}, row.tool),
    h("span.took", { data: { since: state === "running" ? row.ts : "" } },
      row.seconds ? duration(row.seconds) : word),
    icon(open ? "up" : "down"),
  );
  const preview = !open && row.ok !== null && !SAID_ELSEWHERE.has(row.tool) && firstLine(withoutMark(row.output), 160);
  return [
    `${title}, ${word}`,
    h(`div.call.${state}`, {}, head,
      preview && h("div.preview", {}, preview),
      state === "running" && h("div.preview", { hidden: true, data: { live: LIVE[row.tool] ?? "" } }),
      open && details(row, edit, context)),
  ];
}

const ICONS = { ok: "check", bad: "cross", waiting: "hand", cut: "stop" };

function stateOf(row) {
  if (row.waiting) return ["waiting", t("waits for you")];
  if (row.cut) return ["cut", t("cut off")];
  if (row.ok === null) return ["running", t("running")];
  return row.ok ? ["ok", t("done")] : ["bad", t("failed")];
}

function details(row, edit, context) {
  return h("div.call-body", {},
    edit ? difference(edit) : row.tool === "ask_human" ? markdown(String(row.args?.inquire ?? ""), context)
      : Object.entries(row.args ?? {}).map(([name, value]) => argument(row, name, value)),
    row.ok !== null && section(t("Output"), withoutMark(row.output) || t("(nothing)"), { kind: row.ok ? "" : "bad" }));
}

function argument(row, name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  if (text.length < 80 && !text.includes("\n")) {
    return h("div.arg", {}, h("span.arg-name", {}, name), " ", h("code", {}, text));
  }
  const written = typeof value === "string";
  return section(name, text, { code: !written ? "json" : LIVE[row.tool] ? CODE[name] ?? "" : "" });
}

function section(name, text, { kind = "", code = "" }) {
  const left = text.length - SHOWN_CHARS;
  const shown = left > 0 ? `${text.slice(0, SHOWN_CHARS)}\n${t("… {n} more characters", { n: left })}` : text;
  const pre = h(kind ? `pre.code.${kind}` : "pre.code", { tabIndex: 0, aria: { label: name }, role: "group" }, shown);
  return [
    h("div.arg-head", {}, h("span.arg-name", {}, name), copyButton(text, name)),
    code ? colour(pre, shown, code) : pre,
  ];
}

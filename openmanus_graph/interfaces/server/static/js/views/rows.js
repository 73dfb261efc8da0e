/** The rows of the timeline, by kind. Each renderer fills an article; calls have their own module. */

import { h, fill, icon, button } from "../dom.js";
import { callSummary, clock, count, duration, money, plural } from "../format.js";
import { markdown } from "../markdown.js";
import { answerWords, planMark, statusSentence } from "../words.js";
import { callCard } from "./callcard.js";

const MARKDOWN_WHILE_OPEN = 20_000;

/** Build the element of a row. */
export function renderRow(row, context) {
  const element = h("article", { tabIndex: -1, data: { ts: row.ts } });
  updateRow(element, row, context);
  return element;
}

/** Bring the element of a row up to date. */
export function updateRow(element, row, context) {
  element.className = `row row-${row.kind}`;
  element.classList.toggle("dropped", row.dropped);
  element.classList.toggle("nested", row.ns !== "");
  const [label, ...children] = (KINDS[row.kind] ?? unknown)(row, context);
  element.setAttribute("aria-label", row.dropped ? `${label}, taken back` : label);
  fill(element, row.ns && h("span.ns", { title: `Step of the plan: ${row.ns}` }, row.ns), ...children);
}

const unknown = () => [""];

const KINDS = {
  task: (row, context) => [
    "Task",
    h("div.bubble", {}, h("div.bubble-head", {}, "You", row.agent && ` → ${row.agent}`, time(row)),
      longText(row, row.text, context)),
  ],

  steer: (row, context) => [
    "Your correction",
    h("div.bubble.steer", {}, h("div.bubble-head", {}, "You, while it ran", time(row)),
      longText(row, row.text, context)),
  ],

  again: (row, context) => [
    "Tried again from an earlier step",
    mark("history", "Tried again from here", row),
    row.text && h("div.bubble", {}, longText(row, row.text, context)),
  ],

  resume: (row) => ["Resumed", mark("play", "Resumed", row)],

  think: (row, context) => [
    `Step ${row.step}`,
    h("div.step-head", {},
      h("span.step-no", {}, `Step ${row.step}`),
      row.open && h("span.spinner", { aria: { hidden: "true" } }),
      row.open && !row.text && h("span", {}, "thinking…"),
      !row.open && h("span", {}, stepFacts(row)),
      context.canGoBack(row) && button("Try again from here",
        () => context.goBack(row), { kind: "link quiet", iconName: "history" })),
    row.text && said(row, context),
  ],

  call: (row, context) => callCard(row, context),

  notice: (row) => [`${row.level}`, h(`div.notice.${row.level}`, { }, icon("info"), h("span", {}, row.text), time(row))],

  step: (row) => {
    const [sign, words] = planMark(row.status);
    const verb = row.begins ? "begins" : words;
    return [`Plan step ${row.id} ${verb}`,
      h("div.plan-line", {}, h(`span.mark.${row.status}`, { aria: { hidden: "true" } }, sign),
        h("strong", {}, row.id), h("span", {}, row.text || row.executor), h("span.muted", {}, verb))];
  },

  question: (row) => (row.answer === null
    ? ["Question to you", mark("hand", "Waiting for your answer", row)]
    : row.asks === "approval" && row.calls.length ? decided(row)
    : ["Question to you, answered", h("div.asked", {}, icon("hand"), h("div.grow", {},
      h("div.pre", {}, row.text), h("div.pre.muted", {}, answerWords(row.answer))), time(row))]),

  final: (row, context) => [
    "Result",
    h(`div.final.${row.status}`, {},
      h("div.final-head", {}, icon(row.status === "finished" ? "check" : "stop"),
        h("strong", {}, statusSentence(row.status, row.stopReason)),
        h("span.muted", {}, [plural(row.steps, "step"), money(row.usage.cost_usd),
          `${count(row.usage.input_tokens + row.usage.output_tokens)} tokens`].join(" · ")),
        time(row)),
      row.answer && markdown(row.answer, context),
      row.structured !== null && h("pre.code", { tabIndex: 0 }, JSON.stringify(row.structured, null, 2)),
      row.artifacts.length > 0 && h("div.chips", {}, row.artifacts.slice(0, 24).map((file) =>
        button(file.path, () => context.openFile(file.path), { kind: "chip", iconName: "file" })))),
  ],
};

function decided(row) {
  const [call] = row.calls;
  const words = answerWords(row.answer);
  return [`Your decision: ${words}`, h("div.decided", {}, icon("hand"), h("strong", {}, words),
    h("span.tool", {}, call.tool), h("span.summary", {}, callSummary(call.args)), time(row))];
}

function said(row, context) {
  const plainText = row.open && row.text.length > MARKDOWN_WHILE_OPEN;
  const body = plainText ? h("div.pre", {}, row.text) : markdown(row.text, context);
  body.classList.toggle("streaming", row.open);
  return body;
}

function stepFacts(row) {
  if (!row.usage) return "cut off";
  const { input_tokens: input, cached_tokens: cached, output_tokens: output, cost_usd: cost } = row.usage;
  const tokens = `${count(input)} in${cached ? ` (${count(cached)} cached)` : ""}, ${count(output)} out`;
  return [duration(row.seconds), tokens, cost ? money(cost) : ""].filter(Boolean).join(" · ");
}

function longText(row, text, context) {
  const long = text.length > 1200 && !context.isOpen(row);
  return [
    h("div.pre", {}, long ? `${text.slice(0, 1000)}…` : text),
    long && button("Show all", () => context.toggle(row), { kind: "link" }),
  ];
}

function mark(iconName, text, row) {
  return h("div.divider", {}, icon(iconName), h("span", {}, text), time(row));
}

function time(row) {
  return h("time", { dateTime: row.ts }, clock(row.ts));
}

/** The rows of the timeline, by kind. Each renderer fills an article; calls have their own module. */

import { copyButton } from "../copy.js";
import { h, fill, icon, button } from "../dom.js";
import { callSummary, clock, count, duration, money } from "../format.js";
import { t, tn } from "../i18n.js";
import { markdown } from "../markdown.js";
import { answerWords, planMark, statusSentence } from "../words/status.js";
import { callCard } from "./callcard.js";
import { countOfClaims, markClaims } from "./claims.js";

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
  element.setAttribute("aria-label", row.dropped ? `${label}, ${t("taken back")}` : label);
  fill(element, row.ns && h("span.ns", { title: t("Part of the work: {id}", { id: row.ns }) }, row.ns), ...children);
}

const unknown = () => [""];

const KINDS = {
  task: (row, context) => [
    t("Task"),
    h("div.bubble", {}, h("div.bubble-head", {}, t("You"), row.agent && ` → ${row.agent}`, time(row)),
      longText(row, row.text, context)),
  ],

  steer: (row, context) => [
    t("Your correction"),
    h("div.bubble.steer", {}, h("div.bubble-head", {}, t("You, while it ran"), time(row)),
      longText(row, row.text, context)),
  ],

  again: (row, context) => [
    t("Tried again from an earlier step"),
    mark("history", t("Tried again from here"), row),
    row.text && h("div.bubble", {}, longText(row, row.text, context)),
  ],

  resume: (row) => [t("Resumed"), mark("play", t("Resumed"), row)],

  think: (row, context) => [
    t("Step {n}", { n: row.step }),
    h("div.step-head", {},
      h("span.step-no", {}, t("Step {n}", { n: row.step })),
      row.open && h("span.spinner", { aria: { hidden: "true" } }),
      row.open && !row.text && h("span", {}, t("thinking…")),
      !row.open && h("span.step-facts", {}, stepFacts(row)),
      h("span.grow"),
      !row.open && isLong(row.text) && copyButton(row.text, t("text")),
      context.canGoBack(row) && button(t("Try again from here"),
        () => context.goBack(row), { kind: "link quiet", iconName: "history", title: t("Try again from here") })),
    row.text && said(row, context),
  ],

  call: (row, context) => callCard(row, context),

  notice: (row) => [`${row.level}`, h(`div.notice.${row.level}`, { }, icon("info"), h("span", {}, row.text), time(row))],

  step: (row) => {
    const [sign, words] = planMark(row.status);
    const verb = row.goesOn ? t("goes on") : row.begins ? t("begins") : words;
    return [t(row.subagent ? "Subagent {id}: {state}" : "Plan step {id}: {state}", { id: row.id, state: verb }),
      h("div.plan-line", {}, h(`span.mark.${row.status}`, { aria: { hidden: "true" } }, sign),
        h("strong", {}, row.id), h("span", {}, row.text || row.executor), h("span.muted", {}, verb))];
  },

  question: (row) => (row.answer === null
    ? [t("Question to you"), mark("hand", t("Waiting for your answer"), row)]
    : row.asks === "approval" && row.calls.length ? decided(row)
    : [t("Question to you, answered"), h("div.asked", {}, icon("hand"), h("div.grow", {},
      h("div.pre", {}, row.text), h("div.pre.muted", {}, answerWords(row.answer))), time(row))]),

  final: (row, context) => [
    t("Result"),
    h(`div.final.${row.status}`, {},
      h("div.final-head", {}, icon(row.status === "finished" ? "check" : "stop"),
        h("strong", {}, statusSentence(row.status, row.stopReason)),
        h("span.muted", {}, facts(row).join(" · ")),
        h("span.grow"), row.answer && copyButton(row.answer, t("answer")),
        time(row)),
      row.answer && markClaims(markdown(row.answer, context), row.sources),
      row.structured !== null && h("pre.code", { tabIndex: 0 }, JSON.stringify(row.structured, null, 2)),
      row.artifacts.length > 0 && h("div.chips", {}, row.artifacts.slice(0, 24).map((file) =>
        context.openFile ? button(file.path, () => context.openFile(file.path), { kind: "chip", iconName: "file" })
          : h("span.chip.named", {}, file.path)))),
  ],
};

/** Whether a text is worth a button that copies it. */
const isLong = (text) => text.length > 160 || text.includes("\n");

function facts({ steps, planned, done, usage, claims }) {
  const tokens = count(usage.input_tokens + usage.output_tokens);
  const taken = planned ? t("{done} of {n} steps completed", { done, n: planned }) : tn(steps, "{n} step", "{n} steps");
  return [taken, money(usage.cost_usd), t("{n} tokens", { n: tokens }), countOfClaims(claims)].filter(Boolean);
}

function decided(row) {
  const [call] = row.calls;
  const words = answerWords(row.answer);
  return [t("Your decision: {words}", { words }), h("div.decided", {}, icon("hand"), h("strong", {}, words),
    h("span.tool", {}, call.tool), h("span.summary", {}, callSummary(call.args)), time(row))];
}

function said(row, context) {
  const plainText = row.open && row.text.length > MARKDOWN_WHILE_OPEN;
  const body = plainText ? h("div.pre", {}, row.text) : markdown(row.text, { ...context, growing: row.open });
  body.classList.toggle("streaming", row.open);
  return row.sources ? markClaims(body, row.sources) : body;
}

function stepFacts(row) {
  if (!row.usage) return t("cut off");
  const { input_tokens: input, cached_tokens: cached, output_tokens: output, cost_usd: cost } = row.usage;
  const tokens = !input && !output ? [] : [t("{n} in", { n: count(input) }), cached ? t("{n} cached", { n: count(cached) }) : "", t("{n} out", { n: count(output) })];
  return [row.seconds ? duration(row.seconds) : "", ...tokens, cost ? money(cost) : ""].filter(Boolean).join(" · ");
}

function longText(row, text, context) {
  const long = text.length > 1200 && !context.isOpen(row);
  return [
    h("div.pre", {}, long ? `${text.slice(0, 1000)}…` : text),
    long && button(t("Show all"), () => context.toggle(row), { kind: "link" }),
  ];
}

function mark(iconName, text, row) {
  return h("div.divider", {}, icon(iconName), h("span", {}, text), time(row));
}

function time(row) {
  return h("time", { dateTime: row.ts }, clock(row.ts));
}

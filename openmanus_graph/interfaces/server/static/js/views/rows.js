/** The rows of the timeline, by kind. Each renderer fills an article; calls have their own module. */

import { copyButton } from "../copy.js";
import { h, fill, icon, button } from "../dom.js";
import { callTitle, clock, count, duration, money } from "../format.js";
import { t, tn } from "../i18n.js";
import { markdown } from "../markdown.js";
import { answerWords, planMark, statusSentence } from "../words/status.js";
import { artifactCard, inlineFiles } from "./artifact.js";
import { callCard } from "./callcard.js";
import { countOfClaims, markClaims } from "./claims.js";

const MARKDOWN_WHILE_OPEN = 20_000;
const SHOWN_REASONING = 60_000;
const SHOWN_WHILE_GROWING = 4_000;
const MOST_NAMED = 24; // files of a result

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
  fill(element, row.ns && row.group === undefined && h("span.ns", {}, row.ns), 
    ...children, row.versions?.length > 1 && switcher(row, context));
}

const unknown = () => [""];

const KINDS = {
  task: (row, context) => [
    t("Task"),
    message(row, context),
  ],

  steer: (row, context) => [
    t("Your correction"),
    h("div.bubble.steer", {}, h("div.bubble-head", {}, t("You, while it ran"), time(row)),
      longText(row, row.text, context)),
  ],

  again: (row, context) => (row.edited ? [t("Edited message"), message(row, context)] : [
    t("Tried again from an earlier step"),
    mark("history", t("Tried again from here"), row),
    row.text && h("div.bubble", {}, longText(row, row.text, context)),
  ]),

  resume: (row) => [t("Resumed"), mark("play", t("Resumed"), row)],

  think: (row, context) => [
    t("Step {n}", { n: row.step }),
    h("div.step-head", {},
      h("span.step-no", {}, t("Step {n}", { n: row.step })),
      row.open && h("span.spinner", { aria: { hidden: "true" } }),
      row.open && !row.text && !row.reasoning && h("span", {}, t("thinking…")),
      !row.open && h("span.step-facts", {}, stepFacts(row)),
      h("span.grow"),
      !row.open && isLong(row.text) && copyButton(row.text, t("text")),
      context.canGoBack(row) && button(t("Try again from here"),
        () => context.goBack(row), { kind: "link quiet", iconName: "history", title: t("Try again from here") })),
    row.reasoning && reasoning(row, context),
    row.text && said(row, context),
  ],

  call: (row, context) => callCard(row, context),

  notice: (row) => [`${row.level}`, h(`div.notice.${row.level}`, { }, icon("info"), h("span", {}, row.text), row.times > 1 && h("span.tag", {}, `× ${row.times}`), time(row))],

  step: (row, context) => stepCard(row, context),

  question: (row, context) => (row.answer === null
    ? [t("Question to you"), mark("hand", t("Waiting for your answer"), row)]
    : row.asks === "approval" && row.calls.length ? decided(row)
    : [t("Question to you, answered"), h("div.asked", {}, icon("hand"), h("div.grow", {},
      markdown(row.text, context), h("div.pre.muted", {}, answerWords(row.answer))), time(row))]),

  final: (row, context) => [
    t("Result"),
    h(`div.final.${row.status}`, {},
      h("div.final-head", {}, icon(row.status === "finished" ? "check" : "stop"),
        h("strong", {}, statusSentence(row.status, row.stopReason)),
        h("span.muted", {}, facts(row).join(" · ")),
        h("span.grow"), row.answer && copyButton(row.answer, t("answer")),
        row.thought && !row.structured && context.regenerate && context.canGoBack(row) && button(t("Regenerate"), () => context.regenerate(row), { kind: "link quiet", iconName: "history", title: t("Ask the model for the last answer again") }),
        time(row)),
      row.answer && markClaims(markdown(row.answer, context), row.sources, context.callName),
      row.structured !== null && h("pre.code", { tabIndex: 0 }, JSON.stringify(row.structured, null, 2)),
      ...results(row, context)),
  ],
};

/** A step of the plan or a subagent: how it stands, what it does just now, its time and its cost. */
function stepCard(row, context) {
  const open = Boolean(context.isOpen(row));
  const [sign, words] = planMark(row.status);
  const runs = row.status === "in_progress" && context.isRunning();
  return [t(row.subagent ? "Subagent {id}: {state}" : "Plan step {id}: {state}", { id: row.id, state: words }),
    h(`div.call.group.${row.status}`, {},
      h("button.call-head", { type: "button", aria: { expanded: String(open) }, on: { click: () => context.toggle(row, !open) } },
        runs ? h("span.spinner") : h(`span.mark.${row.status}`, { aria: { hidden: "true" } }, sign),
        h("span.group-name", {}, row.id), h("span.group-text.grow", { title: row.text }, row.text),
        h("span.facts", {}, [words, row.parts > 0 && tn(row.parts, "{n} call", "{n} calls"), row.cost ? money(row.cost) : ""].filter(Boolean).join(" · ")),
        h("span.took", { data: { since: runs ? row.begun : "" } }, row.seconds ? duration(row.seconds) : ""),
        icon(open ? "up" : "down")),
      runs && row.newest && !open && h("div.preview", {}, callTitle(row.newest)))];
}

/** The files of a result: those worth looking at as they are, unless the answer shows them, and the names of the others. */
function results(row, context) {
  const known = row.fresh.map(context.file).filter(Boolean);
  const pictured = new Set([...row.said.matchAll(/!\[[^\]]{0,300}\]\((?:\.\/)?([^)\s]+)/g)].map(([, path]) => path));
  const shown = row.dropped ? [] : inlineFiles(known.filter((file) => !pictured.has(file.path)));
  const others = row.artifacts.filter((file) => !shown.some((one) => one.path === file.path));
  return [
    shown.length > 0 && h("div.artifacts", {}, shown.map((file) => artifactCard(file, context))),
    others.length > 0 && h("div.chips", {}, others.slice(0, MOST_NAMED).map(({ path }) => (context.file(path) || context.output
      ? button(path, () => context.openFile(path), { kind: "chip", iconName: "file" }) : h("span.chip.named", {}, path))),
    others.length > MOST_NAMED && h("span.muted", {}, t("and {n} more", { n: others.length - MOST_NAMED }))),
  ];
}

/** What the model thinks before it answers: closed until somebody wants to read it. */
function reasoning(row, context) {
  const open = Boolean(context.isOpen(row));
  const grows = row.open && !row.text;
  const title = grows ? t("Thinking") : row.reasonedS ? t("Thought for {time}", { time: duration(row.reasonedS) }) : t("Thought");
  const known = growing.get(row);
  const { block, text } = grows && known?.open === open && known.title === title ? known : thoughtBlock(row, context, { open, grows, title });
  growing.set(row, { block, text, open, title });
  if (!open) return block;
  const left = row.reasoning.length - SHOWN_REASONING;
  if (grows) fill(text, h("div", {}, row.reasoning.slice(-SHOWN_WHILE_GROWING))); // its end
  else fill(text, row.reasoning.slice(0, SHOWN_REASONING), left > 0 && `\n${t("… {n} more characters", { n: left })}`);
  return block;
}

const growing = new WeakMap(); // the block of a row that grows stays the same, so that it can be clicked

function thoughtBlock(row, context, { open, grows, title }) {
  const text = h("div.pre", { tabIndex: 0, role: "group", aria: { label: title } });
  text.classList.toggle("grows", grows);
  const block = h("div.reasoning", {},
    h("button.btn.link.quiet", { type: "button", aria: { expanded: String(open) }, on: { click: () => context.toggle(row, !open) } },
      h("span", {}, title), grows && h("span.took", { data: { since: row.ts } }), icon(open ? "up" : "down")),
    open && text);
  return { block, text };
}

/** What the person said, and the control that says it otherwise. */
function message(row, context) {
  return h("div.bubble", {}, h("div.bubble-head", {}, h("span", {}, t("You"), row.agent && ` → ${row.agent}`), h("span.grow"),
    context.edit && context.canGoBack(row) && button("", () => context.edit(row), { kind: "icon quiet small", iconName: "pencil", title: t("Edit the message and go on from there") }),
    time(row)), longText(row, row.text, context));
}

/** The control between the versions of what was done again. */
function switcher(row, context) {
  const { versions } = row;
  const at = versions.indexOf(row);
  const go = (by, iconName, title) => button("", () => context.choose(versions, at + by), { kind: "icon quiet small", iconName, title, disabled: !versions[at + by] });
  return h("div.versions", { role: "group", aria: { label: t("Version {n} of {m}", { n: at + 1, m: versions.length }) } },
    go(-1, "left", t("Previous version")), h("span", {}, `${at + 1}/${versions.length}`), go(1, "right", t("Next version")));
}

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
    h("span.summary", {}, callTitle(call)), time(row))];
}

function said(row, context) {
  const plainText = row.open && row.text.length > MARKDOWN_WHILE_OPEN;
  const body = plainText ? h("div.pre", {}, row.text) : markdown(row.text, { ...context, growing: row.open });
  body.classList.toggle("streaming", row.open);
  return row.sources ? markClaims(body, row.sources, context.callName) : body;
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

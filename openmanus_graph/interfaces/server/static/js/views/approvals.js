/** What waits for the person: questions to answer, calls to approve, edit or reject. */

import { button, fill, h, icon } from "../dom.js";
import { argumentEditor } from "../arguments.js";
import { difference } from "./difference.js";
import { editOf } from "../diff.js";
import { t, tn } from "../i18n.js";
import { markdown } from "../markdown.js";
import { decisionWord } from "../words/status.js";

/**
 * Build the dock of open questions.
 *
 * @param {(answers: object) => Promise<void>} send  Answers some or all of them, by id.
 * @param {(worker: string) => void} takeOver  Puts a browser of the thread into the person's hands.
 * @param {object} files  What `markdown` takes.
 */
export function createApprovals(send, takeOver, files) {
  const list = h("div.asks", {});
  const title = h("strong", {});
  const collect = h("input", { type: "checkbox", on: { change: () => drawHead() } });
  const sendStaged = button(t("Send"), () => answer(stagedAnswers()), { kind: "primary" });
  const approveAll = button(t("Approve all"), () => all({ type: "approve" }), { kind: "primary" });
  const rejectAll = button(t("Reject all"), () => all({ type: "reject", message: "" }));
  const head = h("div.asks-head", {}, title,
    h("label.check", {}, collect, h("span", {}, t("Collect answers, send together"))),
    sendStaged, approveAll, rejectAll);
  const element = h("section.dock", { hidden: true, aria: { label: t("Waiting for you") } }, head, list);
  const cards = new Map();

  async function answer(answers) {
    const touched = Object.keys(answers).map((id) => cards.get(id)).filter(Boolean);
    for (const card of touched) card.busy(true);
    try {
      await send(answers);
      for (const card of touched) card.sent();
    } catch (error) {
      for (const card of touched) card.fail(error.message);
    }
  }

  function decided(id, value) {
    if (!collect.checked || cards.size < 2) {
      answer({ [id]: value });
      return;
    }
    cards.get(id).stage(value);
    drawHead();
  }

  function all(value) {
    const fitting = [...cards.values()].filter((card) => card.allows(value.type));
    answer(Object.fromEntries(fitting.map((card) => [card.id, value])));
  }

  function stagedAnswers() {
    const staged = [...cards.values()].filter((card) => card.staged !== undefined);
    return Object.fromEntries(staged.map((card) => [card.id, card.staged]));
  }

  function drawHead() {
    head.hidden = cards.size < 2;
    title.textContent = tn(cards.size, "{n} question waits for you", "{n} questions wait for you");
    const calls = [...cards.values()].filter((card) => card.allows("approve"));
    const count = Object.keys(stagedAnswers()).length;
    sendStaged.hidden = !collect.checked;
    sendStaged.disabled = count === 0;
    sendStaged.querySelector("span").textContent = t("Send {n} of {all}", { n: count, all: cards.size });
    approveAll.hidden = rejectAll.hidden = collect.checked || calls.length < 2;
  }

  return {
    element,
    /** Go to the first thing that can be done. */
    focus: () => list.querySelector("button, textarea, input")?.focus(),
    /** Go to the answer of the first question; to its card if a key in flight could decide something. */
    focusFirst: () => entryOf(list.firstElementChild)?.focus(),
    /** Show what is open now; return whether something is new. */
    show(questions) {
      const isNew = [...questions.keys()].some((id) => !cards.has(id));
      for (const [id, card] of cards) {
        if (questions.has(id)) continue;
        const focused = card.element.contains(document.activeElement);
        card.element.remove();
        cards.delete(id);
        if (focused) (entryOf(list.firstElementChild) ?? document.getElementById("run"))?.focus();
      }
      for (const [id, question] of questions) {
        if (cards.has(id)) continue;
        const card = questionCard(question, decided, takeOver, files);
        cards.set(id, card);
        list.append(card.element);
      }
      element.hidden = cards.size === 0;
      if (element.hidden) collect.checked = false; // the next questions are others
      drawHead();
      return isNew;
    },
  };
}

const entryOf = (card) => card?.querySelector(".ask-area > .answer textarea") ?? card;

function questionCard(question, decide, takeOver, files) {
  const allowed = question.kind === "question" ? ["respond"] : question.allowed ?? ["approve", "edit", "reject", "respond"];
  const titleId = `ask-${question.id}`;
  const error = h("div.error", { role: "alert" });
  const stagedNote = h("div.staged", { hidden: true });
  const area = h("div.ask-area", {});
  const element = h("article.ask", { tabIndex: -1, aria: { labelledby: titleId } },
    h("div.ask-title", { id: titleId }, icon("hand"),
      question.plan_step && h("span.ns", { title: t("Part of the work: {id}", { id: question.plan_step }) }, question.plan_step),
      question.kind === "question" ? markdown(question.question, files) : h("span.pre", {}, questionWords(question))),
    question.calls.map(callView), area, stagedNote, error);
  const card = {
    id: question.id,
    element,
    staged: undefined,
    allows: (type) => question.kind !== "question" && allowed.includes(type),
    stage(value) {
      card.staged = value;
      stagedNote.hidden = false;
      stagedNote.textContent = `${t("Chosen")}${t(": ")}${decisionWord(value)}`;
      if (question.kind !== "question") {
        element.classList.remove("editing");
        drawDecisions(area, question, allowed, finish);
      }
    },
    busy(on) {
      error.textContent = "";
      for (const control of area.querySelectorAll("button, input, textarea")) control.disabled = on;
    },
    sent() {
      stagedNote.hidden = false;
      stagedNote.textContent = t("Sent. It is taken when the steps that still run have ended.");
    },
    fail(message) {
      card.busy(false);
      error.textContent = message;
    },
  };
  const finish = (value) => decide(question.id, value);
  if (question.browser !== undefined) {
    fill(area, h("div.buttons", {}, button(t("Take the browser over"), () => takeOver(question.browser), { kind: "primary", iconName: "globe" })),
      h("details", {}, h("summary", {}, t("Answer with text instead")), answerForm(t("Your answer"), t("Send answer"), finish)));
  } else if (question.kind === "question") fill(area, answerForm(t("Your answer"), t("Send answer"), finish));
  else drawDecisions(area, question, allowed, finish);
  return card;
}

/** The question; the usual one of an approval in the person's language, with what stands before it. */
function questionWords({ kind, question }) {
  const [, reason, tool] = (kind === "approval" && /^([^]*?)Allow (\w+)\?$/.exec(question)) || [];
  return tool ? `${reason}${t("Allow {tool}?", { tool })}` : question;
}

function callView(call) {
  const edit = editOf(call.tool, call.args);
  if (edit) return h("div.ask-call", {}, h("span.tool", {}, call.tool), difference(edit));
  return h("div.ask-call", {}, h("span.tool", {}, call.tool),
    Object.entries(call.args ?? {}).map(([name, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
      return h("div.arg", {}, h("span.arg-name", {}, name), " ",
        h(text.includes("\n") || text.length > 80 ? "pre.code" : "code", text.length > 80 ? { tabIndex: 0 } : {}, text));
    }));
}

function drawDecisions(area, question, allowed, finish) {
  const again = question.kind === "unknown_outcome";
  const card = () => area.closest(".ask");
  const back = (focusOn) => {
    card().classList.remove("editing");
    drawDecisions(area, question, allowed, finish);
    [...area.querySelectorAll("button")].find((one) => one.textContent === focusOn)?.focus();
  };
  const open = (name, form) => {
    card().classList.toggle("editing", name === t("Edit…"));
    const keydown = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      back(name);
    };
    fill(area, h("div", { on: { keydown } }, form, button(t("Back"), () => back(name))));
    area.querySelector("input, textarea")?.focus();
  };
  const instead = again ? t("It took place…") : t("Answer instead…");
  const choices = {
    approve: [again ? t("Run it again") : t("Approve"), () => finish({ type: "approve" }), "primary"],
    always: [question.calls[0]?.tool === "reach_host" ? t("Always allow this host") : t("Approve all of this kind"), () => finish({ type: "approve", remember: true }), ""],
    edit: [t("Edit…"), () => open(t("Edit…"), editForm(question.calls[0] ?? {}, finish)), ""],
    reject: [t("Reject…"), () => open(t("Reject…"), answerForm(t("Reason (the agent reads it)"), t("Reject"),
      (message) => finish({ type: "reject", message }), { optional: true, kind: "danger" })), ""],
    respond: [instead, () => open(instead,
      answerForm(again ? t("What happened") : t("Text for the agent instead of a result"), t("Send"),
        (message) => finish({ type: "respond", message }))), ""],
  };
  const repeatable = question.kind === "approval" && question.calls[0]?.tool !== "planning";
  const offered = repeatable && allowed.includes("approve") ? [...allowed, "always"] : allowed;
  fill(area, h("div.buttons", {}, offered.filter((name) => choices[name]).map((name) => {
    const [label, action, kind] = choices[name];
    const title = name === "always" ? t("Calls of this kind are not asked about again in this thread") : undefined;
    return button(label, action, { kind, title });
  })));
}

function answerForm(label, verb, finish, { optional = false, kind = "primary" } = {}) {
  const input = h("textarea", { rows: 2, required: !optional, on: {
    keydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    },
  } });
  const form = h("form.answer", { on: {
    submit: (event) => {
      event.preventDefault();
      if (optional || input.value.trim()) finish(input.value.trim());
    },
  } }, h("label.stack", {}, h("span", {}, label), input),
  h(`button.btn.${kind}`, { type: "submit" }, verb));
  return form;
}

function editForm(call, finish) {
  const editor = argumentEditor(call.args ?? {});
  const error = h("div.error", { role: "alert" });
  return h("form.answer", { on: {
    submit: (event) => {
      event.preventDefault();
      try {
        finish({ type: "edit", edited_action: { name: call.tool, args: editor.read() } });
      } catch (problem) {
        error.textContent = problem.message;
      }
    },
  } }, editor.element, error, h("button.btn.primary", { type: "submit" }, t("Approve with these arguments")));
}

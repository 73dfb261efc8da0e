/** Where one writes: a new task, the next message, or a correction while the agent works. */

import { button, fill, h, icon } from "../dom.js";
import { bytes } from "../format.js";
import { t } from "../i18n.js";
import { limitField, statusSentence } from "../words/status.js";
import { createOptions } from "./options.js";

const isDemo = (info) => Boolean(info?.options?.model?.startsWith("demo:"));
const RAISED = { max_steps: t("steps"), max_cost_usd: t("dollars"), max_total_tokens: t("tokens"), timeout_s: t("seconds") };
const LONG_CHARS = 50_000; // what comes at once and is longer goes along as a file
const DRAFT = "openmanus_draft"; // what was being written when the page is loaded again

/**
 * Build the composer.
 *
 * @param {object} actions  Each returns a promise: `start(text, agent, context)`, `steer(text)`,
 *   `resume(context)`, `attach(files)`; `setUp()` opens the form for another model.
 */
export function createComposer(actions) {
  const options = createOptions(actions.setUp, actions.extensions);
  const message = h("textarea", { id: "message", rows: 2, on: {
    input: () => {
      takeSet();
      grow();
    },
    beforeinput: (event) => takeLong(event),
    keydown: (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    },
  } });
  const label = h("label.sr-only", { htmlFor: "message" }, t("Task"));
  const error = h("div.error", { role: "alert" });
  const chooser = h("input", { type: "file", multiple: true, hidden: true, on: {
    change: () => {
      actions.attach([...chooser.files]);
      chooser.value = "";
    },
  } });
  const summary = h("span", {});
  const details = h("details.options-box", {}, h("summary", {}, icon("sliders"), summary), options.element);
  const send = h("button.btn.primary.send", { type: "submit" }, icon("send"), h("span", {}, t("Start")));
  const attach = button(t("Add files"), () => chooser.click(), { kind: "quiet", iconName: "clip" });
  const waiting = h("ul.attached", { hidden: true, aria: { label: t("Files to be added") } });
  const again = h("div.resume", { hidden: true });
  const form = h("form.composer", { aria: { label: t("Message") }, on: { submit: (event) => submit(event) } },
    again, error, label, message, waiting,
    h("div.composer-foot", {}, details, attach, chooser, send));
  let mode = "start";
  let busy = false;
  let asked = 0; // questions that are open
  let warned = false; // that a message closes them
  let drawn = "";
  let known = 0; // characters that the box held before the newest input

  details.addEventListener("toggle", () => { summary.textContent = options.summary(); });
  options.element.addEventListener("input", () => { summary.textContent = options.summary(); });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    event.stopPropagation();
    details.open = false;
    details.querySelector("summary").focus();
  });

  /** What is pasted, dropped or dictated and very long is a file rather than a message: it is added as one. */
  function takeLong(event) {
    const text = event.data ?? event.dataTransfer?.getData("text/plain") ?? "";
    if (text.length <= LONG_CHARS) return;
    event.preventDefault();
    attachText(text);
  }

  /** So is what a program has set into the box: it is taken out before the browser lays it out. */
  function takeSet() {
    const { value, selectionEnd: end } = message;
    const begin = end - (value.length - known);
    if (end - begin <= LONG_CHARS) return;
    message.value = value.slice(0, begin) + value.slice(end);
    attachText(value.slice(begin, end));
  }

  function attachText(text) {
    const stamp = new Date().toISOString().replace(/\D/g, "").slice(0, 14);
    actions.attach([new File([text], `pasted-${stamp}.txt`, { type: "text/plain" })]);
  }

  function grow() {
    known = message.value.length;
    message.style.height = "auto";
    message.style.height = `${Math.min(message.scrollHeight + 2, 240)}px`;
  }

  async function submit(event) {
    event.preventDefault();
    const text = message.value.trim();
    const wrong = options.invalid();
    if (wrong) {
      details.open = true;
      wrong.reportValidity();
      return;
    }
    if (!text || busy) {
      message.focus();
      return;
    }
    if (asked && !warned) {
      warned = true;
      error.textContent = t("The agent waits for your answer above. This message would close its question without one. To send it anyway, choose Send again.");
      return;
    }
    await attempt(async () => {
      if (mode === "steer") await actions.steer(text);
      else await actions.start(text, options.agent(), options.values());
      message.value = "";
      details.open = false;
      grow();
    });
  }

  async function attempt(action) {
    busy = true;
    send.disabled = true;
    error.textContent = "";
    try {
      await action();
    } catch (problem) {
      error.textContent = problem.message;
    } finally {
      busy = false;
      send.disabled = false;
    }
  }

  function drawResume(model) {
    const resumable = ["stopped", "cancelled", "interrupted", "failed"].includes(model.status)
      && model.stopReason !== "terminate";
    const key = resumable ? `${model.status} ${model.stopReason} ${model.seq}` : "";
    if (key === drawn) return;
    drawn = key;
    again.hidden = !resumable;
    if (!resumable) return;
    const name = limitField(model.stopReason, model.usage, model.run?.options);
    const used = name && currentLimit(name, model);
    const input = name && h("input", { type: "number", min: "0", step: "any", value: String(used * 2 || "") });
    const go = () => attempt(() => actions.resume({ ...options.values(), ...(name && input.value ? { [name]: Number(input.value) } : {}) }));
    fill(again,
      h("span", {}, statusSentence(model.status, model.stopReason)),
      name && h("label.inline", {}, h("span", {}, t("Go on with up to")), input, h("span", {}, RAISED[name])),
      model.status === "failed" && button(t("Change the model"), chooseModel, {}),
      button(model.status === "failed" ? t("Try again") : t("Resume"), go, { kind: "primary", iconName: "play" }));
  }

  function chooseModel() {
    details.open = true;
    options.element.querySelector("#model").focus();
  }

  let offered = {};
  const currentLimit = (name, model) =>
    Number(model.run?.options?.[name] ?? offered.options?.[name] ?? offered.defaults?.[name] ?? 0);

  const MODES = {
    start: [t("What should be done?"), t("Task"), t("Start")],
    next: [t("Next message"), t("Next message"), t("Send")],
    steer: [t("Correct the agent: it reads this at its next step"), t("Correction for the running agent"), t("Send")],
  };

  message.value = sessionStorage.getItem(DRAFT) ?? "";
  known = message.value.length;
  window.addEventListener("pagehide", () => sessionStorage.setItem(DRAFT, message.value));

  return {
    element: form,
    message,
    options,
    offer(given) {
      offered = { ...offered, defaults: given.defaults };
      options.offer(given);
      summary.textContent = options.summary();
    },
    /** Fit the thread that is open; without one, a new task. */
    show(session) {
      const model = session?.model;
      const status = model?.status ?? "new";
      asked = status === "waiting" ? model.questions.size : 0;
      if (!asked && warned) {
        warned = false;
        error.textContent = "";
      }
      mode = !model || status === "new" ? "start" : status === "running" ? "steer" : "next";
      const [placeholder, name, verb] = MODES[mode];
      message.placeholder = placeholder;
      label.textContent = name;
      send.querySelector("span").textContent = verb;
      if (mode === "steer") details.open = false;
      details.classList.toggle("unseen", mode === "steer"); // Send stays in its place
      const elsewhere = session?.info?.startable === false || isDemo(session?.info);
      form.hidden = elsewhere || (status === "waiting" && !message.value.trim());
      if (model) drawResume(model);
      else {
        drawn = "";
        again.hidden = true;
      }
    },
    /** Show a thread's own settings, or the defaults. */
    use(info) {
      offered = { ...offered, options: info?.options };
      if (info) options.use(info, { fixedAgent: false });
      else if (offered.defaults) options.use({});
      summary.textContent = options.summary();
    },
    showAttached(uploads) {
      waiting.hidden = uploads.length === 0;
      fill(waiting, uploads.map((one) => h(`li${one.error ? ".bad" : ""}`, {},
        icon("file"), h("span.name", {}, one.name), h("span.muted", {}, bytes(one.size)),
        one.share !== null && !one.error && h("progress", { max: 1, value: one.share, aria: { label: t("Upload of {name}", { name: one.name }) } }),
        one.error && h("span.error", {}, one.error),
        one.onReplace && button(t("Replace"), one.onReplace, { kind: "link" }),
        button("", one.onRemove, { kind: "icon quiet", iconName: "cross", title: t("Remove {name}", { name: one.name }) }))));
    },
  };
}

/** The steps one can go back to, and the dialog that does it. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { createChanges } from "./changes.js";
import { clock } from "../format.js";
import { t } from "../i18n.js";

const READ = "before the message was read";
/** Nodes before which nobody wants to begin again. */
const INNER = new Set(["stuck_check", "terminate", "review_step", "finalize"]);

/**
 * Build the pane and its dialog.
 *
 * @param {(checkpoint: object, message: string, context: object) => Promise<void>} again
 */
export function createHistory(again) {
  const list = h("ol.history", {});
  const note = h("p.empty", { role: "status" });
  const element = h("div.panel-body", {}, note, list);
  const dialog = createDialog(again);
  const changes = createChanges();
  let thread = null;
  let visible = false;
  let revision = -1;
  let running = false;

  async function load() {
    if (!thread || !visible) return;
    const id = thread;
    try {
      const checkpoints = await api.checkpoints(id);
      if (id === thread) draw(checkpoints);
    } catch (error) {
      if (id === thread && error.status !== 0) note.textContent = error.message;
    }
  }

  function draw(all) {
    nameSteps(all);
    const checkpoints = all.filter((one) => !one.next.every((node) => INNER.has(node)));
    note.textContent = checkpoints.length ? "" : t("No steps are saved yet.");
    fill(list, checkpoints.map((one, index) => h("li", {},
      h("div", {}, h("div.plan-text", {}, one.name),
        h("div.muted", {}, [clock(one.at), one.current && t("now")].filter(Boolean).join(" · "))),
      changed(checkpoints[index - 1] ?? all[0], one) && button(t("Changes"),
        () => changes.open(thread, one.snapshot, (checkpoints[index - 1] ?? all[0]).snapshot),
        { kind: "quiet", aria: { label: t("What this changed in the files: {place}", { place: one.name }) } }),
      !one.current && button(t("Go back here"), () => dialog.open(one),
        { disabled: running, aria: { label: t("Go back to: {place}", { place: one.name }) } }))));
  }

  async function named() {
    const checkpoints = await api.checkpoints(thread); // newest first
    nameSteps(checkpoints);
    return checkpoints;
  }

  async function place(row) {
    const began = Date.parse(row.ts);
    const fitting = (await named()).find((one) => one.next.includes("think") && Date.parse(one.at) <= began);
    if (!fitting) throw new Error(t("The state before this step is no longer kept. Choose one under Steps."));
    return fitting;
  }

  return {
    element,
    dialogs: [dialog.element, changes.element],
    /** Ask how a step of the timeline is to be tried again. */
    async goBack(row) {
      dialog.open(await place(row));
    },
    /** Have the model answer again. */
    async regenerate(row) {
      await again(await place(row.thought), "", {});
    },
    /** Ask for another wording of a message; the conversation goes on from there. */
    async edit(row) {
      const away = (one) => Math.abs(Date.parse(one.at) - Date.parse(row.ts)); // the event is sent at about that time
      const [before] = (await named()).filter((one) => one.label === READ).sort((left, right) => away(left) - away(right));
      if (!before) throw new Error(t("The state before this step is no longer kept. Choose one under Steps."));
      dialog.open(before, row.text);
    },
    setVisible(on) {
      if (on === visible) return;
      visible = on;
      load();
    },
    show(session) {
      const next = session ? `${session.model.step} ${session.model.status}` : "";
      const changed = next !== revision || session?.id !== thread;
      running = session?.model.status === "running";
      if (session?.id !== thread) fill(list);
      thread = session?.id ?? null;
      revision = next;
      if (changed) load();
    },
  };
}

/** Say whether files changed from one place to the next. */
function changed(after, one) {
  return Boolean(after.snapshot && one.snapshot && after.snapshot !== one.snapshot);
}

/** Number the places as the steps of the conversation: a message begins anew. */
function nameSteps(checkpoints) {
  let step = 0;
  for (const one of checkpoints.toReversed()) {
    if (one.label === READ) step = 0;
    if (one.next.includes("think")) step += 1;
    one.name = step ? t("Step {n}: {what}", { n: step, what: labelOf(one) }) : labelOf(one);
  }
}

function labelOf(checkpoint) {
  if (checkpoint.next.includes("think")) return t("the model answers");
  if (checkpoint.label === READ) return t("Before the message");
  const names = (checkpoint.label || checkpoint.next.join(", ")).replace(/^before /, "").split(", ");
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].map(([name, times]) => (times > 1 ? `${name} × ${times}` : name)).join(", ");
}

function createDialog(again) {
  const what = h("p", {});
  const message = h("textarea", { rows: 3, id: "again-message" });
  const error = h("div.error", { role: "alert" });
  const title = h("h2", { id: "again-title" });
  const label = h("span", {});
  const go = h("button.btn.primary", { type: "submit" });
  let checkpoint = null;
  const form = h("form", { on: {
    submit: async (event) => {
      event.preventDefault();
      go.disabled = true;
      error.textContent = "";
      try {
        await again(checkpoint, message.value.trim(), {});
        element.close();
      } catch (problem) {
        error.textContent = problem.message;
      } finally {
        go.disabled = false;
      }
    },
  } }, what,
  h("label.stack", { htmlFor: "again-message" }, label, message),
  error, h("div.buttons", {}, go, button(t("Cancel"), () => element.close())));
  const element = h("dialog.small-dialog", { aria: { labelledby: "again-title" } },
    title, form);
  return {
    element,
    open(one, text = null) {
      checkpoint = one;
      title.textContent = text === null ? t("Go back and try again") : t("Edit the message");
      label.textContent = text === null ? t("What to do differently (optional)") : t("Your message");
      go.textContent = text === null ? t("Try again from here") : t("Send");
      message.required = text !== null;
      message.rows = text === null ? 3 : 6;
      what.textContent = t("The run continues from: {place}, {time}. Later messages and file changes are undone. Files that only you changed are moved aside first.",
        { place: one.name, time: clock(one.at) });
      message.value = text ?? "";
      error.textContent = "";
      element.showModal();
      message.focus();
    },
  };
}

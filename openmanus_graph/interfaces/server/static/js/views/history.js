/** The steps one can go back to, and the dialog that does it. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { clock } from "../format.js";
import { t } from "../i18n.js";

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
      if (id === thread) note.textContent = error.message;
    }
  }

  function draw(all) {
    const checkpoints = all.filter((one) => !one.next.every((node) => INNER.has(node)));
    note.textContent = checkpoints.length ? "" : t("No steps are saved yet.");
    fill(list, checkpoints.map((one) => h("li", {},
      h("div", {}, h("div.plan-text", {}, labelOf(one)),
        h("div.muted", {}, [clock(one.at), one.current && t("now")].filter(Boolean).join(" · "))),
      !one.current && button(t("Go back here"), () => dialog.open(one),
        { disabled: running, aria: { label: t("Go back to: {place}", { place: labelOf(one) }) } }))));
  }

  return {
    element,
    dialog: dialog.element,
    /** Ask how a step of the timeline is to be tried again. */
    async goBack(row) {
      const began = Date.parse(row.ts);
      const checkpoints = await api.checkpoints(thread); // newest first
      const fitting = checkpoints.find((one) => one.next.includes("think") && Date.parse(one.at) <= began);
      if (!fitting) throw new Error(t("The state before this step is no longer kept. Choose one under Steps."));
      dialog.open(fitting);
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

function labelOf(checkpoint) {
  if (checkpoint.next.includes("think")) return t("Before the next thought");
  const names = (checkpoint.label || checkpoint.next.join(", ")).replace(/^before /, "").split(", ");
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const calls = [...counts].map(([name, times]) => (times > 1 ? `${name} × ${times}` : name)).join(", ");
  return t("Before {calls}", { calls });
}

function createDialog(again) {
  const what = h("p", {});
  const message = h("textarea", { rows: 3, id: "again-message" });
  const error = h("div.error", { role: "alert" });
  const go = h("button.btn.primary", { type: "submit" }, t("Try again from here"));
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
  h("label.stack", { htmlFor: "again-message" }, h("span", {}, t("Do it otherwise (optional)")), message),
  error, h("div.buttons", {}, go, button(t("Cancel"), () => element.close())));
  const element = h("dialog.small-dialog", { aria: { labelledby: "again-title" } },
    h("h2", { id: "again-title" }, t("Go back and try again")), form);
  return {
    element,
    open(one) {
      checkpoint = one;
      what.textContent = t("It goes on from here: {place}, {time}. What came after it is taken back in the conversation; files stay as they are.",
        { place: labelOf(one), time: clock(one.at) });
      message.value = "";
      error.textContent = "";
      element.showModal();
      message.focus();
    },
  };
}

/** What waits for the person, and the triggers: their next run, the newest one, pause and run now. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { t } from "../i18n.js";

const KINDS = {
  approval: t("Approval"), question: t("Question"), unknown_outcome: t("Unknown outcome"), dead: t("Failed"),
};
const STATES = { active: t("Active"), paused: t("Paused") };
const ENDS = {
  claimed: t("waits to run"), running: t("running"), done: t("has an answer"), delivered: t("delivered"),
  skipped: t("skipped"), dead: t("failed"), unknown_outcome: t("unknown outcome"),
};

/** Build the dialog. */
export function createInbox(open) {
  const error = h("div.error", { role: "alert" });
  const body = h("div.usage-body", { tabIndex: 0, role: "region", aria: { labelledby: "inbox-title", live: "polite" } });
  const dialog = h("dialog.usage-dialog", { aria: { labelledby: "inbox-title" } },
    h("header.usage-head", {}, h("h2.grow", { id: "inbox-title" }, t("Inbox and triggers")),
      button(t("Refresh"), () => act()), button(t("Close"), () => dialog.close())),
    error, body);

  async function act(action = async () => {}) {
    error.textContent = "";
    try {
      await action();
      draw(await api.inbox());
    } catch (problem) {
      error.textContent = problem.message;
    }
  }

  function draw({ waiting, triggers, problems }) {
    fill(body,
      h("h3", {}, t("What waits for you")),
      !waiting.length && h("p.empty", { role: "status" }, t("Nothing waits for you.")),
      waiting.length > 0 && table([t("Kind"), t("What"), t("Actions")], waiting.map((row) => [
        KINDS[row.kind] ?? row.kind, row.what, h("div.buttons", {}, link(t("Open"), row.thread), row.number && [
          button(t("Try again"), () => act(() => api.replay(row.number, "replay"))),
          row.kind === "unknown_outcome" && button(t("It arrived"), () => act(() => api.replay(row.number, "sent")))])])),
      triggers.length > 0 && h("h3", {}, t("Triggers")),
      triggers.length > 0 && table([t("Name"), t("State"), t("Next run"), t("Newest run"), t("Actions")], triggers.map((row) => [
        row.name, STATES[row.state], row.next, row.last && link(ENDS[row.last], row.thread),
        h("div.buttons", {}, row.state === "active"
          ? button(t("Pause"), () => act(() => api.changeTrigger(row.name, "pause")))
          : button(t("Resume"), () => act(() => api.changeTrigger(row.name, "resume"))),
        row.kind === "schedule" && button(t("Run now"), () => act(() => api.changeTrigger(row.name, "run"))))])),
      problems.map((problem) => h("p.error", {}, problem)));
  }

  function link(label, thread) {
    return h("a", { href: `/app/t/${encodeURIComponent(thread)}`, on: { click: (event) => {
      event.preventDefault();
      dialog.close();
      open(thread);
    } } }, label);
  }

  return {
    element: dialog,
    open() {
      dialog.showModal();
      act();
    },
  };
}

function table(heads, rows) {
  return h("div.table", { tabIndex: 0, role: "region", aria: { label: heads[1] } }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, rows.map(([first, ...others]) => h("tr", {}, h("th", { scope: "row" }, first),
      others.map((cell) => h("td", {}, cell)))))));
}

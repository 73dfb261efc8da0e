/** What waits for the person, and the triggers: their next run, the newest one, pause and run now. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { language, t } from "../i18n.js";
import { markdown } from "../markdown.js";

const MOST_CHARS = 600;
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
      waiting.length ? h("ul.cards", {}, waiting.map((row) => h("li", {}, h("span.tag", {}, KINDS[row.kind] ?? row.kind),
        h("div.grow", {}, h("div.muted", {}, [row.title, !row.number && triggers.find(({ thread }) => thread === row.thread)?.name].filter(Boolean).join(" · ")),
          row.kind === "question" ? markdown(row.what.slice(0, MOST_CHARS)) : h("div.pre", {}, row.what.slice(0, MOST_CHARS))),
        h("div.buttons", {}, row.number && [
          button(t("Try again"), () => act(() => api.replay(row.number, "replay"))),
          row.kind === "unknown_outcome" && button(t("It arrived"), () => act(() => api.replay(row.number, "delivered"))),
          button(t("Remove from inbox"), () => act(() => api.replay(row.number, "skipped")))],
        link(t("Open"), row.thread, "a.btn")))))
        : h("p.empty", { role: "status" }, t("Nothing waits for you.")),
      h("h3", {}, t("Triggers")),
      !triggers.length && h("p.empty", {}, t("A trigger starts a task at a time, or when a file, a mail or a request arrives. An admin adds triggers to config.toml, under [triggers.NAME].")),
      triggers.length > 0 && h("ul.cards", {}, triggers.map((row) => h("li", {}, h(`span.tag${row.state === "paused" ? ".warn" : ""}`, {}, STATES[row.state]),
        h("div.grow", {}, h("strong", {}, row.name), h("div.muted", {}, [
          row.next && t("Next run {time}", { time: moment(row.next) }), row.last && [row.next && " · ", t("newest run"), " ", link(waiting.some(({ thread }) => thread === row.thread) ? t("waits for you") : ENDS[row.last], row.thread)]])),
        h("div.buttons", {}, row.state === "active"
          ? button(t("Pause"), () => act(() => api.changeTrigger(row.name, "pause")))
          : button(t("Resume"), () => act(() => api.changeTrigger(row.name, "resume"))),
        row.kind === "schedule" && row.state === "active" && button(t("Run now"), () => act(() => api.changeTrigger(row.name, "run"))))))),
      problems.map((problem) => h("p.error", {}, problem)));
  }

  function link(label, thread, tag = "a") {
    return h(tag, { href: `/app/t/${encodeURIComponent(thread)}`, on: { click: (event) => {
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

const moment = (iso) => new Date(iso).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" });

/** What is open, how it stands, what it costs, and how it is stopped. */

import { button, fill, h, icon, plain } from "../dom.js";
import { count, money } from "../format.js";
import { LANGUAGES, language, t } from "../i18n.js";
import { activityWords, statusReason, statusSentence, statusWord } from "../words/status.js";

/** Build the bar over the timeline; it has the buttons that there are actions for. */
export function createHeader(actions) {
  const title = h("h1", { id: "title" }, t("New task"));
  const when = (action, ...rest) => action && button(...rest);
  const rename = button("", actions.rename, { kind: "icon quiet small", iconName: "pencil", title: t("Rename the thread"), hidden: true });
  const sharing = button("", actions.share, { kind: "icon quiet", iconName: "share", title: t("Save or share the thread"), hidden: true });
  const other = Object.keys(LANGUAGES).find((code) => code !== language);
  const mark = { en: "EN", zh: "中" }[other];
  const shownModel = h("span.model.muted", { title: t("The model of the last run") });
  const inbox = actions.inbox && button("", actions.inbox, { kind: "icon quiet", iconName: "inbox", title: t("Inbox and triggers") });
  const dot = h("span.dot.new", { aria: { hidden: "true" } });
  const word = h("span", {}, "");
  const pill = h("span.pill", { hidden: true }, dot, word);
  const activity = h("span.activity.muted", {});
  const meter = h("div.meter", { hidden: true });
  const stop = button(t("Stop"), actions.stop, { kind: "danger", iconName: "stop", hidden: true, title: t("Stop the run (Shift+S)") });
  const link = h("div.banner", { hidden: true, role: "status" });
  const element = h("header.bar", {},
    h("div.bar-row", {}, h("div.bar-title", {}, title, rename),
    h("div.bar-tools", {}, stop, sharing,
    h("button.btn.icon.quiet.language", { type: "button", lang: other, title: LANGUAGES[other],
      aria: { label: `${mark} ${LANGUAGES[other]}` }, on: { click: () => actions.language(other) } }, mark),
    button("", actions.theme, { kind: "icon quiet", iconName: "theme", title: t("Colours: light, dark or the system's") }),
    when(actions.memory, "", actions.memory, { kind: "icon quiet", iconName: "note", title: t("Notes that agents keep") }),
    inbox,
    when(actions.usage, "", actions.usage, { kind: "icon quiet", iconName: "chart", title: t("Usage: runs, tokens and cost") }),
    when(actions.help, "", actions.help, { kind: "icon quiet", iconName: "help", title: t("Keyboard and help (?)") }),
    when(actions.details, "", actions.details, { kind: "icon quiet wide-only", iconName: "panel", title: t("Show or hide details") }))),
    h("div.bar-row", {}, h("div.bar-state", {}, pill, activity, shownModel), meter));

  function drawMeter(session, defaults) {
    const { model, info } = session;
    const limits = { ...defaults, ...info?.options, ...model.run?.options };
    const cost = model.usage.cost_usd;
    const done = model.plan.filter((step) => step.status === "completed").length;
    const tokens = model.usage.input_tokens + model.usage.output_tokens;
    meter.hidden = model.status === "new";
    meter.title = t("This run: {in} tokens in ({cached} cached), {out} out, {calls} model calls.", {
      in: count(model.usage.input_tokens), cached: count(model.usage.cached_tokens),
      out: count(model.usage.output_tokens), calls: count(model.usage.model_calls),
    });
    fill(meter,
      gauge(t("Cost"), money(cost), limits.max_cost_usd && money(limits.max_cost_usd), cost / limits.max_cost_usd),
      runsPlan(model) ? gauge(t("Plan steps"), count(done), count(model.plan.length), done / model.plan.length, { isLimit: false }) : gauge(t("Steps"), count(model.step), limits.max_steps && count(limits.max_steps), model.step / limits.max_steps),
      gauge(t("Tokens"), count(tokens), limits.max_total_tokens && count(limits.max_total_tokens), tokens / limits.max_total_tokens));
  }

  return {
    element,
    banner: link,
    show(session, { defaults = {} } = {}) {
      const model = session?.model;
      const name = plain(session ? session.info?.title || firstTask(model) || t("Untitled") : t("New task"));
      if (title.textContent !== name) title.textContent = title.title = name;
      rename.hidden = !actions.rename || !session || model.status === "new";
      sharing.hidden = !actions.share || !session || model.status === "new";
      shownModel.textContent = model?.run?.model ?? "";
      document.title = session ? `${badge(model.status)}${name} – OpenManus` : "OpenManus";
      pill.hidden = !session || model.status === "new";
      stop.hidden = !actions.stop || model?.status !== "running";
      if (!session) {
        meter.hidden = true;
        activity.textContent = "";
        return;
      }
      dot.className = `dot ${model.status}`;
      word.textContent = statusWord(model.status);
      pill.title = statusSentence(model.status, model.stopReason);
      const working = runsPlan(model) && model.status === "running" ? model.plan.filter((step) => step.status === "in_progress").map((step) => step.id) : [];
      const stepText = model.status === "running" && model.step && !runsPlan(model) ? t("step {n}", { n: model.step }) : "";
      activity.textContent = [working.length ? t("Working on {steps}", { steps: working.join(", ") }) : activityWords(model.activity), stepText].filter(Boolean).join(" · ")
        || statusReason(model.status, model.stopReason);
      drawMeter(session, defaults);
    },
    /** Say whether something waits in the inbox. */
    waiting(on) {
      inbox.classList.toggle("badge", on);
      inbox.title = on ? t("Inbox and triggers: something waits for you") : t("Inbox and triggers");
      inbox.setAttribute("aria-label", inbox.title);
    },
    /** Say that the connection is away, or that it is back; without a thread, whether the server is. */
    connection(session, away) {
      const state = session ? session.connection : { connected: !away, status: 0 };
      const lost = state && !state.connected && !state.first;
      link.hidden = !lost;
      if (!lost) return;
      if (state.retryInMs === undefined) {
        fill(link, icon("info"), h("span", {}, state.status === 0 ? t("The server does not answer. Is it still running?") : state.status === 404
          ? t("There is no such thread on this server. Start a new task, or choose another thread.")
          : state.status === 401 ? t("The server does not accept the token.") : t("The server answered with {status}.", { status: state.status })));
        return;
      }
      fill(link, icon("info"), h("span", {}, state.status >= 500
        ? t("The server answered with {status}.", { status: state.status })
        : t("The server does not answer. Is it still running?"),
      " ", t("Next try in {n} s; nothing is lost.", { n: Math.ceil(state.retryInMs / 1000) })),
      button(t("Try now"), () => session.retryNow(), { kind: "link" }));
    },
  };
}

/** Whether the run is a plan whose steps have begun, each with steps of its own. */
const runsPlan = (model) => model.plan.length > 0 && [...model.groups.values()].some((row) => !row.subagent);

function gauge(label, value, limit, share, { isLimit = true } = {}) {
  const part = Number.isFinite(share) ? Math.min(1, share) : 0;
  return h("div.gauge", { role: "group", aria: { label: limit ? t("{name}: {value} of {limit}", { name: label, value, limit }) : `${label}${t(": ")}${value}` } },
    h("span.gauge-label", {}, label),
    h("span.gauge-value", {}, value, limit && h("span.muted", {}, ` / ${limit}`)),
    limit && h(`span.gauge-bar${isLimit && part > 0.8 ? ".high" : ""}`, { style: { "--share": String(part) } }));
}

function firstTask(model) {
  return model.rows.findLast((row) => row.kind === "task")?.text.split("\n", 1)[0].slice(0, 200) ?? "";
}

function badge(status) {
  return { running: "▸ ", waiting: "● ", failed: "✗ " }[status] ?? "";
}

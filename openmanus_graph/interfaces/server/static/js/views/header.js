/** What is open, how it stands, what it costs, and how it is stopped. */

import { button, fill, h, icon } from "../dom.js";
import { count, money } from "../format.js";
import { statusReason, statusSentence, statusWord } from "../words.js";

/** Build the bar over the timeline. */
export function createHeader(actions) {
  const title = h("h1", { id: "title" }, "New task");
  const dot = h("span.dot.new", { aria: { hidden: "true" } });
  const word = h("span", {}, "");
  const pill = h("span.pill", { hidden: true }, dot, word);
  const activity = h("span.activity.muted", {});
  const meter = h("div.meter", { hidden: true });
  const stop = button("Stop", actions.stop, { kind: "danger", iconName: "stop", hidden: true, title: "Stop the run (Shift+S)" });
  const link = h("div.banner", { hidden: true, role: "status" });
  const element = h("header.bar", {},
    h("div.bar-main", {}, title, h("div.bar-state", {}, pill, activity)),
    meter, stop,
    button("", actions.theme, { kind: "icon quiet", iconName: "theme", title: "Colours: light, dark or the system's" }),
    button("", actions.help, { kind: "icon quiet", iconName: "help", title: "Keyboard and help (?)" }),
    button("", actions.details, { kind: "icon quiet wide-only", iconName: "panel", title: "Show or hide details" }));

  function drawMeter(session, defaults) {
    const { model, info } = session;
    const limits = { ...defaults, ...info?.options, ...model.run?.options };
    const cost = model.usage.cost_usd;
    const tokens = model.usage.input_tokens + model.usage.output_tokens;
    meter.hidden = model.status === "new";
    meter.title = `This run: ${count(model.usage.input_tokens)} tokens in (${count(model.usage.cached_tokens)} cached), `
      + `${count(model.usage.output_tokens)} out, ${count(model.usage.model_calls)} model calls.`;
    fill(meter,
      gauge("Cost", money(cost), limits.max_cost_usd && money(limits.max_cost_usd), cost / limits.max_cost_usd),
      gauge("Steps", count(model.step), limits.max_steps && count(limits.max_steps), model.step / limits.max_steps),
      gauge("Tokens", count(tokens), limits.max_total_tokens && count(limits.max_total_tokens), tokens / limits.max_total_tokens));
  }

  return {
    element,
    banner: link,
    show(session, defaults) {
      const model = session?.model;
      const name = session ? session.info?.title || firstTask(model) || "Untitled" : "New task";
      if (title.textContent !== name) title.textContent = name;
      document.title = session ? `${badge(model.status)}${name} – OpenManus` : "OpenManus";
      pill.hidden = !session || model.status === "new";
      stop.hidden = model?.status !== "running";
      if (!session) {
        meter.hidden = true;
        activity.textContent = "";
        return;
      }
      dot.className = `dot ${model.status}`;
      word.textContent = statusWord(model.status);
      pill.title = statusSentence(model.status, model.stopReason);
      const stepText = model.status === "running" && model.step ? `step ${model.step}` : "";
      activity.textContent = [model.activity, stepText].filter(Boolean).join(" · ")
        || statusReason(model.status, model.stopReason);
      drawMeter(session, defaults);
    },
    /** Say that the connection is away, or that it is back. */
    connection(session) {
      const state = session?.connection;
      const lost = state && !state.connected && !state.first;
      link.hidden = !lost;
      if (!lost) return;
      if (state.retryInMs === undefined) {
        fill(link, icon("info"), h("span", {}, state.status === 404
          ? "There is no such thread on this server. Start a new task, or choose another thread."
          : state.status === 401 ? "The server does not accept the token." : `The server refused the events (HTTP ${state.status}).`));
        return;
      }
      fill(link, icon("info"), h("span", {}, state.status >= 500
        ? `The server answered HTTP ${state.status}.`
        : "The server does not answer. Is openmanus serve still running?",
      ` Next try in ${Math.ceil(state.retryInMs / 1000)} s; nothing is lost.`),
      button("Try now", () => session.retryNow(), { kind: "link" }));
    },
  };
}

function gauge(label, value, limit, share) {
  const part = Number.isFinite(share) ? Math.min(1, share) : 0;
  return h("div.gauge", { role: "group", aria: { label: `${label}: ${value}${limit ? ` of ${limit}` : ""}` } },
    h("span.gauge-label", {}, label),
    h("span.gauge-value", {}, value, limit && h("span.muted", {}, ` / ${limit}`)),
    limit && h(`span.gauge-bar${part > 0.8 ? ".high" : ""}`, { style: { "--share": String(part) } }));
}

function firstTask(model) {
  return model.rows.findLast((row) => row.kind === "task")?.text.split("\n", 1)[0].slice(0, 200) ?? "";
}

function badge(status) {
  return { running: "▸ ", waiting: "● ", failed: "✗ " }[status] ?? "";
}

/** Agent, model, limits and policy of a run. */

import { button, fill, h } from "../dom.js";
import { money } from "../format.js";
import { t, tn } from "../i18n.js";

const NUMBERS = [
  ["max_steps", t("Steps"), 1, "1"],
  ["max_cost_usd", t("Dollars"), 0, "any"],
  ["max_total_tokens", t("Tokens"), 1, "1"],
  ["timeout_s", t("Seconds"), 1, "any"],
];
const POLICIES = {
  ask: t("Ask me first"),
  auto: t("Allow"),
  never: t("Refuse"),
};

const OTHER = "?"; // no model is called that

/**
 * Build the form; `values()` gives only what the person set.
 *
 * @param {() => void} setUp  Opens the form for another provider or key.
 */
export function createOptions(setUp) {
  const agent = h("select", { id: "agent" });
  const about = h("div.muted", { id: "agent-about" });
  const model = modelPicker();
  const numbers = Object.fromEntries(NUMBERS.map(([name, , min, step]) =>
    [name, h("input", { type: "number", min: String(min), step, inputMode: "decimal" })]));
  const policy = h("select", {});
  const sandbox = h("select", {});
  const network = h("input", { type: "checkbox" });
  const review = h("input", { type: "checkbox" });
  const touched = new Set();
  let descriptions = new Map();
  let defaults = {};

  for (const [name, input] of Object.entries({ ...numbers, policy, sandbox, network, review_plan: review })) {
    input.addEventListener("input", () => touched.add(name));
  }
  agent.setAttribute("aria-describedby", "agent-about");
  const describe = () => {
    about.textContent = descriptions.get(agent.value) ?? "";
    reviewRow.hidden = agent.value !== "planning";
  };
  agent.addEventListener("change", describe);

  const reviewRow = h("label.check", {}, review, h("span", {}, t("Show me the plan before it is carried out")));
  const agentRow = h("div", {}, h("label.stack", {}, h("span", {}, t("Agent")), agent), about);
  const element = h("div.options", {},
    agentRow,
    h("div.stack.model-choice", {}, model.element, button(t("Set up another model…"), setUp, { kind: "link" })),
    h("fieldset.limits", {}, h("legend", {}, t("Limits of one run")),
      NUMBERS.map(([name, words]) => h("label.stack", {}, h("span", {}, words), numbers[name]))),
    h("label.stack", {}, h("span", {}, t("Calls with effects outside")), policy),
    h("label.stack", {}, h("span", {}, t("Sandbox")), sandbox),
    h("label.check", {}, network, h("span", {}, t("Network in the sandbox"))),
    reviewRow);

  const values = () => {
    const context = {};
    if (model.touched()) context.model = model.value();
    for (const [name, input] of Object.entries(numbers)) {
      if (touched.has(name) && input.value !== "") context[name] = Number(input.value);
    }
    if (touched.has("policy")) context.policy = policy.value;
    if (touched.has("sandbox")) context.sandbox = sandbox.value;
    if (touched.has("network")) context.network = network.checked;
    if (touched.has("review_plan")) context.review_plan = review.checked;
    return context;
  };

  return {
    element,
    agent: () => agent.value,
    values,
    /** Say in one line what a run would use. */
    summary() {
      const limit = (key) => Number(numbers[key].value || defaults[key]) || null;
      const steps = limit("max_steps");
      const dollars = limit("max_cost_usd");
      return [agent.value, model.value() || t("no model"), steps && tn(steps, "{n} step", "{n} steps"),
        dollars && money(dollars), POLICIES[policy.value]].filter(Boolean).join(" · ");
    },
    invalid: () => [...element.querySelectorAll("input")].find((input) => !input.checkValidity()) ?? null,
    /** Take what the server offers. */
    offer(options) {
      descriptions = new Map(options.agents.map((one) => [one.name, t(one.description)]));
      fill(agent, options.agents.map((one) => h("option", { value: one.name }, one.name)));
      agent.value = options.default_agent;
      model.offer(options.models, options.model ?? "");
      fill(policy, options.policies.map((name) => h("option", { value: name }, POLICIES[name] ?? name)));
      fill(sandbox, options.sandboxes.map((name) => h("option", { value: name }, name)));
      defaults = options.defaults;
      this.use({ agent: options.default_agent, options: {} });
    },
    /** Show what a thread's runs use, or the defaults of a new one. */
    use({ agent: name, options = {} }, { fixedAgent = false } = {}) {
      touched.clear();
      if (descriptions.has(name)) agent.value = name;
      agent.disabled = fixedAgent;
      const given = { ...defaults, ...options };
      model.use(options.model);
      for (const [key, input] of Object.entries(numbers)) {
        input.value = options[key] ?? "";
        input.placeholder = defaults[key] ?? t("no limit");
      }
      policy.value = given.policy ?? "ask";
      sandbox.value = given.sandbox ?? "auto";
      network.checked = Boolean(given.network);
      review.checked = Boolean(given.review_plan);
      describe();
    },
  };
}

/** Choose among the models that are known, or write another one's name. */
function modelPicker() {
  const select = h("select", { id: "model", on: { change: () => changed() } });
  const other = h("input", { type: "text", hidden: true, spellcheck: false, autocomplete: "off",
    placeholder: "openai:gpt-5-mini", aria: { label: t("Name of the model") } });
  const element = h("label.stack", {}, h("span", {}, t("Model")), select);
  let known = [];
  let standard = "";
  let used = ""; // what the thread's runs use

  const value = () => (select.value === OTHER ? other.value.trim() : select.value);

  function changed() {
    other.hidden = select.value !== OTHER;
    if (!other.hidden) other.focus();
  }

  function draw(chosen) {
    const names = [...new Set([...known, chosen].filter(Boolean))];
    fill(select, names.map((name) => h("option", { value: name }, name === standard ? t("{model} (standard)", { model: name }) : name)),
      h("option", { value: OTHER }, t("Another one…")));
    select.value = chosen || OTHER;
    other.value = "";
    other.hidden = true;
  }

  return {
    element: h("div.stack", {}, element, other),
    value,
    touched: () => value() !== "" && value() !== used,
    offer(models, model) {
      known = models;
      standard = model;
    },
    use(model) {
      used = model ?? standard;
      draw(used);
    },
  };
}

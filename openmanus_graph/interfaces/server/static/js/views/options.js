/** Agent, model, limits and policy of a run. */

import { fill, h } from "../dom.js";

const NUMBERS = [
  ["max_steps", "Steps", 1, "1"],
  ["max_cost_usd", "Dollars", 0, "any"],
  ["max_total_tokens", "Tokens", 1, "1"],
  ["timeout_s", "Seconds", 1, "any"],
];
const POLICIES = {
  ask: "Ask me first",
  auto: "Allow",
  never: "Refuse",
};

/** Build the form; `values()` gives only what the person set. */
export function createOptions() {
  const agent = h("select", { id: "agent" });
  const about = h("div.muted", { id: "agent-about" });
  const models = h("datalist", { id: "models" });
  const model = h("input", { type: "text", id: "model", spellcheck: false, autocomplete: "off" });
  model.setAttribute("list", "models");
  const numbers = Object.fromEntries(NUMBERS.map(([name, , min, step]) =>
    [name, h("input", { type: "number", min: String(min), step, inputMode: "decimal" })]));
  const policy = h("select", {});
  const sandbox = h("select", {});
  const network = h("input", { type: "checkbox" });
  const review = h("input", { type: "checkbox" });
  const touched = new Set();
  let descriptions = new Map();
  let defaults = {};

  for (const [name, input] of Object.entries({ model, ...numbers, policy, sandbox, network, review_plan: review })) {
    input.addEventListener("input", () => touched.add(name));
  }
  agent.setAttribute("aria-describedby", "agent-about");
  const describe = () => {
    about.textContent = descriptions.get(agent.value) ?? "";
    reviewRow.hidden = agent.value !== "planning";
  };
  agent.addEventListener("change", describe);

  const reviewRow = h("label.check", {}, review, h("span", {}, "Show me the plan before it is carried out"));
  const agentRow = h("div", {}, h("label.stack", {}, h("span", {}, "Agent"), agent), about);
  const element = h("div.options", {},
    agentRow,
    h("label.stack", {}, h("span", {}, "Model"), model, models),
    h("fieldset.limits", {}, h("legend", {}, "Limits of one run"),
      NUMBERS.map(([name, words]) => h("label.stack", {}, h("span", {}, words), numbers[name]))),
    h("label.stack", {}, h("span", {}, "Calls with effects outside"), policy),
    h("label.stack", {}, h("span", {}, "Sandbox"), sandbox),
    h("label.check", {}, network, h("span", {}, "Network in the sandbox")),
    reviewRow);

  const values = () => {
    const context = {};
    if (touched.has("model") && model.value.trim()) context.model = model.value.trim();
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
      const name = model.value || model.placeholder || "no model";
      const limit = (key) => numbers[key].value || defaults[key];
      return [agent.value, name, `${limit("max_steps")} steps`, `$${limit("max_cost_usd")}`, policy.value].join(" · ");
    },
    invalid: () => [...element.querySelectorAll("input")].find((input) => !input.checkValidity()) ?? null,
    /** Take what the server offers. */
    offer(options) {
      descriptions = new Map(options.agents.map((one) => [one.name, one.description]));
      fill(agent, options.agents.map((one) => h("option", { value: one.name }, one.name)));
      agent.value = options.default_agent;
      fill(models, options.models.map((name) => h("option", { value: name })));
      fill(policy, options.policies.map((name) => h("option", { value: name }, POLICIES[name] ?? name)));
      fill(sandbox, options.sandboxes.map((name) => h("option", { value: name }, name)));
      defaults = options.defaults;
      this.use({ agent: options.default_agent, options: {} });
      model.placeholder = options.model ?? "PROVIDER:NAME";
    },
    /** Show what a thread's runs use, or the defaults of a new one. */
    use({ agent: name, options = {} }, { fixedAgent = false } = {}) {
      touched.clear();
      if (descriptions.has(name)) agent.value = name;
      agent.disabled = fixedAgent;
      const given = { ...defaults, ...options };
      model.value = options.model ?? "";
      for (const [key, input] of Object.entries(numbers)) {
        input.value = options[key] ?? "";
        input.placeholder = defaults[key] ?? "no limit";
      }
      policy.value = given.policy ?? "ask";
      sandbox.value = given.sandbox ?? "auto";
      network.checked = Boolean(given.network);
      review.checked = Boolean(given.review_plan);
      describe();
    },
  };
}

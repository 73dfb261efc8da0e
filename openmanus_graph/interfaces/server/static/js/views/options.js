/** Agent, model, limits and policy of a run. */

import { button, fill, h } from "../dom.js";
import { money } from "../format.js";
import { t, tn } from "../i18n.js";

const POLICIES = {
  ask: t("Ask me first"),
  auto: t("Allow"),
  never: t("Refuse"),
};
const SANDBOXES = {
  auto: t("Automatic"), bwrap: "Bubblewrap", docker: "Docker", ssh: t("Another machine, by SSH"),
  none: t("None: programs may do what you may do"),
};
const NETWORKS = { off: t("Off"), ask: t("On, new hosts are asked about"), any: t("On, every host") };
const CHOICES = { policy: POLICIES, sandbox: SANDBOXES, network: NETWORKS };

const OTHER = "?"; // no model is called that

/**
 * Build the form; `values()` gives only what the person set.
 *
 * @param {() => void} setUp  Opens the form for another provider or key.
 * @param {(agent: string) => void} showExtensions  Lists what an agent can use.
 */
export function createOptions(setUp, showExtensions) {
  const agent = h("select", { id: "agent" });
  const about = h("div.muted", { id: "agent-about" });
  const model = modelPicker();
  const touched = new Set();
  /** By the name of a setting: its control, and what the server says of it. */
  const fields = new Map();
  const limits = h("fieldset.limits", {});
  let descriptions = new Map();
  let defaults = {};

  agent.setAttribute("aria-describedby", "agent-about");
  const describe = () => {
    about.textContent = descriptions.get(agent.value) ?? "";
    const review = fields.get("review_plan");
    if (review) review.row.hidden = agent.value !== "planning";
  };
  agent.addEventListener("change", describe);

  const agentRow = h("div", {}, h("label.stack", {}, h("span", {}, t("Agent")), agent), about,
    button(t("Tools, skills and MCP servers…"), () => showExtensions(agent.value), { kind: "link" }));
  const modelRow = h("div.stack.model-choice", {}, model.element, button(t("Set up another model…"), setUp, { kind: "link admins-only" }));
  const element = h("div.options", {});

  /** Build the form: the server says which settings are in it. */
  function build(form) {
    fields.clear();
    for (const field of form) {
      const control = controlOf(field, defaults[field.name]);
      const words = h("span", {}, t(field.label));
      const row = field.kind === "switch" ? h("label.check", {}, control, words) : h("label.stack", {}, words, control);
      control.addEventListener("input", () => touched.add(field.name));
      fields.set(field.name, { ...field, control, row });
    }
    const all = [...fields.values()];
    fill(limits, h("legend", {}, t("Limits of one run")), all.filter((one) => one.kind === "number").map((one) => one.row));
    fill(element, agentRow, modelRow, limits, all.filter((one) => one.kind !== "number").map((one) => one.row));
  }

  const values = () => {
    const context = {};
    if (model.touched()) context.model = model.value();
    for (const name of touched) {
      const { kind, control } = fields.get(name);
      if (kind === "switch") context[name] = control.checked;
      else if (kind === "choice") context[name] = control.value;
      else if (control.value !== "") context[name] = Number(control.value);
    }
    return context;
  };

  return {
    element,
    agent: () => agent.value,
    values,
    /** Say in one line what a run would use. */
    summary() {
      const limit = (name) => Number(fields.get(name)?.control.value || defaults[name]) || null;
      const steps = limit("max_steps");
      const dollars = limit("max_cost_usd");
      return [agent.value, model.value() || t("no model"), steps && tn(steps, "{n} step", "{n} steps"),
        dollars && money(dollars), POLICIES[fields.get("policy")?.control.value]].filter(Boolean).join(" · ");
    },
    invalid: () => [...element.querySelectorAll("input")].find((input) => !input.checkValidity()) ?? null,
    /** Take what the server offers. */
    offer(options) {
      descriptions = new Map(options.agents.map((one) => [one.name, t(one.description)]));
      fill(agent, options.agents.map((one) => h("option", { value: one.name }, one.name)));
      agent.value = options.default_agent;
      model.offer(options.models, options.model ?? "");
      defaults = options.defaults;
      build(options.form);
      this.use({ agent: options.default_agent, options: {} });
    },
    /** Show what a thread's runs use, or the defaults of a new one. */
    use({ agent: name, options = {} }, { fixedAgent = false } = {}) {
      touched.clear();
      if (descriptions.has(name)) agent.value = name;
      agent.disabled = fixedAgent;
      model.use(options.model);
      for (const { name: key, kind, control } of fields.values()) {
        if (kind === "switch") control.checked = Boolean(options[key] ?? defaults[key]);
        else if (kind === "choice") control.value = options[key] ?? defaults[key];
        else control.value = options[key] ?? "";
      }
      describe();
    },
  };
}

/** The control of a setting. */
function controlOf({ kind, name, values, integer }, usual) {
  if (kind === "switch") return h("input", { type: "checkbox" });
  if (kind === "choice") {
    return h("select", {}, values.map((one) => h("option", { value: one }, CHOICES[name]?.[one] ?? one)));
  }
  return h("input", { type: "number", min: integer ? "1" : "0", step: integer ? "1" : "any", inputMode: "decimal",
    placeholder: usual ?? t("no limit") });
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
    fill(select, names.map((name) => h("option", { value: name }, name === standard ? t("{model} (default)", { model: name }) : name)),
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

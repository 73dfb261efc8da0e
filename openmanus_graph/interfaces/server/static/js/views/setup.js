/** The form for a model: provider, key and name, which the server tries before it keeps them. */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { t } from "../i18n.js";

const SHOWN_FIRST = ["openai", "anthropic", "google", "deepseek", "openrouter", "moonshot", "ollama"];
const NAMES = {
  openai: t("OpenAI, or a compatible server"), anthropic: "Anthropic", google: "Google", deepseek: "DeepSeek",
  openrouter: "OpenRouter", moonshot: "Moonshot (Kimi)", ollama: t("Ollama, on this machine"), azure: "Azure OpenAI",
  bedrock: "Amazon Bedrock", groq: "Groq", mistralai: "Mistral", xai: "xAI", together: "Together", fireworks: "Fireworks",
};

let forms = 0;

/** Build the form; `done()` is called when a model works and was made the standard. */
export function createSetup(done) {
  const listId = `offered-models-${++forms}`;
  const provider = h("select", { required: true, on: { change: () => fit() } });
  const address = h("input", { type: "url", spellcheck: false, autocomplete: "off", on: { change: () => look() } });
  const key = h("input.mono", { type: "password", autocomplete: "off", spellcheck: false, on: { change: () => look() } });
  const model = h("input.mono", { type: "text", required: true, spellcheck: false, autocomplete: "off", list: listId });
  const offered = h("datalist", { id: listId });
  const said = h("div.muted", { role: "status" });
  const error = h("div.error", { role: "alert" });
  const go = h("button.btn.primary", { type: "submit" }, h("span", {}, t("Test and save")));
  const addressRow = h("label.stack", {}, h("span", {}, t("Address (only for a server of your own)")), address);
  const keyRow = h("label.stack", {}, h("span", {}, t("Key")), key);
  const element = h("form.setup", { on: { submit } },
    h("label.stack", {}, h("span", {}, t("Provider")), provider), addressRow, keyRow,
    h("label.stack", {}, h("span", {}, t("Model")), model), offered, said, error,
    h("div.buttons", {}, go));
  let providers = new Map();

  function fit() {
    const chosen = providers.get(provider.value);
    addressRow.hidden = !chosen?.takes_base_url;
    model.value = chosen?.suggested ?? "";
    look();
  }

  /** List what a given server offers; without a key if it wants none, or if nobody answers. */
  async function look() {
    fill(offered, []);
    said.textContent = "";
    const takesKey = providers.get(provider.value)?.takes_key;
    keyRow.hidden = !takesKey;
    const base_url = addressRow.hidden ? "" : address.value.trim();
    if (!base_url && provider.value !== "ollama") return;
    const { models } = await api.offeredModels({ model: provider.value, base_url, key: takesKey ? key.value : "" });
    keyRow.hidden = !takesKey || (!key.value && (models === null || models.length > 0));
    said.textContent = models === null ? t("Nobody answers there.") : "";
    fill(offered, (models ?? []).map((name) => h("option", { value: name })));
    if (models?.length && model.value === (providers.get(provider.value)?.suggested ?? "")) model.value = models[0];
  }

  async function load() {
    if (providers.size) return;
    const listed = (await api.setup()).providers;
    const rank = ({ name }) => (SHOWN_FIRST.includes(name) ? SHOWN_FIRST.indexOf(name) : SHOWN_FIRST.length);
    listed.sort((left, right) => rank(left) - rank(right));
    providers = new Map(listed.map((one) => [one.name, one]));
    fill(provider, listed.map(({ name }) => h("option", { value: name }, NAMES[name] ?? name)));
    fit();
  }

  async function submit(event) {
    event.preventDefault();
    error.textContent = "";
    go.disabled = true;
    go.firstChild.textContent = t("Trying it…");
    try {
      await api.chooseModel({
        model: `${provider.value}:${model.value.trim()}`,
        base_url: addressRow.hidden ? "" : address.value.trim(),
        key: keyRow.hidden ? "" : key.value,
      });
      key.value = "";
      await done();
    } catch (problem) {
      error.textContent = problem.message;
      keyRow.hidden = !providers.get(provider.value)?.takes_key;  // some list their models to anybody
    } finally {
      go.disabled = false;
      go.firstChild.textContent = t("Test and save");
    }
  }

  return { element, load: () => load().catch((problem) => { error.textContent = problem.message; }) };
}

/** Build a form for the values that MCP servers of the files want; `done()` is called with each. */
export function createInputs(done) {
  const element = h("div.inputs");
  return {
    element,
    offer(inputs) {
      fill(element, inputs.map((one) => {
        const usual = one.default ?? "";
        const value = one.options
          ? h("select", {}, one.options.map((option) => h("option", { value: option }, option)))
          : h("input", { type: one.password ? "password" : "text", value: usual, autocomplete: "off", required: true });
        const give = async (event) => {
          event.preventDefault();
          await api.giveInput(one.place, value.value);
          await done();
        };
        return h("form.setup", { on: { submit: give } },
          h("label.stack", {}, h("span", {}, one.description ?? one.id), value),
          h("div.buttons", {}, h("button.btn", { type: "submit" }, t("Keep it"))));
      }));
    },
  };
}

/** Build the same form in a dialog. */
export function createSetupDialog(done) {
  const form = createSetup(async () => {
    await done();
    dialog.close();
  });
  const dialog = h("dialog.small-dialog", { aria: { labelledby: "setup-title" } },
    h("h2", { id: "setup-title" }, t("Set up a model")),
    h("p.muted", {}, t("The model gets a short test request. If it answers, it becomes the default. Its key is stored on this machine, where only you can read it.")),
    form.element, button(t("Cancel"), () => dialog.close(), { kind: "quiet" }));
  return {
    element: dialog,
    open() {
      form.load();
      dialog.showModal();
    },
  };
}

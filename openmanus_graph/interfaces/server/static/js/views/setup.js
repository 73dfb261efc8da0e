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

/** Build the form; `done()` is called when a model works and was made the standard. */
export function createSetup(done) {
  const provider = h("select", { required: true, on: { change: () => fit() } });
  const address = h("input", { type: "url", spellcheck: false, autocomplete: "off" });
  const key = h("input.mono", { type: "password", autocomplete: "off", spellcheck: false });
  const model = h("input.mono", { type: "text", required: true, spellcheck: false, autocomplete: "off" });
  const error = h("div.error", { role: "alert" });
  const go = h("button.btn.primary", { type: "submit" }, h("span", {}, t("Try and keep it")));
  const addressRow = h("label.stack", {}, h("span", {}, t("Address (only for a server of your own)")), address);
  const keyRow = h("label.stack", {}, h("span", {}, t("Key")), key);
  const element = h("form.setup", { on: { submit } },
    h("label.stack", {}, h("span", {}, t("Provider")), provider), addressRow, keyRow,
    h("label.stack", {}, h("span", {}, t("Model")), model), error,
    h("div.buttons", {}, go));
  let providers = new Map();

  function fit() {
    const chosen = providers.get(provider.value);
    addressRow.hidden = !chosen?.takes_base_url;
    keyRow.hidden = !chosen?.takes_key;
    model.value = chosen?.suggested ?? "";
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
    } finally {
      go.disabled = false;
      go.firstChild.textContent = t("Try and keep it");
    }
  }

  return { element, load: () => load().catch((problem) => { error.textContent = problem.message; }) };
}

/** Build the same form in a dialog. */
export function createSetupDialog(done) {
  const form = createSetup(async () => {
    await done();
    dialog.close();
  });
  const dialog = h("dialog.small-dialog", { aria: { labelledby: "setup-title" } },
    h("h2", { id: "setup-title" }, t("Set up a model")),
    h("p.muted", {}, t("It is asked for a word. If it answers, it becomes the standard, and its key is kept on this machine, readable by you only.")),
    form.element, button(t("Cancel"), () => dialog.close(), { kind: "quiet" }));
  return {
    element: dialog,
    open() {
      form.load();
      dialog.showModal();
    },
  };
}

/** Editing a call's arguments: one field each, or all of them as JSON. */

import { h, button } from "./dom.js";
import { t } from "./i18n.js";

/**
 * Build an editor.
 *
 * @param {object} args
 * @returns {{element: HTMLElement, read: () => object}}  `read` throws an Error that says what is wrong.
 */
export function argumentEditor(args) {
  const names = Object.keys(args);
  const fields = new Map(names.map((name) => [name, field(name, args[name])]));
  const raw = h("textarea.mono", { rows: 8, spellcheck: false, aria: { label: t("Arguments as JSON") } });
  const byField = h("div.fields", {}, [...fields.values()].map((one) => one.element));
  let asJson = names.length === 0;

  const readFields = () => Object.fromEntries(names.map((name) => [name, fields.get(name).read()]));
  const read = () => (asJson ? parseObject(raw.value) : readFields());
  const show = () => {
    byField.hidden = asJson;
    raw.hidden = !asJson;
    toggle.querySelector("span").textContent = asJson ? t("Edit as fields") : t("Edit as JSON");
  };
  const toggle = button(t("Edit as JSON"), () => {
    error.textContent = "";
    try {
      const now = read();
      if (!asJson) raw.value = JSON.stringify(now, null, 2);
      else for (const name of names) fields.get(name).write(now[name]);
      const unknown = asJson && Object.keys(now).filter((name) => !fields.has(name));
      if (unknown?.length) throw new Error(t("There is no field for {names}: stay with JSON.", { names: unknown.join(", ") }));
      asJson = !asJson;
    } catch (problem) {
      error.textContent = problem.message;
    }
    show();
  }, { kind: "link" });
  const error = h("div.error", { role: "alert" });
  if (asJson) raw.value = JSON.stringify(args, null, 2);
  show();
  return { element: h("div.editor", {}, byField, raw, error, names.length > 0 && toggle), read };
}

function field(name, value) {
  if (typeof value === "boolean") {
    const box = h("input", { type: "checkbox", checked: value });
    return {
      element: h("label.check", {}, box, h("span.arg-name", {}, name)),
      read: () => box.checked,
      write: (next) => { box.checked = Boolean(next); },
    };
  }
  const words = typeof value === "string";
  const text = (shown) => (typeof shown === "string" && words ? shown : JSON.stringify(shown, null, 2) ?? "");
  const first = text(value);
  const input = first.includes("\n") || first.length > 60
    ? h("textarea.mono", { rows: Math.min(12, first.split("\n").length + 1), spellcheck: false, value: first })
    : h("input.mono", { type: "text", spellcheck: false, value: first });
  return {
    element: h("label.stack", {}, h("span.arg-name", {}, name), input),
    read: () => (words ? input.value : parseValue(name, input.value, value)),
    write: (next) => { input.value = text(next); },
  };
}

function parseValue(name, text, before) {
  try {
    const value = JSON.parse(text);
    if (typeof before !== "number" || typeof value === "number") return value;
    throw new SyntaxError();
  } catch {
    throw new Error(typeof before === "number" ? t("{name} must be a number.", { name }) : t("{name} is not valid JSON. A text needs quotes here.", { name }));
  }
}

function parseObject(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (problem) {
    throw new Error(t("This is not valid JSON: {problem}", { problem: problem.message }));
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new Error(t("The arguments are one JSON object, in braces."));
  }
  return value;
}

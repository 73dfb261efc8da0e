/** A button that copies a text. */

import { button } from "./dom.js";
import { t } from "./i18n.js";

export function copyButton(text, what) {
  const copy = async () => {
    const label = element.querySelector("span");
    try {
      await navigator.clipboard.writeText(text);
      label.textContent = t("Copied");
    } catch {
      label.textContent = t("Not allowed here"); // no secure context, or refused by the person
    }
    setTimeout(() => { label.textContent = t("Copy"); }, 1500);
  };
  const element = button(t("Copy"), copy, { kind: "link quiet", iconName: "copy", title: t("Copy {what}", { what }) });
  return element;
}

/** A button that copies a text. */

import { button } from "../dom.js";

export function copyButton(text, what) {
  const copy = async () => {
    const label = element.querySelector("span");
    try {
      await navigator.clipboard.writeText(text);
      label.textContent = "Copied";
    } catch {
      label.textContent = "Not allowed here"; // no secure context, or refused by the person
    }
    setTimeout(() => { label.textContent = "Copy"; }, 1500);
  };
  const element = button("Copy", copy, { kind: "link quiet", title: `Copy ${what.toLowerCase()}` });
  return element;
}

/** Single keys, wherever one does not write; they can be switched off. */

import { t } from "./i18n.js";

const KEY = "openmanus_shortcuts";

export const SHORTCUTS = [
  ["n", t("New task")],
  ["/", t("Search threads")],
  ["m", t("Write a message")],
  ["j", t("Next entry of the timeline")],
  ["k", t("Entry before")],
  ["o", t("Open or close the call under the focus")],
  ["l", t("Go to the latest entry")],
  ["a", t("Go to what waits for your answer")],
  ["1 2 3 4 5", t("Files, plan, browser, steps, desktop")],
  ["Shift+S", t("Stop the run")],
  ["?", t("This help")],
  ["Esc", t("Close what is open")],
];

export const shortcutsOn = () => localStorage.getItem(KEY) !== "off";
export const setShortcuts = (on) => localStorage.setItem(KEY, on ? "on" : "off");

/** Listen; `actions` has a function by key (`S` is Shift+S). */
export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (!shortcutsOn() || isWriting(event.target) || document.querySelector("dialog[open]")) return;
    const action = actions[event.key];
    if (!action || (event.key === " " && event.target.closest?.("button, a, summary"))) return;
    event.preventDefault();
    action();
  });
}

function isWriting(target) {
  return target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;
}

/** Help, and the token when the server wants one. */

import { button, h } from "../dom.js";
import { SHORTCUTS, setShortcuts, shortcutsOn } from "../shortcuts.js";

/** Build the help. */
export function createHelp(version) {
  const box = h("input", { type: "checkbox", checked: shortcutsOn(), on: { change: () => setShortcuts(box.checked) } });
  const dialog = h("dialog.small-dialog", { aria: { labelledby: "help-title" } },
    h("h2", { id: "help-title" }, "Keyboard and help"),
    h("p", {}, "Tab goes through everything; Enter sends, Shift+Enter begins a new line. Where you do not write, single keys do this:"),
    h("dl.keys", {}, SHORTCUTS.map(([keys, words]) => h("div", {}, h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, words)))),
    h("label.check", {}, box, h("span", {}, "Use single keys")),
    h("p", {}, "Drop files anywhere to put them into the workspace. While the agent works, a message corrects it: it reads it at its next step."),
    h("p.muted", {}, `OpenManus ${version}`),
    h("div.buttons", {}, button("Close", () => dialog.close(), { kind: "primary" })));
  return dialog;
}

/** Build the form that asks for the token; `use(token)` may throw what is wrong with it. */
export function createTokenForm(use) {
  const input = h("input.mono", { type: "password", id: "token", autocomplete: "off", required: true });
  const error = h("div.error", { role: "alert" });
  const form = h("form", { on: {
    submit: async (event) => {
      event.preventDefault();
      error.textContent = "";
      try {
        await use(input.value);
        input.value = "";
        dialog.close();
      } catch (problem) {
        error.textContent = problem.message;
        input.focus();
      }
    },
  } },
  h("label.stack", { htmlFor: "token" }, h("span", {}, "Token"), input), error,
  h("div.buttons", {}, h("button.btn.primary", { type: "submit" }, "Connect")));
  const dialog = h("dialog.small-dialog", { aria: { labelledby: "token-title" } },
    h("h2", { id: "token-title" }, "This server asks for a token"),
    h("p", {}, "Open the address that openmanus serve printed, or paste the token from it here."), form);
  dialog.addEventListener("cancel", (event) => event.preventDefault()); // without it nothing works
  return { element: dialog, open: () => { if (!dialog.open) dialog.showModal(); } };
}

/** Help, and the token when the server wants one. */

import { canNotify, notifies, setNotify } from "../notify.js";
import * as api from "../api.js";
import { button, h } from "../dom.js";
import { t } from "../i18n.js";
import { SHORTCUTS, setShortcuts, shortcutsOn } from "../shortcuts.js";

/** Build the help. */
export function createHelp(version) {
  const box = h("input", { type: "checkbox", checked: shortcutsOn(), on: { change: () => setShortcuts(box.checked) } });
  const told = h("input", { type: "checkbox", checked: notifies(), on: { change: async () => { told.checked = await setNotify(told.checked); } } });
  const dialog = h("dialog.small-dialog", { aria: { labelledby: "help-title" } },
    h("h2", { id: "help-title" }, t("Keyboard and help")),
    h("p", {}, t("Tab moves through all controls. Enter sends, Shift+Enter starts a new line. Outside of text fields, these keys work:")),
    h("dl.keys", {}, SHORTCUTS.map(([keys, words]) => h("div", {}, h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, words)))),
    h("label.check", {}, box, h("span", {}, t("Use keyboard shortcuts"))),
    canNotify() && h("label.check", {}, told, h("span", {}, t("Notify me when a run ends or asks while I look elsewhere"))),
    h("p", {}, t("Drop files anywhere to put them into the workspace. While the agent works, a message corrects it: it reads it at its next step.")),
    h("p.muted", {}, `OpenManus ${version}`),
    h("div.buttons", {}, button(t("Close"), () => dialog.close(), { kind: "primary" })));
  return dialog;
}

/** Build the line that says who is signed in; `signOut` is called for its button. */
export function createAccount(signOut) {
  const name = h("span.account-name");
  const element = h("div.account", { hidden: true }, name, button(t("Sign out"), signOut, { kind: "quiet small" }));
  return {
    element,
    show(user) {
      element.hidden = !user.name;
      name.textContent = name.title = user.name;
    },
  };
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
        error.textContent = problem.status === 401 ? t("This token is wrong.") : problem.message;
        input.focus();
      }
    },
  } },
  h("label.stack", { htmlFor: "token" }, h("span", {}, t("Token")), input), error,
  h("div.buttons", {}, h("button.btn.primary", { type: "submit" }, t("Connect"))));
  const link = h("a.btn.primary", { href: "/app/login" }, t("Sign in"));
  const signIn = h("div.sign-in", { hidden: true },
    h("p", {}, t("Sign in with your account at the identity provider of this server.")),
    h("div.buttons", {}, link));
  const dialog = h("dialog.small-dialog", { aria: { labelledby: "token-title" } },
    h("h2", { id: "token-title" }, t("This server asks for a token")),
    signIn, h("p", {}, t("Open the address that was shown when the server was started, or paste the token from it here.")), form);
  dialog.addEventListener("cancel", (event) => event.preventDefault()); // without it nothing works
  return {
    element: dialog,
    async open() {
      if (dialog.open) return;
      dialog.showModal();
      signIn.hidden = !(await api.canSignIn());
      if (!signIn.hidden) link.focus();
    },
  };
}

/** Ask whether something is to be deleted. */
export function confirmDeletion(question) {
  return new Promise((resolve) => {
    const cancel = button(t("Cancel"), () => dialog.close());
    const dialog = h("dialog.small-dialog", { role: "alertdialog", aria: { labelledby: "confirm-question" }, on: { close: () => {
      dialog.remove();
      resolve(dialog.returnValue === "delete");
    } } },
    h("p", { id: "confirm-question" }, question),
    h("div.buttons", {}, button(t("Delete"), () => dialog.close("delete"), { kind: "danger" }), cancel));
    document.body.append(dialog);
    dialog.showModal();
    cancel.focus();
  });
}

/** Build the form for another title; `rename(id, title)` may throw what is wrong. */
export function createRename(rename) {
  const input = h("input", { type: "text", id: "new-title", maxLength: 200, required: true });
  const error = h("div.error", { role: "alert" });
  let thread = null;
  const form = h("form", { on: {
    submit: async (event) => {
      event.preventDefault();
      error.textContent = "";
      try {
        await rename(thread, input.value);
        dialog.close();
      } catch (problem) {
        error.textContent = problem.message;
      }
    },
  } },
  h("label.stack", { htmlFor: "new-title" }, h("span", {}, t("Title")), input), error,
  h("div.buttons", {}, h("button.btn.primary", { type: "submit" }, t("Rename")),
    button(t("Cancel"), () => dialog.close())));
  const dialog = h("dialog.small-dialog", { aria: { labelledby: "rename-title" } },
    h("h2", { id: "rename-title" }, t("Rename the thread")), form);
  return {
    element: dialog,
    open(id, title) {
      thread = id;
      input.value = title;
      error.textContent = "";
      dialog.showModal();
      input.select();
    },
  };
}

/** What leaves of a thread: files to save, and the links by which others read it. */

import * as api from "../api.js";
import { copyButton } from "../copy.js";
import { button, fill, h } from "../dom.js";
import { t, tn } from "../i18n.js";

/** Build the dialog. */
export function createShare() {
  const made = h("div.stack", { role: "status" });
  const count = h("p.muted", { role: "status" });
  const error = h("div.error", { role: "alert" });
  const revoke = button(t("Revoke all links"), () => act(async () => {
    await api.unshare(thread);
    fill(made);
  }), { kind: "danger" });
  const make = button(t("Make a link"), () => act(async () => {
    const url = new URL(await api.share(thread), location.href).href;
    fill(made, h("input.mono", { type: "text", readOnly: true, value: url, aria: { label: t("Link") } }), copyButton(url, t("Link")));
  }), { kind: "primary", iconName: "share" });
  const save = (form, label) => button(label, () => act(async () => {
    const address = URL.createObjectURL(await api.exported(thread, form));
    h("a", { href: address, download: `${named}.${form === "html" ? "html" : "md"}` }).click();
    URL.revokeObjectURL(address);
  }), { iconName: "download" });
  const dialog = h("dialog.small-dialog", { aria: { labelledby: "share-title" } },
    h("h2", { id: "share-title" }, t("Save or share the thread")),
    h("div.buttons", {}, save("html", t("Page with results")), save("markdown", "Markdown")),
    h("p", {}, t("Anyone with the link can read this thread, including later messages, but cannot change it. The link is shown only once.")),
    made, count, error, h("div.buttons", {}, make, revoke, button(t("Close"), () => dialog.close())));
  let thread = null;
  let named = ""; // the saved files

  async function act(action) {
    error.textContent = "";
    try {
      await action();
      const links = await api.shares(thread);
      count.textContent = links ? tn(links, "{n} active link", "{n} active links") : t("There are no links.");
      revoke.hidden = !links;
    } catch (problem) {
      error.textContent = problem.message;
    }
  }

  return {
    element: dialog,
    open(id, title) {
      thread = id;
      named = title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || id;
      fill(made);
      count.textContent = "";
      revoke.hidden = true;
      dialog.showModal();
      act(async () => {});
    },
  };
}

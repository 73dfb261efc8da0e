/** One file, shown beside the conversation; it is shown again when it changes. */

import { button, fill, h } from "../dom.js";
import { bytes } from "../format.js";
import { t } from "../i18n.js";
import { downloadLink, showFile } from "./artifact.js";

/** Build the view; `open(file, files)` shows a file; `files` is what `markdown` takes. */
export function createPreview(onClose = () => {}) {
  const title = h("h2", { id: "preview-title" });
  const facts = h("span.muted", {});
  const body = h("div.preview-body", { tabIndex: 0, role: "group", aria: { labelledby: "preview-title" } });
  const tools = h("div.buttons", {});
  const dialog = h("dialog.file-view", { aria: { labelledby: "preview-title" } },
  h("div.file-head", {}, h("div.grow", {}, title, facts), tools, button("", close, { kind: "icon quiet", iconName: "cross", title: t("Close") })),
  body);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog:modal") && !event.target.closest("input, textarea")) close();
  });
  let shown = null;
  let files = {};
  let before = null;

  function close() {
    if (!dialog.open) return;
    dialog.close();
    shown = null;
    fill(body);
    onClose();
    if (before?.isConnected) before.focus({ preventScroll: true });
  }

  function draw(file) {
    shown = file;
    title.textContent = title.title = file.path;
    facts.textContent = `${bytes(file.size)} · ${file.media_type}`;
    fill(tools, downloadLink(file));
    const content = h("div.preview-content", {}); // one that comes late must not replace the next file
    fill(body, content);
    return showFile(content, file, files);
  }

  return {
    element: dialog,
    close,
    async open(file, named) {
      files = named;
      before = document.activeElement;
      if (!dialog.open) dialog.show();
      fill(body, h("p.empty", {}, t("Loading…")));
      body.focus({ preventScroll: true });
      await draw(file);
    },
    /** Take over the newest state of the files: `find(path)` returns one, or nothing. */
    refresh(find) {
      const now = shown && find(shown.path);
      if (now && (now.modified !== shown.modified || now.size !== shown.size)) draw(now);
    },
  };
}

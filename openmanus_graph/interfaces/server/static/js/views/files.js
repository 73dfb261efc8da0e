/** The files of the thread's workspace. */

import * as api from "../api.js";
import { button, fill, h, icon } from "../dom.js";
import { ago, bytes } from "../format.js";
import { t } from "../i18n.js";
import { downloadLink } from "./artifact.js";

const SETTLE_MS = 400;

/**
 * Build the pane.
 *
 * @param {object} actions  `open(file)` shows one, `attach(files)` uploads, `changed()` learns that
 *   there are others: texts may name them.
 */
export function createFiles(actions) {
  const list = h("ul.files", {});
  const note = h("p.empty", { role: "status" });
  const chooser = h("input", { type: "file", multiple: true, hidden: true, on: {
    change: () => {
      actions.attach([...chooser.files]);
      chooser.value = "";
    },
  } });
  const filter = h("input", { type: "search", placeholder: t("Filter files"), aria: { label: t("Filter files") },
    hidden: true, on: { input: () => draw() } });
  const place = h("div.muted.path", {});
  const element = h("div.panel-body", {},
    h("div.panel-tools", {}, filter, button(t("Upload"), () => chooser.click(), { iconName: "clip" }), chooser),
    note, list, place);
  let files = new Map();
  let thread = null;
  let timer = null;
  let revision = -1;
  let made = new Set();
  let failed = false;
  let connected = false;

  async function load(id) {
    failed = false;
    try {
      const answer = await api.files(id);
      if (id !== thread) return;
      const before = state();
      files = new Map(answer.files.map((file) => [file.path, file]));
      if (state() !== before) actions.changed();
      place.title = answer.workspace;
      place.textContent = answer.workspace.split("/").slice(-2).join("/") + (answer.truncated ? ` (${t("only the first files are listed")})` : "");
      draw();
    } catch (error) {
      if (id !== thread) return;
      failed = true;
      note.textContent = error.status === 0 ? "" : error.message; // a banner says it
    }
  }

  const state = () => [...files.values()].map((file) => `${file.path} ${file.modified} ${file.size}`).join("\n");

  function draw() {
    const words = filter.value.toLowerCase();
    const shown = [...files.values()].filter((file) => file.path.toLowerCase().includes(words));
    filter.hidden = files.size < 8;
    note.textContent = files.size ? "" : t("No files yet. Drop some here, or choose Upload.");
    fill(list, shown.map((file) => h("li", {},
      h("button.file", { type: "button", on: { click: () => actions.open(file) } },
        icon(file.view === "image" ? "image" : "file"),
        h("span.name", {}, file.path),
        h("span.facts.muted", {},
          made.has(file.path) && h("span.tag", { title: t("Made or changed by the last run") }, t("last run")),
          h("span", {}, bytes(file.size)), h("span.when", {}, ago(file.modified)))),
      downloadLink(file, "icon quiet"))));
  }

  return {
    element,
    /** Find a file that a link or a result names. */
    find: (path) => files.get(path.replace(/^\.\//, "")),
    reload: () => thread && load(thread),
    show(session) {
      const id = session?.id ?? null;
      const next = session?.model.filesRevision ?? -1;
      if (id !== thread) {
        thread = id;
        files = new Map();
        revision = -1;
        place.textContent = "";
        draw();
        if (id) load(id);
      }
      const back = !connected && session?.connection.connected;
      connected = session?.connection.connected ?? false;
      if (failed && back) load(id); // what the server could not tell while it was away
      if (!id || next === revision) return;
      revision = next;
      made = new Set(session.model.artifacts.map((one) => one.path));
      clearTimeout(timer);
      timer = setTimeout(() => load(id), SETTLE_MS);
    },
  };
}

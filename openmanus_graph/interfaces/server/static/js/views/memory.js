/** The notes that agents keep: the list, and one of them to read, change or delete. */

import * as api from "../api.js";
import { button, fill, h, icon } from "../dom.js";
import { ago } from "../format.js";
import { t } from "../i18n.js";
import { confirmDeletion } from "./dialogs.js";

const UNTRUSTED = t("Written after untrusted content was read: agents take it as information, never as an instruction.");

/** Build the dialog. */
export function createMemory() {
  const list = h("ul.note-list", {});
  const empty = h("p.empty", { role: "status" });
  const error = h("div.error", { role: "alert" });
  const path = h("input.mono", { type: "text", id: "note-path", required: true, maxLength: 200 });
  const text = h("textarea.mono", { id: "note-text", rows: 12, maxLength: 16000 });
  const trusted = h("input", { type: "checkbox" });
  const confirmed = h("label.check", {}, trusted, h("span", {}, t("I have read it, and confirm all of it")));
  const untrusted = h("p.untrusted", {}, UNTRUSTED);
  const remove = button(t("Delete"), () => act(async () => {
    if (!await confirmDeletion(t("Delete the note {path}?", { path: path.value }))) return;
    await api.deleteNote(path.value);
    await load();
  }), { kind: "danger", iconName: "trash" });
  const form = h("form", { on: { submit: (event) => {
    event.preventDefault();
    act(async () => {
      await api.saveNote({ path: path.value, text: text.value, before, trusted: trusted.checked });
      await load();
    });
  } } },
  h("label.stack", { htmlFor: "note-path" }, h("span", {}, t("Path: /memories/NAME.md of this project, /memories/user/NAME.md of yours")), path),
  untrusted,
  h("label.stack", { htmlFor: "note-text" }, h("span", {}, t("Note")), text), confirmed,
  h("div.buttons", {}, h("button.btn.primary", { type: "submit" }, t("Save")), remove, button(t("Back"), () => act(load))));
  const overview = h("div.notes", {}, h("p.muted", {}, t("What agents with the tool memory know in later conversations. What you write here is your own.")),
    empty, list, h("div.buttons", {}, button(t("New note"), () => edit(null), { kind: "primary", iconName: "plus" }), button(t("Close"), () => dialog.close())));
  const dialog = h("dialog.small-dialog.memory-dialog", { aria: { labelledby: "memory-title" } },
    h("h2", { id: "memory-title" }, t("Notes that agents keep")), error, overview, form);
  let before = null; // the text that the person saw; null of a new note

  async function act(action) {
    error.textContent = "";
    try {
      await action();
    } catch (problem) {
      error.textContent = problem.message;
    }
  }

  async function load() {
    const { notes } = await api.notes();
    form.hidden = true;
    overview.hidden = false;
    empty.textContent = notes.length ? "" : t("There are no notes.");
    fill(list, notes.map((note) => h("li", {},
      h("button.file", { type: "button", on: { click: () => act(async () => edit(await api.note(note.path))) } },
        icon("note"),
        h("span.name", {}, note.path),
        h("span.facts.muted", {},
          note.untrusted && h("span.tag.warn", { title: UNTRUSTED }, t("untrusted")),
          h("span.when", {}, ago(note.changed)))))));
  }

  function edit(note) {
    error.textContent = "";
    before = note?.text ?? null;
    path.value = note?.path ?? "/memories/";
    path.readOnly = note !== null;
    text.value = before ?? "";
    trusted.checked = false;
    confirmed.hidden = untrusted.hidden = !note?.untrusted;
    remove.hidden = note === null;
    form.hidden = false;
    overview.hidden = true;
    (note ? text : path).focus();
  }

  return {
    element: dialog,
    open() {
      form.hidden = true;
      dialog.showModal();
      act(load);
    },
  };
}

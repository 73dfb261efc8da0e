/**
 * The agent's browser in a person's hands: its window as a picture, and a pointer and keys for it.
 *
 * What is typed goes to the browser only: it is in no model, no event and no storage of this page.
 */

import * as api from "../api.js";
import { button, fill, h } from "../dom.js";
import { t } from "../i18n.js";
import { clickCounter, coalesced, finger, keyInput, placeIn } from "../remote.js";
import { sseParser } from "../stream.js";

const KEPT = "\u200b"; // always in the box, so that a phone's Backspace has something to delete

/**
 * Build the dialog.
 *
 * @param {object} actions  `done(thread, worker)` is called when a browser was given back, `left()` when the
 *   dialog is closed.
 */
export function createTakeover({ done, left }) {
  const title = h("h2", { id: "takeover-title" }, t("You control the agent's browser"));
  const address = h("div.takeover-address.muted", {});
  const picture = h("img.stage", { alt: t("The page. Click it to use it."), draggable: false });
  const box = h("textarea.stage-box", { rows: 1, spellcheck: false, autocomplete: "off", autocapitalize: "off",
    aria: { label: t("Keys for the page; Esc leads back to the buttons") }, value: KEPT });
  const stage = h("div.stage-frame", {}, picture, box);
  const note = h("div.takeover-note", { role: "status" });
  const give = button(t("Give it back"), () => giveBack(), { kind: "primary", iconName: "check" });
  const controls = [
    button("", () => send({ kind: "back" }), { kind: "icon quiet", iconName: "back", title: t("Back") }),
    button("", () => send({ kind: "reload" }), { kind: "icon quiet", iconName: "reload", title: t("Reload") }),
  ];
  const showStage = (on) => { for (const one of [stage, give, ...controls]) one.hidden = !on; };
  const dialogBar = h("div.takeover-dialog", { hidden: true });
  const element = h("dialog.takeover", { aria: { labelledby: "takeover-title" }, on: { cancel: (event) => {
    event.preventDefault(); // Esc leads out of the page, not out of the browser
    give.focus();
  } } },
  h("header", {}, h("div.grow", {}, title, address),
    ...controls, button(t("Leave"), () => leave(), { kind: "quiet" }), give),
  h("p.muted.takeover-hint", {}, t("What you type goes to the page only. The agent waits, and learns only that you are done."), " ",
    h("span.touch-only", {}, t("Drag to scroll, pinch to enlarge."))),
  note, dialogBar, stage);
  let thread = null;
  let worker = "";
  let id = null;
  let window_ = { width: 1280, height: 800 };
  let queue = [];
  let sending = false;
  let watching = null;
  let drawnDialog = "";

  const place = (event) => placeIn(picture.getBoundingClientRect(), window_, event.clientX, event.clientY);
  const count = clickCounter();
  const counted = (at) => count(at, performance.now());
  const touch = finger();

  function send(...inputs) {
    if (!id) return;
    queue.push(...inputs);
    flush();
  }

  async function flush() {
    if (sending) return;
    sending = true;
    while (queue.length && id) {
      const inputs = coalesced(queue);
      queue = [];
      try {
        await api.takeoverInput(thread, id, inputs);
      } catch (error) {
        if (error.status === 410) ended();
        else note.textContent = error.message;
      }
    }
    queue = [];
    sending = false;
  }

  stage.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    box.focus({ preventScroll: true });
    const at = place(event);
    if (event.pointerType !== "mouse") send(...touch.down(at));
    else send({ kind: "down", ...at, button: ["left", "middle", "right"][event.button] ?? "left", count: counted(at) });
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse") send({ kind: "move", ...place(event) });
    else send(...touch.move(place(event)));
  });
  stage.addEventListener("pointerup", (event) => {
    if (event.pointerType !== "mouse") send(...touch.up(counted));
    else send({ kind: "up", ...place(event), button: ["left", "middle", "right"][event.button] ?? "left" });
  });
  stage.addEventListener("pointercancel", () => touch.cancel());
  stage.addEventListener("contextmenu", (event) => event.preventDefault());
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    send({ kind: "wheel", ...place(event), dx: event.deltaX, dy: event.deltaY });
  }, { passive: false });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return; // the dialog's
    const input = keyInput(event);
    if (!input) return;
    event.preventDefault();
    send(input);
  });
  const written = () => {
    const text = box.value.replaceAll(KEPT, "");
    if (text) send({ kind: "text", text });
    else if (!box.value) send({ kind: "key", text: "Backspace" });
    box.value = KEPT;
  };
  box.addEventListener("input", (event) => { if (!event.isComposing) written(); });
  box.addEventListener("compositionend", written);
  window.addEventListener("pagehide", () => { if (id) api.endTakeover(thread, id, { keepalive: true }).catch(() => {}); });

  async function watch() {
    const mine = (watching = new AbortController());
    const parse = sseParser();
    try {
      const response = await api.takeoverFrames(thread, id, mine.signal);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done: over, value } = await reader.read();
        if (over) break;
        for (const event of parse(value)) {
          if (event.type === "frame") draw(event);
        }
      }
    } catch {
      // the connection broke off, or the person left
    }
    if (watching === mine) ended();
  }

  function draw(frame) {
    if (frame.image) { // else a dialog kept it from being taken
      window_ = { width: frame.width, height: frame.height };
      picture.src = `data:image/jpeg;base64,${frame.image}`;
      picture.width = frame.width;
      picture.height = frame.height;
    }
    address.textContent = [frame.title, frame.url].filter(Boolean).join(" · ");
    const asked = `${frame.dialog_type} ${frame.dialog}`;
    if (asked === drawnDialog) return;
    drawnDialog = asked;
    dialogBar.hidden = !frame.dialog_type;
    const answer = frame.dialog_type === "prompt"
      && h("input", { type: "text", autocomplete: "off", aria: { label: t("Your answer") } });
    const words = frame.dialog_type === "beforeunload" ? t("Leave this page? What was entered may be lost.") : frame.dialog;
    fill(dialogBar, h("span.pre", {}, words), answer,
      button(t("OK"), () => send({ kind: "dialog", accept: true, text: answer ? answer.value : "" }), { kind: "primary" }),
      button(t("Cancel"), () => send({ kind: "dialog", accept: false })));
  }

  function ended() {
    stop();
    note.textContent = t("This is over: the browser was closed, or somebody took it over elsewhere.");
    showStage(false);
  }

  function stop() {
    id = null;
    watching?.abort();
    watching = null;
  }

  async function begin(force) {
    note.textContent = t("Opening the browser…");
    try {
      id = await api.beginTakeover(thread, worker, force);
    } catch (error) {
      const held = error.status === 409;
      fill(note, h("span", {}, held ? t("Somebody has it in another tab, or the agent is using it just now.") : error.message), " ",
        held && button(t("Take it all the same"), () => begin(true), { kind: "link" }));
      return;
    }
    note.textContent = "";
    showStage(true);
    box.focus({ preventScroll: true });
    watch();
  }

  async function giveBack() {
    const [of, mine] = [thread, id];
    stop();
    try {
      if (mine) await api.endTakeover(of, mine);
      await done(of, worker);
      close();
    } catch (error) {
      note.textContent = error.message;
    }
  }

  function leave() {
    const [of, mine] = [thread, id];
    stop();
    if (mine) api.endTakeover(of, mine).catch(() => {}); // it ends by itself, too
    close();
  }

  function close() {
    picture.removeAttribute("src");
    element.close();
    left();
  }

  return {
    element,
    /** Take a browser over: the thread's own, or that of a worker of its plan. */
    open(of, ofWorker = "") {
      if (element.open) return;
      [thread, worker] = [of, ofWorker];
      queue = [];
      showStage(false);
      drawnDialog = "";
      dialogBar.hidden = true;
      address.textContent = "";
      element.showModal();
      begin(false);
    },
  };
}

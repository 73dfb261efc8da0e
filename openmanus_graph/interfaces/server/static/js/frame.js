/** The three panes: side by side where there is room, one at a time on a phone. */

import { h, icon } from "./dom.js";
import { t } from "./i18n.js";

const NARROW = window.matchMedia("(max-width: 719px)");
const WIDE = window.matchMedia("(min-width: 1100px)");

/**
 * Build the frame.
 *
 * @param {object} parts  The panes, and `onDrop(files)`.
 */
export function createFrame({ threads, main, panel, onDrop }) {
  const veil = h("div.drop-veil", { hidden: true }, h("span", {}, t("Drop files to put them into the workspace")));
  const nav = h("nav.panes", { aria: { label: t("Panes") } });
  const element = h("div.frame", {}, threads.element, main, panel.element, nav, veil);
  const tabs = new Map([
    ["threads", tab("threads", t("Threads"), "list")],
    ["run", tab("run", t("Run"), "play")],
    ["details", tab("details", t("Details"), "panel")],
  ]);
  nav.append(...tabs.values());
  const frame = { element, show, back, toggleDetails, setOpen };
  let pane = "run";
  let before = "run";
  let details = WIDE.matches;
  let open = false; // whether there is a thread that could have details

  function tab(id, label, name) {
    return h("button.pane-tab", { type: "button", on: { click: () => show(id) } }, icon(name), h("span", {}, label));
  }

  /** Leave what lay over the details: on a phone it was opened from the run. */
  function back() {
    if (NARROW.matches && pane === "details" && before === "run") show("run");
  }

  function show(id) {
    before = pane;
    if (id === "details") {
      details = true;
    } else if (!WIDE.matches && !NARROW.matches && id === "threads") details = false;
    pane = id;
    draw();
  }

  function toggleDetails() {
    details = !details;
    pane = details ? "details" : "run";
    draw();
  }

  function setOpen(on) {
    if (on === open) return;
    open = on;
    draw();
  }

  function draw() {
    element.dataset.pane = pane;
    element.dataset.details = details && open ? "open" : "closed";
    tabs.get("details").disabled = !open;
    main.classList.toggle("is-new", !open);
    for (const [id, one] of tabs) {
      if (id === pane) one.setAttribute("aria-current", "true");
      else one.removeAttribute("aria-current");
    }
    for (const one of [threads.element, panel.element]) {
      const alone = NARROW.matches && one.id === pane;
      one.setAttribute("role", alone ? "main" : "complementary");
    }
    panel.setShown(open && (NARROW.matches ? pane === "details" : details));
  }

  NARROW.addEventListener("change", draw);
  WIDE.addEventListener("change", () => {
    details = WIDE.matches;
    draw();
  });
  dropZone(veil, onDrop);
  draw();
  return frame;
}

function dropZone(veil, onDrop) {
  let depth = 0;
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const on = (name, action) => document.addEventListener(name, (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    action(event);
  });
  const draw = () => { veil.hidden = depth <= 0; };
  on("dragenter", () => { depth += 1; draw(); });
  on("dragleave", () => { depth -= 1; draw(); });
  on("dragover", () => {});
  on("drop", (event) => {
    depth = 0;
    draw();
    onDrop([...event.dataTransfer.files]);
  });
}

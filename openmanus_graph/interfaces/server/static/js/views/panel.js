/** The pane on the right: tabs of which one is shown. */

import { h } from "../dom.js";
import { t } from "../i18n.js";

/**
 * Build the tabs.
 *
 * @param {Array<{id: string, label: string, view: {element: HTMLElement, setVisible?: Function}}>} tabs
 * @param {(id: string) => void} onSelect
 * @param {HTMLElement} cover  A dialog that may lie over the tabs.
 */
export function createPanel(tabs, onSelect = () => {}, cover = null) {
  const buttons = new Map();
  const bodies = new Map();
  let current = tabs[0].id;
  let shown = false;

  for (const { id, label, view } of tabs) {
    buttons.set(id, h("button.tab", { type: "button", role: "tab", id: `tab-${id}`,
      aria: { controls: `body-${id}` }, on: { click: () => choose(id) } }, label));
    bodies.set(id, h("div.tab-body", { id: `body-${id}`, role: "tabpanel", tabIndex: 0,
      aria: { labelledby: `tab-${id}` } }, view.element));
  }
  const bar = h("div.tabs", { role: "tablist", aria: { label: t("Details") }, on: { keydown: (event) => arrows(event) } },
    [...buttons.values()]);
  const element = h("div.panel", { id: "details", aria: { label: t("Details") } },
    h("h1.sr-only.narrow-only", {}, t("Details")), bar, [...bodies.values()], cover);

  function arrows(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const ids = tabs.map((tab) => tab.id);
    choose(ids[(ids.indexOf(current) + by + ids.length) % ids.length]);
    buttons.get(current).focus();
  }

  function select(id) {
    current = id;
    draw();
  }

  function choose(id) {
    select(id);
    onSelect(id);
  }

  function draw() {
    for (const { id, view } of tabs) {
      const chosen = id === current;
      buttons.get(id).setAttribute("aria-selected", String(chosen));
      buttons.get(id).tabIndex = chosen ? 0 : -1;
      bodies.get(id).hidden = !chosen;
      view.setVisible?.(chosen && shown);
    }
  }

  draw();
  return {
    element,
    /** Show a tab without anybody having asked for it. */
    select,
    choose,
    focus: () => buttons.get(current).focus(),
    /** Say whether the pane is on the screen at all. */
    setShown(on) {
      shown = on;
      draw();
    },
  };
}

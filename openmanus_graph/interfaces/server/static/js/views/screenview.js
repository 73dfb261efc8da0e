/** What the agent's browser or its desktop shows, as a picture. */

import { button, fill, h } from "../dom.js";
import { t } from "../i18n.js";
import { safeAddress } from "../markdown.js";

const POLL_MS = 2000;

/**
 * Build the view.
 *
 * @param {{load: Function, empty: string, described: Function, revision: string, takeOver?: Function}} source The request
 *   that it comes from, words where there is none, words for the picture by what it shows, the field of the model that
 *   counts its uses, and what puts a thread's screen into the person's hands where that can be done.
 */
export function createScreenView({ load, empty, described, revision: field, takeOver }) {
  const element = h("div.panel-body", {});
  let thread = null;
  let visible = false;
  let running = false;
  let timer = null;
  let revision = -1;

  async function look() {
    clearTimeout(timer);
    const id = thread;
    if (!id || !visible || document.hidden) return;
    try {
      const view = await load(id);
      if (id === thread) draw(view);
    } catch (error) {
      if (id === thread) fill(element, h("p.error", {}, error.message));
    }
    if (running) timer = setTimeout(look, POLL_MS);
  }

  function draw(view) {
    if (!view.open) {
      fill(element, h("p.empty", {}, empty));
      return;
    }
    const address = view.url && safeAddress(view.url);
    const image = element.querySelector("img") ?? h("img.screen");
    if (view.image?.startsWith("data:image/")) image.src = view.image; // else it is busy just now
    image.alt = described(view.title || view.url);
    fill(element, h("div.address", {}, h("strong", {}, view.title || t("Untitled")),
      address ? h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, view.url) : h("span", {}, view.url ?? "")),
    takeOver && button(t("Take the browser over"), () => takeOver(thread), { iconName: "globe" }), image.src && image);
  }

  document.addEventListener("visibilitychange", look);
  return {
    element,
    look,
    setVisible(on) {
      if (on === visible) return;
      visible = on;
      look();
    },
    show(session) {
      const id = session?.id ?? null;
      const next = session?.model[field] ?? 0;
      running = session?.model.status === "running" && next > 0;
      if (id !== thread) {
        thread = id;
        draw({ open: false });
      } else if (next === revision) return;
      revision = next;
      look();
    },
  };
}

/** What an answer claims, in its text: each figure opens where it comes from. */

import { h } from "../dom.js";
import { t, tn } from "../i18n.js";
import { safeAddress } from "../markdown.js";

const WORDS = {
  quoted: () => t("The source says this."),
  same_value: () => t("The source has this value in another notation."),
  computed: () => t("A program printed this."),
  derived: () => t("This follows from numbers of the source."),
  not_found: () => t("This was not found in any source."),
};

/** Return how many claims of an answer were found, in words; empty if it has none. */
export function countOfClaims({ checked = 0, found = 0, not_found: missing = 0 } = {}) {
  if (!checked) return "";
  return missing ? `${tn(checked, "{n} figure", "{n} figures")}: ${t("{found} found, {missing} not found", { found, missing })}`
    : tn(checked, "{n} figure has a source", "{n} figures have a source");
}

/**
 * Make buttons of the claims in a rendered text.
 *
 * @param {HTMLElement} body  The text.
 * @param {object[]} sources  The claims with their sources, in the order of the text.
 * @param {(callId: string) => string} nameOfCall  What is shown of a call; empty if it is unknown.
 */
export function markClaims(body, sources, nameOfCall = () => "") {
  let nodes = textNodes(body);
  for (const source of sources) {
    if (source.file) continue;
    const at = nodes.findIndex((node) => node.data.includes(source.text));
    if (at < 0) continue; // formatting divides it, or code hides it
    const node = nodes[at];
    const found = node.splitText(node.data.indexOf(source.text));
    const rest = found.splitText(source.text.length);
    const control = h(`button.claim.${source.kind}`, { type: "button", title: WORDS[source.kind]?.(), aria: { expanded: "false" },
      on: { click: () => toggle(control, source, nameOfCall) } }, found.data);
    found.replaceWith(control);
    nodes = [rest, ...nodes.slice(at + 1)];
  }
  return body;
}

function textNodes(body) {
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    if (!walker.currentNode.parentElement.closest("pre, button")) found.push(walker.currentNode);
  }
  return found;
}

function toggle(control, source, nameOfCall) {
  const block = control.closest("p, li, div.table, blockquote, h1, h2, h3, h4, h5, h6") ?? control;
  const open = control.getAttribute("aria-expanded") === "true";
  control.setAttribute("aria-expanded", String(!open));
  if (open) {
    control.card?.remove();
    return;
  }
  control.card = card(source, nameOfCall);
  block.after(control.card);
}

/** Where a claim comes from: the words about it, the source, and its line there. */
export function card(source, nameOfCall) {
  const address = safeAddress(source.source);
  const name = address ? source.source : (source.call_id && nameOfCall(source.call_id)) || source.source;
  return h("div.claim-source", { role: "note" },
    h("strong", {}, source.text), " ", WORDS[source.kind]?.() ?? "",
    name && h("div", {}, address
      ? h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, name)
      : h("code", {}, name)),
    source.excerpt && source.kind !== "derived" && h("pre.code", { tabIndex: 0 }, source.excerpt));
}

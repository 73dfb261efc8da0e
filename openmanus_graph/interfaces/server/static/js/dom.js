/** Building elements. Text is always set as text: nothing here, or anywhere, parses HTML. */

/**
 * Build an element.
 *
 * @param {string} tag  Name, with classes after dots: `div.card.open`.
 * @param {object} [props]  `on` (listeners by event), `data` (dataset), `aria` (without the prefix),
 *   `style` (custom properties); anything the element has as a property, else an attribute.
 *   Undefined, null and false leave an attribute out.
 * @param {...(Node|string|number|null|undefined|false|Array)} children
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(props ?? {})) setProp(element, key, value);
  append(element, children);
  return element;
}

function setProp(element, key, value) {
  if (key === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  } else if (key === "data") {
    Object.assign(element.dataset, value);
  } else if (key === "aria") {
    for (const [name, given] of Object.entries(value)) {
      if (given !== undefined && given !== null) element.setAttribute(`aria-${name}`, String(given));
    }
  } else if (key === "style") {
    for (const [name, given] of Object.entries(value)) element.style.setProperty(name, given);
  } else if (value === undefined || value === null || value === false) {
    return;
  } else if (key in element && key !== "list" && key !== "form" && key !== "role") {
    element[key] = value;
  } else {
    element.setAttribute(key, value === true ? "" : String(value));
  }
}

function append(element, children) {
  element.append(...nodesOf(children));
}

function nodesOf(children) {
  const given = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return given.flatMap((child) => {
    const node = child instanceof Node ? child : breakable(String(child));
    return node instanceof DocumentFragment ? [...node.childNodes] : node;
  });
}

const LONG_WORD = /\S{500}/g;
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** Show control characters, and those that turn the direction of text around, as what they are: odd. */
export function plain(text) {
  return text.replace(UNSEEN, "\ufffd");
}

/** Make text that may be broken in long words: a browser takes minutes to wrap one of 100,000 letters. */
export function breakable(given) {
  const text = plain(given);
  const parts = document.createDocumentFragment();
  let from = 0;
  for (const { index, 0: word } of text.matchAll(LONG_WORD)) {
    parts.append(text.slice(from, index + word.length), document.createElement("wbr"));
    from = index + word.length;
  }
  parts.append(text.slice(from));
  return parts;
}

/** Replace what an element holds. What it holds already stays in place, so that a click on it is not lost. */
export function fill(element, ...children) {
  const wanted = nodesOf(children);
  const stays = new Set(wanted);
  for (const old of [...element.childNodes]) if (!stays.has(old)) old.remove();
  wanted.forEach((node, at) => {
    const there = element.childNodes[at] ?? null;
    if (there !== node) element.insertBefore(node, there);
  });
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Build an element of a drawing. */
export function shape(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Draw an icon of `index.html`'s sprite; it is decoration, the control beside it has the words. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** Build a button. */
export function button(label, onClick, { kind = "", iconName, title, ...props } = {}) {
  const classes = ["button", "btn", ...kind.split(" ").filter(Boolean)].join(".");
  const parts = [iconName && icon(iconName), label && h("span", {}, label)];
  return h(
    classes,
    { type: "button", title, aria: label ? {} : { label: title }, on: { click: onClick }, ...props },
    ...parts,
  );
}

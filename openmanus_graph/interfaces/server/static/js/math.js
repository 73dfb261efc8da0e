/**
 * Formulas in LaTeX, by Temml, which is fetched with the first formula that is shown.
 *
 * It reads the text into a tree, and this builds MathML of a closed list of elements from the tree. What
 * it cannot read stays the text that it is.
 */

import { h } from "./dom.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const ELEMENTS = new Set("math semantics mrow mi mn mo ms mtext mspace mover munder munderover msup msub msubsup mmultiscripts mprescripts mfrac msqrt mroot mtable mtr mtd mstyle mpadded mphantom menclose none".split(" "));
const ATTRIBUTES = new Set("accent accentunder columnalign columnlines columnspacing depth display displaystyle fence form height largeop linethickness lspace mathvariant maxsize minsize movablelimits notation rowspacing rowlines rspace scriptlevel separator stretchy symmetric voffset width columnspan".split(" "));
const STYLES = new Set("color backgroundColor border borderBottom borderTop borderLeft borderRight display fontSize fontWeight fontStyle height mathDepth padding paddingLeft paddingRight textAlign textDecoration width".split(" "));
const OPTIONS = { throwOnError: true, trust: false, maxSize: [20, 20], maxExpand: 300 };
const MOST_KNOWN = 500;
const KINDS = [
  { pattern: /^\$\$([^$]{1,4000}?)\$\$/, display: true },
  { pattern: /^\\\[([^]{1,4000}?)\\\]/, display: true },
  { pattern: /^\\\(([^]{1,2000}?)\\\)/, display: false },
  { pattern: /^\$(?![\s$])((?:\\[^\n]|[^\\$\n]){1,500}?)(?<!\s)\$(?![\d$])/, display: false, check: looksLikeMath },
];
const known = new Map();
let library = null;
let loading = null;

/** Whether what stands between two dollar signs is a formula, and not a text about money. */
function looksLikeMath(text) {
  return /[\\^_=+<>{}]/.test(text) || (text.length <= 12 && /[a-z]/i.test(text) && !/\s[a-z]{2}|[a-z]{4}/i.test(text));
}

/** Return the formula at the beginning of a text, or undefined. Pure. */
export function formulaAt(text) {
  for (const { pattern, display, check } of KINDS) {
    const found = pattern.exec(text);
    if (found && found[1].trim() && (!check || check(found[1]))) return { type: "formula", raw: found[0], text: found[1].trim(), display };
  }
  return undefined;
}

/** marked's extensions: formulas in lines, and those that have lines of their own, whatever these look like. */
export const FORMULAS = {
  inline: [formulaAt],
  startInline: [(text) => text.search(/\$|\\[[(]/)],
  block: [(text) => {
    const found = /^(?:\$\$|\\\[)/.test(text) && formulaAt(text);
    const end = found && /^[ \t]*(?:\n|$)/.exec(text.slice(found.raw.length));
    return end ? { ...found, raw: found.raw + end[0] } : undefined;
  }],
  startBlock: [(text) => {
    const end = text.indexOf("\n\n");
    return text.slice(0, end < 0 ? text.length : end).search(/(?<=\n)(?:\$\$|\\\[)/);
  }],
};

/** Build the element of a formula. */
export function formula({ raw, text, display }) {
  const element = h(display ? "span.formula.display" : "span.formula", {}, raw.trim());
  if (display) element.tabIndex = 0; // it may be scrolled
  if (library) draw(element, text, display);
  else {
    loading ??= import("../vendor/temml.js").then((module) => { library = module.default; }, () => {});
    loading.then(() => library && draw(element, text, display));
  }
  return element;
}

function draw(element, text, display) {
  const key = `${display}${text}`;
  if (!known.has(key)) {
    if (known.size >= MOST_KNOWN) known.clear();
    try {
      known.set(key, build(library.__renderToMathMLTree(text, { ...OPTIONS, displayMode: display })));
    } catch {
      known.set(key, null); // not a formula, or one of another kind
    }
  }
  const made = known.get(key);
  if (made) element.replaceChildren(made.cloneNode(true));
}

function build(node) {
  if (node.type === undefined && typeof node.text === "string") return document.createTextNode(node.text);
  if (node.type === undefined) {
    const all = document.createDocumentFragment();
    all.append(...node.children.map(build));
    return all;
  }
  if (!ELEMENTS.has(node.type)) throw new TypeError(node.type);
  const element = document.createElementNS(MATHML, node.type);
  for (const [name, value] of Object.entries(node.attributes)) if (ATTRIBUTES.has(name)) element.setAttribute(name, String(value));
  const classes = node.classes.filter((name) => /^[a-z][\w-]{0,30}$/i.test(name));
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(node.style)) if (STYLES.has(name) && !/url/i.test(value)) element.style[name] = value;
  element.append(...node.children.map(build));
  return element;
}

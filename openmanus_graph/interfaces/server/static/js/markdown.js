/**
 * Markdown of models, tools and files, as elements.
 *
 * marked's lexer makes tokens, and this builds what they mean from a closed list of elements. HTML in
 * the text is shown as the text it is. Links leave by http, https and mailto only; pictures come from
 * the thread's own files only.
 */

import { Lexer } from "../vendor/marked.js";
import { copyButton } from "./copy.js";
import { breakable, h } from "./dom.js";
import { colour } from "./highlight.js";
import { t } from "./i18n.js";
import { FORMULAS, formula } from "./math.js";

const MAX_CHARS = 200_000;
const DEEPEST = 40;
const MANY_MARKS = 400; // in one paragraph
const BUDGET_MS = 400;
const LONGEST_NAME = 300; // of a file

/** The lexer, but for text that is made, or happens, to keep it busy for minutes: that stays as it is. */
class PatientLexer extends Lexer {
  #until = performance.now() + BUDGET_MS;

  blockTokens(source, tokens = [], ...more) {
    return this.#spent() ? asText(source, tokens) : super.blockTokens(source, tokens, ...more);
  }

  inlineTokens(source, tokens = []) {
    const marks = source.match(/[*_~`[$]/g)?.length ?? 0;
    return this.#spent() || marks > MANY_MARKS ? asText(source, tokens) : super.inlineTokens(source, tokens);
  }

  #spent() {
    return performance.now() > this.#until;
  }
}

function asText(source, tokens) {
  tokens.push({ type: "text", raw: source, text: source });
  return tokens;
}

/**
 * Render Markdown.
 *
 * @param {string} text
 * @param {object} [options]
 * @param {(path: string) => object|null} [options.file]  The file of the thread that a link, a picture
 *   or a word names, or null if there is none.
 * @param {(path: string) => void} [options.openFile]  Shows such a file.
 * @param {boolean} [options.growing]  Whether more of the text is still to come.
 * @returns {HTMLElement}
 */
export function markdown(text, { file = () => null, openFile = () => {}, growing = false } = {}) {
  const shown = text.length > MAX_CHARS ? text.slice(0, MAX_CHARS) : text;
  const body = h("div.md", {});
  try {
    const tokens = new PatientLexer({ gfm: true, extensions: /\$|\\[[(]/.test(shown) ? FORMULAS : null }).lex(shown);
    const depths = tokens.filter((token) => token.type === "heading").map((token) => token.depth);
    const outline = { highest: Math.min(...depths), last: 1 };
    body.append(...blocks(tokens, { file, openFile, growing, depth: 0, outline }));
  } catch {
    body.append(h("pre.plain", {}, shown)); // no text may keep the page from showing it
  }
  if (shown !== text) body.append(h("p.muted", {}, t("… the rest is left out here.")));
  return body;
}

function blocks(tokens, context) {
  if (context.depth > DEEPEST) return [document.createTextNode(tokens.map((t) => t.raw).join(""))];
  const inner = { ...context, depth: context.depth + 1 };
  return tokens.map((token) => (BLOCKS[token.type] ?? plain)(token, inner)).flat(Infinity).filter(Boolean);
}

function inlines(tokens, context) {
  if (context.depth > DEEPEST) return [document.createTextNode(tokens.map((t) => t.raw).join(""))];
  const inner = { ...context, depth: context.depth + 1 };
  return (tokens ?? []).map((token) => (INLINES[token.type] ?? plain)(token, inner));
}

const plain = (token) => breakable(token.raw ?? "");
const unescaped = (token) => breakable(token.text);

/** A text whose words that are names of the thread's files open these. */
function named(token, context) {
  const parts = token.text.split(/([^\p{L}\p{N}_\-./]+)/u);
  const found = parts.map((part) => {
    const [, path, rest] = /^([^]*?)([.]*)$/.exec(part);
    return path.length <= LONGEST_NAME && path.includes(".") && context.file(path) ? [fileLink(path, context, path), rest] : null;
  });
  if (!found.some(Boolean)) return unescaped(token);
  return parts.map((part, index) => found[index] ?? breakable(part));
}

const fileLink = (path, context, ...children) =>
  h("button.inline-link", { type: "button", on: { click: () => context.openFile(path) } }, children);

const BLOCKS = {
  space: () => null,
  formula,
  def: () => null,
  hr: () => h("hr"),
  heading: (one, c) => h(`h${headingLevel(one.depth, c.outline)}`, {}, inlines(one.tokens, c)),
  paragraph: (one, c) => h("p", {}, inlines(one.tokens, c)),
  text: (one, c) => (one.tokens ? h("span", {}, inlines(one.tokens, c)) : named(one, c)),
  code: (token, c) => codeBlock(token.text, token.lang ?? "", c.growing),
  blockquote: (one, c) => h("blockquote", {}, blocks(one.tokens, c)),
  list: (one, c) => {
    const list = h(one.ordered ? "ol" : "ul", { dir: "auto" }, one.items.map((item) => listItem(item, c)));
    if (one.ordered && Number.isInteger(one.start) && one.start !== 1) list.start = one.start;
    return list;
  },
  table: (one, c) =>
    h("div.table", { tabIndex: 0, role: "group", dir: "auto", aria: { label: t("Table") } },
      h("table", {},
        h("thead", {}, h("tr", {}, one.header.map((cell) => tableCell("th", cell, c)))),
        h("tbody", {}, one.rows.map((row) => h("tr", {}, row.map((cell) => tableCell("td", cell, c))))))),
};

const INLINES = {
  formula,
  text: (one, c) => (one.tokens ? h("span", {}, inlines(one.tokens, c)) : c.linked ? unescaped(one) : named(one, c)),
  escape: unescaped,
  strong: (one, c) => h("strong", {}, inlines(one.tokens, c)),
  em: (one, c) => h("em", {}, inlines(one.tokens, c)),
  del: (one, c) => h("del", {}, inlines(one.tokens, c)),
  codespan: (one, c) => (!c.linked && one.text.length <= LONGEST_NAME && c.file(one.text)
    ? fileLink(one.text, c, h("code", {}, one.text)) : h("code", {}, breakable(one.text))),
  br: () => h("br"),
  link,
  image: picture,
  checkbox: (one) => checkbox(one.checked),
};

/** A block of code with its colours and a button that copies it. */
function codeBlock(text, name, growing) {
  const code = h("code", {}, text);
  const word = name.trim().split(/\s/, 1)[0];
  return h("div.codebox", {},
    h("div.codebox-head", {}, h("span", {}, word), !growing && copyButton(text, t("code"))),
    h("pre.code", { tabIndex: 0, data: { lang: name } }, growing ? code : colour(code, text, name)));
}

/** Under the page's own h1, and no level left out, whatever the text does. */
function headingLevel(depth, outline) {
  outline.last = Math.min(Math.max(2, depth - outline.highest + 2), outline.last + 1, 6);
  return outline.last;
}

function listItem(item, context) {
  const body = blocks(item.tokens.filter((token) => token.type !== "checkbox"), context);
  return h("li", {}, item.task && checkbox(item.checked), body);
}

function checkbox(checked) {
  return h("span", { role: "img", aria: { label: checked ? t("done") : t("to do") } }, checked ? "☑ " : "☐ ");
}

function tableCell(tag, cell, context) {
  const align = ["left", "right", "center"].includes(cell.align) ? cell.align : "";
  return h(align ? `${tag}.${align}` : tag, {}, inlines(cell.tokens, context));
}

function link(token, context) {
  const children = inlines(token.tokens, { ...context, linked: true });
  const path = ownPath(token.href);
  if (path !== null && context.file(path)) return fileLink(path, context, children);
  const address = safeAddress(token.href);
  if (address === null) return h("span", { title: token.href }, children);
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}

function picture(token, context) {
  const path = ownPath(token.href);
  const address = path === null ? null : context.file(path)?.url;
  if (!address) return h("span.muted", {}, `[${t("picture")}: ${token.text || token.href}]`);
  return h("img", { src: address, alt: token.text || token.href, loading: "lazy" });
}

/** Return an address that may be followed from the page, or null. */
export function safeAddress(href) {
  try {
    const url = new URL(href); // relative ones are not address of the web
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Return the path of the thread's own file that a link names, or null. */
function ownPath(href) {
  if (/^[a-z][a-z0-9+.-]*:|^\/|^#|^\\/i.test(href.trim())) return null;
  try {
    return decodeURIComponent(href.replace(/^\.\//, "").split(/[?#]/, 1)[0]);
  } catch {
    return null;
  }
}

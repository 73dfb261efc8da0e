/**
 * Colours for code, by highlight.js, which is fetched with the first code that is shown.
 *
 * It writes HTML; this reads the two tags that it uses back into elements, so that nothing on the
 * page parses HTML.
 */

import { breakable } from "./dom.js";

const MOST_CHARS = 60_000;
const LANGUAGES = {
  py: "python", ipynb: "json", js: "javascript", mjs: "javascript", jsx: "javascript", ts: "typescript",
  tsx: "typescript", sh: "bash", bash: "bash", zsh: "bash", shell: "bash", console: "bash", html: "xml",
  htm: "xml", svg: "xml", xml: "xml", md: "markdown", yml: "yaml", yaml: "yaml", toml: "ini", cfg: "ini",
  rs: "rust", rb: "ruby", kt: "kotlin", cs: "csharp", h: "c", hpp: "cpp", cc: "cpp", patch: "diff",
};
const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'" };
let library = null;
let loading = null;

/** Return the language of a file by its name, or of a Markdown fence by its first word. */
export function languageOf(name) {
  const word = name.trim().split(/[\s{]/, 1)[0].split(/[./\\]/).pop().toLowerCase();
  return LANGUAGES[word] ?? word;
}

/** Give an element, which holds a text, that text in colours; it stays as it is if none fit. */
export function colour(element, text, name) {
  const wanted = languageOf(name);
  if (!wanted || text.length > MOST_CHARS) return element;
  if (library) draw(element, text, wanted);
  else {
    loading ??= import("../vendor/highlight.js").then((module) => { library = module.default; }, () => {});
    loading.then(() => library && draw(element, text, wanted));
  }
  return element;
}

function draw(element, text, wanted) {
  if (!library.getLanguage(wanted)) return;
  const { value } = library.highlight(text, { language: wanted, ignoreIllegals: true });
  element.replaceChildren(...build(parts(value)));
}

/** Cut highlight.js's HTML into `{open}`, `{close}` and `{text}`. Pure. */
export function parts(html) {
  return html.split(/(<span class="[^"]*">|<\/span>)/).filter(Boolean).map((part) => {
    if (part === "</span>") return { close: true };
    const name = /^<span class="([^"]*)">$/.exec(part)?.[1];
    if (name !== undefined) return { open: name };
    return { text: part.replace(/&(?:amp|lt|gt|quot|#x27);/g, (entity) => ENTITIES[entity]) };
  });
}

function build(pieces) {
  const root = document.createDocumentFragment();
  const inside = [root];
  for (const { open, close, text } of pieces) {
    if (close) inside.pop();
    else if (open === undefined) inside.at(-1).append(breakable(text));
    else {
      const span = document.createElement("span");
      span.className = open;
      inside.at(-1).append(span);
      inside.push(span);
    }
  }
  return [...root.childNodes];
}

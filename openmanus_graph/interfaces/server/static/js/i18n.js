/**
 * The page's texts in the person's language.
 *
 * A text is named by its English words, which is what the code says; the other languages have a
 * table each. The language is the browser's until the person chooses one; it is settled when the
 * page is loaded, so that a table of words may be made at import.
 */

import { ZH } from "./words/zh.js";

const KEY = "openmanus_language";
const TABLES = { en: null, zh: ZH };

/** The languages by their own names. */
export const LANGUAGES = { en: "English", zh: "中文" };

/** Return the language for what was chosen and what the browser prefers, in its order. */
export function languageFor(chosen, preferred) {
  const wanted = [chosen, ...preferred].map((one) => String(one ?? "").toLowerCase().split("-")[0]);
  return wanted.find((one) => one in TABLES) ?? "en";
}

/** The language of this page. */
export const language = languageFor(
  globalThis.localStorage?.getItem(KEY), globalThis.navigator?.languages ?? [],
);

/** Remember a language; the page is to be loaded again. */
export function chooseLanguage(code) {
  localStorage.setItem(KEY, code);
}

/** Return a text in the page's language, with its `{places}` filled. */
export function t(text, values = {}) {
  return filled(TABLES[language]?.[text] ?? text, values);
}

/** Return the text for a number: `{n}` is the number as it is written. */
export function tn(number, one, many, values = {}) {
  const text = language === "en" && number === 1 ? one : TABLES[language]?.[many] ?? many;
  return filled(text, { n: Math.round(number).toLocaleString("en-US"), ...values });
}

function filled(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** The page's texts, as its code names them. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const JS = join(import.meta.dirname, "../../openmanus_graph/interfaces/server/static/js");
const LITERAL = '"((?:[^"\\\\]|\\\\.)*)"';
const ONE = new RegExp(`\\bt\\(\\s*(?:[^"(){}]+\\? )?${LITERAL}(?: : ${LITERAL})?`, "g");
const MANY = new RegExp(`\\btn\\([^"]*${LITERAL},\\s*${LITERAL}`, "g");

/** Yield the scripts of the page that are its own. */
export function* scripts(folder = JS) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* scripts(path);
    else if (entry.name.endsWith(".js")) yield path;
  }
}

/** Return the English texts that are named in the code. */
export function named() {
  const found = new Set();
  for (const path of scripts()) {
    const source = readFileSync(path, "utf8");
    for (const [, text, other] of source.matchAll(ONE)) {
      for (const one of [text, other].filter((given) => given !== undefined)) found.add(JSON.parse(`"${one}"`));
    }
    for (const [, , many] of source.matchAll(MANY)) found.add(JSON.parse(`"${many}"`));
  }
  return found;
}

import assert from "node:assert/strict";
import test from "node:test";
import { JS, named } from "./texts.js";

const { ZH } = await import(`${JS}/words/zh.js`);
const FROM_SERVER = JSON.parse(process.env.OPENMANUS_SERVER_TEXTS ?? "null"); // agents and settings
const places = (text) => [...text.matchAll(/\{\w+\}/g)].map(([place]) => place).sort();

test("Chinese has every text of the page, and none besides", () => {
  const wanted = new Set([...named(), ...(FROM_SERVER ?? [])]);
  assert.ok(wanted.size > 250);
  assert.deepEqual([...wanted].filter((text) => !(text in ZH)), []);
  if (FROM_SERVER) assert.deepEqual(Object.keys(ZH).filter((text) => !wanted.has(text)), []);
});

test("a translation has the places of its text, and is not a copy of it", () => {
  for (const [text, translated] of Object.entries(ZH)) {
    assert.deepEqual(places(translated), places(text), text);
    assert.notEqual(translated, text);
  }
});

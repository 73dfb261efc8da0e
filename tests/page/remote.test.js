import assert from "node:assert/strict";
import test from "node:test";
import { JS } from "./texts.js";

const { clickCounter, coalesced, finger, keyInput, placeIn } = await import(`${JS}/remote.js`);

test("a place of the picture is a place of the window, and never outside of it", () => {
  const picture = { left: 10, top: 20, width: 640, height: 400 };
  const window = { width: 1280, height: 800 };
  assert.deepEqual(placeIn(picture, window, 330, 120), { x: 640, y: 200 });
  assert.deepEqual(placeIn(picture, window, 0, 9999), { x: 0, y: 800 });
});

test("keys that write are left to the text that they write; Escape stays here", () => {
  const press = (key, more = {}) => keyInput({ key, ...more });
  assert.deepEqual(press("Enter"), { kind: "key", text: "Enter", modifiers: [] });
  assert.deepEqual(press("Tab", { shiftKey: true }), { kind: "key", text: "Tab", modifiers: ["Shift"] });
  assert.deepEqual(press("A", { metaKey: true }), { kind: "key", text: "a", modifiers: ["Control"] });
  for (const one of [press("a"), press("Escape"), press("v", { ctrlKey: true }), press("Enter", { isComposing: true }), press("@", { ctrlKey: true, altKey: true })]) {
    assert.equal(one, null);
  }
});

test("of moves in a row only the last one counts", () => {
  const move = (x) => ({ kind: "move", x });
  assert.deepEqual(coalesced([move(1), move(2), { kind: "down" }, move(3)]), [move(2), { kind: "down" }, move(3)]);
});

test("a second click soon after, and near, is a double click", () => {
  const count = clickCounter();
  assert.deepEqual([count({ x: 5, y: 5 }, 0), count({ x: 6, y: 5 }, 200), count({ x: 90, y: 5 }, 300), count({ x: 90, y: 5 }, 2000)], [1, 2, 1, 1]);
});

test("a finger taps, or scrolls and then does not tap", () => {
  const touch = finger();
  touch.down({ x: 10, y: 10 });
  assert.deepEqual(touch.move({ x: 12, y: 11 }), []);
  assert.deepEqual(touch.up(() => 1), [{ kind: "down", x: 10, y: 10, count: 1 }, { kind: "up", x: 10, y: 10 }]);
  touch.down({ x: 10, y: 100 });
  assert.deepEqual(touch.move({ x: 10, y: 60 }), [{ kind: "wheel", x: 10, y: 100, dx: 0, dy: 40 }]);
  assert.deepEqual(touch.up(() => 1), []);
  assert.deepEqual(touch.move({ x: 0, y: 0 }), []);
});

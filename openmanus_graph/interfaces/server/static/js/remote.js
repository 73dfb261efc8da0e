/** What a person does at a picture of another window, as inputs for it. Pure, but for the clock's time given. */

const KEYS = new Set(["Enter", "Tab", "Backspace", "Delete", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown",
  "Home", "End", "PageUp", "PageDown"]);
const DOUBLE_MS = 450;
const NEAR_PX = 6;
const TAP_PX = 8;

/** Return the place in the window that a place in its picture shows. */
export function placeIn(picture, window, clientX, clientY) {
  const x = ((clientX - picture.left) / picture.width) * window.width;
  const y = ((clientY - picture.top) / picture.height) * window.height;
  return { x: Math.min(Math.max(x, 0), window.width), y: Math.min(Math.max(y, 0), window.height) };
}

/** Return the input for a key that is pressed, or null where the text that it writes says more. */
export function keyInput({ key, shiftKey, ctrlKey, altKey, metaKey, isComposing }) {
  if (isComposing) return null;
  const modifiers = [shiftKey && "Shift", ctrlKey && "Control", altKey && "Alt", metaKey && "Meta"].filter(Boolean);
  if (KEYS.has(key)) return { kind: "key", text: key, modifiers };
  const shortcut = (ctrlKey || metaKey) && !altKey && key.length === 1 && key.toLowerCase() !== "v"; // "v" pastes
  return shortcut ? { kind: "key", text: key.toLowerCase(), modifiers: ["Control", ...(shiftKey ? ["Shift"] : [])] } : null;
}

/** Drop moves that another one follows at once: only the last place counts. */
export function coalesced(inputs) {
  return inputs.filter(({ kind }, index) => kind !== "move" || inputs[index + 1]?.kind !== "move");
}

/** Count clicks: a second one soon after the first, at the same place, is a double click. */
export function clickCounter() {
  let last = { at: -Infinity, x: 0, y: 0, count: 0 };
  return ({ x, y }, at) => {
    const again = at - last.at < DOUBLE_MS && Math.hypot(x - last.x, y - last.y) < NEAR_PX;
    last = { at, x, y, count: again ? Math.min(last.count + 1, 3) : 1 };
    return last.count;
  };
}

/** Turn one finger into a tap or into scrolling: returns functions that return inputs. */
export function finger() {
  let from = null;
  let last = null;
  let scrolls = false;
  return {
    down(place) {
      from = last = place;
      scrolls = false;
      return [];
    },
    move(place) {
      if (!from) return [];
      scrolls ||= Math.hypot(place.x - from.x, place.y - from.y) > TAP_PX;
      if (!scrolls) return [];
      const input = { kind: "wheel", x: from.x, y: from.y, dx: last.x - place.x, dy: last.y - place.y };
      last = place;
      return [input];
    },
    up(count) {
      const place = from;
      from = null;
      if (!place || scrolls) return [];
      return [{ kind: "down", ...place, count: count(place) }, { kind: "up", ...place }];
    },
    cancel() {
      from = null;
    },
  };
}

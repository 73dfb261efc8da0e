// Runs in an isolated world of each frame: it sees the page's nodes, the page never sees it.
const held = new Map(); // number -> element that was listed
const numbers = new WeakMap(); // element -> its number in this document
const controls = new WeakSet(); // elements that were listed as something to act on
const handled = new WeakMap(); // element -> what its listeners wait for (listeners.js reports it)
const secrets = new WeakSet(); // fields whose text must not be shown
const areaRects = new WeakMap(); // <area> -> its box, which has no layout of its own
const closedRoots = new WeakMap(); // host -> its closed shadow root (frames.py hands it over)
let lastNumber = 0;
// One for each document; another document has another.
const documentId = Math.random().toString(36).slice(2);

const SEEN = { visibilityProperty: true, opacityProperty: true };
// Read from the prototype: a form returns a field named `children` instead of its children.
const asked = (kind, name) => Function.call.bind(Object.getOwnPropertyDescriptor(kind.prototype, name).get);
const bound = (kind, name) => Function.call.bind(kind.prototype[name]);
const ownAttr = bound(Element, 'getAttribute');
const attr = (el, name) => ownAttr(el, name) ?? (el.localName.includes('-') ? internalsOf(el, name) : null);
// What a custom element says of itself by ElementInternals instead; roots.js answers.
let answer = null;
window.addEventListener('openmanus-internals', (event) => (answer = event.detail), true);
function internalsOf(el, name) {
  answer = null;
  if (/^(role|aria-)/.test(name)) el.dispatchEvent(new CustomEvent('openmanus-internals?', { detail: name }));
  return answer;
}
const nodeTypeOf = asked(Node, 'nodeType');
const nodesIn = asked(Node, 'childNodes');
const elementsIn = asked(Element, 'children');
const allIn = bound(Element, 'getElementsByTagName');
const shadowOf = asked(Element, 'shadowRoot');
const inertOf = asked(HTMLElement, 'inert');
const visibleIn = bound(Element, 'checkVisibility');
const rectOf = bound(Element, 'getBoundingClientRect');
const parentOf = (el) =>
  el.assignedSlot ||
  slotIn(closedRoots.get(el.parentElement), el) ||
  el.parentElement ||
  (el.getRootNode() instanceof ShadowRoot ? el.getRootNode().host : null);
// A closed root does not reveal where it shows the elements or texts that it is given.
function slotIn(root, node) {
  const name = nodeTypeOf(node) === 1 ? attr(node, 'slot') || '' : '';
  return (root && [...root.querySelectorAll('slot')].find((slot) => slot.name === name)) || null;
}
const CLIPPED = /^inset\((50|100)%/;
const squeeze = (text) => (text || '').replace(/[\s\u200b\ufeff]+/g, ' ').trim();
const cut = (text, length) => (text.length > length ? text.slice(0, length - 1) + '…' : text);

function numberOf(el) {
  let number = numbers.get(el);
  if (!number) numbers.set(el, (number = ++lastNumber));
  held.set(number, el);
  return number;
}

// Forget elements that have left the document; returns their numbers.
function forgetDetached() {
  const gone = [];
  for (const [number, el] of held) {
    if (el.isConnected) continue;
    held.delete(number);
    gone.push(number);
  }
  return gone;
}

// The shadow root of an element, whether it is open or closed.
function rootOf(el) {
  return shadowOf(el) || closedRoots.get(el) || null;
}

function childNodesOf(el) {
  const root = rootOf(el);
  if (root) watch(root);
  if (root) return root.childNodes;
  if (el.localName === 'slot') {
    const assigned = el.assignedNodes();
    return assigned.length ? assigned : nodesIn(el);
  }
  return nodesIn(el);
}

// Its box; if it has no size, the box of what floats or is positioned in it.
function boxOf(el, depth = 3) {
  const box = areaRects.get(el) || rectOf(el);
  if ((box.width && box.height) || !depth) return box;
  const inner = [...childNodesOf(el)]
    .filter((node) => nodeTypeOf(node) === 1)
    .map((child) => boxOf(child, depth - 1))
    .filter((one) => one.width && one.height);
  if (!inner.length) return el === document.body ? new DOMRect(0, 0, innerWidth, innerHeight) : box;
  const left = Math.min(...inner.map((one) => one.left)),
    top = Math.min(...inner.map((one) => one.top));
  const right = Math.max(...inner.map((one) => one.right)),
    bottom = Math.max(...inner.map((one) => one.bottom));
  return new DOMRect(left, top, right - left, bottom - top);
}

// Where the content of a frame begins in the window, and the scale of its pixels there.
function contentOf(frame) {
  const box = rectOf(frame),
    style = getComputedStyle(frame);
  const scale = [box.width / frame.offsetWidth || 1, box.height / frame.offsetHeight || 1];
  const left = (frame.clientLeft + parseFloat(style.paddingLeft)) * scale[0],
    top = (frame.clientTop + parseFloat(style.paddingTop)) * scale[1];
  return { at: [box.left + left, box.top + top], scale };
}

function inViewport(box) {
  return box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight;
}

function elementAt(x, y) {
  let hit = document.elementFromPoint(x, y);
  for (let root = hit && rootOf(hit); root; root = rootOf(hit)) {
    // For text that is shown in a slot, the host itself seems to be at the point.
    const inner = root.elementsFromPoint(x, y).find((one) => one.getRootNode() === root);
    if (!inner) break;
    hit = inner;
  }
  return hit;
}

function holds(outer, inner) {
  for (let el = inner; el; el = parentOf(el)) if (el === outer) return true;
  return false;
}

// The element that takes a press instead: one inside it that can be acted on.
function innerTarget(el, hit) {
  let inner = null;
  for (let one = hit; one; one = parentOf(one)) {
    if (one === el || one.control === el) return inner; // itself, or its label
    if (!inner && (controls.has(one) || nativeRole(one))) inner = one;
  }
  return null;
}

function deepActive() {
  let el = document.activeElement;
  while (el && rootOf(el)?.activeElement) el = rootOf(el).activeElement;
  const page = el === document.body || el === document.documentElement;
  return el && (!page || (el.isContentEditable && document.hasFocus())) ? el : null;
}

// A control that people cannot see or hit; its label replaces it then.
function hiddenControl(control) {
  if (!control.checkVisibility({ visibilityProperty: true })) return true;
  const box = control.getBoundingClientRect();
  if (box.width < 3 || box.height < 3 || box.right < 0) return true;
  const style = getComputedStyle(control);
  return (style.opacity === '0' && style.pointerEvents === 'none') || cutAwayAround(control);
}

// Inside a box that shows nothing of it, because it is made for screen readers.
function cutAwayAround(control) {
  for (let outer = parentOf(control), i = 0; outer && i < 3; outer = parentOf(outer), i++) {
    const style = getComputedStyle(outer),
      box = rectOf(outer);
    if (CLIPPED.test(style.clipPath)) return true;
    if ((box.width < 3 || box.height < 3) && style.overflow !== 'visible') return true;
  }
  return false;
}

// What covers the whole window (a dialog and its backdrop), or null: the roots that are on top.
function topRoots() {
  const modals = [...observed].flatMap((root) => [...root.querySelectorAll('dialog:modal')]),
    used = modals.find((modal) => holds(modal, deepActive()));
  if (modals.length) return [used || modals[modals.length - 1]];
  const w = innerWidth,
    h = innerHeight;
  const covers = [
    [0.03, 0.03],
    [0.97, 0.03],
    [0.03, 0.97],
    [0.97, 0.97],
  ]
    .map(([x, y]) => coverOf(elementAt(w * x, h * y)))
    .filter(Boolean);
  if (covers.length < 3) return null;
  const roots = new Set(covers);
  let middle = elementAt(w / 2, h / 2);
  if (middle && !covers.some((cover) => holds(cover, middle))) {
    while (parentOf(middle) && !covers.some((cover) => holds(parentOf(middle), cover))) {
      middle = parentOf(middle);
    }
    roots.add(middle);
  }
  return [...roots];
}

function coverOf(el) {
  for (; el && el !== document.body && el !== document.documentElement; el = parentOf(el)) {
    const position = getComputedStyle(el).position;
    if (position !== 'fixed' && position !== 'absolute') continue;
    const box = rectOf(el);
    if (
      box.left <= innerWidth * 0.05 &&
      box.right >= innerWidth * 0.93 &&
      box.top <= innerHeight * 0.05 &&
      box.bottom >= innerHeight * 0.93
    )
      return el;
  }
  return null;
}

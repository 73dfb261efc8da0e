// What actions need to know and do inside the page; the pointer and the keys are real ones.
const gone = (el) => !el || !el.isConnected;

const redrawn = new Set(); // numbers of elements that the page redraws all the time
const LIKE = ['aria-label', 'title', 'name', 'type', 'placeholder', 'href'];
const likeness = (el) =>
  [el.localName, ...LIKE.map((name) => attr(el, name)), el.textContent.replace(/\s+/g, '')].join('|');

// The only element that is drawn as this one was.
function twinOf(el) {
  const twins = [...document.getElementsByTagName(el.localName)].filter((one) => likeness(one) === likeness(el));
  return twins.length === 1 ? twins[0] : null;
}

// From now on take the only one that is drawn as an element for it, whenever that is gone.
function follow(number) {
  const el = held.get(number);
  if (!el || !twinOf(el)) return false;
  redrawn.add(number);
  return true;
}

function heldNow(number) {
  const el = held.get(number),
    now = el && gone(el) && redrawn.has(number) ? twinOf(el) || el : el;
  if (now !== el) {
    numbers.set(now, number);
    held.set(number, now);
  }
  return now;
}

function describe(el) {
  const listed = [];
  for (let one = el; one; one = parentOf(one)) if (numbers.has(one)) listed.push(numbers.get(one));
  const text = cut(contentText(el, 80), 60) || cut(contentText(parentOf(el) || el, 80), 60);
  const id = attr(el, 'id'),
    classes = squeeze(attr(el, 'class')).split(' ')[0];
  return { what: el.localName + (id ? '#' + id : classes ? '.' + classes : ''), text, listed };
}

const ROWS = 'tr, li, article, [role=row], [role=listitem], [role=article], [role=treeitem]';

// The text around elements with the same name, to tell them apart: the words of the largest part
// of the page that contains no other of them. For a single element, the words of its row, else of
// the smallest part that contains more than the element.
function around(ns) {
  const all = ns.map((n) => held.get(n)).filter((el) => !gone(el));
  const holders = new Map();
  for (const el of all) {
    for (let one = parentOf(el); one; one = parentOf(one)) holders.set(one, (holders.get(one) || 0) + 1);
  }
  return ns.map((n) => {
    const el = held.get(n);
    if (gone(el)) return { text: '', row: false };
    const own = new Set(
      [nameOf(el, nativeRole(el)), contentText(el), labelText(el)].join(' ').split(/\s+/),
    );
    let text = '',
      row = false;
    for (let one = parentOf(el); one && (all.length < 2 || holders.get(one) < 2); one = parentOf(one)) {
      const isRow = !!one.matches?.(ROWS);
      if (all.length < 2 && text && !isRow) continue;
      const words = squeeze(contentText(one));
      if (words.split(' ').every((word) => own.has(word))) continue;
      text = words;
      row ||= isRow;
      if (isRow && all.length < 2) break;
    }
    return { text: cut(text, 200), row };
  });
}

// What is at a point of the window.
function nameAt(x, y) {
  const hit = elementAt(x, y);
  if (!hit) return 'the edge of the window';
  const { what, text } = describe(hit);
  return text ? `${what} "${text}"` : what;
}

async function still(el) {
  const moving =
    performance.now() - lastChange < 120 ||
    animations().some((a) => a.playState === 'running' && a.effect?.target && holds(a.effect.target, el));
  let before = moving ? null : boxOf(el);
  for (let i = 0; i < 20; i++) {
    const box = boxOf(el);
    if (before && before.left === box.left && before.top === box.top && before.width === box.width) return;
    before = box;
    await frame();
  }
}

const PASSING_FRAMES = 24;

// Lists ignore the pointer while they are scrolled. Returns whether this one takes it now.
async function takesPointer(el) {
  for (let i = 0; i < PASSING_FRAMES && getComputedStyle(el).pointerEvents === 'none'; i++) await frame();
  return getComputedStyle(el).pointerEvents !== 'none';
}

// Points inside an element that are tried in turn; the first box of a text that wraps.
function pointsOf(el) {
  const boxes = areaRects.has(el)
    ? [areaRects.get(el)]
    : [...el.getClientRects()].filter((b) => b.width > 0 && b.height > 0);
  if (!boxes.length) boxes.push(boxOf(el));
  const points = [];
  for (const b of boxes.slice(0, 4)) {
    const left = Math.max(b.left, 0),
      right = Math.min(b.right, innerWidth);
    const top = Math.max(b.top, 0),
      bottom = Math.min(b.bottom, innerHeight);
    if (right - left < 1 || bottom - top < 1) continue;
    for (const [x, y] of [
      [0.5, 0.5],
      [0.2, 0.5],
      [0.8, 0.5],
      [0.5, 0.2],
      [0.5, 0.8],
      [0.1, 0.1],
      [0.9, 0.9],
    ]) {
      points.push([left + (right - left) * x, top + (bottom - top) * y]);
    }
  }
  return points;
}

// Points of an element that belong to no other element that can be acted on: on its words and
// pictures, then on its edges.
function ownPointsOf(el) {
  const points = [],
    middle = (box) => points.push([box.left + box.width / 2, box.top + box.height / 2]);
  const visit = (node) => {
    if (points.length > 20) return;
    const kind = nodeTypeOf(node);
    if (kind === 3 && node.data.trim()) {
      const words = document.createRange();
      words.selectNodeContents(node);
      [...words.getClientRects()].slice(0, 2).forEach(middle);
    }
    if (kind !== 1 || (node !== el && (controls.has(node) || nativeRole(node)))) return;
    const nodes = childNodesOf(node);
    if (!nodes.length) middle(rectOf(node));
    nodes.forEach(visit);
  };
  visit(el);
  const box = boxOf(el);
  for (const [x, y] of [[0.02, 0.5], [0.98, 0.5], [0.5, 0.03], [0.5, 0.97]]) // prettier-ignore
    points.push([box.left + box.width * x, box.top + box.height * y]);
  return points;
}

function meets(el, hit) {
  if (!hit) return false;
  if (el.localName === 'label' && innerTarget(el, hit)) return false; // that one is used, and its control is not
  if (holds(el, hit)) return true;
  if (el.localName === 'area') return hit.localName === 'img';
  const label = hit.closest?.('label');
  return !!label && label.control === el && !innerTarget(label, hit);
}

// A point at which an element is hit, if possible itself and not an element inside it; null if
// there is none. `inner` is the element that takes the press then.
function placeOn(el, points) {
  let shared = null;
  const look = ([x, y]) => {
    const hit = elementAt(x, y);
    if (!meets(el, hit)) return null;
    const inner = innerTarget(el, hit);
    if (inner) shared ||= { x, y, inner };
    return inner ? null : { x, y, inner };
  };
  const first = (list) => list.reduce((found, one) => found || look(one), null);
  return first(points) || (shared || el.localName === 'label' ? first(ownPointsOf(el)) : null) || shared;
}

// Where to put the pointer on an element, scrolled into view; or what covers it.
async function point(number) {
  let el = heldNow(number);
  if (gone(el)) return { gone: true };
  const facts = {
    disabled: el.matches(':disabled') || attr(el, 'aria-disabled') === 'true',
    tag: el.localName,
    type: el.type || '',
    click: clickKind(el),
    href: hrefOf(el),
  };
  await still(el);
  const taken = await takesPointer(el);
  el = heldNow(number);
  if (gone(el)) return { gone: true };
  let over = null; // what covers it at its most visible point
  for (const block of [null, 'center', 'end', 'start']) {
    if (block) {
      const shown = areaRects.has(el)
        ? document.querySelector(`img[usemap="#${CSS.escape(attr(parentOf(el), 'name') || '')}"]`) || el
        : el;
      shown.scrollIntoView({ block, inline: 'nearest', behavior: 'instant' });
      await frame();
      if (taken) await takesPointer(el);
      el = heldNow(number);
      if (gone(el)) return { gone: true };
    }
    const points = pointsOf(el),
      place = placeOn(el, points);
    if (place && (!place.inner || block)) return { ...facts, x: place.x, y: place.y, scrolled: !!block };
    for (const [x, y] of points) {
      if (block === 'center' || !over) over = elementAt(x, y) || over;
    }
  }
  const [middle] = pointsOf(el);
  if (!middle) return { ...facts, hidden: true };
  return { ...facts, x: middle[0], y: middle[1], cover: over ? describe(over) : null };
}

// Whether a point still belongs to an element: what the pointer closes may move the others.
function under(number, x, y) {
  const el = heldNow(number);
  return gone(el) ? { gone: true } : { under: meets(el, elementAt(x, y)) };
}

// The same as `point`, for a second place that must stay in view with the first one.
function pointNow(number) {
  const el = heldNow(number);
  if (gone(el)) return { gone: true };
  const box = boxOf(el),
    x = box.left + box.width / 2,
    y = box.top + box.height / 2;
  return {
    x,
    y,
    visible: x >= 0 && y >= 0 && x < innerWidth && y < innerHeight,
    top: box.top,
    bottom: box.bottom,
    height: innerHeight,
  };
}

function bringTogether(first, second) {
  const [a, b] = [held.get(first), held.get(second)];
  if (gone(a) || gone(b)) return { gone: true };
  const [one, two] = [boxOf(a), boxOf(b)];
  const middle = (Math.min(one.top, two.top) + Math.max(one.bottom, two.bottom)) / 2;
  window.scrollBy({ top: middle - innerHeight / 2, behavior: 'instant' });
  return {};
}

// Where a point of a child frame's content is in the window, and whether it is really on top.
function framePlace(number, x, y) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  const { at, scale } = contentOf(el);
  const place = { x: at[0] + x * scale[0], y: at[1] + y * scale[1] };
  const hit = elementAt(place.x, place.y);
  const cover = hit ? describe(hit) : { what: 'the edge of the window', text: '', listed: [] };
  return { ...place, cover: hit === el ? null : cover };
}

// Scroll the areas around a child frame so that a point of its content comes to the middle.
async function showFramePlace(number, x, y) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  for (let area = el; area; area = parentOf(area)) {
    const page = area === document.scrollingElement;
    if (!page && (area === el || !/auto|scroll|hidden/.test(getComputedStyle(area).overflow))) continue;
    const box = page ? new DOMRect(0, 0, innerWidth, innerHeight) : rectOf(area),
      place = framePlace(number, x, y);
    const [left, top] = [place.x - box.left - box.width / 2, place.y - box.top - box.height / 2];
    area.scrollBy({ left: Math.abs(left) > box.width / 2 ? left : 0, top, behavior: 'instant' });
  }
  await frame();
  return framePlace(number, x, y);
}

function scrollerOf(el) {
  for (let one = el; one; one = parentOf(one)) {
    if (
      /auto|scroll/.test(getComputedStyle(one).overflowY) &&
      one.scrollHeight > one.clientHeight + 1 &&
      one !== document.body
    )
      return one;
  }
  return mainScroller();
}

function mainScroller() {
  const root = document.scrollingElement || document.documentElement;
  if (root.scrollHeight > innerHeight + 1) return root;
  let best = root,
    most = 0;
  for (const el of document.querySelectorAll('div,main,section,ul,body,article')) {
    if (el.scrollHeight <= el.clientHeight + 1 || !/auto|scroll/.test(getComputedStyle(el).overflowY))
      continue;
    const box = rectOf(el);
    if (inViewport(box) && box.width * box.height > most) [best, most] = [el, box.width * box.height];
  }
  return best;
}

const scrollsAcross = (el) =>
  el === document.scrollingElement || (/auto|scroll/.test(getComputedStyle(el).overflowX) && el.scrollWidth > el.clientWidth + 1);

// Scroll the area around an element that scrolls sideways; `pixels` null means by most of its width.
async function scrollAcross(el, pixels) {
  let area = el || document.scrollingElement;
  while (!scrollsAcross(area) && parentOf(area)) area = parentOf(area);
  const before = area.scrollLeft;
  area.scrollBy({ left: pixels ?? Math.round(area.clientWidth * 0.9), behavior: 'instant' });
  await frame();
  const left = Math.abs(Math.round(area.scrollLeft));
  return {
    across: true,
    moved: Math.round(area.scrollLeft - before),
    above: left,
    below: Math.max(0, Math.round(area.scrollWidth - area.clientWidth - left)),
  };
}

// Scroll down, up if `pixels` is negative, or by `across` to the right.
async function scrollPage(number, pixels, across) {
  const el = number === null ? null : held.get(number);
  if (number !== null && gone(el)) return { gone: true };
  const area = el ? scrollerOf(el) : mainScroller();
  if (across !== null) return scrollAcross(el, across);
  if (el && area !== el && scrollsAcross(el)) return scrollAcross(el, pixels);
  if (el && pixels === null && area !== el) {
    el.scrollIntoView({ block: 'center', inline: 'nearest', behavior: 'instant' });
    await frame();
    return { into: true };
  }
  const page = area === document.scrollingElement;
  const height = page ? innerHeight : area.clientHeight,
    before = area.scrollTop;
  area.scrollBy({ top: pixels ?? Math.round(height * 0.9), behavior: 'instant' });
  await frame();
  return {
    page,
    moved: Math.round(area.scrollTop - before),
    above: Math.round(area.scrollTop),
    below: Math.max(0, Math.round(area.scrollHeight - height - area.scrollTop)),
  };
}

let found = { text: '', at: -1 };

// Whether a person can read the text there: scripts are text of the document as well.
function shows(el, wanted) {
  const roots = [...(rootOf(el)?.children || [])];
  const read = [el.innerText ?? el.textContent, ...roots.map((one) => one.innerText ?? '')];
  return read.some((text) => squeeze(text).toLowerCase().includes(wanted));
}

// The innermost elements that show a text.
function placesOf(wanted) {
  const places = [];
  const says = (el) =>
    squeeze(el.textContent).toLowerCase().includes(wanted) ||
    [...(rootOf(el)?.children || [])].some(says);
  const visit = (el, depth) => {
    if (places.length > 200 || depth > 4000 || SKIPPED.has(el.localName) || !says(el)) return;
    if (!visibleIn(el) && getComputedStyle(el).display !== 'contents') return;
    const before = places.length;
    for (const child of childNodesOf(el)) if (nodeTypeOf(child) === 1) visit(child, depth + 1);
    if (places.length === before && shows(el, wanted)) places.push(el);
  };
  if (document.body && wanted) visit(document.body, 0);
  return places;
}

// The number of the element that shows a text; preferably one that shows nothing else.
function numberOfText(text) {
  const wanted = squeeze(text).toLowerCase(),
    places = placesOf(wanted);
  const el = places.find((one) => squeeze(one.textContent).toLowerCase() === wanted) || places[0];
  return el ? { n: numberOf(el), text: cut(squeeze(el.textContent), 80) } : { none: true };
}

// Scroll to the next place that shows a text; `places` says how many there are.
async function scrollToText(text) {
  const wanted = squeeze(text).toLowerCase(),
    places = placesOf(wanted);
  if (!places.length) return { places: 0 };
  found = { text: wanted, at: found.text === wanted ? (found.at + 1) % places.length : 0 };
  const el = places[found.at];
  el.scrollIntoView({ block: 'center', inline: 'nearest', behavior: 'instant' });
  await frame();
  const shown = squeeze(el.innerText ?? el.textContent);
  return { places: places.length, place: found.at + 1, text: cut(shown, 120) };
}

// Origin and local storage of the page; empty if it has none, or too much to keep.
function storedValues(most) {
  try {
    const stored = Object.entries(localStorage);
    const length = stored.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
    return length > most ? {} : { origin: self.origin, stored: Object.fromEntries(stored) };
  } catch {
    return {}; // in a frame without an origin, for example
  }
}

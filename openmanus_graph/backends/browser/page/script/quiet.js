// Notices when the page changes, so that an action's effects are awaited and nothing else.
const ASK = 'openmanus-timers?',
  ANSWER = 'openmanus-timers!';
const RESTLESS = 8; // times that one node changes after which it counts as an animation
const GOES_ON = 1000; // ms without a change after which one that had no end has ended
const MESSAGE =
  '[role=alert],[role=status],[role=log],[aria-live=polite],[aria-live=assertive],' +
  '[class*=toast i],[class*=snackbar i],[class*=notification i],[class*=alert i],output';
const BUSY =
  '[aria-busy=true],[role=progressbar]:not([aria-valuenow]),[class*=spinner i],[class*=loading i],' +
  '[class*=skeleton i],[class*=loader i]';
const LOADING =
  /^(loading|please wait|searching|just a moment|wird geladen|bitte warten|chargement|cargando)\b.{0,20}$/i;
const LONGEST_MOVE = 1500; // ms after an action that transitions and animations are awaited
const LONGEST_PAUSE = 400;
const SHOWN_MS = 1000;
const STILL_FRAMES = 3; // without a change: what is drawn in steps takes a frame for each
const LONGEST_FRAME = 500;
let draws = false; // whether frames are drawn
let lastChange = performance.now(); // of anything but animations
let markedAt = 0; // when the last action began
let changes = 0; // since then
let restless = new WeakMap(); // node -> how often it has changed since then, and when first
const endless = new WeakMap(); // node that changes without end -> when it last did
let messages = []; // of alerts and toasts since then: where and what
let pageTimersMs = -1; // remaining milliseconds of the page's timers, or -1 without timers.js
const observed = new Set(); // the document and the shadow roots that were met

// Whether a change may be an effect of the last action: a list that scripts slide open changes
// often, but not for long, and did not change before.
function mayEnd(target, more) {
  const now = performance.now();
  if (now - (endless.get(target) ?? -Infinity) < GOES_ON) return void endless.set(target, now);
  const { times = 0, first = now } = restless.get(target) || {};
  restless.set(target, { times: times + more, first });
  if (times + more <= RESTLESS || (markedAt && now - first < LONGEST_MOVE)) return true;
  endless.set(target, now);
  return false;
}

const observer = new MutationObserver((records) => {
  let counted = false;
  const times = new Map(records.map((record) => [record.target, record.type === 'childList' ? 0.5 : 1]));
  for (const [target, more] of times) if (mayEnd(target, more)) counted = true;
  for (const record of records) {
    const shown = record.type !== 'attributes' || (record.target.matches(MESSAGE) && visibleIn(record.target, SEEN));
    if (shown) noteMessage(record);
  }
  if (counted) {
    lastChange = performance.now();
    changes++;
  }
});

function noteMessage(record) {
  const target = record.target.nodeType === 1 ? record.target : record.target.parentElement;
  const added = [...record.addedNodes].find((node) => node.nodeType === 1 && node.matches(MESSAGE));
  const place = added || target?.closest(MESSAGE);
  const text = place && !place.matches(LISTS) && messages.length < 20 ? cut(squeeze(place.textContent), 200) : '';
  if (text.length > 1 && !messages.some((one) => one.text === text)) messages.push({ place, text });
}

// Messages that are gone again: the others are still on the page.
function passingMessages() {
  const stays = ({ place, text }) =>
    place.isConnected && visibleIn(place, SEEN) && cut(squeeze(place.textContent), 200) === text;
  return messages.filter((one) => !stays(one)).map(({ text }) => text);
}

function watch(root) {
  if (observed.has(root)) return;
  observed.add(root);
  observer.observe(root, {
    subtree: true,
    childList: true,
    characterData: true,
    attributes: true,
    attributeFilter: [
      'class',
      'style',
      'hidden',
      'disabled',
      'open',
      'value',
      'aria-expanded',
      'aria-hidden',
      'aria-busy',
      'src',
    ],
  });
}

function mark() {
  markedAt = lastChange = performance.now();
  changes = 0;
  messages = [];
  restless = new WeakMap();
}

// The page's own timers since the mark that end within `limit` ms: asked of timers.js by an event.
function timersLeft(limit) {
  pageTimersMs = -1;
  window.dispatchEvent(new MouseEvent(ASK, { screenX: Math.floor(markedAt), screenY: limit }));
  return pageTimersMs;
}

function busy() {
  const fresh = markedAt === 0;
  for (const el of document.querySelectorAll(BUSY)) {
    if (el === document.body || el === document.documentElement) continue;
    if ((fresh || restless.has(el) || restless.has(el.parentNode)) && seen(el)) return true;
  }
  return fresh ? LOADING.test(squeeze(document.body?.innerText.slice(0, 200))) : false;
}

function seen(el) {
  const box = boxOf(el);
  return visibleIn(el, SEEN) && box.width > 0 && box.height > 0 && inViewport(box);
}

// Whether a page shows next to nothing and something in it may still draw the rest.
function bare() {
  if (!document.querySelector('script,meta[http-equiv=refresh i]')) return document.readyState !== 'complete';
  return (
    !document.body ||
    (squeeze(document.body.textContent).length < 20 &&
      !document.querySelector('input,button,a,canvas,svg,iframe,img,video'))
  );
}

// The next frame. A busy machine may take long to draw it, and a document out of view has none.
const frame = () =>
  new Promise((resolve) => {
    const timer = setTimeout(() => resolve((draws = false)), draws ? LONGEST_FRAME : 50);
    requestAnimationFrame(() => {
      clearTimeout(timer);
      resolve((draws = true));
    });
  });

const SHIFTING =
  /opacity|visibility|display|transform|translate|scale|height|width|margin|^(left|right|top|bottom)$|inset|clip|grid/i;

// Whether it shows, hides or moves something, unlike a change of colour.
function shifts(animation) {
  const names = animation.transitionProperty
    ? [animation.transitionProperty]
    : animation.effect.getKeyframes().flatMap(Object.keys);
  return names.some((name) => SHIFTING.test(name));
}

// Those of the document and of the shadow roots, which do not report each other's.
function animations() {
  for (const root of observed) if (root.host?.isConnected === false) observed.delete(root);
  return [...observed].flatMap((root) => root.getAnimations());
}

// What moves or fades to an end, other than mere decoration: elements and the ms they still take.
function moves() {
  return animations()
    .filter((one) => one.effect?.target && one.timeline === document.timeline && shifts(one))
    .map((one) => ({
      el: one.effect.target,
      ms: one.effect.getComputedTiming().endTime - one.currentTime,
      waits: one.playState === 'paused',
    }))
    .filter(({ el, ms }) => ms > 0 && Number.isFinite(ms) && visibleIn(el) && atViewport(rectOf(el)))
    .filter(({ el }) => squeeze(el.textContent) || el.querySelector('input,button,img,svg,canvas'));
}

// In view, or just outside of it, where it comes from or goes to.
const atViewport = ({ left, right, top, bottom, width, height }) =>
  inViewport(new DOMRect(left - width, top - height, right - left + 2 * width, bottom - top + 2 * height));

// Some begin paused, and continue once the page has drawn them.
function moving(since) {
  if (since > LONGEST_MOVE) return false;
  return moves().some(({ ms, waits }) => (waits ? since < LONGEST_PAUSE : ms < LONGEST_MOVE));
}

// What still moves, by its text; endless animations are not moves.
function movingNow() {
  const going = moves().filter(({ waits }) => !waits);
  return [...new Set(going.map(({ el }) => cut(contentText(el, 40), 30) || el.localName))].slice(0, 3);
}

// How long the page should still be given now, in ms; 0 when it has settled.
function patience(began) {
  const now = performance.now(),
    since = now - Math.max(markedAt, 0);
  if (document.readyState === 'loading') return 50;
  const loading = markedAt === 0;
  const waits = busy() || (loading ? bare() : changes === 0);
  const timers = timersLeft(waits ? 2500 : loading ? 2000 : 600);
  const rest = loading ? (timers < 0 ? 400 : 100) : changes ? 12 : 24;
  const quiet = rest - (now - Math.max(lastChange, changes ? 0 : began));
  if (moving(since)) return 30;
  if (since < 3000 && timers > 0) return Math.max(timers, quiet, 1);
  const least = loading && waits && document.body?.innerText.trim() ? SHOWN_MS : 2500; // for what draws the rest
  if ((since < least && loading && waits) || (since < 2500 && busy())) return 100;
  return Math.max(quiet, 0);
}

// Whether a page that nobody has acted on yet shows something.
const showing = () => markedAt === 0 && document.readyState !== 'loading' && !bare() && !busy();

// Resolves when the page is quiet, or after `limit` ms.
async function quiet(limit) {
  const began = performance.now();
  for (let still = 0, seenChange = lastChange; performance.now() - began < limit; still++) {
    await frame();
    if (seenChange !== lastChange) [still, seenChange] = [0, lastChange];
    if (still >= STILL_FRAMES && patience(began) === 0) return JSON.stringify({ settled: true, changes, moving: movingNow() });
  }
  return JSON.stringify({ settled: false, changes });
}

watch(document);
window.addEventListener(
  ANSWER,
  (event) => {
    pageTimersMs = event.screenX;
  },
  true,
);
const CLICK_WORDS = { double: 'double-click too', menu: 'right-click too' };
const KINDS = ['press', 'touch', 'key', 'drag', 'drop', 'hover', 'double', 'menu'];
const ROOT_KINDS = 7; // frameworks listen for everything at their root, which reveals nothing about what is in it
function noteHandled(event) {
  const kinds = KINDS.filter((_, i) => event.detail & (1 << i));
  if (kinds.length < ROOT_KINDS) handled.set(event.composedPath()[0], kinds.join(' '));
}
window.addEventListener('openmanus-handles', noteHandled, true);

// What a click must be for an element that waits for nothing plainer: 'double', 'menu' or ''.
function clickKind(el) {
  const kind = nativeRole(el) ? '' : (/double|menu/.exec(handled.get(el)) || [''])[0];
  // A double click clicks twice what is around it, too.
  for (let one = el; kind && one && one !== document.body; one = parentOf(one)) {
    if (/press|touch/.test(handled.get(one))) return '';
  }
  return kind;
}

// What an element, or the row around it, reacts to besides a plain click. For similar elements (a
// row, cells, elements of one class) it is `said` once.
function otherClicks(el, role, said) {
  const plain = clickKind(el),
    found = new Set();
  for (let one = el, i = 0; one && one !== document.body && i < 3; one = parentOf(one), i++) {
    const kinds = handled.get(one)?.split(' ');
    if (!kinds) continue;
    const place = role === 'gridcell' ? role : attr(one, 'class') ? makeOf(one) : one;
    if (said.has(place)) continue;
    if (kinds.some((kind) => CLICK_WORDS[kind])) said.add(place);
    for (const kind of kinds) if (kind !== plain && CLICK_WORDS[kind]) found.add(CLICK_WORDS[kind]);
  }
  return [...found];
}

// Make the content of a closed shadow root readable.
function adopt(root) {
  closedRoots.set(root.host, root);
  root.addEventListener('openmanus-handles', noteHandled, true);
  watch(root);
}

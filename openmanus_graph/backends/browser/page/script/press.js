// Where the pointer's press lands: a moving element may have left the place where it was seen.
const PRESSES = ['pointerdown', 'mousedown'];
const RELEASES = ['pointerup', 'mouseup'];
const CLICKS = ['click', 'dblclick', 'contextmenu', 'auxclick'];
const SAME_PLACE_PX = 0.5;
let press = null; // the one that is watched

const shift = (from, to) => [
  to.left + to.width / 2 - from.left - from.width / 2,
  to.top + to.height / 2 - from.top - from.height / 2,
];
const moved = (from, to) => shift(from, to).some((px) => Math.abs(px) > SAME_PLACE_PX);

// Whether a hit is drawn as an element was that has been replaced since.
function like(el, hit) {
  for (let one = hit, i = 0; one && i < 5; one = parentOf(one), i++) if (likeness(one) === likeness(el)) return true;
  return false;
}

// Watch where the next press lands; returns the point, or another one if the element is no longer
// there. The page does not notice: no event is stopped, and `landing` removes the listeners.
function aim(number, x, y) {
  const el = heldNow(number);
  landing();
  if (gone(el)) return { gone: true };
  const watched = new AbortController(),
    one = { watched, el, box: boxOf(el), down: null, up: null, clicked: false, replaced: redrawn.has(number), inner: null };
  press = one;
  const inner = el.getRootNode();
  // Outside a closed root its events seem to come from its host.
  const within = (hit) => {
    if (!el.isConnected) return like(el, hit);
    if (closedRoots.has(hit) && holds(hit, el)) return true;
    const inner = innerTarget(el, hit);
    return meets(el, hit) && (!inner || inner === one.inner);
  };
  const listen = (types, note) => {
    const heard = (event) => event.isTrusted && note(event, event.composedPath()[0]);
    for (const root of inner === document ? [window] : [window, inner]) {
      for (const type of types)
        root.addEventListener(type, heard, { capture: true, passive: true, signal: watched.signal });
    }
  };
  listen(PRESSES, (event, hit) => {
    if (one.down && one.down.event !== event) return;
    const met = within(hit);
    one.down = { event, met, replaced: !el.isConnected, what: met || nodeTypeOf(hit) !== 1 ? null : describe(hit), box: boxOf(el) };
  });
  listen(RELEASES, () => (one.up ||= boxOf(el)));
  listen(CLICKS, (_, hit) => (one.clicked ||= within(hit)));
  const points = pointsOf(el),
    free = placeOn(el, [[x, y], ...points]);
  if (!free) return { covered: points.length > 0 };
  one.inner = free.inner;
  return { x: free.x, y: free.y };
}

// What the watched press met; `seen` is false if no event arrived. `shift` is how far the element
// moved from `aim` to the press, `slipped` that it moved away between the press and the release.
function landing() {
  const one = press;
  press = null;
  one?.watched.abort();
  if (!one?.down) return { seen: false, replaced: false, slipped: false, moves: false, shift: [0, 0] };
  const { el, down, up } = one;
  const left = one.replaced || (el.isConnected && !!up && moved(down.box, up));
  return {
    seen: true,
    met: down.met,
    replaced: down.replaced,
    what: down.what,
    inner: one.inner && describe(one.inner),
    slipped: down.met && !one.clicked && left,
    shift: shift(one.box, down.box),
    moves: one.replaced || moved(one.box, down.box),
  };
}

let drag = null; // the last event of something that is dragged over the page
window.addEventListener('dragover', (event) => (drag = event), true);

// Whether the page would take what is dragged where it was last.
function dragTaken() {
  const over = drag;
  drag = null;
  return { taken: !!over?.defaultPrevented && over.dataTransfer.dropEffect !== 'none' };
}

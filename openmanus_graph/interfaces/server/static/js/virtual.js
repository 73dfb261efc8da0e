/**
 * A long list of which only the rows in sight are elements.
 *
 * Rows differ in height: each is measured when it is drawn, the others are taken for `estimate`.
 * Rows lie at absolute places in the list's own order, so Tab and a screen reader meet them in it;
 * the row that has the focus stays even when it is scrolled away.
 */

const OVERSCAN_PX = 600;
const AT_END_PX = 48;

/**
 * @param {HTMLElement} viewport  Scrolls.
 * @param {HTMLElement} content  Inside it, positioned.
 * @param {object} options
 * @param {number} options.estimate  Height of a row not yet drawn, in px.
 * @param {(row: object, index: number) => HTMLElement} options.render
 * @param {(element: HTMLElement, row: object, index: number) => void} options.update
 * @param {boolean} [options.follow]  Whether it stays at the end while it is there.
 * @param {(rows: object[]) => number} [options.kept]  Which row following must not move out of sight, or -1.
 * @param {(state: {atEnd: boolean, last: number}) => void} [options.onScroll]
 */
export function virtualList(viewport, content, { estimate, render, update, follow = false, kept = () => -1, onScroll }) {
  let rows = [];
  let tops = [0]; // tops[i] is where row i begins; the last one is the whole height
  let validTo = 0; // tops[0..validTo] are right
  let shownHeight = 0;
  let contentHeight = -1;
  let atEnd = true;
  let expected = -1; // where we scrolled to ourselves
  let passed = null; // the last row when the person went past what is kept in sight
  const heights = new Map();
  const drawn = new Map();

  const sizes = new ResizeObserver((entries) => {
    let first = Infinity;
    let above = 0; // px that rows above what is in sight grew
    const scrolled = viewport.scrollTop;
    for (const { target, borderBoxSize } of entries) {
      const item = drawn.get(target.rowKey);
      const height = borderBoxSize[0].blockSize;
      const known = heights.get(target.rowKey);
      if (item?.element !== target || !height || height === known) continue;
      if (top(item.index) + 1 < scrolled) above += height - (known ?? estimate);
      heights.set(target.rowKey, height);
      first = Math.min(first, item.index);
    }
    if (first === Infinity) return;
    validTo = Math.min(validTo, first);
    if (above && !(atEnd && follow)) scrollTo(scrolled + above);
    layout();
    tellScroll();
  });

  function top(index) {
    for (let i = validTo; i < index; i += 1) tops[i + 1] = tops[i] + (heights.get(rows[i].key) ?? estimate);
    validTo = Math.max(validTo, index);
    return tops[index];
  }

  function indexAt(y) {
    top(rows.length);
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (tops[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.min(low, Math.max(0, rows.length - 1));
  }

  function layout() {
    const height = top(rows.length);
    if (height !== contentHeight) {
      contentHeight = height;
      content.style.height = `${height}px`;
    }
    if (atEnd && follow) scrollTo(Math.min(height - shownHeight, farthest()));
    const scrolled = viewport.scrollTop;
    const wanted = new Set();
    const last = indexAt(scrolled + shownHeight + OVERSCAN_PX);
    for (let i = indexAt(scrolled - OVERSCAN_PX); i <= last && i < rows.length; i += 1) wanted.add(i);
    for (const { index, element } of drawn.values()) {
      if (index < rows.length && element.contains(document.activeElement)) wanted.add(index);
    }
    for (const [key, { index, element }] of drawn) {
      if (wanted.has(index) && rows[index]?.key === key) continue;
      sizes.unobserve(element);
      element.remove();
      drawn.delete(key);
    }
    draw([...wanted].sort((a, b) => a - b));
  }

  /** How far following may scroll: the row that is kept stays in sight, of a long one its end. */
  function farthest() {
    const index = rows.at(-1)?.key === passed ? -1 : kept(rows);
    return index < 0 ? Infinity : Math.max(top(index) - 8, top(index + 1) - shownHeight + AT_END_PX);
  }

  function draw(indices) {
    let before = null;
    for (const index of indices) {
      const row = rows[index];
      const item = drawn.get(row.key) ?? begin(row, index, before);
      if (item.revision !== row.revision) {
        item.revision = row.revision;
        update(item.element, row, index);
      }
      place(item, index);
      before = item.element;
    }
  }

  function begin(row, index, before) {
    const item = { element: render(row, index), index, revision: row.revision, top: -1, total: -1 };
    item.element.rowKey = row.key;
    item.element.classList.add("row");
    drawn.set(row.key, item);
    if (before) before.after(item.element);
    else content.prepend(item.element);
    sizes.observe(item.element);
    return item;
  }

  function place(item, index) {
    const y = top(index);
    if (item.top !== y) item.element.style.transform = `translateY(${y}px)`;
    if (item.total !== rows.length) {
      item.element.setAttribute("aria-setsize", String(rows.length));
      item.element.setAttribute("aria-posinset", String(index + 1));
    }
    item.top = y;
    item.total = rows.length;
  }

  function scrollTo(y) {
    expected = Math.max(0, Math.round(y));
    viewport.scrollTop = expected;
  }

  function tellScroll() {
    onScroll?.({ atEnd: contentHeight - viewport.scrollTop - shownHeight < AT_END_PX, last: indexAt(viewport.scrollTop + shownHeight) });
  }

  let scheduled = false;
  viewport.addEventListener("scroll", () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      const scrolled = viewport.scrollTop;
      if (Math.abs(scrolled - expected) > 2) {
        atEnd = contentHeight - scrolled - shownHeight < AT_END_PX;
        if (atEnd) passed = rows.at(-1)?.key;
      }
      layout();
      tellScroll();
    });
  }, { passive: true });
  new ResizeObserver(([entry]) => {
    shownHeight = entry.contentRect.height;
    layout();
  }).observe(viewport);

  return {
    /** Show these rows; `key` names a row for good, `revision` says when it changed. */
    set(next, { from = 0 } = {}) {
      const scrolled = follow ? 0 : viewport.scrollTop;
      const seen = scrolled && rows.length ? indexAt(scrolled) : -1;
      const [key, above] = seen < 0 ? [null, 0] : [rows[seen].key, scrolled - top(seen)];
      rows = next;
      validTo = Math.min(validTo, from, rows.length);
      const now = key === null ? -1 : rows.findIndex((row) => row.key === key);
      if (now >= 0 && top(now) !== scrolled - above) { // what is in sight stays in its place
        contentHeight = top(rows.length);
        content.style.height = `${contentHeight}px`;
        scrollTo(top(now) + above);
      }
      layout();
      tellScroll();
    },
    toEnd() {
      atEnd = true;
      passed = rows.at(-1)?.key;
      layout();
      tellScroll();
    },
    /** Bring a row into sight and return its element. */
    reveal(index) {
      atEnd = follow && index === rows.length - 1;
      if (atEnd) passed = rows[index].key;
      const y = top(index);
      const bottom = y + (heights.get(rows[index].key) ?? estimate);
      if (y < viewport.scrollTop) viewport.scrollTop = y - 8;
      else if (bottom > viewport.scrollTop + shownHeight) {
        viewport.scrollTop = Math.min(y - 8, bottom - shownHeight + 8);
      }
      layout();
      return drawn.get(rows[index].key)?.element;
    },
    reset() {
      heights.clear();
      for (const { element } of drawn.values()) element.remove();
      drawn.clear();
      validTo = 0;
      atEnd = true;
      passed = null;
    },
    indexOf: (element) => drawn.get(element?.rowKey)?.index ?? -1,
  };
}

// One walk over the document in reading order: text, rows, and everything a person can act on.
// clickable.js decides what that is.
const FRAMES = new Set(['iframe', 'frame', 'embed']);
const SKIPPED = new Set([
  'script',
  'style',
  'noscript',
  'template',
  'head',
  'title',
  'datalist',
  'option',
  'optgroup',
  'param',
  'track',
  'source',
  'defs',
  'symbol',
  'clipPath',
  'mask',
]);
const INLINE_MARKS = new Set([
  'b',
  'i',
  'em',
  'strong',
  'u',
  's',
  'small',
  'sup',
  'sub',
  'code',
  'mark',
  'wbr',
  'br',
]);
const SHAPES = new Set([
  'circle',
  'rect',
  'path',
  'polygon',
  'polyline',
  'line',
  'ellipse',
  'image',
  'use',
  'text',
  'g',
]);
const ROW_ROLES = new Set(['row', 'listitem', 'option', 'article', 'treeitem']);
const ROW_TAGS = new Set(['tr', 'li', 'article', 'dt', 'dd']);
const LONG_NAME = 160;
const LONG_VALUE = 200;
const DEEPEST = 500; // as far as the stack reaches with some to spare

// How many elements of the document follow this one, itself included.
function followers(el) {
  while (el.getRootNode() instanceof ShadowRoot) el = el.getRootNode().host;
  const all = document.querySelectorAll('*');
  return all.length - Array.prototype.indexOf.call(all, el);
}

const outside = (box, clip) =>
  box.right < clip.left || box.left > clip.right || box.bottom < clip.top || box.top > clip.bottom;
const cutAway = (box, clip) =>
  Math.min(box.right, clip.right) - Math.max(box.left, clip.left) < 2 ||
  Math.min(box.bottom, clip.bottom) - Math.max(box.top, clip.top) < 2;

// How far the content of an element extends to its left, as scrolling shows: text that runs from
// the right, or in columns, continues there.
function scrolledFrom(el, style) {
  const fromRight = /-rl$/.test(style.writingMode) || (style.direction === 'rtl' && style.writingMode === 'horizontal-tb');
  const scrolls = fromRight && (el === document.scrollingElement || style.overflowX !== 'visible');
  return scrolls ? el.scrollLeft + el.scrollWidth - el.clientWidth : el.scrollLeft;
}

class Walk {
  constructor(limits) {
    this.limits = limits;
    this.items = [];
    this.texts = 0; // characters of text so far
    this.listed = 0;
    this.visited = 0;
    this.clicksSaid = new Set();
    this.covered = 0; // elements behind a dialog
    this.coveredText = false; // whether text is
    this.rest = 0; // elements left out at the end because a limit was reached
    this.above = 0; // elements left out because the window is far below them
    this.top = topRoots();
    this.blocked = !!document.body && getComputedStyle(document.body).pointerEvents === 'none'; // by an open menu, for example
    this.active = deepActive();
    this.hovers = hoverTriggers();
    this.editors = walkEditors || editorFields();
    this.ends = performance.now() + limits.milliseconds;
    this.full = false;
    this.deeper = []; // what is nested deeper, and where it belongs
    const page = document.scrollingElement;
    // How far before the window the walk begins.
    this.scrolled = [page ? scrolledFrom(page, getComputedStyle(page)) : scrollX, scrollY];
  }

  // Everything from the body on, also what is nested deeper than the stack reaches.
  all(body) {
    this.element(body, this.start(), null);
    for (const [place, el, around] of this.deeper) {
      const above = this.items,
        at = above.indexOf(place);
      this.items = [];
      if (at >= 0) this.element(el, { ...around, depth: 0 }, null);
      this.items = [...above.slice(0, at), ...this.items, ...above.slice(at)];
    }
  }

  later(el, around) {
    const place = ['b'];
    this.deeper.push([place, el, around]);
    this.items.push(place);
    this.listed++; // so that what is around it stays around it
  }

  // What a visit knows of the elements around it.
  start() {
    return {
      pointer: false,
      clip: null,
      delegate: false,
      grid: false,
      strong: false,
      cell: null, // the box of the cell around it
      onTop: !this.top,
      silent: false,
      unseen: false,
      clear: false,
      editable: false,
      field: null, // of the drop-down around it, which replaces it
      depth: 0,
    };
  }

  children(el, around) {
    const nodes = childNodesOf(el);
    const repeated = this.repeated(nodes);
    for (const node of nodes) {
      if (this.full) return;
      const kind = nodeTypeOf(node);
      if (kind === 3) this.text(node.data, el, around);
      else if (kind === 1) this.element(node, around, repeated);
    }
  }

  // Siblings of one make (cards, rows, entries) are shown one to a line.
  repeated(nodes) {
    if (nodes.length < 3) return null;
    const counts = new Map();
    for (const node of nodes) {
      if (nodeTypeOf(node) !== 1) continue;
      const make = node.localName + '.' + (attr(node, 'class') || '').split(' ')[0];
      counts.set(make, (counts.get(make) || 0) + 1);
    }
    return counts;
  }

  isRow(el, style, repeated) {
    if (ROW_TAGS.has(el.localName) || ROW_ROLES.has(attr(el, 'role'))) return true;
    if (
      !repeated ||
      style.display.startsWith('table') ||
      style.display === 'inline' ||
      style.display === 'contents'
    )
      return false;
    return (
      repeated.get(el.localName + '.' + (attr(el, 'class') || '').split(' ')[0]) > 2 &&
      (el.firstElementChild || rootOf(el)?.firstElementChild)
    );
  }

  text(words, el, around) {
    if (around.silent || around.unseen || around.clear) return;
    if (!around.onTop && !this.uncovered(el)) return void (this.coveredText ||= !!words.trim());
    if (!words || (words.length < 50 && !words.trim())) {
      if (words) this.items.push(['t', ' ']);
      return;
    }
    const text = cut(words.replace(/[\s\u200b\ufeff]+/g, ' '), 4000);
    this.texts += text.length;
    this.items.push(['t', text]);
  }

  element(el, around, repeated) {
    const tag = el.localName;
    if (SKIPPED.has(tag)) return;
    if (tag === 'area') return; // listed with its picture
    if (tag === 'br') return void this.items.push(['b']);
    if (around.depth > DEEPEST) return this.later(el, around);
    this.visited++;
    if (this.visited % 256 === 0 && this.overdue(el)) return;
    const shown = visibleIn(el);
    const style = getComputedStyle(el);
    if (!shown && style.display !== 'contents') return;
    if (CLIPPED.test(style.clipPath) && el.type !== 'range') return; // what is drawn for a slider cannot be set
    if (el instanceof HTMLElement && inertOf(el)) return this.behind(el, around);
    if (style.opacity === '0' && !(FIELDS.has(tag) || tag === 'label')) around = { ...around, clear: true };
    if (style.display === 'contents' && !nativeRole(el))
      return this.children(el, { ...around, depth: around.depth + 1 });
    let box = rectOf(el);
    if (box.height && box.top + Math.max(box.height, el.scrollHeight) < this.limits.from && style.position !== 'fixed')
      return void (this.above += 1 + allIn(el, '*').length);
    const inner = this.inside(el, style, box, around);
    if (!inner) return;
    if (!box.width || !box.height) box = boxOf(el);
    const [x, y] = this.scrolled;
    this.scrolled = [x + scrolledFrom(el, style), y + el.scrollTop];
    this.visible(el, style, box, inner, around, repeated);
    this.scrolled = [x, y];
  }

  // Visible but not usable, for example behind an open menu.
  behind(el, around) {
    const box = rectOf(el);
    if (!inViewport(box) || (around.clip && cutAway(box, around.clip))) return;
    const used = [el, ...allIn(el, '*')].filter((one) => nativeRole(one) && visibleIn(one, SEEN) && inViewport(rectOf(one)));
    this.covered += used.length;
    this.coveredText ||= visibleIn(el, SEEN) && !!squeeze(el.textContent);
  }

  overdue(el) {
    this.full =
      performance.now() > this.ends ||
      this.listed >= this.limits.elements ||
      this.texts >= this.limits.characters;
    if (this.full) this.rest = followers(el);
    return this.full;
  }

  // How the children are surrounded; null if nothing of this element can be seen.
  inside(el, style, box, around) {
    let clip = around.clip;
    const position = style.position;
    if (position === 'fixed' || (position === 'absolute' && clip && !clip.positioned)) clip = null;
    const root = el === document.body || el === document.documentElement;
    const empty = !box.width || !box.height; // what floats or is placed in it has its own place
    if (clip && !root && !empty && cutAway(box, clip)) return null;
    const overflow = style.overflowX + style.overflowY;
    if (!root && overflow !== 'visiblevisible') {
      if (box.width < 3 || box.height < 3) return null;
      const scrolls = /auto|scroll/.test(overflow);
      clip = scrolls
        ? null
        : {
            left: Math.max(box.left, clip?.left ?? -Infinity),
            right: Math.min(box.right, clip?.right ?? Infinity),
            top: Math.max(box.top, clip?.top ?? -Infinity),
            bottom: Math.min(box.bottom, clip?.bottom ?? Infinity),
            positioned: position !== 'static',
          };
    }
    return {
      ...around,
      clip,
      pointer: style.cursor === 'pointer',
      onTop: around.onTop || this.top.includes(el),
      unseen: style.visibility !== 'visible' || !!(clip && !root && empty && outside(box, clip)),
      delegate: false,
      grid: this.isGrid(el, box) || around.grid,
      depth: around.depth + 1,
    };
  }

  visible(el, style, box, inner, around, repeated) {
    const tag = el.localName;
    const block =
      style.display !== 'contents' &&
      style.display !== 'inline' && style.display !== 'inline-block' && style.display !== 'inline-flex';
    const cell = tag === 'td' || tag === 'th';
    const row = this.isRow(el, style, repeated);
    const heading = /^h[1-6]$/.test(tag)
      ? +tag[1]
      : attr(el, 'role') === 'heading'
        ? +(attr(el, 'aria-level') || 2)
        : 0;
    if (row) this.items.push(['(']);
    else if (block) this.items.push([cell ? '|' : 'b']);
    else if (style.display !== 'inline') this.items.push(['t', ' ']);
    if (heading && !around.silent) this.items.push(['h', heading]);
    this.content(el, style, box, inner, around);
    if (row) this.items.push([')']);
    else if (block) this.items.push([cell ? '|' : 'b']);
    else if (style.display !== 'inline') this.items.push(['t', ' ']);
  }

  content(el, style, box, inner, around) {
    const tag = el.localName;
    // A transparent element is invisible, but the pointer meets it: a link over a whole card, for example.
    if (inner.clear && !(box.width && box.height && this.uncovered(el))) return this.children(el, inner);
    if (around.field && this.shownByDropdown(el, around.field)) return;
    if (around.editable && !this.usedInText(el)) return this.children(el, inner);
    if (FRAMES.has(tag) || (tag === 'object' && el.contentWindow)) return this.frame(el, box, inner);
    if (this.editors.has(el)) return this.editor(el, box, inner);
    const there = box.width > 0 && box.height > 0 && !inner.unseen;
    const passes = untouchable(el, style),
      made = there ? nativeRole(el) || this.cellRole(el, around) : '';
    const role = passes ? '' : made;
    if (role === 'textbox' && style.opacity === '0' && attr(el, 'aria-hidden') === 'true') return; // a form's copy
    const soft = there && !role && !inner.clear ? this.softReason(el, style, box, around) : '';
    if (passes && this.blocked && (made || soft)) {
      this.covered++;
      return this.children(el, inner);
    }
    if (tag === 'img') this.image(el, box, inner, role || soft);
    if (role && FIELDS.has(tag) && hiddenControl(el) && el.labels?.length) return;
    if (role) return this.strong(el, role, box, inner, around);
    if (tag === 'label' && this.standsForControl(el)) return this.label(el, box, inner);
    if (soft) return this.soft(el, soft, box, inner, around);
    this.listScrollArea(el, style, box, inner);
    this.children(el, { ...inner, delegate: around.delegate && !this.leaf(el) });
  }

  // The label of a control that is drawn by the style sheet; what is drawn next to a select is listed itself.
  standsForControl(label) {
    const control = label.control;
    if (!control || !hiddenControl(control) || !nativeRole(control)) return false;
    return control.localName !== 'select' || holds(label, control);
  }

  // What a drop-down that is made of other elements is listed with: its field, that one's label, and
  // its value that is called a field, but is none.
  shownByDropdown(el, field) {
    const copy = attr(el, 'role') === 'textbox' && !FIELDS.has(el.localName) && el.isContentEditable !== true;
    return el === field || el.control === field || copy;
  }

  frame(el, box, inner) {
    if (box.width < 5 || box.height < 5) return;
    if (!inner.onTop && !this.uncovered(el)) return void this.covered++;
    const name = squeeze(attr(el, 'title') || attr(el, 'name') || attr(el, 'id'));
    this.items.push([
      'f',
      {
        n: numberOf(el),
        name: cut(name, 80),
        src: attr(el, 'src') || attr(el, 'data') || '',
        ...contentOf(el),
      },
    ]);
  }

  listScrollArea(el, style, box, inner) {
    if (!this.outOfView(el, style, box)) return;
    if (inner.onTop || this.uncovered(el)) this.list(el, 'scroll area', box, {});
    else this.covered++;
  }

  // How much of an area's content is above, below, left and right of what it shows; null of no area.
  outOfView(el, style, box) {
    const down = this.scrollArea(el, style, box),
      across = this.sidewaysArea(el, style, box);
    if (!down && !across) return null;
    const left = Math.abs(el.scrollLeft); // it is negative where text runs from the right
    const [above, below] = down ? [el.scrollTop, el.scrollHeight - el.clientHeight - el.scrollTop] : [0, 0];
    return [above, below, ...(across ? [left, el.scrollWidth - el.clientWidth - left] : [0, 0])].map(Math.round);
  }

  // One that is scrolled sideways and draws only what is in view: what it draws ends with it.
  sidewaysArea(el, style, box) {
    if (!/auto|scroll/.test(style.overflowX) || el.scrollWidth < el.clientWidth + 20 || box.width < 40) return false;
    if (el === document.scrollingElement || el === document.body || !el.firstElementChild) return false;
    const beyond = (one) => !one.firstElementChild && (rectOf(one).left > box.right || rectOf(one).right < box.left);
    return ![...allIn(el, '*')].slice(0, 500).some(beyond);
  }

  scrollArea(el, style, box) {
    if (el === document.scrollingElement || el === document.body) return false;
    return (
      /auto|scroll/.test(style.overflowY) &&
      el.scrollHeight > el.clientHeight + 20 &&
      box.height > 40 &&
      box.width > 40
    );
  }

  uncovered(el) {
    const box = rectOf(el);
    const x = (Math.max(box.left, 0) + Math.min(box.right, innerWidth)) / 2;
    const y = (Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2;
    return inViewport(box) && holds(el, elementAt(x, y));
  }

  box(box) {
    return [Math.round(box.left), Math.round(box.top), Math.round(box.width), Math.round(box.height)];
  }

  list(el, role, box, facts) {
    if (box.right + this.scrolled[0] <= 0 || box.bottom + this.scrolled[1] <= 0) return;
    const entry = {
      number: numberOf(el),
      role,
      box: this.box(box),
      name: cut(facts.name || '', facts.cut || LONG_NAME),
    };
    const words = facts.words || statesOf(el, role);
    if (el === this.active || facts.focused) words.push('focused');
    words.push(...otherClicks(el, role, this.clicksSaid));
    if (words.length) entry.words = words;
    if (facts.value) entry.value = cut(facts.value, LONG_VALUE);
    if (facts.value?.length > LONG_VALUE && !facts.drawn) entry.value_chars = facts.value.length;
    if (facts.value === '') entry.value = '';
    if (facts.options) [entry.options, entry.option_count] = [facts.options.slice(0, 12), facts.options.length];
    if (facts.drawn) entry.format = 'the lines in view';
    else if (facts.format) entry.format = facts.format;
    const href = hrefOf(el);
    if (href) entry.address = cut(href, 300);
    const fixed = FIELDS.has(el.localName) || !['', 'listbox'].includes(nativeRole(el));
    const unseen = fixed ? null : this.outOfView(el, getComputedStyle(el), box);
    if (unseen) entry.scroll_px = unseen;
    if (facts.open) entry.open = true;
    if (facts.named) entry.named = true; // it is named before its contents, which do not begin with its name
    const bare = !entry.name && role !== 'gridcell',
      icon = bare ? iconOf(el) : '';
    if (bare) entry.hint = icon || hintOf(el);
    if ((bare && !icon && !FIELDS.has(el.localName)) || SHAPES.has(el.localName)) entry.colour = colourOf(el);
    this.listed++;
    controls.add(el);
    this.items.push(['e', entry]);
  }
}

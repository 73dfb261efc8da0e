// What can be acted on: what was made for it, and what listeners, cursors and such make so.
class PageWalk extends Walk {
  constructor(limits) {
    super(limits);
    this.roving = rovingRoles();
    this.kinds = new WeakMap(); // parent -> the tag of its children that are clicked
    this.cells = new WeakSet(); // what plainCells found
  }

  content(el, ...known) {
    const mark = this.items.length;
    super.content(el, ...known);
    const first = this.hovers.has(el) && this.items.slice(mark).find((item) => item && item[0] === 'e');
    if (first) first[1].words = [...(first[1].words || []), 'opens on hover'];
  }

  image(el, box, inner, listed) {
    const alt = squeeze(attr(el, 'alt'));
    if (alt && !listed && !inner.silent && box.width > 2)
      this.text(`(image: ${cut(alt, 100)})`, el, inner);
    const map =
      attr(el, 'usemap') && document.querySelector(`map[name="${CSS.escape(attr(el, 'usemap').slice(1))}"]`);
    for (const area of map ? map.areas : []) {
      const c = area.coords.split(',').map(Number);
      const [xs, ys] =
        area.shape === 'circle'
          ? [
              [c[0] - c[2], c[0] + c[2]],
              [c[1] - c[2], c[1] + c[2]],
            ]
          : [c.filter((_, i) => i % 2 === 0), c.filter((_, i) => i % 2)];
      const place = new DOMRect(
        box.left + Math.min(...xs),
        box.top + Math.min(...ys),
        Math.max(...xs) - Math.min(...xs),
        Math.max(...ys) - Math.min(...ys),
      );
      areaRects.set(area, place);
      this.list(area, 'link', place, { name: nameOf(area, 'link') });
    }
  }

  // Made to be acted on: listed, with its contents as its name unless they can be acted on too.
  strong(el, role, box, inner, around) {
    if (!inner.onTop && !this.uncovered(el)) {
      this.covered++;
      return FIELDS.has(el.localName) ? undefined : this.children(el, { ...inner, strong: true });
    }
    if (FIELDS.has(el.localName)) return this.list(el, role, box, this.field(el, role));
    if (role === 'canvas') {
      const keys = [...el.querySelectorAll('a[href],button,input,select,textarea,[tabindex]')];
      const names = keys.map((one) => nameOf(one, nativeRole(one))).filter(Boolean);
      const words = names.length ? [cut(`(Tab reaches in it: ${names.join(', ')})`, LONG_NAME)] : [];
      return this.list(el, role, box, { ...this.field(el, role), words });
    }
    if (role === 'textbox' || role === 'audio' || role === 'video') {
      this.list(el, role, box, this.field(el, role));
      if (el.isContentEditable === true) this.children(el, { ...inner, silent: true, editable: true });
      return;
    }
    if (role === 'listbox' || role === 'combobox' || role === 'treeitem') {
      const field = role === 'combobox' ? fieldOf(el) : el;
      this.list(el, role, box, { ...this.field(el, role), focused: field !== el && field === this.active });
      return this.children(el, { ...inner, silent: role === 'combobox', field });
    }
    this.wrapped(el, role, box, { ...inner, strong: true, cell: this.cellRole(el, around) ? box : null }, around);
  }

  // An editor that draws its text itself: one field, whatever it is drawn of.
  editor(el, box, inner) {
    if (!inner.onTop && !this.uncovered(el)) return void this.covered++;
    const keys = this.editors.get(el);
    const name = nameOf(keys, 'textbox') || squeeze(attr(el, 'aria-label'));
    this.list(el, 'textbox', box, { name, value: editorText(el), drawn: true, focused: keys === this.active });
  }

  // Something inside a text that is used, not typed over.
  usedInText(el) {
    return el.isContentEditable !== true || FIELDS.has(el.localName) || el.localName === 'button';
  }

  field(el, role) {
    return { name: nameOf(el, role), value: valueOf(el, role), options: choicesOf(el), format: formatOf(el) };
  }

  // A label whose control is drawn by the style sheet: the label is what can be hit, but for what
  // inside it is used by itself.
  label(el, box, inner) {
    if (!inner.onTop && !this.uncovered(el)) return void this.covered++;
    const control = el.control,
      role = nativeRole(control);
    const drawn = role === 'combobox' ? nameOf(control, role) : ''; // the label shows what is chosen, too
    this.list(el, role, box, {
      name: drawn || contentText(el) || nameOf(control, role) || squeeze(attr(el, 'title')),
      words: statesOf(control, role),
      value: valueOf(control, role),
    });
    this.children(el, { ...inner, silent: true, strong: true });
  }

  // List an element and what inside it can be acted on by itself.
  wrapped(el, role, box, inner, around) {
    const mark = this.items.length,
      before = this.listed;
    this.items.push(null);
    this.children(el, inner);
    const contents = this.items.splice(mark);
    const own = contents.some((item) => item && item[0] === 't' && item[1].trim());
    const found = this.listed - before;
    if (!found) {
      const name = nameOf(el, role);
      if (!name && role === 'gridcell') return this.list(el, role, box, { words: [...statesOf(el, role), iconOf(el) || 'empty'] });
      if (own && this.cellRole(el, around) && !wordsIn(contents).every((word) => name.includes(word))) {
        this.list(el, role, box, { name, open: true, named: true });
        return void this.items.push(...contents.slice(1));
      }
      const whole = !around.silent && name.length > LONG_NAME && own;
      this.list(el, role, box, { name, cut: whole ? 70 : LONG_NAME, value: valueOf(el, role) });
      if (whole) this.items.push(...contents.slice(1));
      return;
    }
    const said = squeeze(attr(el, 'aria-label')) || namedBy(el, 'aria-labelledby') || squeeze(attr(el, 'title'));
    const name = said || cut(contentText(el), 60);
    this.list(el, role, box, { name, open: true, named: own && !firstWords(contents) });
    // Its contents replace its name, unless they do not show it.
    if (said && !shownBy(contents).includes(said)) this.items.push(['t', said + ' ']);
    this.items.push(...contents.slice(1));
  }

  // A table whose cells are used: by its role, or by listeners around all of it.
  isGrid(el, box) {
    const role = attr(el, 'role'),
      cells = plainCells(el);
    cells.forEach((cell) => this.cells.add(cell));
    if (role === 'grid' || role === 'treegrid') return true;
    if (el.localName !== 'table' && !cells.length) return false;
    const controls = el.querySelectorAll('td a[href],td button,td input,td select').length;
    if (controls * 2 > el.querySelectorAll('td').length) return false; // as in a calendar of links
    const around = [el, ...(el.tBodies || [])];
    for (let one = parentOf(el); one && around.length < 8; one = parentOf(one)) {
      const outer = rectOf(one);
      if (outer.width * outer.height > 2 * box.width * box.height) break;
      around.push(one);
    }
    if (el.localName !== 'table' && !around.some((one) => one.tabIndex >= 0)) return false; // no key reaches it
    return around.some((one) => one !== document.body && /press|double/.test(handled.get(one)));
  }

  cellRole(el, around) {
    if (!around.grid) return '';
    const role = attr(el, 'role');
    if (['gridcell', 'columnheader', 'rowheader'].includes(role)) return role;
    return !role && (el.localName === 'td' || el.localName === 'th' || this.cells.has(el)) ? 'gridcell' : '';
  }

  // Why something that was not made for it can be acted on: listener, property, cursor ...
  softReason(el, style, box, around) {
    if (el === document.body || el === document.documentElement) return '';
    const kinds = handled.get(el) || '';
    if (this.labelsListed(el, kinds)) return '';
    if (attr(el, 'onclick') !== null || /press|touch|double|menu/.test(kinds)) return 'press';
    if (attr(el, 'draggable') === 'true' || /drag/.test(kinds)) return 'drag';
    if (/drop/.test(kinds)) return 'drop';
    if (style.cursor === 'pointer' && !around.pointer && style.pointerEvents !== 'none') return 'pointer';
    if (
      ['grab', 'move'].includes(style.cursor) &&
      getComputedStyle(parentOf(el) || el).cursor !== style.cursor
    )
      return 'drag';
    const tabindex = attr(el, 'tabindex');
    if (tabindex !== null && (+tabindex >= 0 || this.roving.has(makeOf(el)))) return 'focus';
    if ((/hover/.test(kinds) && !around.strong) || this.hovers.has(el)) return 'hover';
    if (style.pointerEvents === 'none') return '';
    if (around.delegate && this.leaf(el)) return 'delegated';
    return this.amongClickables(el, style, around) ? 'delegated' : '';
  }

  // The label of a control that is listed itself, because the label does not replace it. A click on
  // either does the same.
  labelsListed(el, kinds) {
    if (el.localName !== 'label' || attr(el, 'onclick') !== null || /drag|double|menu/.test(kinds)) return false;
    const control = el.control;
    return !!control && !!nativeRole(control) && (control.localName !== 'select' || !hiddenControl(control));
  }

  // One of several alike, most of which the pointer marks as clickable: for example a day of the next month.
  amongClickables(el, style, around) {
    const parent = parentOf(el);
    if (!parent || around.pointer || style.cursor === 'not-allowed' || attr(el, 'role')) return false;
    if (!this.kinds.has(parent)) this.kinds.set(parent, this.clickableKind(parent));
    return el.localName === this.kinds.get(parent) && !elementsIn(el).length && this.leaf(el);
  }

  clickableKind(parent) {
    const all = elementsIn(parent);
    if (all.length < 3 || new Set([...all].map((one) => one.localName)).size > 1) return '';
    const marked = [...all].filter((one) => getComputedStyle(one).cursor === 'pointer').length;
    return marked * 2 >= all.length && !nativeRole(all[0]) ? all[0].localName : '';
  }

  leaf(el) {
    if (INLINE_MARKS.has(el.localName)) return false;
    if (SHAPES.has(el.localName) || el.localName === 'img') return true;
    if (!el.firstElementChild) return !!squeeze(el.textContent) || colourOf(el) !== '';
    return hasText(el);
  }

  // Its listener may be meant for its children: a list that handles its entries' clicks.
  delegates(el, reason) {
    if (reason !== 'press' || allIn(el, '*').length > 300) return false;
    let holder = el;
    while (elementsIn(holder).length === 1) [holder] = elementsIn(holder); // what only moves or sizes
    if (holder !== el && holder.closest('table')) return false; // see isGrid
    const children = [...elementsIn(holder)].filter((child) => getComputedStyle(child).pointerEvents !== 'none');
    if (children.length < (holder === el ? 2 : 3)) return false;
    const kind = holder === el ? (child) => child.localName : makeOf;
    return new Set(children.map(kind)).size === 1 && !INLINE_MARKS.has(children[0].localName);
  }

  soft(el, reason, box, inner, around) {
    const hidden = !inner.onTop && !this.uncovered(el);
    const mark = this.items.length,
      before = this.listed + (hidden ? this.covered : 0);
    const delegate = getComputedStyle(el).cursor !== 'pointer' && this.delegates(el, reason);
    const spread = reason === 'pointer' && elementsIn(el).length > 1 && this.delegates(el, 'press');
    this.children(el, { ...inner, delegate: delegate || spread, pointer: inner.pointer && !spread });
    const contents = this.items.splice(mark),
      found = this.listed + (hidden ? this.covered : 0) - before;
    if (!found) {
      if (hidden && this.worthListing(el, reason, box, around)) return void this.covered++;
      if (this.worthListing(el, reason, box, around)) return this.softLeaf(el, reason, box, contents);
      this.listScrollArea(el, getComputedStyle(el), box, inner);
      return void this.items.push(...contents);
    }
    const own = contents.some((item) => item[0] === 't' && item[1].trim());
    const large = box.width * box.height > innerWidth * innerHeight * 0.6 && found > 5;
    const opens = this.hovers.has(el) && own && !large;
    const carrier =
      opens ||
      (reason === 'press' && (!delegate || hasText(el)) && own && !large) ||
      (reason === 'pointer' && own && !spread && !large) ||
      ((reason === 'drag' || reason === 'drop') && !large);
    if (carrier && hidden) this.covered++;
    else if (carrier) {
      const name = (opens && firstWords(contents)) || contentText(el);
      this.list(el, this.softRole(el, reason), box, { name: cut(name, 60), open: true });
    } else this.listScrollArea(el, getComputedStyle(el), box, inner);
    this.items.push(...contents);
  }

  worthListing(el, reason, box, around) {
    if (around.strong) {
      if (around.cell && reason === 'pointer') return box.height < around.cell.height * 0.5;
      const outer = rectOf(parentOf(el));
      return reason === 'press' && box.width * box.height < outer.width * outer.height * 0.5;
    }
    if (
      box.width * box.height > innerWidth * innerHeight * 0.85 &&
      !squeeze(el.textContent) &&
      el.localName !== 'svg'
    )
      return false;
    if (reason === 'hover' && this.drawnLine(el, box)) return false;
    if (reason === 'focus' && Math.max(box.width, box.height) < THIN) return false; // for the keys only
    if (reason === 'hover' || reason === 'focus')
      return elementsIn(el).length < 30 && box.height < innerHeight;
    return true;
  }

  // A line around a selection; edges that resize a window can be used.
  drawnLine(el, box) {
    const thin = Math.min(box.width, box.height) < THIN;
    return thin && !squeeze(el.textContent) && !/resize/.test(getComputedStyle(el).cursor);
  }

  softRole(el, reason) {
    const role = attr(el, 'role');
    if (reason === 'drop') return 'drop area';
    if (role && !['presentation', 'none', 'generic', 'group', 'region'].includes(role)) return role;
    if (SHAPES.has(el.localName))
      return el.localName === 'g' ? 'clickable shape' : 'clickable ' + el.localName;
    if (reason === 'focus' && this.roving.get(makeOf(el))) return this.roving.get(makeOf(el));
    const click = { double: 'double-clickable', menu: 'right-clickable' }[clickKind(el)];
    if (click && reason === 'press') return click;
    return reason === 'hover'
      ? 'hoverable'
      : reason === 'focus'
        ? 'focusable'
        : reason === 'drag'
          ? 'draggable'
          : 'clickable';
  }

  softLeaf(el, reason, box, contents) {
    const role = this.softRole(el, reason);
    const name = nameOf(el, role);
    const whole = name.length > LONG_NAME;
    this.list(el, role, box, { name, cut: whole ? 70 : LONG_NAME });
    if (whole) this.items.push(...contents);
  }
}

const hasText = (el) => [...nodesIn(el)].some((node) => node.nodeType === 3 && node.data.trim());

// The cells of a table that is drawn of other elements: as many in each row, and of words only.
function plainCells(el) {
  const rows = [...elementsIn(el)].map(elementsIn),
    alike = rows.length > 1 && rows[0].length > 1 && rows.every((row) => row.length === rows[0].length),
    cells = alike ? rows.flatMap((row) => [...row]) : [];
  const whole = (cell) => [cell, ...allIn(cell, '*')];
  const plain = (cell) => whole(cell).length < 5 && !whole(cell).some(nativeRole) && getComputedStyle(cell).display !== 'inline';
  return cells.every(plain) ? cells : [];
}

const makeOf = (el) => `${el.localName}.${attr(el, 'class')}`;

// The roving tabindex: of several alike the keys reach one at a time, which alone has a tabindex of 0.
function rovingRoles() {
  const inTurn = [...document.querySelectorAll('[tabindex="0"][class]')];
  return new Map(inTurn.map((el) => [makeOf(el), nativeRole(el)]));
}

const THIN = 4; // px: a line that is drawn around what is selected

const wordsIn = (items) => items.flatMap((item) => (item?.[0] === 't' ? item[1].split(/\s+/) : []));

const shownBy = (items) =>
  squeeze(items.map((item) => (item?.[0] === 't' ? item[1] : item?.[0] === 'e' ? ` ${item[1].name} ` : ' ')).join(''));

// The text before the first element: it is there even while nothing is opened.
function firstWords(contents) {
  const end = contents.findIndex((item) => item?.[0] === 'e');
  return squeeze(contents.slice(0, end).map((item) => (item?.[0] === 't' ? item[1] : ' ')).join(''));
}

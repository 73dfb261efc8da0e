// Drop-downs: native ones, suggestion lists, and the lists of those made of other elements.
const OPTIONS = '[role=option],[role=menuitem],[role=menuitemradio],[role=menuitemcheckbox],[role=treeitem]';
const LISTS = '[role=listbox],[role=menu],[role=tree]';
const NEAR_PX = 24;
const LIST_LIMITS = { elements: 500, characters: 50_000, milliseconds: 500 };
const popups = new WeakMap(); // the element of a drop-down -> what it opened
const listsBefore = new WeakMap(); // the element of a drop-down -> lists seen before it was clicked

function optionFacts(option, place) {
  return {
    n: place,
    name: optionName(option),
    value: option.value,
    selected: option.selected,
    disabled: option.disabled || !!option.parentElement?.disabled,
    group: option.parentElement?.label || '',
  };
}

function nativeOptions(number) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  const target = fieldOf(el);
  if (target.localName === 'select') {
    return {
      kind: 'select',
      many: target.multiple,
      disabled: target.matches(':disabled'),
      options: [...target.options].map(optionFacts),
    };
  }
  if (target.localName === 'input' && target.list) {
    return { kind: 'datalist', options: [...target.list.options].map(optionFacts) };
  }
  return { kind: 'custom' };
}

function selectOption(number, place) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  const target = fieldOf(el);
  target.focus({ preventScroll: true });
  if (!target.multiple) target.selectedIndex = place;
  else target.options[place].selected = !target.options[place].selected;
  tell(target, 'input', 'change');
  return {};
}

// Visible, and not cut away by something around it that has no size.
function drawn(el) {
  if (!visibleIn(el, SEEN)) return false;
  const box = rectOf(el);
  if (box.width < 3 || box.height < 3) return false;
  for (let one = parentOf(el); one; one = parentOf(one)) {
    const around = rectOf(one);
    if ((around.width < 3 || around.height < 3) && getComputedStyle(one).overflow !== 'visible') return false;
  }
  return true;
}

const drawnLists = () => [...document.querySelectorAll(LISTS)].filter(drawn);

// Remember which lists are open already, before a click that opens one.
function noteLists(number) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  listsBefore.set(el, new Set(drawnLists()));
  return {};
}

const OPENERS = ['aria-haspopup', 'aria-controls', 'aria-owns', 'aria-autocomplete'];
const LIST_WORDS =
  /select(?!ed|able|ion|or)|drop[-_]?down|combo|picker|menu(?![-_]?item)|caret|(chevron|arrow|angle)\S*down|cascad/i;

// What a click on an element would do: where it leads, whether it sends a form or seems to open a list.
function clickFacts(number) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  const href = hrefOf(el.closest('a, area') || el),
    [page, place = ''] = href.split('#');
  const stays = page === location.href.split('#')[0] && !/^[/!]/.test(place);
  const says = el.localName === 'summary' || attr(el, 'aria-expanded') !== null || OPENERS.some((name) => !['false', '', null].includes(attr(el, name)));
  const button = el.closest('button, input');
  return {
    leads: stays ? '' : href,
    sends: !says && !!button?.form && ['submit', 'image', 'reset'].includes(button.type),
    opens: says || [el, ...allIn(el, '*')].some(looksLikeList),
  };
}

const looksLikeList = (el) => ['class', 'id', 'data-toggle', 'data-bs-toggle'].some((name) => LIST_WORDS.test(attr(el, name) || ''));

// The list that belongs to a drop-down made of other elements, if it is open.
function popupOf(el) {
  const known = popups.get(el),
    closed = attr(el, 'aria-expanded') === 'false'; // what it contains then is chosen already
  if (known && known.isConnected && drawn(known) && !(closed && holds(el, known))) return known;
  const controlled = controlledBy(el);
  if (controlled) return controlled;
  if (['listbox', 'menu', 'tree'].includes(attr(el, 'role')) || (!closed && hasChoices(el))) return el;
  const before = listsBefore.get(el);
  if (closed && !before) return null;
  const lists = drawnLists().filter((one) => (before ? !before.has(one) : nextTo(one, el)));
  const others = lists.filter((one) => !holds(one, el) && !(closed && holds(el, one)));
  const outer = others.filter((one) => !others.some((other) => other !== one && holds(other, one)));
  return outer.length === 1 ? outer[0] : null;
}

const hasChoices = (el) => [...el.querySelectorAll(OPTIONS)].some(drawn);

// The list that it names. One that is only meant for screen readers is inside the drawn one.
function controlledBy(el) {
  const root = el.getRootNode(),
    inner = el.querySelector('[aria-controls],[aria-owns]');
  for (const one of [el, inner]) {
    for (const id of ((one && (attr(one, 'aria-controls') || attr(one, 'aria-owns'))) || '').split(/\s+/)) {
      let list = id && (root.getElementById?.(id) || document.getElementById(id));
      if (!list || !visibleIn(list, SEEN)) continue;
      while (list && !drawn(list)) list = parentOf(list);
      if (list && holds(el, list) && !list.matches(LISTS) && !hasChoices(list)) continue;
      if (list && list !== document.body && !holds(list, el)) return list;
    }
  }
  return null;
}

// A list right above or below a field that is being used.
function nextTo(list, el) {
  const used = [el, ...el.querySelectorAll('[aria-expanded]')].some((one) => attr(one, 'aria-expanded') === 'true');
  if (!used && !holds(el, deepActive())) return false;
  const [a, b] = [rectOf(list), rectOf(el)];
  const gap = Math.max(a.top - b.bottom, b.top - a.bottom);
  return a.left < b.right && b.left < a.right && Math.abs(gap) <= NEAR_PX;
}

// The options of an open list; `appeared` are the numbers of what a click on the drop-down opened.
function customOptions(number, appeared) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  const fresh = appeared.map((one) => held.get(one)).filter((one) => !gone(one) && !holds(el, one));
  const popup = popupOf(el) || (fresh.length ? commonRoot(fresh, el) : null);
  if (popup) popups.set(el, popup);
  const options = (popup ? choicesIn(popup) : fresh)
    .map((one) => ({
      n: numberOf(one),
      name: nameOf(one, 'option'),
      value: attr(one, 'data-value') ?? attr(one, 'value') ?? '',
      selected: isChosen(one),
      disabled: attr(one, 'aria-disabled') === 'true',
      group: '',
    }))
    .filter((one) => one.name);
  return options.length ? { options, list: popup ? numberOf(popup) : 0 } : { options: null };
}

const isChosen = (option) => {
  const entry = option.closest(OPTIONS) || option;
  return attr(entry, 'aria-selected') === 'true' || attr(entry, 'aria-checked') === 'true';
};

// The element that contains all of them and not the drop-down itself.
function commonRoot(elements, el) {
  let root = elements.length > 1 ? elements[0] : parentOf(elements[0]);
  while (root && !elements.every((one) => holds(root, one))) root = parentOf(root);
  return root && root !== document.body && !holds(root, el) ? root : null;
}

function choicesIn(list) {
  const named = [...list.querySelectorAll(OPTIONS)].filter(drawn);
  if (named.length) return named.map(wordsOf);
  const walk = new PageWalk(LIST_LIMITS);
  walk.element(list, { ...walk.start(), onTop: true }, null);
  const listed = walk.items
    .filter(([kind, facts]) => kind === 'e' && facts.name && !facts.scroll_px)
    .map(([, facts]) => held.get(facts.number))
    .filter((el) => !FIELDS.has(el.localName));
  // Neither what is around several of them, nor the marks within one.
  const single = listed.filter((el) => listed.filter((other) => holds(el, other)).length < 3);
  const options = single.filter((el) => !single.some((other) => other !== el && holds(other, el)));
  return options.length ? options : [...list.querySelectorAll('li')].filter(drawn);
}

// The part of a tree's entry that has its words: next to it are marks to open and to tick it.
function wordsOf(entry) {
  if (attr(entry, 'role') !== 'treeitem') return entry;
  return [...allIn(entry, '*')].find((one) => hasText(one) && drawn(one)) || entry;
}

// Scroll a long list by most of its height, for lists that draw only what is in view.
async function pageList(number, toStart) {
  const list = held.get(number);
  if (gone(list)) return { gone: true };
  const inner = [list, ...list.querySelectorAll('*')].find(
    (one) =>
      one.scrollHeight > one.clientHeight + 1 &&
      /auto|scroll|hidden/.test(getComputedStyle(one).overflowY) &&
      drawn(one),
  );
  const area = inner || scrollerOf(list);
  if (area === document.scrollingElement) return { moved: false };
  const before = area.scrollTop;
  area.scrollTop = toStart ? 0 : before + Math.max(20, area.clientHeight * 0.8);
  await frame();
  await frame();
  return { moved: area.scrollTop !== before };
}

// What a drop-down shows as chosen: its value and the text of the box around it, not its label.
function shownChoice(number, option) {
  const el = held.get(number),
    chosen = held.get(option);
  if (gone(el)) return { gone: true };
  const inside = !gone(chosen) && holds(el, chosen) && drawn(chosen);
  const selected = !gone(chosen) && isChosen(chosen);
  if (inside) return { text: '', selected };
  return { text: shownText(el, widgetOf(el, chosen)), selected };
}

// The box of a field: what is around it, as long as it is one line and contains no other control.
function widgetOf(el, option) {
  const highest = rectOf(el).height + 30;
  for (let widget = el; ; widget = parentOf(widget)) {
    const outer = parentOf(widget);
    if (!outer || outer === document.body || rectOf(outer).height > highest) return widget;
    if ((option && holds(outer, option)) || otherControl(outer, el)) return widget;
  }
}

const otherControl = (outer, el) =>
  [...outer.querySelectorAll('input,select,textarea,button,a[href],[role=combobox]')].some(
    (one) => !holds(el, one) && !holds(one, el) && drawn(one),
  );

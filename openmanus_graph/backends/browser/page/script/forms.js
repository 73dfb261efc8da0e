// Fields, drop-downs and file inputs.
const TYPED = new Set(['text', 'search', 'email', 'url', 'tel', 'password', 'number', '']);

// The field an index stands for: itself, its label's control, or the one inside it.
function fieldOf(el) {
  if (FIELDS.has(el.localName) || el.isContentEditable) return el;
  if (el.localName === 'label' && el.control) return el.control;
  const root = rootOf(el) || el;
  return (
    root.querySelector(
      'input:not([type=hidden]),textarea,[contenteditable=""],[contenteditable=true],select',
    ) || el
  );
}

const active = () => deepActive();

function focusedNumber() {
  return active() ? numberOf(active()) : 0;
}

function textOf(el) {
  return el.isContentEditable ? el.innerText.replace(/\n$/, '') : (el.value ?? '');
}

function facts(el) {
  const tag = el.localName,
    type = tag === 'input' ? el.type : '';
  const kind =
    tag === 'select'
      ? 'select'
      : tag === 'textarea' || el.isContentEditable
        ? 'text'
        : tag !== 'input'
          ? 'none'
          : TYPED.has(type)
            ? 'text'
            : ['checkbox', 'radio'].includes(type)
              ? 'check'
              : ['button', 'submit', 'reset', 'image'].includes(type)
                ? 'none'
                : type === 'file'
                  ? 'file'
                  : 'set';
  return {
    kind,
    type,
    many: tag === 'textarea' || el.isContentEditable,
    rich: el.isContentEditable,
    value: textOf(el),
    disabled: el.matches(':disabled') || attr(el, 'aria-disabled') === 'true',
    readonly: el.readOnly === true && kind !== 'check',
    format: formatOf(el),
    invalid: el.validationMessage || '',
    longest: el.maxLength > 0 ? el.maxLength : 0,
  };
}

function field(number) {
  const el = number === null ? active() : held.get(number);
  if (gone(el)) return { gone: true };
  return facts(number === null ? el : fieldOf(el));
}

// Put the cursor into a field with all its text selected; `number` null means the focused one.
function enter(number, secret) {
  const el = number === null ? active() : held.get(number);
  if (gone(el)) return { gone: true };
  const target = number === null ? el : fieldOf(el);
  target.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' });
  target.focus({ preventScroll: true });
  if (secret) {
    secrets.add(target);
    target.style.setProperty('-webkit-text-security', 'disc', 'important'); // pictures show it too
  }
  if (target.isContentEditable) {
    const range = document.createRange();
    range.selectNodeContents(target);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  } else if (target.select) target.select();
  const now = active();
  return { focused: now === target || holds(target, now), ...facts(target) };
}

const tell = (el, ...types) => {
  for (const type of types) el.dispatchEvent(new Event(type, { bubbles: true, composed: true }));
};

// Give a field its value at once, as pickers and sliders do.
// Whether a field would hold nothing instead of a value, because it is not of its form.
function empties(field, value) {
  if (!value || field.localName !== 'input') return false;
  const other = document.createElement('input');
  other.type = field.type;
  other.value = value;
  return !other.value;
}

function assign(number, value) {
  const el = number === null ? active() : held.get(number);
  if (gone(el)) return { gone: true };
  const target = number === null ? el : fieldOf(el);
  if (empties(target, value)) return { ...facts(target), refused: true };
  target.focus({ preventScroll: true });
  if (target.isContentEditable) target.textContent = value;
  else target.value = value;
  tell(target, 'input', 'change');
  return facts(target);
}

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
  else target.options[place].selected = true;
  tell(target, 'input', 'change');
  return { chosen: target.isConnected ? [...target.selectedOptions].map(optionName) : null };
}

const OPTIONS = '[role=option],[role=menuitem],[role=menuitemradio],[role=menuitemcheckbox],[role=treeitem]';

// The list that belongs to a drop-down made of other elements, if it is open.
function listOf(el) {
  const root = el.getRootNode(),
    inner = el.querySelector('[aria-controls],[aria-owns]');
  for (const one of [el, inner]) {
    for (const id of ((one && (attr(one, 'aria-controls') || attr(one, 'aria-owns'))) || '').split(/\s+/)) {
      const list = id && (root.getElementById?.(id) || document.getElementById(id));
      if (list && list.checkVisibility()) return list;
    }
  }
  if (['listbox', 'menu', 'tree'].includes(attr(el, 'role')) || el.querySelector(OPTIONS)) return el;
  const lists = [...document.querySelectorAll('[role=listbox],[role=menu]')].filter((one) => seen(one));
  return lists.length === 1 ? lists[0] : null;
}

function customOptions(number) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  const list = listOf(el);
  if (!list) return { options: null };
  const named = [...list.querySelectorAll(OPTIONS)];
  const all = named.length ? named : [...list.querySelectorAll('li')];
  const options = all
    .filter((one) => one.checkVisibility({ visibilityProperty: true }))
    .map((one) => ({
      n: numberOf(one),
      name: nameOf(one, 'option'),
      value: attr(one, 'data-value') ?? attr(one, 'value') ?? '',
      selected: attr(one, 'aria-selected') === 'true' || attr(one, 'aria-checked') === 'true',
      disabled: attr(one, 'aria-disabled') === 'true',
      group: '',
      place: +attr(one, 'aria-posinset') || 0,
    }));
  return options.length ? { options, list: numberOf(list) } : { options: null };
}

// Scroll a long list by most of its height, for lists that draw only what is in view.
async function pageList(number, toStart) {
  const list = held.get(number);
  if (gone(list)) return { gone: true };
  const inner = [list, ...list.querySelectorAll('*')].find(
    (one) =>
      one.scrollHeight > one.clientHeight + 1 && /auto|scroll|hidden/.test(getComputedStyle(one).overflowY),
  );
  const area = inner || scrollerOf(list);
  if (area === document.scrollingElement) return { moved: false };
  const before = area.scrollTop;
  area.scrollTop = toStart ? 0 : before + Math.max(20, area.clientHeight * 0.8);
  await frame();
  await frame();
  return { moved: area.scrollTop !== before };
}

function fileInput(number) {
  const el = held.get(number);
  if (gone(el)) return null;
  const control = fieldOf(el);
  if (control.localName === 'input' && control.type === 'file') return control;
  const near = el.parentElement?.querySelectorAll('input[type=file]') || [];
  return near.length === 1 && hiddenControl(near[0]) ? near[0] : null;
}

function fileFacts(number) {
  const input = fileInput(number);
  return input
    ? {
        many: input.multiple || input.webkitdirectory,
        disabled: input.disabled,
        names: [...input.files].map((f) => f.name),
      }
    : { none: true };
}

function connected(number) {
  return { gone: gone(held.get(number)) };
}

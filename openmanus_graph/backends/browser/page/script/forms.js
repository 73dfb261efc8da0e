// Fields and file inputs.
const LATE_FRAMES = 8; // in which a page draws what a key has changed
const TYPED = new Set(['text', 'search', 'email', 'url', 'tel', 'password', 'number', '']);

// The field that an index means: itself, its label's control, or the one inside it.
function fieldOf(el) {
  if (FIELDS.has(el.localName) || el.isContentEditable) return el;
  if (el.localName === 'label' && el.control) return el.control;
  const root = rootOf(el) || el,
    keys = (walkEditors || editorFields()).get(el);
  const fields = 'input:not([type=hidden]),textarea,[contenteditable=""],[contenteditable=true],select';
  // A hidden select is the copy of what is drawn in its place, and an input may wait for keys unseen.
  const used = (one) => one.type === 'file' || (one.localName === 'select' ? visibleIn(one, SEEN) : visibleIn(one));
  return keys || [...root.querySelectorAll(fields)].find(used) || el;
}

const active = () => deepActive();

function focusedNumber() {
  return active() ? numberOf(active()) : 0;
}

// Whether the focus is on another control of the page, one that is not right next to an element.
function focusElsewhere(number) {
  const el = held.get(number),
    now = active();
  if (gone(el) || !now || !controls.has(now) || holds(el, now)) return { elsewhere: false };
  const [a, b] = [rectOf(el), rectOf(now)];
  const gap = Math.max(a.top - b.bottom, b.top - a.bottom, a.left - b.right, b.left - a.right);
  return { elsewhere: gap > NEAR_PX };
}

function textOf(el) {
  for (const [editor, keys] of isKeyField(el) ? editorFields() : []) if (keys === el) return editorText(editor);
  return el.isContentEditable ? editableText(el).replace(/\n$/, '') : (el.value ?? '');
}

// The text of an element that is edited, without its placeholder.
function editableText(el) {
  const text = (el.innerText ?? '').replace(/[\u200b\ufeff]/g, ''),
    placeholder = placeholderOf(el);
  return placeholder ? text.replace(placeholder.innerText, '') : text;
}

function placeholderOf(el) {
  const named = (one) => [...one.getAttributeNames(), attr(one, 'class') || ''].some((word) => /placeholder/i.test(word));
  return [...el.querySelectorAll('[contenteditable=false]')].find(named);
}

// Not a plain field: its text is what an editor makes of keys and pastes.
const isRich = (el) => el.isContentEditable || isKeyField(el);

function facts(el) {
  const tag = el.localName,
    type = tag === 'input' ? el.type : '';
  const kind =
    tag === 'select'
      ? 'select'
      : tag === 'textarea' || isRich(el)
        ? 'text'
        : tag !== 'input'
          ? attr(el, 'role') === 'slider' ? 'slider' : 'none' // prettier-ignore
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
    many: tag === 'textarea' || isRich(el),
    rich: isRich(el),
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

// Whether a field would hold nothing instead of a value, because it is not of its form.
function empties(field, value) {
  if (!value || field.localName !== 'input') return false;
  const other = document.createElement('input');
  other.type = field.type;
  other.value = value;
  return !other.value;
}

// Give a field its value at once, as pickers and sliders do.
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

// The position of a slider that is made of other elements and moved by keys, with the focus on it.
// If it was at `before`, waits until it has moved.
async function slider(number, before) {
  const el = held.get(number);
  if (gone(el)) return { gone: true };
  const keys = el.tabIndex >= 0 ? el : el.querySelector('[tabindex="0"]') || el;
  keys.focus({ preventScroll: true });
  const read = (name) => parseFloat(attr(el, `aria-value${name}`));
  for (let i = 0; i < LATE_FRAMES && read('now') === before; i++) await frame();
  const [now, least, most] = ['now', 'min', 'max'].map(read);
  return { focused: active() === keys, now, least, most, shown: valueOf(el, 'slider') || '' };
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
        folders: input.webkitdirectory,
        disabled: input.disabled,
        names: [...input.files].map((f) => f.name),
      }
    : { none: true };
}

function connected(number) {
  return { gone: gone(held.get(number)) };
}

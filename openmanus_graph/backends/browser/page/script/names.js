// Role, name, value and state of an element, as a person would describe them.
const INPUT_ROLES = {
  button: 'button',
  submit: 'button',
  reset: 'button',
  image: 'button',
  checkbox: 'checkbox',
  radio: 'radio',
  range: 'slider',
  number: 'spinbutton',
  search: 'searchbox',
  file: 'file input',
  date: 'date input',
  time: 'time input',
  month: 'month input',
  week: 'week input',
  'datetime-local': 'date and time input',
  color: 'color input',
};
const TAG_ROLES = { button: 'button', textarea: 'textbox', summary: 'disclosure', canvas: 'canvas' };
const ARIA_ROLES = new Set(
  (
    'button link checkbox radio switch menuitem menuitemcheckbox ' +
    'menuitemradio option tab treeitem textbox searchbox combobox listbox slider spinbutton'
  ).split(' '),
);
const FIELDS = new Set(['input', 'textarea', 'select']);
const PALETTE = {
  black: [0, 0, 0],
  white: [255, 255, 255],
  gray: [128, 128, 128],
  red: [230, 20, 20],
  green: [10, 140, 20],
  lime: [0, 255, 0],
  blue: [20, 40, 220],
  yellow: [255, 240, 0],
  orange: [255, 150, 0],
  purple: [128, 0, 128],
  magenta: [255, 0, 255],
  pink: [255, 180, 200],
  cyan: [0, 240, 240],
  brown: [140, 70, 20],
  silver: [192, 192, 192],
  navy: [0, 0, 128],
};

// The role of something made to be acted on, or '' for anything else.
function nativeRole(el) {
  const role = (attr(el, 'role') || '').trim().split(/\s+/)[0].toLowerCase();
  const tag = el.localName;
  if (tag === 'input') {
    const type = el.type;
    if (type === 'hidden') return '';
    if (role === 'switch' || role === 'combobox') return role;
    return INPUT_ROLES[type] || (el.list || ARIA_ROLES.has(role) ? role || 'combobox' : 'textbox');
  }
  if (ARIA_ROLES.has(role)) return role;
  if (tag === 'a' || tag === 'area') return attr(el, 'href') !== null || el.href?.baseVal ? 'link' : '';
  if (tag === 'select') return el.multiple || el.size > 1 ? 'listbox' : 'combobox';
  if (tag === 'summary') return el.parentElement?.localName === 'details' ? 'disclosure' : '';
  if (tag === 'canvas') return el.width * el.height > 99 ? 'canvas' : '';
  if (tag === 'audio' || tag === 'video') return el.controls ? tag : '';
  if (TAG_ROLES[tag]) return TAG_ROLES[tag];
  const whole = el === document.body; // in design mode, what is around it is edited too
  if (el.isContentEditable === true && (whole || !el.parentElement?.isContentEditable)) return 'textbox';
  return '';
}

// The pointer passes through it. A field can still be typed into, and what is disabled is shown.
function untouchable(el, style) {
  if (style.pointerEvents !== 'none' || FIELDS.has(el.localName)) return false;
  return !el.matches(':disabled') && attr(el, 'aria-disabled') !== 'true';
}

// Text as a person reads it, pictures by their descriptions; at most about `limit` characters, and
// without the parts that `leaves` names.
function contentText(el, limit = 400, leaves = () => false) {
  const parts = [],
    inTree = attr(el, 'role') === 'treeitem'; // the entries within one are entries of their own
  let length = 0;
  const visit = (node, depth) => {
    if (length > limit || depth > 60) return;
    if (nodeTypeOf(node) === 3) {
      parts.push(node.data);
      length += node.data.length;
    } else if (nodeTypeOf(node) === 1) {
      const tag = node.localName;
      if (tag === 'style' || tag === 'script' || tag === 'noscript' || FIELDS.has(tag)) return;
      if (node !== el && (leaves(node) || isLigature(node))) return;
      if (node !== el && inTree && (attr(node, 'role') === 'group' || attr(node, 'role') === 'treeitem')) return;
      const display = node === el ? '' : getComputedStyle(node).display;
      if (display && display !== 'contents' && !visibleIn(node, SEEN)) return;
      const said = node === el ? '' : attr(node, 'aria-label') || attr(node, 'alt');
      if (said) parts.push(' ', said, ' ');
      else {
        const block = node !== el && display !== 'inline';
        if (block) parts.push(' ');
        for (const child of childNodesOf(node)) visit(child, depth + 1);
        if (block) parts.push(' ');
      }
    }
  };
  visit(el, 0);
  return squeeze(parts.join('').replace(/\p{Co}/gu, '')); // glyphs of icon fonts
}

function namedBy(el, attribute) {
  const ids = attr(el, attribute);
  if (!ids) return '';
  const root = el.getRootNode();
  return squeeze(
    ids
      .split(/\s+/)
      .map((id) => {
        const other = root.getElementById?.(id) || document.getElementById(id);
        return other ? attr(other, 'aria-label') || other.textContent : '';
      })
      .join(' '),
  );
}

let walkLabels = null; // control -> its labels, while a walk asks for those of everything

// The browser searches the whole document for the labels of each element.
function labelsByControl() {
  const found = new Map();
  for (const label of document.querySelectorAll('label'))
    if (label.control) found.set(label.control, [...(found.get(label.control) || []), label]);
  return found;
}

function labelText(el) {
  const value = squeeze(el.value), // what a label is around may show it, too
    shows = (one) => one === el || (!!value && squeeze(one.textContent) === value);
  const said = (label) => contentText(label, 400, shows) || attr(label, 'aria-label') || attr(label, 'title') || '';
  return squeeze(labelsOf(el).map(said).join(' '));
}

// Its labels; of the only field in a shadow root those of the element that the root belongs to.
function labelsOf(el) {
  const root = el.getRootNode(),
    labels = walkLabels && root === document ? walkLabels.get(el) : el.labels;
  if (labels?.length || !(root instanceof ShadowRoot) || !FIELDS.has(el.localName)) return [...(labels || [])];
  const { host } = root;
  if (root.querySelectorAll('input,textarea,select').length > 1) return [];
  const near = [host.closest('label'), ...(host.id ? host.getRootNode().querySelectorAll(`label[for="${CSS.escape(host.id)}"]`) : [])];
  return [...new Set(near)].filter((label) => label?.control === host);
}

function nameOf(el, role) {
  const tag = el.localName;
  const said =
    namedBy(el, 'aria-labelledby') ||
    squeeze(attr(el, 'aria-label')) ||
    labelText(el) ||
    (tag === 'input' && role === 'button'
      ? squeeze(el.value || attr(el, 'alt')) || { submit: 'Submit', reset: 'Reset' }[el.type] || ''
      : '') ||
    altOf(el);
  if (said) return said;
  const field = role === 'combobox' ? fieldOf(el) : el; // within a drop-down that is made of other elements
  if (field !== el) return nameOf(field, role);
  const fromContent = !FIELDS.has(tag) && role !== 'textbox' && role !== 'listbox' && role !== 'canvas';
  return (
    (fromContent && withTitle(contentText(el) || drawnText(el), el)) ||
    svgTitle(el) ||
    squeeze(attr(el, 'title')) ||
    squeeze(attr(el, 'placeholder')) ||
    squeeze(attr(el, 'aria-placeholder')) ||
    squeeze(attr(el, 'data-placeholder') || (el.firstElementChild && attr(el.firstElementChild, 'data-placeholder'))) ||
    (role === 'textbox' && squeeze(placeholderOf(el)?.textContent)) ||
    (fromContent && childTitle(el)) ||
    wrapperTitle(el) ||
    (el === document.body && frameElement ? nameOf(frameElement, role) : '') // a frame that is an editor
  );
}

// What people may call elements: accessible names, labels, words, hints in fields and tooltips.
function namesOf(ns) {
  walkLabels = labelsByControl();
  try {
    return ns.map((n) => (gone(held.get(n)) ? [] : namesOfOne(held.get(n))));
  } finally {
    walkLabels = null;
  }
}

const SAID = ['aria-label', 'placeholder', 'aria-placeholder', 'title', 'alt'];

function namesOfOne(el) {
  const field = fieldOf(el),
    texts = [nameOf(el, nativeRole(el)), field.isContentEditable ? '' : contentText(el)];
  for (const one of [el, field])
    texts.push(namedBy(one, 'aria-labelledby'), labelText(one), ...SAID.map((name) => squeeze(attr(one, name))));
  return [...new Set(texts.filter(Boolean))];
}

// What a picture shows, and what its tooltip adds: the markers of a map are all called alike.
function altOf(el) {
  const alt = squeeze(attr(el, 'alt')),
    title = squeeze(attr(el, 'title'));
  return alt && title && !alt.includes(title) ? `${alt} (${title})` : alt;
}

// A sign without letters or digits, or a picture, means little: its tooltip is added.
function withTitle(text, el) {
  const title = text && !/[\p{L}\p{N}]/u.test(el.textContent) ? squeeze(attr(el, 'title')) : '';
  return title && !text.includes(title) ? `${text} (${title})` : text;
}

// The tooltip of an element around it that is hardly larger, such as the host of its shadow root.
function wrapperTitle(el) {
  const box = rectOf(el);
  for (let outer = parentOf(el), i = 0; outer && i < 3; outer = parentOf(outer), i++) {
    const around = rectOf(outer);
    if (around.width > box.width + 24 || around.height > box.height + 24) return '';
    const title = squeeze(attr(outer, 'aria-label') || attr(outer, 'title'));
    if (title) return title;
  }
  return '';
}

const ICON_CLASS =
  /^(?:fa[srlb]?|bi|mdi|ri|ti|las?|glyphicon|icon|anticon|el-icon|pi|ui-icon|codicon|octicon|lucide|feather|tabler-icon|ion|uil|bxs?|ph)[-_](.+)$/;
const ICON_NAME = /^(?:[a-z]{1,3}-)?([a-z]{3}.*)[-_]icon$/; // of a drawing
const ICON_SHAPE = /^(?:lg|sm|xs|md|xl|xxl|\d*x|\d+|fw|spin|solid|regular|light|fill|btn|button|wrapper|container|only)$/;

// Letters that an icon font draws as one picture.
const isLigature = (el) =>
  !el.firstElementChild && /^\s*[a-z]\w+\s*$/.test(el.textContent) && /icons|symbols/i.test(getComputedStyle(el).fontFamily);

// What an icon font or a set of drawings calls its picture: "icon trash".
function iconOf(el) {
  for (const one of [el, ...[...(el.querySelectorAll?.('i,em,b,span,svg,use') || [])].slice(0, 8)]) {
    if (isLigature(one)) return cut(`icon ${squeeze(one.textContent).replace(/_/g, ' ')}`, 40);
    const drawing = one.localName === 'use' ? attr(one, 'href') || attr(one, 'xlink:href') || '' : '';
    const names = [...squeeze(attr(one, 'class')).split(' '), drawing.split('#').pop()];
    for (const name of names) {
      const word = (ICON_CLASS.exec(name) || (one.localName === 'svg' && ICON_NAME.exec(name)))?.[1];
      if (word && !ICON_SHAPE.test(word)) return cut(`icon ${word.replace(/[-_]/g, ' ')}`, 40);
    }
  }
  return '';
}

function svgTitle(el) {
  const title = el.querySelector('title');
  return title && title.namespaceURI.endsWith('svg') ? squeeze(title.textContent) : '';
}

function childTitle(el) {
  const titled = el.querySelector('[title],[alt]');
  return titled ? squeeze(attr(titled, 'title') || attr(titled, 'alt')) : '';
}

// Text that a style sheet draws, such as a cross; glyphs of icon fonts say nothing.
function drawnText(el) {
  for (const part of ['::before', '::after']) {
    const content = getComputedStyle(el, part).content;
    const match = /^"(.*)"$/.exec(content);
    const text = match ? match[1].replace(/[\ue000-\uf8ff]/g, '').trim() : '';
    if (text) return text;
  }
  return '';
}

// Words for what has no name: class, id, picture file; then colour and size.
function hintOf(el) {
  const inner = el.querySelector?.('[class],use,img') || null;
  for (const one of [el, inner]) {
    if (!one) continue;
    const file = attr(one, 'src') || attr(one, 'href') || attr(one, 'xlink:href') || '';
    const image = one.localName === 'img' || one.localName === 'use';
    if (image && file && !file.startsWith('data:')) return cut(file.split(/[/#]/).pop(), 40);
    const test = attr(one, 'data-testid') || attr(one, 'data-icon');
    if (test) return cut(test, 40);
    const classes = squeeze(attr(one, 'class')).split(' ').filter(Boolean).slice(0, 3);
    const id = attr(one, 'id');
    if (id || classes.length) return cut((id ? '#' + id : '') + classes.map((c) => '.' + c).join(''), 50);
  }
  const name = attr(el, 'name');
  return name ? cut(name, 40) : '';
}

function colourOf(el) {
  const style = getComputedStyle(el);
  const paint = el instanceof SVGElement && style.fill !== 'none' ? style.fill : style.backgroundColor;
  const parts = /rgba?\(([\d.]+),\s*([\d.]+),\s*([\d.]+)(?:,\s*([\d.]+))?/.exec(paint);
  if (!parts || (parts[4] !== undefined && +parts[4] < 0.1)) return '';
  const rgb = [+parts[1], +parts[2], +parts[3]];
  let best = '',
    least = Infinity;
  for (const [name, other] of Object.entries(PALETTE)) {
    const distance = other.reduce((sum, value, i) => sum + (value - rgb[i]) ** 2, 0);
    if (distance < least) [best, least] = [name, distance];
  }
  return best;
}

// The words after the name, in the order they are shown.
function statesOf(el, role) {
  const words = [];
  const aria = (name) => attr(el, 'aria-' + name);
  const box = el.type === 'checkbox' || el.type === 'radio';
  const checked =
    box && el.localName === 'input' ? (el.indeterminate ? 'mixed' : String(el.checked)) : aria('checked');
  if (checked === 'true') words.push('checked');
  if (checked === 'mixed') words.push('half checked');
  if (aria('pressed') === 'true') words.push('pressed');
  if (aria('selected') === 'true') words.push('selected');
  if (aria('current') && aria('current') !== 'false') words.push('current');
  const expanded = role === 'disclosure' ? String(el.parentElement?.open) : aria('expanded');
  if (expanded === 'true') words.push('expanded');
  if (expanded === 'false') words.push('collapsed');
  if (el.matches(':disabled') || aria('disabled') === 'true') words.push('disabled');
  if ((el.readOnly === true && !box) || aria('readonly') === 'true') words.push('readonly');
  if (el.required === true || aria('required') === 'true') words.push('required');
  if (aria('invalid') === 'true' || (FIELDS.has(el.localName) && el.matches(':user-invalid')))
    words.push('invalid');
  if (aria('haspopup') && aria('haspopup') !== 'false' && role !== 'combobox')
    words.push('opens ' + (aria('haspopup') === 'true' ? 'menu' : aria('haspopup')));
  if (attr(el, 'draggable') === 'true') words.push('draggable');
  if (el.localName.includes('-')) words.push(...ownStates(el).filter((word) => !words.includes(word)));
  return words;
}

// The states that a custom element reports only to its style sheet.
const ownStates = (el) =>
  ['checked', 'selected', 'pressed', 'expanded', 'open', 'disabled'].filter((word) => el.matches(`:state(${word})`));


const optionName = (option) => squeeze(option.label || option.text) || option.value;

// The value that is shown; null where there is none, and never a password.
function valueOf(el, role) {
  const tag = el.localName;
  if (secrets.has(el) || el.type === 'password') return el.value ? '(hidden)' : '';
  if (tag === 'select') return [...el.selectedOptions].map(optionName).join(', ');
  if (tag === 'input' && ['checkbox', 'radio', 'button', 'submit', 'reset', 'image'].includes(el.type))
    return null;
  if (tag === 'input' && el.type === 'file') return [...el.files].map((file) => file.name).join(', ');
  if (tag === 'input' || tag === 'textarea') return el.value;
  if (['slider', 'spinbutton'].includes(role)) return attr(el, 'aria-valuetext') || attr(el, 'aria-valuenow');
  if (role === 'textbox' || role === 'searchbox') return squeeze(editableText(el));
  if (role === 'combobox') return shownText(el, el);
  return null;
}

// What a drop-down shows within some box: the words there or its field's value, without its label.
function shownText(el, box) {
  const field = fieldOf(el),
    button = (one) => (nativeRole(one) === 'button' || attr(one, 'role') === 'img') && !holds(one, el),
    around = box === el ? '' : contentText(box, 400, (one) => one === el || button(one)),
    words = squeeze(`${around} ${contentText(el, 400, button)}`),
    value = squeeze(field.value ?? ''),
    text = words.includes(value) ? words : `${value} ${words}`;
  return squeeze(text.replace(labelText(field) || '\0', ''));
}

// What may be chosen or typed: options, limits, formats.
function choicesOf(el) {
  if (el.localName === 'select') return [...el.options].map(optionName);
  if (el.localName === 'input' && el.list) return [...el.list.options].map(optionName);
  return null;
}

function formatOf(el) {
  if (el.localName !== 'input') return '';
  const formats = {
    date: 'yyyy-mm-dd',
    time: 'hh:mm',
    month: 'yyyy-mm',
    week: 'yyyy-Www',
    'datetime-local': 'yyyy-mm-ddThh:mm',
    color: '#rrggbb',
    password: 'password',
  };
  const words = [formats[el.type] || ''];
  if (['range', 'number', 'date', 'time', 'month', 'week'].includes(el.type) && (el.min || el.max)) {
    words.push(`${el.min || ''}..${el.max || ''}`);
  }
  if (el.type === 'file' && el.accept) words.push('accepts ' + el.accept);
  return words.filter(Boolean).join(' ');
}

// Where a link leads; empty for what is none, and for one that runs a script.
function hrefOf(el) {
  if (el.localName !== 'a' && el.localName !== 'area') return '';
  const href = attr(el, 'href') ?? el.href?.baseVal; // SVG's
  if (!href || /^\s*(data|blob|javascript):/i.test(href.slice(0, 40))) return '';
  try {
    return new URL(href, document.baseURI).href;
  } catch {
    return '';
  }
}

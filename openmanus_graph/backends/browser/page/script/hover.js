// Which elements a style sheet lets show more while the pointer is over them.
const REVEALING =
  /(^|[;{\s])(display|visibility|opacity|(max-)?(height|width)|transform|translate|scale|clip(-path)?|left|right|top|bottom|margin[\w-]*|pointer-events)\s*:/;
const PARTS = 'a,button,input,select,textarea,img,svg,canvas,video,iframe,i,[role],[onclick],[tabindex="0"]';
const MAX_RULES = 20000;
const MAX_REVEALS = 200;
let reveals = { rules: -1, list: [] };

function hoverTriggers() {
  const found = new Set(),
    ends = performance.now() + 40;
  for (const { trigger, rest, target } of revealing()) {
    if (performance.now() > ends) break;
    for (const shown of document.querySelectorAll(target)) {
      const el = triggerOf(shown, trigger, rest);
      if (el && (unseen(shown) || pointedAt(el)) && holdsSomething(shown)) found.add(el);
    }
  }
  return found;
}

// Unlike a shade that only covers the element under the pointer.
const holdsSomething = (el) =>
  el.matches(PARTS) ||
  !!el.querySelector(PARTS) ||
  !!squeeze(el.textContent) ||
  handled.has(el) ||
  !!drawnText(el) ||
  getComputedStyle(el).backgroundImage !== 'none';

// With its name: in old documents `:hover` alone means links only.
function pointedAt(el) {
  return el.matches(`${CSS.escape(el.localName)}:hover`);
}

function triggerOf(shown, trigger, rest) {
  const beside = /^\s*[+~]/.test(rest);
  if (!beside) return shown.parentElement?.closest(trigger);
  for (let el = shown.previousElementSibling; el; el = el.previousElementSibling) {
    if (el.matches(trigger)) return el;
  }
  return null;
}

function unseen(el) {
  if (!visibleIn(el, SEEN)) return true;
  const box = rectOf(el);
  return box.width < 3 || box.height < 3 || box.right < 0 || box.bottom + scrollY < 0;
}

// The rules that show something else than what the pointer is over; read again when there are more.
function revealing() {
  const lists = [...document.styleSheets, ...document.adoptedStyleSheets].map(rulesOf);
  const rules = lists.reduce((sum, list) => sum + list.length, 0);
  if (rules !== reveals.rules) {
    const left = { rules: MAX_RULES, list: [] };
    for (const list of lists) read(list, '', left);
    reveals = { rules, list: left.list };
  }
  return reveals.list;
}

function rulesOf(sheet) {
  try {
    return sheet.disabled ? [] : sheet.cssRules;
  } catch {
    return []; // of another origin
  }
}

function read(rules, outer, left) {
  for (const rule of rules) {
    if (left.rules-- <= 0 || left.list.length >= MAX_REVEALS) return;
    if (rule instanceof CSSMediaRule && !matchMedia(rule.media.mediaText).matches) continue;
    const own = rule.selectorText && whole(rule.selectorText, outer);
    if (own?.includes(':hover') && REVEALING.test(rule.style.cssText)) left.list.push(...parts(own));
    if (rule.cssRules?.length) read(rule.cssRules, own || outer, left);
  }
}

function whole(selector, outer) {
  if (!outer) return selector;
  return selector.includes('&') ? selector.replaceAll('&', `:is(${outer})`) : `:is(${outer}) ${selector}`;
}

// `.a:hover .b` as what is pointed at and what then appears.
function parts(selectors) {
  const found = [];
  for (const selector of selectors.split(/,(?![^(]*\))/)) {
    const match = /^((?:[^:]|:(?!hover))*):hover([^\s>+~]*)(\s*[\s>+~].*)$/.exec(selector.trim());
    if (!match || /:hover/.test(match[3])) continue;
    const trigger = match[1] + match[2] || '*';
    if (valid(trigger + match[3])) found.push({ trigger, rest: match[3], target: trigger + match[3] });
  }
  return found;
}

function valid(selector) {
  try {
    document.createDocumentFragment().querySelector(selector);
    return true;
  } catch {
    return false;
  }
}

// Editors that draw their text themselves and receive keys in a hidden field.

// Grids take keys in the same way, but are more than one text.
const NO_EDITOR = 'table,[role=grid],[role=treegrid],[role=row],iframe';
const LATE_PASTE_MS = 100;
const LATE_SELECTION_MS = 150; // after which the slowest have noticed what is selected

let walkEditors = null; // the fields of editors, while a walk asks for those of everything

// The fields of such editors by what a person sees of each: CodeMirror 5, Ace, Monaco.
function editorFields() {
  const found = new Map();
  for (const el of document.querySelectorAll('textarea,[role=textbox]')) {
    if (!isKeyField(el)) continue;
    let editor = parentOf(el);
    while (editor && (rectOf(editor).width < 40 || rectOf(editor).height < 16)) editor = parentOf(editor);
    if (editor && editor !== document.body && !editor.querySelector(NO_EDITOR)) found.set(editor, el);
  }
  return found;
}

function isKeyField(el) {
  if (el.editContext) return true;
  if (el.localName !== 'textarea' || el.readOnly || el.disabled || !visibleIn(el, { visibilityProperty: true }))
    return false;
  const box = rectOf(el),
    around = parentOf(el) ? rectOf(parentOf(el)) : box;
  return Math.min(box.width, box.height, around.width, around.height) < 3 || getComputedStyle(el).opacity === '0';
}

// The lines that an editor draws, from top to bottom, without their numbers.
function editorText(editor) {
  const texts = document.createTreeWalker(editor, NodeFilter.SHOW_TEXT),
    lines = new Map();
  while (texts.nextNode()) {
    const around = texts.currentNode.parentElement;
    if (!visibleIn(around, SEEN) || isMargin(around)) continue;
    const place = document.createRange();
    place.selectNodeContents(texts.currentNode);
    const box = place.getBoundingClientRect();
    if (!box.height) continue;
    const top = Math.round((box.top + box.bottom) / 8);
    lines.set(top, [...(lines.get(top) || []), [box.left, texts.currentNode.data]]);
  }
  const inOrder = (pairs) => pairs.sort((a, b) => a[0] - b[0]).map(([, one]) => one);
  return inOrder([...lines])
    .map((pieces) => inOrder(pieces).join(''))
    .join('\n')
    .replace(/[\u200b\ufeff]/g, '')
    .replace(/\u00a0/g, ' ');
}

const isMargin = (el) => !!el.closest('[class*=gutter i],[class~=margin],[class*=linenumber i]');

// Give the focused editor a text as from the clipboard, which no editor mistakes for keys. Returns
// whether it took it.
async function paste(text) {
  await new Promise((resolve) => setTimeout(resolve, LATE_SELECTION_MS));
  const data = new DataTransfer(),
    el = deepActive(),
    before = el && textOf(el);
  data.setData('text/plain', text);
  if (!handClipboard('paste', data)) return { taken: true };
  await new Promise((resolve) => setTimeout(resolve, LATE_PASTE_MS)); // some look at it a little later
  return { taken: !!el && textOf(el) !== before };
}

// What an editor gives to the clipboard for its selection, which it may not draw; null if nothing.
function copied() {
  const data = new DataTransfer();
  return { text: handClipboard('copy', data) ? null : data.getData('text/plain') };
}

function handClipboard(kind, clipboardData) {
  const event = new ClipboardEvent(kind, { clipboardData, bubbles: true, cancelable: true, composed: true });
  return (deepActive() || document.body).dispatchEvent(event);
}

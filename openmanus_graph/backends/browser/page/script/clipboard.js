// Runs in the page before its scripts: a clipboard of the browser session in place of the machine's.
(() => {
  const send = window['openmanus-clipboard'];
  delete window['openmanus-clipboard'];
  let pasted = null; // what Python allows the next Control+V to paste
  window.addEventListener('openmanus-paste', (event) => (pasted = event.detail), true);

  const active = (root = document) => {
    const el = root.activeElement;
    return (el?.shadowRoot?.activeElement && active(el.shadowRoot)) || el || document.body;
  };
  const selected = (el) => {
    if (el.type === 'password') return '';
    try {
      if (typeof el.selectionStart === 'number') return el.value.slice(el.selectionStart, el.selectionEnd);
    } catch {} // of a field without a selection
    return String((el.getRootNode().getSelection?.() || getSelection()) ?? '');
  };
  // What the browser does for the keys and for execCommand, with a DataTransfer of ours.
  const handle = (event) => {
    if (!event.isTrusted) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const clipboardData = new DataTransfer(),
      el = event.composedPath()[0],
      options = { clipboardData, bubbles: true, cancelable: true, composed: true };
    if (event.type === 'paste') {
      if (pasted === null) return;
      clipboardData.setData('text/plain', pasted);
      if (el.dispatchEvent(new ClipboardEvent('paste', options))) document.execCommand('insertText', false, pasted);
      return;
    }
    const plain = el.dispatchEvent(new ClipboardEvent(event.type, options));
    const text = plain ? selected(active()) : clipboardData.getData('text/plain');
    if (plain && text && event.type === 'cut') document.execCommand('delete');
    if (text) send('write', text);
  };
  for (const type of ['copy', 'cut', 'paste']) window.addEventListener(type, handle, true);
  if (!window.Clipboard) return;

  const written = async (text) => {
    if (!navigator.userActivation.isActive) throw new DOMException('Only after a click or a key.', 'NotAllowedError');
    await send('write', text);
  };
  const replaced = {
    writeText: (text) => written(String(text)),
    readText: () => send('read', ''),
    write: async ([item]) => written(await (await item.getType('text/plain')).text()),
  };
  for (const [name, made] of Object.entries(replaced))
    Clipboard.prototype[name] = new Proxy(Clipboard.prototype[name], { apply: (_, __, args) => made(...args) });
})();

// The page as HTML with shadow roots and slots in place, without what is hidden or not content.
(limit) => {
  const SKIP = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'LINK', 'META', 'OBJECT', 'EMBED', 'IFRAME', 'FRAME', 'CANVAS', 'SVG', 'VIDEO', 'AUDIO', 'BASE']);
  const VOID = new Set(['AREA', 'BR', 'COL', 'HR', 'IMG', 'INPUT', 'WBR', 'SOURCE', 'TRACK']);
  const BOXES = new Set(['DIV', 'SPAN', 'SECTION']);
  const ATTRIBUTES = ['href', 'src', 'alt', 'title', 'class', 'id', 'role', 'lang', 'colspan', 'rowspan', 'start', 'datetime', 'name', 'content', 'type', 'aria-label'];
  const parts = [];
  let size = 0;
  const put = (text) => { parts.push(text); size += text.length; };
  const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');
  // Tabs and folded sections are content that one click shows.
  const FOLDED = '[role=tabpanel], details, details *, .tab-pane, .accordion *, [class*=collapse]';
  // Read from the prototype: a form returns a field named `children` instead of its children.
  const asked = (kind, name) => Function.call.bind(Object.getOwnPropertyDescriptor(kind.prototype, name).get);
  const bound = (kind, name) => Function.call.bind(kind.prototype[name]);
  const nodeTypeOf = asked(Node, 'nodeType'), tagOf = asked(Element, 'tagName'), nodesIn = asked(Node, 'childNodes');
  const shadowOf = asked(Element, 'shadowRoot'), attr = bound(Element, 'getAttribute');
  const visible = bound(Element, 'checkVisibility'), within = bound(Element, 'closest');
  const hidden = (el) => !visible(el) && !within(el, FOLDED) && getComputedStyle(el).display !== 'contents';
  const closed = [];
  try {
    window.dispatchEvent(new CustomEvent('openmanus-roots?', { detail: closed })); // roots.js answers
  } catch {} // the page has replaced it
  const closedRoots = new Map(closed.map((root) => [root.host, root]));
  const children = (node) => {
    const root = shadowOf(node) || closedRoots.get(node);
    if (root) return nodesIn(root);
    if (tagOf(node) === 'SLOT' && node.assignedNodes) {
      const given = node.assignedNodes();
      if (given.length) return given;
    }
    return nodesIn(node);
  };
  const attributes = (el) => {
    let text = '';
    for (const name of ATTRIBUTES) {
      const value = attr(el, name);
      if (value === null || value.length > 2000) continue;
      if ((name === 'href' || name === 'src') && value.startsWith('data:')) continue;
      text += ` ${name}="${escaped(value)}"`;
    }
    return text;
  };
  const UNTYPED = new Set(['hidden', 'password', 'checkbox', 'radio', 'button', 'submit', 'reset', 'image', 'file', 'range', 'color']);
  // The whole text of a field or an editor; null for anything else. Secrets are drawn as dots.
  const textOf = (el, tag) => {
    const isField = tag === 'textarea' || (tag === 'input' && !UNTYPED.has(el.type));
    if (isField) return el.type === 'password' || getComputedStyle(el).webkitTextSecurity !== 'none' ? '' : el.value;
    try {
      return editorText(el);
    } catch {
      return null; // the page uses this name for something else
    }
  };
  // Editors draw only the lines in view: those with an interface are asked for all.
  const editorText = (el) => {
    const known = el.classList;
    if (known.contains('cm-content')) return (el.cmTile || el.cmView)?.view?.state.doc.toString() ?? null;
    if (known.contains('CodeMirror')) return el.CodeMirror?.getValue() ?? null;
    if (known.contains('ace_editor')) return el.env?.editor.getValue() ?? null;
    if (!known.contains('monaco-editor')) return null;
    const editors = window.monaco?.editor.getEditors() || [];
    return editors.find((one) => one.getContainerDomNode().contains(el))?.getValue() ?? null;
  };
  const drawsInView = (el) =>
    ['cm-content', 'CodeMirror', 'ace_editor', 'monaco-editor'].some((name) => attr(el, 'class')?.split(' ').includes(name));
  const walk = (node, depth) => {
    if (size > limit || depth > 4000) return;
    if (nodeTypeOf(node) === 3) { put(escaped(node.data)); return; }
    if (nodeTypeOf(node) !== 1) return;
    const name = tagOf(node);
    if (SKIP.has(name.toUpperCase()) || hidden(node)) return;
    const tag = name.toLowerCase().replace(/[^a-z0-9-]/g, '');
    const text = textOf(node, tag);
    if (text === null && drawsInView(node)) put('<p>(An editor: only its lines in view follow.)</p>');
    if (text !== null) return put(text && (text.includes('\n') ? `<pre>${escaped(text)}</pre>` : `<span> ${escaped(text)} </span>`));
    // HTML parsers accept less depth than scripts create.
    const plain = depth > 100 && BOXES.has(name);
    if (!plain) put(`<${tag}${attributes(node)}>`);
    if (VOID.has(name)) return;
    for (const child of children(node)) walk(child, depth + 1);
    if (!plain) put(`</${tag}>`);
  };
  const body = Document.prototype.querySelector.call(document, 'body');
  if (body) walk(body, 0);
  return { cut: size > limit, title: document.title, base: document.baseURI, html: parts.join(''), lang: document.documentElement.lang || '' };
}

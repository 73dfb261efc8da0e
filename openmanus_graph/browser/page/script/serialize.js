// The page as HTML with shadow roots and slots in place, without what is hidden or not content.
(limit) => {
  const SKIP = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'LINK', 'META', 'OBJECT', 'EMBED', 'IFRAME', 'FRAME', 'CANVAS', 'SVG', 'VIDEO', 'AUDIO', 'BASE']);
  const VOID = new Set(['AREA', 'BR', 'COL', 'HR', 'IMG', 'INPUT', 'WBR', 'SOURCE', 'TRACK']);
  const ATTRIBUTES = ['href', 'src', 'alt', 'title', 'class', 'id', 'role', 'lang', 'colspan', 'rowspan', 'start', 'datetime', 'name', 'content', 'type', 'aria-label'];
  const parts = [];
  let size = 0;
  const put = (text) => { parts.push(text); size += text.length; };
  const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');
  // Tabs and folded sections are content that one click shows.
  const FOLDED = '[role=tabpanel], details, details *, .tab-pane, .accordion *, [class*=collapse]';
  const hidden = (el) => el.nodeType === 1 && el.checkVisibility && !el.checkVisibility() && !el.closest(FOLDED)
    && getComputedStyle(el).display !== 'contents';
  const closed = [];
  window.dispatchEvent(new CustomEvent('openmanus-roots?', { detail: closed })); // roots.js answers
  const closedRoots = new Map(closed.map((root) => [root.host, root]));
  const children = (node) => {
    const root = node.shadowRoot || closedRoots.get(node);
    if (root) return root.childNodes;
    if (node.tagName === 'SLOT' && node.assignedNodes) {
      const given = node.assignedNodes();
      if (given.length) return given;
    }
    return node.childNodes;
  };
  const attributes = (el) => {
    let text = '';
    for (const name of ATTRIBUTES) {
      let value = el.getAttribute(name);
      if (value === null || value.length > 2000) continue;
      if ((name === 'href' || name === 'src') && value.startsWith('data:')) continue;
      text += ` ${name}="${escaped(value)}"`;
    }
    return text;
  };
  const walk = (node, depth) => {
    if (size > limit || depth > 400) return;
    if (node.nodeType === 3) { put(escaped(node.data)); return; }
    if (node.nodeType !== 1 || SKIP.has(node.tagName.toUpperCase()) || hidden(node)) return;
    const tag = node.tagName.toLowerCase().replace(/[^a-z0-9-]/g, '');
    put(`<${tag}${attributes(node)}>`);
    if (VOID.has(node.tagName)) return;
    for (const child of children(node)) walk(child, depth + 1);
    put(`</${tag}>`);
  };
  if (document.body) walk(document.body, 0);
  return { title: document.title, base: document.baseURI, html: parts.join(''), lang: document.documentElement.lang || '' };
}

// What can be acted on here, by tags, roles, listeners, cursors and visibility alone.
const listened = new WeakSet(), roots = [document];
const add = EventTarget.prototype.addEventListener, attach = Element.prototype.attachShadow;
EventTarget.prototype.addEventListener = function (...given) { listened.add(this); return add.apply(this, given); };
Element.prototype.attachShadow = function (how) { const root = attach.call(this, how); roots.push(root); return root; };
const ROLES = 'button link checkbox switch tab menuitem option treeitem gridcell textbox slider'.split(' ');
const TAGS = 'button,a[href],input,select,textarea,summary,[contenteditable],[onclick],[onmousedown],[tabindex="0"]';
const usable = (el) =>
  el.matches(TAGS) || ROLES.includes(el.getAttribute('role')) || listened.has(el) ||
  getComputedStyle(el).cursor === 'pointer' || !!el.closest('[data-delegates],[data-cells],[role=treegrid]') || !!el.control;
const shown = (el) => {
  const box = el.getBoundingClientRect();
  return el.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && box.width > 1 && box.height > 1;
};
window.oracle = () => roots.flatMap((root) => [...root.querySelectorAll('[data-mark]')])
  .filter((el) => usable(el) && shown(el)).map((el) => el.dataset.mark);
window.listen = (root) => root.querySelectorAll('[data-on]').forEach((el) => el.addEventListener(el.dataset.on, () => {}));
window.begin = () => {
  const host = document.querySelector('#host'), area = document.querySelector('#area');
  if (host) {
    const root = host.attachShadow({ mode: host.dataset.root });
    root.append(document.querySelector('template').content.cloneNode(true));
    listen(root);
  }
  listen(document);
  if (area) area.scrollTop = 60;
};

// Runs in the page before its scripts: remembers closed shadow roots, and what custom elements say
// of themselves by ElementInternals. Neither can be found later.
(() => {
  const closed = [];
  Element.prototype.attachShadow = new Proxy(Element.prototype.attachShadow, {
    apply(plain, self, args) {
      const root = Reflect.apply(plain, self, args);
      if (root.mode === 'closed') closed.push(new WeakRef(root));
      return root;
    },
  });
  const { addEventListener, dispatchEvent } = EventTarget.prototype,
    properties = Object.fromEntries(Object.keys(ElementInternals.prototype).map((name) => [name.toLowerCase(), name]));
  // What stands for an attribute there: ariaChecked for "aria-checked".
  const valueIn = (internals, attribute) =>
    (attribute === 'aria-label' && internals.ariaLabelledByElements?.map((one) => one.textContent).join(' ')) ||
    internals[properties[attribute.replace('-', '')]];
  HTMLElement.prototype.attachInternals = new Proxy(HTMLElement.prototype.attachInternals, {
    apply(plain, self, args) {
      const internals = Reflect.apply(plain, self, args),
        answer = (name) => new CustomEvent('openmanus-internals', { composed: true, detail: valueIn(internals, name) });
      if (internals.shadowRoot?.mode === 'closed') closed.push(new WeakRef(internals.shadowRoot)); // declared in HTML
      addEventListener.call(self, 'openmanus-internals?', (event) => dispatchEvent.call(self, answer(event.detail)));
      return internals;
    },
  });
  window.addEventListener(
    'openmanus-roots?',
    (event) => event.detail.push(...closed.map((ref) => ref.deref()).filter((root) => root?.host.isConnected)),
    true,
  );
})();

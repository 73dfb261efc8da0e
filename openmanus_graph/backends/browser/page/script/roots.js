// Runs in the page before its scripts: remembers closed shadow roots, which cannot be found later.
(() => {
  const closed = [];
  Element.prototype.attachShadow = new Proxy(Element.prototype.attachShadow, {
    apply(plain, self, args) {
      const root = Reflect.apply(plain, self, args);
      if (root.mode === 'closed') closed.push(new WeakRef(root));
      return root;
    },
  });
  window.addEventListener(
    'openmanus-roots?',
    (event) => event.detail.push(...closed.map((ref) => ref.deref()).filter((root) => root?.host.isConnected)),
    true,
  );
})();

// Runs in the page's own world with the debugger's getEventListeners: which elements wait for
// pointers and keys. It reports to our world by events that no page listens for.
(() => {
  const eventListeners = getEventListeners,
    known = { rounds: new WeakMap(), round: 0, chance: 1 },
    handed = new WeakSet();
  // Closed shadow roots; roots.js answers.
  const closedRoots = () => {
    const roots = [];
    window.dispatchEvent(new CustomEvent('openmanus-roots?', { detail: roots }));
    return roots;
  };
  const tell = function tell() {
    const KINDS = [
      /^(click|mousedown|mouseup|pointerdown|pointerup)$/,
      /^touch(start|end)$/,
      /^key(down|up|press)$/,
      /^dragstart$/,
      /^(drop|dragover)$/,
      /^(mouse|pointer)(enter|over)$/,
      /^dblclick$/,
      /^(contextmenu|auxclick)$/,
    ];
    const REACT = {
      onClick: 'click',
      onMouseDown: 'mousedown',
      onPointerDown: 'pointerdown',
      onDoubleClick: 'dblclick',
      onContextMenu: 'contextmenu',
      onTouchStart: 'touchstart',
      onDragStart: 'dragstart',
      onDrop: 'drop',
      onMouseEnter: 'mouseenter',
    };
    const ends = performance.now() + 700;
    let fresh = 0,
      again = 0;
    const reactTypes = (el) => {
      const key = Object.keys(el).find((name) => /^__react(Props|EventHandlers)\$/.test(name));
      const given = (key && el[key]) || {};
      return Object.keys(REACT)
        .filter((name) => typeof given[name] === 'function')
        .map((name) => REACT[name]);
    };
    const ask = (el, composed) => {
      const types = [...Object.keys(eventListeners(el)), ...reactTypes(el)];
      let kinds = 0;
      KINDS.forEach((pattern, i) => {
        if (types.some((type) => pattern.test(type))) kinds |= 1 << i;
      });
      if (!kinds) return;
      // Read from the prototype: a form's field may have this name.
      const event = new UIEvent('openmanus-handles', { composed, detail: kinds });
      EventTarget.prototype.dispatchEvent.call(el, event);
    };
    const search = (root) => {
      const composed = root.mode !== 'closed';
      for (const el of root.querySelectorAll('*')) {
        if (el.shadowRoot) search(el.shadowRoot);
        const round = known.rounds.get(el);
        if (round !== undefined && (round === known.round || again >= 150 || Math.random() > known.chance))
          continue;
        if (round !== undefined) again++;
        if ((++fresh & 63) === 0 && performance.now() > ends) return;
        known.rounds.set(el, known.round);
        ask(el, composed); // else it would seem to come from the closed root's host
      }
    };
    known.round++;
    known.chance = Math.min(1, 200 / document.getElementsByTagName('*').length);
    search(document);
    const roots = closedRoots();
    roots.filter((root) => handed.has(root)).forEach(search);
    return roots.filter((root) => !handed.has(root)).length;
  };
  tell.fresh = () => {
    const roots = closedRoots().filter((root) => !handed.has(root)).slice(0, 300);
    roots.forEach((root) => handed.add(root));
    return roots;
  };
  return tell;
})();

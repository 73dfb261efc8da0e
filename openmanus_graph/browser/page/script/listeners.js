// Runs in the page's own world with the debugger's getEventListeners: which elements wait for
// pointers and keys. It tells our world by events that no page listens for.
(() => {
  const eventListeners = getEventListeners,
    known = { rounds: new WeakMap(), round: 0, chance: 1 };
  return function tell() {
    const KINDS = [
      /^(click|dblclick|auxclick|contextmenu|mousedown|mouseup|pointerdown|pointerup)$/,
      /^touch(start|end)$/,
      /^key(down|up|press)$/,
      /^dragstart$/,
      /^(drop|dragover)$/,
      /^(mouse|pointer)(enter|over)$/,
    ];
    const REACT = {
      onClick: 'click',
      onMouseDown: 'mousedown',
      onPointerDown: 'pointerdown',
      onDoubleClick: 'dblclick',
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
    const ask = (el) => {
      const types = [...Object.keys(eventListeners(el)), ...reactTypes(el)];
      let kinds = 0;
      KINDS.forEach((pattern, i) => {
        if (types.some((type) => pattern.test(type))) kinds |= 1 << i;
      });
      if (kinds) el.dispatchEvent(new UIEvent('openmanus-handles', { composed: true, detail: kinds }));
    };
    const search = (root) => {
      for (const el of root.querySelectorAll('*')) {
        if (el.shadowRoot) search(el.shadowRoot);
        const round = known.rounds.get(el);
        if (round !== undefined && (round === known.round || again >= 150 || Math.random() > known.chance))
          continue;
        if (round !== undefined) again++;
        if ((++fresh & 63) === 0 && performance.now() > ends) return;
        known.rounds.set(el, known.round);
        ask(el);
      }
    };
    known.round++;
    known.chance = Math.min(1, 200 / document.getElementsByTagName('*').length);
    search(document);
    return fresh;
  };
})();

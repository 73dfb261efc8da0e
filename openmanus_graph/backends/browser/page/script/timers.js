// Runs in the page before its scripts: lets `settle` ask when the page's short timers will fire.
(() => {
  const LONGEST = 2600,
    HEARD = 150,
    pending = new Map(),
    rounds = new WeakMap();
  const plainSet = window.setTimeout,
    plainClear = window.clearTimeout,
    now = performance.now.bind(performance);
  let depth = 0,
    sent = -Infinity; // when the page last asked for something: our side hears of it a little later
  const proxied = (plain, apply) => new Proxy(plain, { apply });
  window.setTimeout = proxied(plainSet, (plain, self, args) => {
    const [callback, delay] = args,
      ms = Number(delay) || 0;
    if (typeof callback !== 'function' || ms > LONGEST || depth > 2) return Reflect.apply(plain, self, args);
    const round = (rounds.get(callback) || 0) + 1,
      level = depth + 1;
    rounds.set(callback, round);
    if (round > 3) return Reflect.apply(plain, self, args); // it keeps setting itself: a poll or a clock
    const timed = function (...given) {
      pending.delete(id);
      const outer = depth;
      depth = level;
      try {
        return Reflect.apply(callback, this, given);
      } finally {
        depth = outer;
      }
    };
    const id = Reflect.apply(plain, self, [timed, ...args.slice(1)]);
    pending.set(id, [now(), now() + ms]);
    return id;
  });
  window.clearTimeout = proxied(plainClear, (plain, self, args) => {
    pending.delete(args[0]);
    return Reflect.apply(plain, self, args);
  });
  const noted = (plain) =>
    proxied(plain, (send, self, args) => {
      sent = now();
      return Reflect.apply(send, self, args);
    });
  window.fetch = noted(window.fetch);
  XMLHttpRequest.prototype.send = noted(XMLHttpRequest.prototype.send);
  window.addEventListener(
    'openmanus-timers?',
    (event) => {
      const left = [...pending.values()]
        .filter(([born]) => born >= event.screenX - 5)
        .map(([, due]) => Math.max(1, due - now()));
      const longest = Math.max(0, sent + HEARD - now(), ...left.filter((ms) => ms <= event.screenY));
      window.dispatchEvent(new MouseEvent('openmanus-timers!', { screenX: Math.ceil(longest) }));
    },
    true,
  );
})();

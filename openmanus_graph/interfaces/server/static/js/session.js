/** One open thread: its events, its model, and everybody who watches it on this page. */

import * as api from "./api.js";
import { apply, newModel } from "./reducer.js";
import { follow } from "./stream.js";

const HIDDEN_MS = 10_000;
const TABS_CONNECTED = 4;
const TAB = "openmanus_tab";

// Held for as long as this tab lives, so that tabs can be counted.
navigator.locks?.request(TAB, { mode: "shared" }, () => new Promise(() => {}));

async function areManyTabs() {
  if (!navigator.locks) return true; // cannot be counted: then rather save
  const { held } = await navigator.locks.query();
  return held.filter((lock) => lock.name === TAB).length > TABS_CONNECTED;
}

/**
 * Open a thread.
 *
 * @param {string} id
 * @param {object} listener
 * @param {() => void} listener.onChange  Called at most once a frame, however many events came.
 * @param {(events: object[]) => void} listener.onEvents  Gets each portion once, for announcements.
 */
export function openSession(id, { onChange, onEvents }) {
  const session = {
    id,
    model: newModel(),
    info: null,
    connection: { connected: false, first: true },
    close,
    retryNow: () => connection?.retryNow(),
    refresh,
    /** Wait until no run works on the thread. */
    idle: async () => {
      while (session.model.status === "running" && !closed) await new Promise((resolve) => waiters.push(resolve));
    },
  };
  const waiters = [];
  let connection = null;
  let asleep = null;
  let scheduled = false;
  let closed = false;

  const changed = () => {
    if (scheduled || closed) return;
    scheduled = true;
    const draw = () => {
      scheduled = false;
      if (!closed) onChange();
    };
    if (document.hidden) setTimeout(draw, 200); // no frames are drawn there
    else requestAnimationFrame(draw);
  };

  const listener = {
    onEvents(events) {
      const wasLive = session.model.caughtUp;
      apply(session.model, events);
      for (const wake of waiters.splice(0)) wake();
      if (wasLive) onEvents(events);
      if (events.some((event) => event.type === "run_start" || event.type === "final")) refresh();
      changed();
    },
    onState(state) {
      session.connection = state;
      changed();
    },
  };

  async function refresh() {
    try {
      session.info = await api.thread(id);
    } catch (error) {
      session.infoError = error;
    }
    changed();
  }

  const connect = () => {
    connection ??= follow((seq, signal) => api.openEvents(id, seq, signal), listener, session.model.seq);
  };

  // A browser opens six connections to a server at most: where there are many tabs, those that
  // nobody sees give theirs back.
  const visibility = () => {
    clearTimeout(asleep);
    if (!document.hidden) {
      connect();
      return;
    }
    asleep = setTimeout(async () => {
      if (!(await areManyTabs()) || !document.hidden) return;
      connection?.close();
      connection = null;
    }, HIDDEN_MS);
  };

  function close() {
    closed = true;
    clearTimeout(asleep);
    connection?.close();
    document.removeEventListener("visibilitychange", visibility);
  }

  document.addEventListener("visibilitychange", visibility);
  connect();
  refresh();
  return session;
}

/**
 * Server-sent events over fetch, for as long as somebody listens.
 *
 * EventSource would do the reading but hides why it failed; here a refused token, a thread that is
 * gone and a server that is away are told apart. After a break it goes on behind the last event seen.
 */

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const SILENCE_MS = 45_000;

/**
 * Follow a thread's events until it is closed.
 *
 * @param {(seq: number) => Promise<Response>} open  Asks for the events behind one.
 * @param {object} listener
 * @param {(events: object[]) => void} listener.onEvents  Gets what arrived together.
 * @param {(state: {connected: boolean, status?: number, retryInMs?: number}) => void} listener.onState
 *   Without `retryInMs` there is no further try.
 * @param {number} [from]  The last event known.
 * @returns {{close: () => void, retryNow: () => void}}
 */
export function follow(open, { onEvents, onState }, from = 0) {
  const stop = new AbortController();
  const told = { seq: from, onEvents, onOpen: () => onState({ connected: true }) };
  let wake = () => {};

  const run = async () => {
    let wait = FIRST_WAIT_MS;
    while (!stop.signal.aborted) {
      const before = told.seq;
      const status = await readOnce(open, told, stop.signal);
      if (stop.signal.aborted) return;
      if (status >= 400 && status < 500 && status !== 429) {
        onState({ connected: false, status });
        return;
      }
      if (status === 200 || told.seq !== before) wait = FIRST_WAIT_MS;
      onState({ connected: false, status, retryInMs: wait });
      await new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, wait);
      });
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  };
  const online = () => wake();
  window.addEventListener("online", online);
  run();
  return {
    close() {
      window.removeEventListener("online", online);
      stop.abort();
      wake();
    },
    retryNow: () => wake(),
  };
}

/** Read until the connection ends. Returns the HTTP status, 0 if there was no answer. */
async function readOnce(open, told, signal) {
  const own = new AbortController();
  const end = () => own.abort();
  signal.addEventListener("abort", end);
  let quiet = setTimeout(end, SILENCE_MS);
  let status = 0;
  try {
    const response = await open(told.seq, own.signal);
    status = response.status;
    if (!response.ok) return status;
    told.onOpen();
    const parse = sseParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return status;
      clearTimeout(quiet);
      quiet = setTimeout(end, SILENCE_MS);
      const events = parse(value);
      if (!events.length) continue;
      told.seq = Math.max(told.seq, ...events.slice(-1).map((event) => event.seq ?? 0));
      told.onEvents(events);
    }
  } catch {
    return status; // the network's errors have no more to tell than that it broke off
  } finally {
    clearTimeout(quiet);
    signal.removeEventListener("abort", end);
  }
}

/** Return a function that takes pieces of a stream and returns the events completed by each. */
export function sseParser() {
  let rest = "";
  return (piece) => {
    const blocks = (rest + piece).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    return blocks.map(parseBlock).filter(Boolean);
  };
}

function parseBlock(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
    else if (line.startsWith("event:")) name = line.slice(6).trim();
  }
  try {
    const event = data.length ? JSON.parse(data.join("\n")) : null;
    if (event === null || typeof event !== "object") return null;
    return name === "live" ? { ...event, type: "live" } : event;
  } catch {
    return null; // one damaged event must not end the stream
  }
}

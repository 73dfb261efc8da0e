/**
 * What a screen reader is told while an agent works: little, and never a flood.
 *
 * At most one sentence in a while; of what happened meanwhile only the newest is said, except that
 * questions and ends are never left out.
 */

import { duration } from "./format.js";
import { planMark, statusSentence } from "./words.js";

const PAUSE_MS = 2500;

export function createAnnouncer(region) {
  let important = [];
  let newest = "";
  let timer = null;

  function speak() {
    timer = null;
    const text = [...important, newest].filter(Boolean).join(". ");
    important = [];
    newest = "";
    if (!text) return;
    region.textContent = text;
    timer = setTimeout(speak, PAUSE_MS);
  }

  return {
    /** Say a sentence in its turn. */
    say(text) {
      important.push(text);
      timer ??= setTimeout(speak, 100);
    },
    /** Pick what is worth saying of a portion of events. */
    events(events) {
      for (const event of events) {
        const [text, matters] = SPOKEN[event.type]?.(event) ?? [""];
        if (!text) continue;
        if (matters) important.push(text);
        else newest = text;
      }
      if (important.length || newest) timer ??= setTimeout(speak, 100);
    },
  };
}

const SPOKEN = {
  think_start: (event) => [`Step ${event.step}`],
  tool_end: (event) => [`${event.tool} ${event.ok ? "done" : "failed"} after ${duration(event.seconds)}`],
  interrupt: (event) => [`The agent waits for you. ${event.question}`, true],
  step_end: (event) => [`Plan step ${event.id} ${planMark(event.status)[1]}`, true],
  notice: (event) => [event.level === "info" ? "" : event.text],
  final: (event) => [event.status === "waiting" ? "" : statusSentence(event.status, event.stop_reason), true],
};

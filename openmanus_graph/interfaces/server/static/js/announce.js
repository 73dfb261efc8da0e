/**
 * What a screen reader is told while an agent works: little, and never a flood.
 *
 * At most one sentence in a while; of what happened meanwhile only the newest is said, except that
 * questions and ends are never left out.
 */

import { duration } from "./format.js";
import { t } from "./i18n.js";
import { planMark, statusSentence } from "./words/status.js";

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
  think_start: (event) => [t("Step {n}", { n: event.step })],
  tool_end: (event) => [t(event.ok ? "{tool} done after {time}" : "{tool} failed after {time}",
    { tool: event.tool, time: duration(event.seconds) })],
  interrupt: (event) => [`${t("The agent waits for you.")} ${event.question}`, true],
  step_end: (event) => [t(event.namespace ? "Subagent {id}: {state}" : "Plan step {id}: {state}",
    { id: event.id, state: planMark(event.status)[1] }), true],
  notice: (event) => [event.level === "info" ? "" : event.text],
  final: (event) => [event.status === "waiting" ? "" : statusSentence(event.status, event.stop_reason), true],
};

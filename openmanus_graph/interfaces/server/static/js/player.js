/** One run that is played from a file: the page's views over events that are all there already. */

import { createAnnouncer } from "./announce.js";
import { button, h } from "./dom.js";
import { chooseLanguage, language, t } from "./i18n.js";
import { apply, newModel } from "./reducer.js";
import { listen } from "./shortcuts.js";
import { applyTheme, nextTheme } from "./theme.js";
import { createHeader } from "./views/header.js";
import { createPlan } from "./views/plan.js";
import { createPreview } from "./views/preview.js";
import { createTimeline } from "./views/timeline.js";

/** Events after which there is something new to read. */
const STOPS = new Set(["run_start", "think_end", "tool_end", "step_start", "step_end", "notice", "steer", "plan",
  "interrupt", "answered", "final"]);
const LONGEST_MS = 1500;
const UNTIMED_MS = { think_end: 800, tool_end: 500 };
const SOON_MS = 150;
const SPEEDS = [0.5, 1, 2, 5, 20];

/** How long an event is waited for: as long as it took, but never long. */
function waitFor(event, before) {
  const took = Date.parse(event.ts) - Date.parse(before?.ts);
  return took > 0 ? Math.min(took, LONGEST_MS) : UNTIMED_MS[event.type] ?? SOON_MS;
}

const { title, events, files } = JSON.parse(document.getElementById("run").textContent);
const stops = events.flatMap((event, index) => (STOPS.has(event.type) ? [index + 1] : []));
if (stops.at(-1) !== events.length) stops.push(events.length);

let session = null;
let position = 0; // how many events are shown
let timer = null;
let speed = 1;

const announcer = createAnnouncer(document.getElementById("live"));
const byPath = new Map(files.map((file) => [file.path, { ...file, download: file.url }]));
const preview = createPreview();
const named = {
  file: (path) => byPath.get(path.replace(/^\.\//, "")) ?? null,
  openFile: (path) => preview.open(byPath.get(path), named),
};
const timeline = createTimeline({
  ...named,
  canGoBack: () => false,
  now: () => Date.parse(events[position - 1]?.ts),
});
const plan = createPlan();
const planBox = h("details.plan-box", { open: matchMedia("(min-width: 720px)").matches },
  h("summary", {}, t("Plan")), plan.element);
const header = createHeader({
  theme: () => announcer.say({ light: t("Light colours"), dark: t("Dark colours") }[nextTheme()] ?? t("The system's colours")),
  language: (code) => {
    chooseLanguage(code);
    location.reload();
  },
});

const toStart = button("", () => jump(stops[0]), { kind: "icon quiet", iconName: "first", title: t("To the start (Home)") });
const back = button("", () => step(-1), { kind: "icon quiet", iconName: "left", title: t("One step back (←)") });
const playing = button(t("Play"), () => toggle(), { kind: "primary play", title: t("Play or pause (space)") });
const forth = button("", () => step(1), { kind: "icon quiet", iconName: "right", title: t("One step on (→)") });
const toEnd = button("", () => jump(events.length), { kind: "icon quiet", iconName: "last", title: t("To the end (End)") });
const slider = h("input", { type: "range", min: 1, max: stops.length, step: 1, aria: { label: t("Where in the run") },
  on: { input: () => jump(stops[slider.value - 1]) } });
const place = h("span.place", {});
const pace = h("select", { aria: { label: t("Speed") }, on: { change: () => { speed = Number(pace.value); } } },
  SPEEDS.map((one) => h("option", { value: String(one), selected: one === speed }, `${one} ×`)));
const bar = h("footer.player-bar", { aria: { label: t("Playing the run") }, role: "group" },
  toStart, back, playing, forth, toEnd, slider, place, pace);

function show(next) {
  const from = next < position || !session ? 0 : position;
  if (from === 0) session = { id: "", model: newModel(), info: { title }, connection: { connected: true } };
  const more = events.slice(from, next);
  apply(session.model, more);
  position = next;
  session.model.caughtUp = true;
  header.show(session, {});
  plan.show(session.model);
  planBox.hidden = session.model.plan.length === 0;
  timeline.show(session);
  const at = stops.findLastIndex((one) => one <= position) + 1;
  slider.value = String(Math.max(1, at));
  place.textContent = t("{n} of {m}", { n: Math.max(1, at), m: stops.length });
  slider.setAttribute("aria-valuetext", place.textContent);
  back.disabled = toStart.disabled = position <= stops[0];
  forth.disabled = toEnd.disabled = position >= events.length;
  return more;
}

/** Show the run up to an event, and say what is new. */
function jump(next) {
  pause();
  announcer.events(show(next).slice(-2));
  timeline.toEnd();
}

function step(by) {
  const next = by > 0 ? stops.find((one) => one > position) : stops.findLast((one) => one < position);
  if (next) jump(next);
}

function toggle() {
  if (timer !== null) {
    pause();
    return;
  }
  if (position >= events.length) show(stops[0]);
  timeline.toEnd();
  label(t("Pause"));
  goOn();
}

function goOn() {
  if (position >= events.length) {
    pause();
    return;
  }
  timer = setTimeout(() => {
    announcer.events(show(position + 1));
    goOn();
  }, waitFor(events[position], events[position - 1]) / speed);
}

function pause() {
  clearTimeout(timer);
  timer = null;
  label(t("Play"));
}

function label(words) {
  playing.lastElementChild.textContent = words;
}

document.documentElement.lang = { en: "en", zh: "zh-Hans" }[language];
document.querySelector(".skip").textContent = t("Skip to the run");
applyTheme();
document.getElementById("app").append(
  h("main.player", { id: "run-shown", tabIndex: -1, aria: { labelledby: "title" } }, header.element, planBox, timeline.element, preview.element, bar));
listen({
  " ": () => toggle(),
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  Home: () => jump(stops[0]),
  End: () => jump(events.length),
  j: () => timeline.move(1),
  k: () => timeline.move(-1),
  o: () => timeline.toggleFocused(),
});
show(events.length);

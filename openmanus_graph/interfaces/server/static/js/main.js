/** The page: builds the views, and connects them with the thread that is open. */

import { createAnnouncer } from "./announce.js";
import * as api from "./api.js";
import { fill, h } from "./dom.js";
import { createFrame } from "./frame.js";
import { chooseLanguage, language, t } from "./i18n.js";
import { notify } from "./notify.js";
import { openSession } from "./session.js";
import { listen } from "./shortcuts.js";
import { applyTheme, nextTheme } from "./theme.js";
import { createUploads } from "./uploads.js";
import { createApprovals } from "./views/approvals.js";
import { createComposer } from "./views/composer.js";
import { createAccount, createHelp, createRename, createTokenForm } from "./views/dialogs.js";
import { createFiles } from "./views/files.js";
import { createHeader } from "./views/header.js";
import { createHistory } from "./views/history.js";
import { createInbox } from "./views/inbox.js";
import { createMemory } from "./views/memory.js";
import { createPanel } from "./views/panel.js";
import { createPlan } from "./views/plan.js";
import { createPreview } from "./views/preview.js";
import { createScreenView } from "./views/screenview.js";
import { createInputs, createSetup, createSetupDialog } from "./views/setup.js";
import { createShare } from "./views/share.js";
import { createTakeover } from "./views/takeover.js";
import { createThreads } from "./views/threads.js";
import { createTimeline } from "./views/timeline.js";
import { createExtensions } from "./views/extensions.js";
import { createUsage } from "./views/usage.js";
import { createWelcome } from "./views/welcome.js";
import { statusSentence } from "./words/status.js";

const DONE = { type: "respond", message: "Done." };

let options = null;
let session = null;
let draft = null; // a thread that was made for uploads before its first task
let lastStatus = "";
let away = false; // whether the server did not answer
let planShown = false;

const announcer = createAnnouncer(document.getElementById("live"));

const uploads = createUploads({
  thread: async () => session?.id ?? (draft ??= await api.createThread()),
  onChange: (list) => composer.showAttached(list),
  onDone: () => files.reload(),
});

/** How texts name the thread's files. */
const named = { file: (path) => files.find(path) ?? null, openFile };

async function openFile(path) {
  if (!files.find(path)) await files.reload();
  const file = files.find(path);
  if (file) showFile(file);
  else problem(new Error(t("The file {path} is no longer there.", { path })));
}

function showFile(file) {
  preview.open(file, named);
  frame.show("details");
}

const timeline = createTimeline({
  ...named,
  canGoBack: () => session !== null && session.model.status !== "running" && session.info?.startable !== false,
  goBack: (row) => history.goBack(row).catch(problem),
  edit: (row) => history.edit(row).catch(problem),
  regenerate: (row) => history.regenerate(row).catch(problem),
  output: () => api.output(session.id),
});

const approvals = createApprovals((answers) => sendAnswers(session, answers), (worker) => takeover.open(session.id, worker), named);
const takeover = createTakeover({
  /** The agent learns that the person is done, and nothing else. */
  done: async (thread, worker) => {
    if (session?.id !== thread) return;
    const asked = [...session.model.questions.values()].filter((question) => question.browser === worker);
    if (asked.length) await sendAnswers(session, Object.fromEntries(asked.map(({ id }) => [id, DONE])));
  },
  left: () => {
    browserView.look();
    if (location.search) window.history.replaceState(null, "", location.pathname);
  },
});

const composer = createComposer({
  start: (text, agent, context) => startTask(text, agent, context),
  steer: async (text) => {
    try {
      await api.steer(session.id, text, paths(await uploads.settled()));
      uploads.clear();
      announcer.say(t("Your correction will be read at the next step"));
    } catch (error) {
      if (error.status !== 409) throw error;
      await startTask(text, composer.options.agent(), {}); // it has ended meanwhile
    }
  },
  resume: (context) => api.startRun(session.id, { resume: true, context }),
  attach: (chosen) => uploads.add(chosen),
  setUp: () => setupDialog.open(),
  extensions: (agent) => extensions.open(agent),
});

/**
 * A plan's step asks while others run: the server keeps the answer until these have ended. Answers to
 * what no step of a running plan asked go off one after the other: a thread does one run at a time.
 */
async function sendAnswers(to, answers) {
  for (let tries = 3; ; tries -= 1) {
    const open = Object.fromEntries(Object.entries(answers).filter(([id]) => to.model.questions.has(id)));
    if (!Object.keys(open).length) return; // somebody was faster
    try {
      await api.startRun(to.id, { answers: open });
      return;
    } catch (error) {
      if (error.status !== 409 || tries === 0) throw error;
      await to.idle();
      await new Promise((resolve) => { setTimeout(resolve, 300); });
    }
  }
}

const paths = (stored) => stored.map((file) => file.path);

async function startTask(text, agent, context) {
  const stored = await uploads.settled();
  const images = paths(stored.filter((file) => file.view === "image"));
  const id = session?.id ?? draft ?? (await api.createThread());
  await api.startRun(id, { agent, message: text, context, images, files: paths(stored) });
  uploads.clear();
  if (session?.id !== id) openThread(id);
  timeline.toEnd();
  threads.toTop();
  threads.refresh();
}

const threads = createThreads({
  open: (id) => openThread(id),
  create: () => newTask(),
  removed: (id) => { if (session?.id === id) newTask(); },
  problem,
  waiting: (yes) => header.waiting(yes),
  answered: (yes) => {
    if (away === !yes) return;
    away = !yes;
    draw();
  },
});

const account = createAccount(async () => {
  try {
    await api.signOut();
    location.assign("/app");
  } catch (error) {
    problem(error);
  }
});
threads.element.append(account.element);

const files = createFiles({
  open: showFile,
  attach: (chosen) => uploads.add(chosen),
  changed: () => {
    timeline.refresh();
    preview.refresh(files.find);
  },
});
const preview = createPreview(() => frame.back());
const plan = createPlan();
const browserView = createScreenView({
  load: api.browser,
  revision: "browserRevision",
  empty: t("The browser is not open. When the agent uses it, its page shows here."),
  described: (page) => t("The agent's browser: {page}", { page }),
  takeOver: (thread) => takeover.open(thread),
});
const desktopView = createScreenView({
  load: api.desktop,
  revision: "desktopRevision",
  empty: t("The desktop is not open. When the agent uses it, its screen shows here."),
  described: (page) => t("The agent's desktop: {page}", { page }),
});
const history = createHistory(async (checkpoint, message, context) => {
  await api.startRun(session.id, { checkpoint_id: checkpoint.checkpoint_id, context, ...(message ? { message } : {}) });
  timeline.toEnd();
});
const panel = createPanel([
  { id: "files", label: t("Files"), view: files },
  { id: "plan", label: t("Plan"), view: plan },
  { id: "browser", label: t("Browser"), view: browserView },
  { id: "steps", label: t("Steps"), view: history },
  { id: "desktop", label: t("Desktop"), view: desktopView },
], () => frame.show("details"), preview.element);

const header = createHeader({
  stop: () => stopRun(),
  theme: () => announcer.say({ light: t("Light colours"), dark: t("Dark colours") }[nextTheme()] ?? t("The system's colours")),
  memory: () => memory.open(),
  inbox: () => inbox.open(),
  usage: () => usage.open(),
  help: () => help?.showModal(),
  details: () => frame.toggleDetails(),
  rename: () => renaming.open(session.id, session.info?.title ?? ""),
  share: () => sharing.open(session.id, session.info?.title ?? ""),
  language: (code) => {
    chooseLanguage(code);
    location.reload();
  },
});
const welcome = createWelcome({
  pick: (text, agent) => {
    composer.message.value = text;
    composer.message.dispatchEvent(new Event("input"));
    composer.options.use({ agent, options: {} });
    composer.message.focus();
  },
  demo: () => watchDemo().catch(problem),
  setup: createSetup(() => useNewModel()),
  inputs: createInputs(async () => offer(await api.options())),
});
const setupDialog = createSetupDialog(() => useNewModel());
const renaming = createRename(async (id, title) => {
  await api.changeThread(id, { title });
  if (session?.id === id) await session.refresh();
  threads.refresh();
});
const sharing = createShare();
const memory = createMemory();
const inbox = createInbox((id) => openThread(id));
const extensions = createExtensions();
const usage = createUsage((id) => openThread(id));
const trouble = h("div.banner.bad", { role: "alert", hidden: true });
const elsewhere = h("div.banner.plain", { role: "status", hidden: true });
const main = h("main", { id: "run", tabIndex: -1, aria: { labelledby: "title" } },
  header.element, header.banner, elsewhere, trouble, welcome.element, timeline.element, approvals.element, composer.element, welcome.examples,
  h("p.empty.viewers-only", {}, t("You can read threads here. To start tasks, ask an admin for the role \"user\".")));
const frame = createFrame({ threads, main, panel, onDrop: (dropped) => uploads.add(dropped) });
const tokenForm = createTokenForm(async (token) => {
  api.keepToken(token);
  await begin();
});
let help = null;

function problem(error) {
  if (error.status === 0 && !header.banner.hidden) return; // one banner is enough
  trouble.hidden = false;
  fill(trouble, h("span", {}, error.message),
    h("button.btn.link", { type: "button", on: { click: () => { trouble.hidden = true; } } }, t("Dismiss")));
}

async function watchDemo() {
  const id = await api.startDemo();
  openThread(id);
  threads.refresh();
}

/** Take over a model that was just set up; what was written stays. */
async function useNewModel() {
  offer(await api.options());
  announcer.say(t("The model works. It is now the default."));
  if (!session) composer.message.focus();
}

async function stopRun() {
  try {
    await api.stop(session.id);
    announcer.say(t("Stopping"));
  } catch (error) {
    problem(error);
  }
}

function openThread(id, { push = true } = {}) {
  session?.close();
  preview.close();
  if (id !== draft) uploads.forget(); // else they belong to this thread, and say what did not arrive
  draft = null;
  trouble.hidden = true;
  lastStatus = "";
  let shownInfo = null;
  const opened = openSession(id, {
    onEvents: (events) => {
      announcer.events(events);
      const end = events.findLast((event) => event.type === "final");
      if (end) notify(id, opened.info?.title || "OpenManus", statusSentence(end.status, end.stop_reason));
    },
    onChange: () => {
      if (opened.info !== shownInfo) {
        if (!shownInfo) {
          composer.use(opened.info);
          timeline.refresh();
        }
        shownInfo = opened.info;
      }
      draw();
    },
  });
  session = opened;
  if (push) window.history.pushState(null, "", `/app/t/${encodeURIComponent(id)}`);
  frame.show("run");
  draw();
}

function newTask({ push = true } = {}) {
  session?.close();
  preview.close();
  session = null;
  uploads.forget();
  draft = null;
  trouble.hidden = true;
  if (push) window.history.pushState(null, "", "/app");
  showNewTask();
}

/** What was written and attached stays: a person may be faster than the server's first answer. */
function showNewTask() {
  composer.use(null);
  frame.show("run");
  draw();
  composer.message.focus();
}

function draw() {
  const model = session?.model;
  welcome.element.hidden = welcome.examples.hidden = session !== null;
  composer.element.classList.toggle("unusable", !session && Boolean(options?.needs_model));
  frame.setOpen(session !== null);
  timeline.element.hidden = session === null;
  header.show(session, options ?? {});
  header.connection(session, away);
  main.classList.toggle("away", !header.banner.hidden);
  drawElsewhere(session?.info);
  const asked = approvals.show(model?.questions ?? new Map());
  const wrote = composer.element.contains(document.activeElement);
  composer.show(session);
  const nowhere = asked && document.activeElement === document.body;
  if (nowhere || (wrote && composer.element.hidden)) approvals.focusFirst(); // nothing that a key in flight sets off
  plan.show(model);
  files.show(session);
  browserView.show(session);
  desktopView.show(session);
  history.show(session);
  threads.select(session?.id ?? null);
  if (!session) return;
  timeline.show(session);
  if (model.status !== lastStatus) {
    lastStatus = model.status;
    timeline.refresh();
    threads.refresh();
  }
  if (!model.caughtUp) return;
  const planned = model.plan.length > 0;
  if (planned !== planShown) panel.select(planned ? "plan" : "files");
  planShown = planned;
}

/** A thread of the terminal's is shown, but goes on there; the demo knows only its own task. */
function drawElsewhere(info) {
  const words = info?.startable === false ? `${t("Continue this thread in the terminal:")} openmanus resume ${info.id}`
    : info?.held_by ? t("Another process works on this thread just now; it is shown here as it goes on.")
      : info?.options?.model?.startsWith("demo:") ? t("This is the demo: the model's words are recorded, everything else is real. For a task of your own choose New task.") : "";
  elsewhere.hidden = !words;
  elsewhere.textContent = words;
}

function route() {
  const match = /^\/app\/t\/([^/]+)\/?$/.exec(location.pathname);
  const browser = new URLSearchParams(location.search).get("browser");
  if (match) openThread(decodeURIComponent(match[1]), { push: false });
  if (match && browser !== null) takeover.open(session.id, browser); // the link that the terminal printed
  if (match) return;
  if (session) newTask({ push: false });
  else showNewTask();
}

function offer(given) {
  options = given;
  uploads.setLimit(options.max_upload_bytes);
  composer.offer(options);
  welcome.offer(options);
  draw();
}

async function begin() {
  offer(await api.options());
  const user = await api.me();
  account.show(user);
  document.body.className = `role-${user.role}`;
  help ??= createHelp(options.version);
  if (!help.isConnected) document.body.append(help);
  threads.refresh();
  route();
}

document.documentElement.lang = { en: "en", zh: "zh-Hans" }[language];
document.querySelector(".skip").textContent = t("Skip to the message box");
applyTheme();
api.adoptToken();
api.whenRefused(() => tokenForm.open());
document.getElementById("app").append(frame.element);
document.body.append(...history.dialogs, tokenForm.element, setupDialog.element, renaming.element, sharing.element, memory.element, inbox.element, usage.element, extensions.element, takeover.element);
window.addEventListener("popstate", route);
listen({
  n: () => newTask(),
  "/": () => {
    frame.show("threads");
    threads.search.focus();
  },
  m: () => composer.message.focus(),
  j: () => timeline.move(1),
  k: () => timeline.move(-1),
  o: () => timeline.toggleFocused(),
  l: () => timeline.toEnd(),
  a: () => approvals.focus(),
  1: () => openTab("files"),
  2: () => openTab("plan"),
  3: () => openTab("browser"),
  4: () => openTab("steps"),
  5: () => openTab("desktop"),
  S: () => { if (session?.model.status === "running") stopRun(); },
  "?": () => help?.showModal(),
});

function openTab(id) {
  panel.choose(id);
  panel.focus();
}

async function connect() {
  try {
    await begin();
    trouble.hidden = true;
  } catch (error) {
    if (error.status === 401) return; // the form for the token is open
    problem(error);
    setTimeout(connect, 3000);
  }
}

connect();

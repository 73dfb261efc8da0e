/**
 * From a thread's events to what the page shows of it.
 *
 * Deterministic and free of the page: the same events give the same model, however they were cut
 * into portions. `apply` changes the model it is given (ten thousand copies would be slow) and marks
 * each row it touched with a new `revision`, so that views redraw these rows only.
 */

/** Return the model of a thread without events. */
export function newModel() {
  return {
    seq: 0,
    revision: 0,
    caughtUp: false,
    rows: [],
    status: "new",
    stopReason: null,
    activity: null,
    run: null,
    step: 0,
    plan: [],
    planRevision: 0,
    questions: new Map(),
    asked: new Map(), // the rows of questions, by the ids of their calls that have not run since
    answering: "",
    usage: noUsage(),
    artifacts: [],
    results: new Map(),
    filesRevision: 0,
    browserRevision: 0,
    desktopRevision: 0,
    scopes: new Map(),
    groups: new Map(), // the rows of the steps and subagents of this task, by their names
    grouped: false,
    within: [], // the versions that what comes next belongs to
  };
}

/** Return the model of a list of events. */
export function modelOf(events) {
  return apply(newModel(), events);
}

/** Take further events into a model, and return it. */
export function apply(model, events) {
  for (const event of events) {
    if (event.type !== "live" && event.seq !== undefined) {
      if (event.seq <= model.seq) continue; // sent again after a reconnection
      model.seq = event.seq;
    }
    model.revision += 1;
    HANDLERS[event.type]?.(model, event);
  }
  return model;
}

const REASONING = "Reasoning: ";
const MESSAGES = new Set(["task", "again"]);

const HANDLERS = {
  live(model, event) {
    model.caughtUp = true;
    if (!event.running && model.status === "running") {
      model.status = "interrupted";
      model.activity = null;
      settleRows(model);
    }
  },

  run_start(model, event) {
    const kind = event.kind ?? guessKind(model, event);
    model.status = "running";
    model.stopReason = null;
    model.activity = { kind: "starting" };
    model.run = { agent: event.agent, model: event.model, task: event.task, options: event.options ?? null };
    const versions = kind === "again" ? dropAfter(model, event) : null;
    if (kind !== "answer" && kind !== "resume") {
      closeQuestions(model);
      model.scopes.clear(); // what went on before has nothing to do with this
      model.groups.clear();
      model.step = 0;
      model.usage = noUsage();
    }
    if (kind === "again") {
      const row = add(model, event, { kind: "again", text: event.message ?? "", edited: Boolean(event.edited), agent: event.agent, versions });
      versions?.push(row);
    }
    else if (kind === "resume") add(model, event, { kind: "resume" });
    else if (kind === "start") add(model, event, { kind: "task", text: event.task, agent: event.agent });
  },

  think_start(model, event) {
    const scope = scopeOf(model, event);
    model.activity = { kind: "thinking" };
    if (!event.ns) model.step = event.step;
    const before = scope.think;
    if (before?.open && before.step === event.step) {
      Object.assign(before, { text: "", reasoning: "", reasonedS: null, answered: null, ts: event.ts }); // asked again: what it had said is void
      touch(model, before);
    } else {
      scope.think = addThink(model, event);
    }
  },

  token(model, event) {
    const row = scopeOf(model, event).think;
    if (!row?.open) return;
    row.answered ??= event.ts;
    if (row.reasoning && row.reasonedS === null) row.reasonedS = tookS(row, event);
    row.text += event.text;
    touch(model, row);
  },

  reasoning(model, event) {
    const row = scopeOf(model, event).think;
    if (!row?.open) return;
    row.reasoning += event.text;
    touch(model, row);
  },

  think_end(model, event) {
    const scope = scopeOf(model, event);
    if (!event.ns) model.step = event.step;
    if (!scope.think?.open) { // a stored reply has no start
      scope.think = addThink(model, event);
      if (scope.reasoning) reasoned(model, scope, event);
    }
    model.usage = plus(model.usage, event.usage);
    const { text, usage, seconds } = event;
    Object.assign(scope.think, { text, usage, seconds, open: false });
    touch(model, scope.think);
  },

  tool_start(model, event) {
    const { calls, think } = scopeOf(model, event);
    model.activity = { kind: "calling", tool: event.tool };
    const known = calls.get(event.call_id);
    const { args, title = null } = event;
    const asked = model.asked.get(event.call_id);
    if (asked?.calls.length === 1) { // the person may have edited its arguments
      asked.calls = [{ ...asked.calls[0], args, title }];
      touch(model, asked);
    }
    model.asked.delete(event.call_id);
    if (known && known.ok === null) { // it begins again after a question
      Object.assign(known, { args, title, waiting: false, ts: event.ts });
      touch(model, known);
    } else {
      calls.set(event.call_id, addCall(model, event, think?.step));
    }
  },

  tool_end(model, event) {
    const { calls, think } = scopeOf(model, event);
    let row = calls.get(event.call_id);
    if (!row || row.ok !== null) {
      row = addCall(model, event, think?.step);
      calls.set(event.call_id, row);
    }
    const { ok, seconds, output } = event;
    Object.assign(row, { ok, seconds, output, waiting: false });
    touch(model, row);
    model.filesRevision = model.revision;
    if (event.tool === "browser_use") model.browserRevision = model.revision;
    if (event.tool === "computer_use") model.desktopRevision = model.revision;
  },

  notice(model, event) {
    const last = model.rows.at(-1);
    const { level, text } = event;
    if (level === "info" && text.startsWith(REASONING)) {
      const scope = scopeOf(model, event);
      scope.reasoning = text.slice(REASONING.length);
      if (scope.think?.open) reasoned(model, scope, event);
      return;
    }
    if (last?.kind === "notice" && last.level === level && last.ns === (event.ns ?? "") && shape(last.text) === shape(text)) {
      Object.assign(last, { text, times: last.times + 1 }); // it counts, as attempts do
      touch(model, last);
    } else add(model, event, { kind: "notice", level, text, times: 1 });
  },

  steer(model, event) {
    add(model, event, { kind: "steer", text: event.text });
  },

  plan: planned,
  plan_change: planned,

  step_start: planStep,
  step_end: planStep,

  interrupt(model, event) {
    model.activity = null;
    const asked = new Set(event.calls.map((call) => call.call_id));
    for (const { calls } of model.scopes.values()) {
      for (const [callId, row] of calls) {
        if (row.ok !== null || !(asked.has(callId) || isQuestionTool(row, event))) continue;
        row.waiting = true;
        touch(model, row);
      }
    }
    if (model.questions.has(event.id)) return;
    const row = add(model, event, {
      kind: "question", asks: event.kind, text: event.question, calls: event.calls, answer: null,
    });
    model.questions.set(event.id, { ...event, row });
    for (const call of event.calls) model.asked.set(call.call_id, row);
  },

  answered(model, event) {
    model.answering = event.run;
    closeQuestion(model, event.id, event.answer ?? "answered");
  },

  final(model, event) {
    model.status = event.status;
    model.stopReason = event.stop_reason;
    model.activity = null;
    model.usage = event.usage ?? model.usage;
    model.artifacts = event.artifacts ?? [];
    model.filesRevision = model.revision;
    settleRows(model);
    if (event.status === "waiting") return;
    closeQuestions(model);
    const last = lastSaid(model);
    const shown = last !== null && (event.answer ?? "").trim() === last.text.trim();
    if (shown && event.sources?.length) {
      last.sources = event.sources;
      touch(model, last);
    }
    const fresh = model.artifacts.filter(({ path, size }) => model.results.get(path) !== size);
    model.results = new Map(model.artifacts.map(({ path, size }) => [path, size]));
    add(model, event, {
      kind: "final",
      said: last?.text ?? "",
      thought: last ? { ts: last.ts } : null,
      fresh: fresh.map(({ path }) => path),
      claims: event.claims,
      sources: event.sources ?? [],
      status: event.status,
      stopReason: event.stop_reason,
      usage: model.usage,
      steps: model.step,
      planned: model.plan.length,
      done: model.plan.filter((step) => step.status === "completed").length,
      answer: shown ? "" : event.answer,
      structured: event.structured ?? null,
      artifacts: model.artifacts,
    });
  },
};

/** The steps as an event leaves them. A plan within a step shows where there is no plan around it. */
function planned(model, event) {
  const scope = scopeOf(model, event);
  scope.plan = event.type === "plan" ? event.steps : changedPlan(scope.plan, event);
  if (event.ns && scopeOf(model, {}).plan.length > 0) return;
  model.plan = scope.plan;
  model.planRevision = model.revision;
}

function changedPlan(known, event) {
  if (known.length === 0) return known; // the whole of it is still to come
  const steps = new Map([...known, ...event.steps].map((step) => [step.id, step]));
  return (event.order ?? [...steps.keys()]).map((id) => steps.get(id)).filter(Boolean);
}

/** A step or a subagent is one row, whose parts lie under it; it counts them and says how it stands. */
function planStep(model, event) {
  const step = model.plan.find((one) => one.id === event.id);
  const path = [event.ns, event.id].filter(Boolean).join("/");
  const { id, executor, status, seconds, cost_usd: cost } = event;
  const asked = event.call_id && scopeOf(model, event).calls.get(event.call_id);
  if (asked) asked.card = true;
  let row = model.groups.get(path);
  if (!row || row.dropped) {
    model.grouped = true;
    row = add(model, event, { kind: "step", id, subagent: Boolean(event.namespace), parts: 0, newest: null, begun: event.ts });
    model.groups.set(path, row);
  }
  if (event.type === "step_start" && row.status !== "in_progress") row.begun = event.ts;
  Object.assign(row, { executor, status, text: step?.text ?? asked?.args?.task ?? row.text ?? "", seconds: seconds ?? row.seconds, cost: cost ?? row.cost });
  touch(model, row);
  model.plan = model.plan.map((one) => (one === step ? { ...one, status } : one));
  model.planRevision = model.revision;
}

/** The row of the step or subagent in which something happened; a further attempt has a number behind its name. */
function groupOf(model, ns) {
  return model.groups.get(ns) ?? model.groups.get(ns.replace(/\/[^/]*$/, ""));
}

const shape = (text) => text.replace(/\d+(\.\d+)?/g, "#");

/** Journals of other versions do not say what began a run. */
function guessKind(model, event) {
  if (model.answering === event.run) return "answer";
  const cutOff = !["new", "finished"].includes(model.status);
  return cutOff && model.run?.task === event.task ? "resume" : "start";
}

/** The steps of a plan run at once, each in a graph of its own. */
function scopeOf(model, event) {
  const name = event.ns ?? "";
  if (!model.scopes.has(name)) model.scopes.set(name, { think: null, reasoning: "", calls: new Map(), plan: [] });
  return model.scopes.get(name);
}

function add(model, event, fields) {
  const group = event.ns ? groupOf(model, event.ns) : undefined;
  const row = { key: model.rows.length, ts: event.ts, ns: event.ns ?? "", run: event.run ?? "",
    revision: model.revision, dropped: false, within: [...model.within], group: group?.key, ...fields };
  model.rows.push(row);
  if (group && ["think", "call"].includes(row.kind)) {
    group.parts += row.kind === "call" ? 1 : 0;
    if (row.kind === "call") group.newest = row;
    touch(model, group);
  }
  return row;
}

function addThink(model, event) {
  return add(model, event, {
    kind: "think", step: event.step, text: "", reasoning: "", reasonedS: null, open: true, usage: null, seconds: null,
  });
}

/** The reply that is being made has the reasoning before it, and how long that took. */
function reasoned(model, scope, event) {
  const row = scope.think;
  Object.assign(row, { reasoning: scope.reasoning, reasonedS: tookS(row, event) });
  scope.reasoning = "";
  touch(model, row);
}

function tookS(row, event) {
  const took = (Date.parse(row.answered ?? event.ts) - Date.parse(row.ts)) / 1000;
  return took > 0 ? took : null;
}

function addCall(model, event, step = 0) {
  return add(model, event, {
    kind: "call", callId: event.call_id, tool: event.tool, args: event.args ?? {}, title: event.title ?? null, step,
    ok: null, seconds: null, output: "", waiting: false, cut: false,
  });
}

function touch(model, row) {
  row.revision = model.revision;
}

/** A plain question names no call; it is the question that `ask_human` is asking. */
function isQuestionTool(row, event) {
  return event.kind === "question" && row.tool === "ask_human" && row.args?.inquire === event.question;
}

function closeQuestion(model, id, answer) {
  const question = model.questions.get(id);
  if (!question) return;
  question.row.answer = answer ?? "closed";
  touch(model, question.row);
  model.questions.delete(id);
}

/** Nobody waits for an answer any more, nor does the call that asked. */
function closeQuestions(model) {
  for (const id of [...model.questions.keys()]) closeQuestion(model, id, null);
  for (const { calls } of model.scopes.values()) {
    for (const row of calls.values()) {
      if (!row.waiting) continue;
      Object.assign(row, { waiting: false, cut: true });
      touch(model, row);
    }
  }
}

/**
 * Return the rows in the order in which they are shown: of what was done again, the version that is
 * chosen, and the parts of a step or a subagent under it. A call that runs a subagent is its card.
 *
 * @param {(row: object) => boolean} isOpen
 * @param {(versions: object[]) => number} chosen
 */
export function shownRows(model, isOpen, chosen = (versions) => versions.length - 1) {
  const again = model.rows.some((row) => row.versions);
  const rows = again ? model.rows.filter((row) => row.within.every(({ versions, index }) => chosen(versions) === index)) : model.rows;
  if (!model.grouped) return rows;
  const parts = Map.groupBy(rows.filter((row) => !(row.card && row.ok !== false)), (row) => row.group);
  const under = (key) => (parts.get(key) ?? []).flatMap((row) => [row, ...(row.kind === "step" && isOpen(row) ? under(row.key) : [])]);
  return under(undefined);
}

/** When a run is over, what is still open was cut off or waits for somebody. */
function settleRows(model) {
  for (const row of model.groups.values()) touch(model, row);
  for (const { think, calls } of model.scopes.values()) {
    if (think?.open) {
      think.open = false;
      touch(model, think);
    }
    for (const row of calls.values()) {
      if (row.ok !== null || row.waiting) continue;
      row.cut = model.status !== "waiting";
      touch(model, row);
    }
  }
}

/**
 * Going back to a checkpoint: what began after it counts no more, and neither does the message that is
 * replaced by an edited one. Returns the versions of what begins here, the newest of which is still to
 * be added; null if nothing is taken back.
 */
function dropAfter(model, event) {
  const at = Date.parse(event.checkpoint_at ?? "");
  const taken = model.rows.filter((row) => !row.dropped && Date.parse(row.ts) > at);
  if (event.edited) {
    const replaced = model.rows.findLast((row) => !row.dropped && MESSAGES.has(row.kind) && Date.parse(row.ts) <= at);
    if (replaced && !taken.some((row) => MESSAGES.has(row.kind))) taken.unshift(...model.rows.slice(replaced.key).filter((row) => !row.dropped && !taken.includes(row)));
  }
  if (!event.edited && MESSAGES.has(taken[0]?.kind)) taken.shift(); // sent a moment after the checkpoint
  const [first] = taken;
  const versions = first && (first.versions ?? [first]);
  for (const row of taken) {
    row.dropped = true;
    row.within = [...row.within, { versions, index: versions.length - 1 }];
    touch(model, row);
  }
  if (first) first.versions = versions;
  model.within = model.within.filter((one) => !one.versions.at(-1).dropped);
  if (first) model.within.push({ versions, index: versions.length });
  model.results = new Map(); // it may be made again
  closeQuestions(model);
  return versions ?? null;
}

function lastSaid(model) {
  for (let i = model.rows.length - 1; i >= 0; i -= 1) {
    const row = model.rows[i];
    if (row.kind === "think" && !row.ns && row.text) return row;
    if (row.kind === "task") return null;
  }
  return null;
}

function noUsage() {
  return { input_tokens: 0, cached_tokens: 0, output_tokens: 0, model_calls: 0, cost_usd: 0 };
}

function plus(left, right) {
  const sum = noUsage();
  for (const key of Object.keys(sum)) sum[key] = (left[key] ?? 0) + (right?.[key] ?? 0);
  return sum;
}

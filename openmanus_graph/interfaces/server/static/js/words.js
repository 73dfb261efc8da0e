/** What states and reasons are called on the page, in one place. Pure. */

const STATUS = {
  new: "Not started",
  running: "Running",
  waiting: "Waiting for you",
  finished: "Finished",
  failed: "Failed",
  stopped: "Stopped",
  cancelled: "Stopped by you",
  interrupted: "Cut off",
  forked: "Forked",
};

const LIMITS = {
  max_steps: "the step limit was reached",
  budget: "the budget was used up",
  timeout: "the time limit was reached",
  stuck: "it went round in circles",
};

const ASKED = { question: "a question", approval: "an approval", unknown_outcome: "a decision" };

const PLAN = {
  not_started: ["○", "not started"],
  in_progress: ["→", "in progress"],
  completed: ["✓", "completed"],
  blocked: ["!", "blocked"],
};

const DECISIONS = { approve: "Approved", reject: "Rejected", edit: "Approved with changes", respond: "Answered" };

/** The state of a run in a few words. */
export function statusWord(status) {
  return STATUS[status] ?? status;
}

/** Why it is so, in a few words, or nothing. */
export function statusReason(status, reason) {
  if (status === "stopped") return LIMITS[reason] ?? reason ?? "at a limit";
  if (status === "waiting") return ASKED[reason] ?? "an answer";
  if (status === "failed" && reason === "terminate") return "the agent gave up";
  if (status === "interrupted") return "the server ended in the middle of the run";
  return "";
}

/** The state and its reason, as a sentence without a full stop. */
export function statusSentence(status, reason) {
  return [statusWord(status), statusReason(status, reason)].filter(Boolean).join(": ");
}

/** What is to be raised so that a run that met its limit can go on. */
export function limitField(reason, usage, limits) {
  const tokens = limits?.max_total_tokens;
  if (reason === "budget" && tokens && usage.input_tokens + usage.output_tokens >= tokens) return "max_total_tokens";
  return { max_steps: "max_steps", budget: "max_cost_usd", timeout: "timeout_s" }[reason] ?? null;
}

/** Mark and words of a plan step's status. */
export function planMark(status) {
  return PLAN[status] ?? PLAN.not_started;
}

/** A decision in a word. */
export function decisionWord(answer) {
  return DECISIONS[answer?.type] ?? "Answered";
}

/** What a person decided, from the answer that was given. */
export function answerWords(answer) {
  if (answer === "closed") return "No longer open";
  if (answer && typeof answer === "object") {
    const word = decisionWord(answer);
    return answer.message ? `${word}: ${answer.message}` : word;
  }
  return answer === "answered" ? "Answered" : `Answered: ${answer}`;
}

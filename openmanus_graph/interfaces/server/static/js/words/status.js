/** What states and reasons are called on the page, in one place. Pure. */

import { t } from "../i18n.js";

const STATUS = {
  new: t("Not started"),
  running: t("Running"),
  waiting: t("Waiting for you"),
  finished: t("Finished"),
  failed: t("Failed"),
  stopped: t("Stopped"),
  cancelled: t("Stopped by you"),
  interrupted: t("Cut off"),
  forked: t("Forked"),
};

const LIMITS = {
  max_steps: t("the step limit was reached"),
  budget: t("the budget was used up"),
  timeout: t("the time limit was reached"),
  stuck: t("it went round in circles"),
};

const ASKED = { question: t("a question"), approval: t("an approval"), unknown_outcome: t("a decision") };

const PLAN = {
  not_started: ["○", t("not started")],
  in_progress: ["→", t("in progress")],
  completed: ["✓", t("completed")],
  blocked: ["!", t("blocked")],
};

const DECISIONS = { approve: t("Approved"), reject: t("Rejected"), edit: t("Approved with changes"), respond: t("Answered") };

/** The state of a run in a few words. */
export function statusWord(status) {
  return STATUS[status] ?? status;
}

/** Why it is so, in a few words, or nothing. */
export function statusReason(status, reason) {
  if (status === "stopped") return LIMITS[reason] ?? reason ?? t("at a limit");
  if (status === "waiting") return ASKED[reason] ?? t("an answer");
  if (status === "failed" && reason === "terminate") return t("the agent gave up");
  if (status === "interrupted") return t("the server ended in the middle of the run");
  return "";
}

/** The state and its reason, as a sentence without a full stop. */
export function statusSentence(status, reason) {
  return [statusWord(status), statusReason(status, reason)].filter(Boolean).join(t(": "));
}

/** What a run is doing, in a few words. */
export function activityWords(activity) {
  if (activity?.kind === "calling") return t("Running {tool}", { tool: activity.tool });
  return { starting: t("Starting"), thinking: t("Thinking") }[activity?.kind] ?? "";
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
  return DECISIONS[answer?.type] ?? t("Answered");
}

/** What a person decided, from the answer that was given. */
export function answerWords(answer) {
  if (answer === "closed") return t("No longer open");
  if (answer && typeof answer === "object") {
    const word = decisionWord(answer);
    return answer.message ? `${word}${t(": ")}${answer.message}` : word;
  }
  return answer === "answered" ? t("Answered") : `${t("Answered")}${t(": ")}${answer}`;
}

"""Decides what the execution of a plan does next: pure functions of the planning graph's state."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeGuard, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.usage import RunUsage
from openmanus_graph.conversation import history
from openmanus_graph.conversation.replies import failure
from openmanus_graph.planning.plan import dependents
from openmanus_graph.runtime import limits
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.value_labels import handed_on
from openmanus_graph.state.manus import Origin, Plan, Step
from openmanus_graph.state.planning import (
    PausedRun,
    PlanningState,
    RunEnd,
    StepRun,
    WorkerReport,
    WorkerState,
)
from openmanus_graph.state.settings import Settings

MAX_ATTEMPTS = 2
MAX_REPLANS = 2


def step_runs_of(state: PlanningState) -> list[StepRun]:
    return [state["steps"][name] for name in state["order"]]


def plan_of(state: PlanningState) -> Plan:
    """Return the plan in the form that people and models see."""
    steps: list[Step] = [*step_runs_of(state)]
    return Plan(plan_id=state["run_message"], title=state["title"], steps=steps)


def hand_on(state: PlanningState, urls: Sequence[str] = (), *, tainted: bool = False) -> Origin:
    """Return the origin that verifies values in new steps, from the thread, the plan and `urls`."""
    messages = state["messages"]
    thread = messages[: len(messages) - len(history.run_messages(messages))]
    # Results in it are not of the plan's own tools, so nothing is known of them.
    return handed_on(thread, {}, urls, tainted=tainted, openings=openings_of(state))


def openings_of(state: PlanningState) -> Counter[str]:
    """Return how many links the steps have opened by site, except sites that a person named."""
    found = Counter[str]()
    for step_run in state["steps"].values():
        for opened in step_run.get("openings", {}).values():
            found.update(opened)
    return found


def task_of(state: PlanningState) -> str:
    message = history.last_user_message(state["messages"])
    return message.text if message else ""


def unfinished_plan(state: PlanningState) -> Literal["create_plan", "approve_plan"] | None:
    """Return the node to run next while the plan is not complete or approved."""
    if not state["order"] or state["drafts"]:
        return "create_plan"
    return None if state["reviewed"] else "approve_plan"


def new_step_run(step: Step) -> StepRun:
    return StepRun(
        **step, attempt=0, failures=0, worker=0, outcome="", paused_run=None, seconds=0.0,
        cost_usd=0.0, urls=[], openings={}, files=[], written_files=[], evidence="", sources=[],
        disputed="", judged_attempt=0,
    )  # fmt: skip


def begun_step_updates(step_runs: Sequence[StepRun], limit: int) -> dict[str, dict[str, Any]]:
    """Return the updates that begin, continue or, beyond the limit, postpone steps of a batch."""
    under_way = steps_under_way(step_runs)
    postponed = {one["id"]: {"status": "not_started"} for one in under_way[limit:]}
    ready = [step_run for step_run in startable_steps(step_runs) if step_run not in under_way]
    return {**postponed, **started_step_updates(step_runs, [*under_way, *ready], range(limit))}


def started_step_updates(
    step_runs: Sequence[StepRun], ready: Sequence[StepRun], free: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Return the updates that assign ready steps to free workers, in order."""
    by_id = {step_run["id"]: step_run for step_run in step_runs}
    left = list(free)
    started: dict[str, dict[str, Any]] = {}
    for step_run in ready[: len(left)]:
        # The session of a step it depends on has variables and pages that it can use.
        before = [by_id[name]["worker"] for name in reversed(step_run["depends_on"])]
        own = [step_run["worker"]] if step_run["attempt"] else []
        worker = next((one for one in (*own, *before) if one in left), left[0])
        left.remove(worker)
        resumes = step_run["status"] == "in_progress" or bool(step_run["outcome"])
        resumes = resumes or step_run["paused_run"] is not None
        attempt = step_run["attempt"] + (0 if resumes else 1)
        started[step_run["id"]] = {"status": "in_progress", "attempt": attempt, "worker": worker}
    return started


def startable_steps(step_runs: Sequence[StepRun]) -> list[StepRun]:
    completed = {one["id"] for one in step_runs if one["status"] == "completed"}
    return [
        one
        for one in step_runs
        if one["status"] == "not_started" and completed.issuperset(one["depends_on"])
    ]


def blocked_step_updates(step_runs: Sequence[StepRun]) -> dict[str, dict[str, Any]]:
    """Return the updates of steps that cannot start, because they depend on a blocked one."""
    blocked = [step_run["id"] for step_run in step_runs if step_run["status"] == "blocked"]
    dependent_ids = set(dependents(step_runs, blocked))
    updates: dict[str, dict[str, Any]] = {}
    for step_run in step_runs:
        if step_run["id"] in dependent_ids and step_run["status"] != "blocked":
            needed = [name for name in step_run["depends_on"] if name in {*blocked, *dependent_ids}]
            notes = f"Not begun: it needs {', '.join(needed)}, which could not be done."
            updates[step_run["id"]] = {"status": "blocked", "notes": notes}
    return updates


def progress_of(state: PlanningState, settings: Settings) -> limits.Progress:
    """Return the whole run's progress. Its steps count only if `max_steps` was set."""
    steps = state["step_count"] if settings.max_steps_set else 0
    return limits.Progress(steps, state["usage"], state["elapsed_s"])


def is_whole_plan(state: PlanningState) -> bool:
    """Return True if one step is the whole plan: it is the task, and its result the answer."""
    return len(state["order"]) == 1


def answering_step(step_runs: Sequence[StepRun]) -> StepRun | None:
    """Return the step whose result is the answer: the only one on which no other depends."""
    needed = {name for step_run in step_runs for name in step_run["depends_on"]}
    last = [step_run for step_run in step_runs if step_run["id"] not in needed]
    return last[0] if len(last) == 1 else None


def shared_files(
    step_runs: Sequence[StepRun], ran: Sequence[StepRun]
) -> Iterator[tuple[str, list[str]]]:
    """Yield files that steps wrote without depending on each other, if one of them just `ran`."""
    for path in sorted({path for step_run in ran for path in step_run["written_files"]}):
        writers = [step_run["id"] for step_run in step_runs if path in step_run["written_files"]]
        after = {name: {name, *dependents(step_runs, [name])} for name in writers}
        unordered = [
            one
            for one in writers
            if any(one not in after[other] and other not in after[one] for other in writers)
        ]
        if any(step_run["id"] in unordered for step_run in ran):
            yield path, unordered


def steps_under_way(step_runs: Sequence[StepRun]) -> list[StepRun]:
    return [step_run for step_run in step_runs if is_under_way(step_run)]


def is_under_way(step_run: StepRun) -> bool:
    """Return True if a step has begun and is to be run, reviewed or replanned in this run."""
    return step_run["status"] == "in_progress" and not is_limit(step_run["outcome"])


def next_node(step_run: StepRun | None, executors: Collection[str]) -> str:
    """Return a worker's node that continues with a step. Without one it takes another."""
    if step_run is None:
        return "next_step"
    if step_run["outcome"]:
        return reviewing_node(step_run)
    return step_run["executor"] if step_run["executor"] in executors else "missing_executor"


def reviewing_node(step_run: StepRun) -> str:
    """Return a worker's node that reviews the outcome of a step."""
    if step_run.get("disputed"):
        return "judge_check"
    return "replan_step" if step_run["failures"] >= MAX_ATTEMPTS else "check_step"


def is_judged(step_run: StepRun) -> bool:
    """Return True if a judge has looked at a step's check in this attempt: it does so once."""
    return step_run.get("judged_attempt") == step_run["attempt"]


def current_step(state: WorkerState) -> StepRun:
    """Return the step that a worker has, with its updates."""
    step_run = cast("StepRun", state["step_run"])  # no node asks between steps
    return cast("StepRun", {**step_run, **state["steps"].get(step_run["id"], {})})


def merge_reports(
    state: PlanningState, reports: Iterable[WorkerReport]
) -> tuple[list[str], dict[str, StepRun], int]:
    """Return the plan's order, its steps and the count of replacements, with the workers' reports.

    The report of a step with the most attempts counts. Merging a report twice changes nothing.
    """
    reports = list(reports)
    order, steps, replans = list(state["order"]), dict(state["steps"]), state["replans"]
    replacements = [one for report in reports for one in report["replacements"]]
    for one in sorted(replacements, key=lambda one: one["number"]):
        if one["number"] > replans:
            position = min(order.index(name) for name in one["replaced"])
            kept = [name for name in order[position:] if name not in one["replaced"]]
            order = [*order[:position], *(new["id"] for new in one["new"]), *kept]
            steps = {name: steps[name] for name in steps if name not in one["replaced"]}
            steps |= {step_run["id"]: step_run for step_run in one["new"]}
            replans = one["number"]
    for report in reports:
        for name, fields in report["steps"].items():
            known = steps.get(name)
            if known and fields.get("attempt", known["attempt"]) >= known["attempt"]:
                steps[name] = cast("StepRun", {**known, **fields})
    return order, steps, replans


def reviewed_step_update(step_run: StepRun, problem: str | None, replans: int) -> dict[str, Any]:
    """Return the update of a reviewed step; `problem` is why it is not done, None if it is."""
    if problem is None:
        return {"status": "completed", "notes": "", "outcome": "", "evidence": ""}
    failures = step_run["failures"] + 1
    failed = {"notes": problem, "failures": failures}
    if failures < MAX_ATTEMPTS:
        return {**failed, "status": "not_started", "outcome": ""}
    if replans < MAX_REPLANS:
        return {**failed, "outcome": "failed"}
    return {**failed, "status": "blocked", "outcome": ""}


def is_limit(outcome: str | None) -> TypeGuard[limits.LimitReason]:
    """Return True if an outcome is a limit of the whole run: the step can then be resumed."""
    return outcome in ("max_steps", "budget", "timeout")


def ended_by(reason: limits.LimitReason, state: PlanningState, session: Session) -> limits.Limit:
    """Return the limit that ended the run: the user's quota, or the most used one of its kind."""
    usage: RunUsage | None = session.find_cached(RunUsage)
    if reason == "budget" and usage is not None and usage.reached is not None:
        return usage.reached
    progress = limits.Progress(state["step_count"], state["usage"], state["elapsed_s"])
    return limits.most_used_limit(reason, progress, session.settings)


def run_end_of(error: limits.LimitReached | ModelError) -> RunEnd:
    """Return how the run ends after a model call that was refused by a limit, or failed."""
    if isinstance(error, limits.LimitReached):
        return RunEnd(status="stopped", stop_reason=error.reason, answer="")
    return cast("RunEnd", failure(error.sentence))


def steps_to_replace(step_runs: Sequence[StepRun], failed: Sequence[str]) -> list[str]:
    """Return the ids of the failed steps and their dependents, without the completed ones."""
    affected = [*failed, *dependents(step_runs, failed)]
    not_completed = [one["id"] for one in step_runs if one["status"] != "completed"]
    return [name for name in not_completed if name in affected]


def pause_run(values: Mapping[str, Any], message_id: str) -> PausedRun:
    """Return what is needed to resume a step's run: without a last reply that lacks results."""
    state = {key: value for key, value in values.items() if key not in history.NOT_RESUMED}
    messages: list[AnyMessage] = list(values.get("messages") or ())
    results = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    last = max((n for n, one in enumerate(messages) if isinstance(one, AIMessage)), default=None)
    if last is not None:
        calls = cast("AIMessage", messages[last]).tool_calls
        if any(call["id"] not in results for call in calls):
            messages = messages[:last]
    return PausedRun(message_id=message_id, messages=messages, state=state)


def resumed_messages(paused_run: PausedRun, message_id: str) -> list[AnyMessage]:
    """Return the messages that resume a paused run, with the new id of the one that starts it."""
    messages, old = list(paused_run["messages"]), paused_run["message_id"]
    for position, message in enumerate(messages):
        if isinstance(message, HumanMessage) and message.id == old:
            state = dict(paused_run["state"])
            if str(state.get("branch", "")).startswith(old):
                state["branch"] = message_id + state["branch"][len(old) :]
            extra = {**message.additional_kwargs, history.RESUMED_KEY: state}
            renamed = message.model_copy(update={"id": message_id, "additional_kwargs": extra})
            messages[position] = renamed
    return messages

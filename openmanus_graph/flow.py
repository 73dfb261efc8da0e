"""What a plan's execution does next: pure decisions over the planning graph's state."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeGuard

from openmanus_graph.history import last_user_message
from openmanus_graph.limits import LimitReason, Progress
from openmanus_graph.models.condensed import cut_middle
from openmanus_graph.plans import dependents, plan_text, ready_steps
from openmanus_graph.settings import Settings
from openmanus_graph.state.plan import Plan, Step
from openmanus_graph.state.planning import Job, PlanningState

MAX_ATTEMPTS = 2
MAX_REPLANS = 2
RESULT_CHARS = 6000
"""Of a step's result as other steps and the summary see it."""
RESULTS_CHARS = 60_000
"""Of all the results that one of them sees."""


def jobs_of(state: PlanningState) -> list[Job]:
    """Return the steps in the plan's order."""
    return [state["steps"][name] for name in state["order"]]


def plan_of(state: PlanningState) -> Plan:
    """Return the plan as people and models see it."""
    steps: list[Step] = [*jobs_of(state)]
    return Plan(plan_id=state["run_message"], title=state["title"], steps=steps)


def task_of(state: PlanningState) -> str:
    """Return the user's words."""
    message = last_user_message(state["messages"])
    return message.text if message else ""


def unfinished_plan(state: PlanningState) -> Literal["create_plan", "approve_plan"] | None:
    """Name the node that has not done its work: the plan is not made, mended or approved."""
    if not state["order"] or state["drafts"] or state["mending"]:
        return "create_plan"
    return None if state["reviewed"] else "approve_plan"


def new_job(step: Step) -> Job:
    """Make a step that was never begun ready for the flow."""
    return Job(
        **step,
        attempt=0,
        failures=0,
        lane=0,
        outcome="",
        paused=None,
        seconds=0.0,
        cost_usd=0.0,
        links=[],
        files=[],
        wrote=[],
    )


def begun_jobs(jobs: Sequence[Job], limit: int) -> dict[str, dict[str, Any]]:
    """Return the updates that begin the steps which may begin now, or go on.

    Args:
        jobs: The plan.
        limit: How many may run at once.
    """
    by_id = {job["id"]: job for job in jobs}
    halted = to_run(jobs)
    ready = [*halted, *(by_id[step["id"]] for step in ready_steps(jobs))]
    waits = dict.fromkeys((job["id"] for job in halted[limit:]), {"status": "not_started"})
    free = list(range(limit))
    begun: dict[str, dict[str, Any]] = {}
    for job in ready[:limit]:
        lane = _lane(job, by_id, free)
        free.remove(lane)
        again = job["status"] == "in_progress" or job["paused"] is not None
        attempt = job["attempt"] + (0 if again else 1)
        begun[job["id"]] = {"status": "in_progress", "attempt": attempt, "lane": lane}
    return {**waits, **begun}


def _lane(job: Job, by_id: Mapping[str, Job], free: Sequence[int]) -> int:
    """Choose the lane of the step before, whose variables and pages are of use."""
    before = [by_id[name]["lane"] for name in reversed(job["depends_on"])]
    own = [job["lane"]] if job["attempt"] else []
    return next((lane for lane in (*own, *before) if lane in free), free[0])


def blocked_jobs(jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
    """Return the updates of steps that can never begin, because one before them is blocked."""
    blocked = [job["id"] for job in jobs if job["status"] == "blocked"]
    lost = set(dependents(jobs, blocked))
    return {
        job["id"]: {"status": "blocked", "notes": _needs(job, {*blocked, *lost})}
        for job in jobs
        if job["id"] in lost and job["status"] != "blocked"
    }


def _needs(job: Job, blocked: set[str]) -> str:
    missing = ", ".join(name for name in job["depends_on"] if name in blocked)
    return f"Not begun: it needs {missing}, which could not be done."


def progress_of(state: PlanningState, settings: Settings) -> Progress:
    """Return how far the whole run has come. Its steps count only where somebody limited them."""
    steps = state["step_count"] if settings.max_steps_set else 0
    return Progress(steps, state["usage"], state["elapsed_s"])


def given_text(job: Job, steps: Mapping[str, Job]) -> str:
    """Write what a step is given beside its text."""
    needed = [steps[name] for name in job["depends_on"]]
    chars = _share_of_chars(len(needed))
    parts = [
        f"Result of step {one['id']} ({one['text']}):\n{cut_middle(one['result'], chars)}"
        for one in needed
    ]
    if job["failures"]:
        parts.append(f"It was tried before and failed: {job['notes']} Do it another way.")
    if job["done_when"]:
        parts.append(f"It counts as done when: {job['done_when']}")
    return "\n\n".join(parts)


def _share_of_chars(results: int) -> int:
    return min(RESULT_CHARS, RESULTS_CHARS // max(1, results))


def results_text(jobs: Sequence[Job]) -> str:
    """Write all steps with what came of them."""
    chars = _share_of_chars(len(jobs))
    return "\n\n".join(_result_text(job, chars) for job in jobs)


def _result_text(job: Job, chars: int) -> str:
    came_of_it = job["result"] if job["status"] == "completed" else job["notes"]
    if job["paused"] is not None:
        came_of_it = "Not done yet; it goes on where it stopped when the run is resumed."
    status = job["status"].replace("_", " ")
    text = f"Step {job['id']} ({status}): {job['text']}\n{cut_middle(came_of_it, chars)}"
    return text.strip()


def shared_files(jobs: Sequence[Job], ran: Sequence[Job]) -> Iterator[tuple[str, list[str]]]:
    """Yield the files that steps wrote which do not know of each other, with the steps' ids.

    Args:
        jobs: The plan.
        ran: The steps that ran just now; what was told before is not told again.
    """
    for path in sorted({path for job in ran for path in job["wrote"]}):
        writers = [job["id"] for job in jobs if path in job["wrote"]]
        after = {name: {name, *dependents(jobs, [name])} for name in writers}
        rivals = [
            one
            for one in writers
            if any(one not in after[other] and other not in after[one] for other in writers)
        ]
        if any(job["id"] in rivals for job in ran):
            yield path, rivals


def to_run(jobs: Sequence[Job]) -> list[Job]:
    """Return the steps that have begun, or were halted by a limit."""
    return [job for job in jobs if job["status"] == "in_progress" and not job["outcome"]]


def to_review(jobs: Sequence[Job]) -> list[Job]:
    """Return the steps that ran and were not looked at yet."""
    return [job for job in jobs if job["status"] == "in_progress" and job["outcome"]]


def after_review(job: Job, problem: str | None, replans: int) -> dict[str, Any]:
    """Return the update of a step that was looked at; `outcome` stays where it needs a new plan.

    Args:
        job: The step.
        problem: Why it is not done; None if it is.
        replans: How often a part of the plan was replaced already.
    """
    if problem is None:
        return {"status": "completed", "notes": "", "outcome": ""}
    failures = job["failures"] + 1
    failed = {"notes": problem, "failures": failures}
    if failures < MAX_ATTEMPTS:
        return {**failed, "status": "not_started", "outcome": ""}
    mend = replans < MAX_REPLANS
    return {**failed, "status": "blocked", "outcome": "failed" if mend else ""}


def halted_by(jobs: Sequence[Job]) -> LimitReason | None:
    """Return the limit of the whole run that ended one of these steps, if one did."""
    return next((job["outcome"] for job in jobs if is_limit(job["outcome"])), None)


def is_limit(outcome: str | None) -> TypeGuard[LimitReason]:
    """Say whether a limit of the whole run ended something: it did not fail, and can go on."""
    return outcome in ("max_steps", "budget", "timeout")


def ending(jobs: Sequence[Job]) -> dict[str, Any]:
    """Return how a run ends whose steps are all completed or blocked."""
    if all(job["status"] == "completed" for job in jobs):
        return {"status": "finished", "stop_reason": "answer"}
    return {"status": "failed", "stop_reason": "terminate"}


def failed_for_good(jobs: Sequence[Job], failed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the ids that a new part of the plan replaces, and those it may depend on."""
    affected = [*failed, *dependents(jobs, failed)]
    replaced = [j["id"] for j in jobs if j["id"] in affected and j["status"] != "completed"]
    return replaced, [job["id"] for job in jobs if job["status"] == "completed"]


def mending_text(plan: Plan, failed: Sequence[Job]) -> tuple[str, str]:
    """Write the plan and what failed in it, for the model that mends it."""
    failures = [f"- step {job['id']} ({job['text']}): {job['notes']}" for job in failed]
    return plan_text(plan), "\n".join(failures)


def mended_order(order: Sequence[str], replaced: Sequence[str], new: Sequence[str]) -> list[str]:
    """Put new steps where the first of those they replace stood."""
    place = min(order.index(name) for name in replaced)
    before = [name for name in order[:place] if name not in replaced]
    after = [name for name in order[place:] if name not in replaced]
    return [*before, *new, *after]

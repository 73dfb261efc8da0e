"""What a plan's execution does next: pure decisions over the planning graph's state."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from openmanus_graph.history import last_user_message
from openmanus_graph.plans import dependents, plan_text, ready_steps
from openmanus_graph.settings import Settings
from openmanus_graph.state.plan import Plan, Step
from openmanus_graph.state.planning import Job, PlanningState
from openmanus_graph.state.reducers import Usage

MAX_ATTEMPTS = 2
MAX_REPLANS = 2
RESULT_CHARS = 6000
"""Of a step's result as other steps and the summary see it."""


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
        max_cost_usd=0.0,
        max_total_tokens=None,
        outcome="",
        seconds=0.0,
        cost_usd=0.0,
        links=[],
        files=[],
    )


def begun_jobs(jobs: Sequence[Job], limit: int) -> dict[str, dict[str, Any]]:
    """Return the updates that begin the steps which may begin now.

    Args:
        jobs: The plan.
        limit: How many may run at once.
    """
    by_id = {job["id"]: job for job in jobs}
    ready = [by_id[step["id"]] for step in ready_steps(jobs)][:limit]
    free = list(range(limit))
    begun: dict[str, dict[str, Any]] = {}
    for job in ready:
        lane = _lane(job, by_id, free)
        free.remove(lane)
        begun[job["id"]] = {
            "status": "in_progress",
            "attempt": job["attempt"] + 1,
            "lane": lane,
            "outcome": "",
        }
    return begun


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


def share(usage: Usage, settings: Settings, steps: int) -> dict[str, Any]:
    """Return the limits of each of some steps that begin together: what is left, in equal parts."""
    parts = max(1, steps)
    dollars = max(0.0, settings.max_cost_usd - usage["cost_usd"])
    tokens = None
    if settings.max_total_tokens is not None:
        used = usage["input_tokens"] + usage["output_tokens"]
        tokens = max(1, (settings.max_total_tokens - used) // parts)
    return {"max_cost_usd": dollars / parts, "max_total_tokens": tokens}


def given_text(job: Job, steps: Mapping[str, Job]) -> str:
    """Write what a step is given beside its text."""
    parts = [
        f"Result of step {name} ({steps[name]['text']}):\n{steps[name]['result']}"
        for name in job["depends_on"]
    ]
    if job["notes"] and job["attempt"] > 1:
        parts.append(f"It was tried before and failed: {job['notes']} Do it another way.")
    if job["done_when"]:
        parts.append(f"It counts as done when: {job['done_when']}")
    return "\n\n".join(parts)


def results_text(jobs: Sequence[Job]) -> str:
    """Write all steps with what came of them."""
    return "\n\n".join(map(_result_text, jobs))


def _result_text(job: Job) -> str:
    came_of_it = job["result"] if job["status"] == "completed" else job["notes"]
    return f"Step {job['id']} ({job['status']}): {job['text']}\n{came_of_it}".strip()


def shared_files(jobs: Sequence[Job]) -> Iterator[tuple[str, list[str]]]:
    """Yield the files that several of these steps wrote, with the steps' ids."""
    for path in sorted({path for job in jobs for path in job["files"]}):
        writers = [job["id"] for job in jobs if path in job["files"]]
        if len(writers) > 1:
            yield path, writers


def to_run(jobs: Sequence[Job]) -> list[Job]:
    """Return the steps that have begun."""
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
    if job["outcome"] == "budget":  # it begins again if there is more; at a limit the run stops
        return {"status": "not_started", "notes": problem, "outcome": ""}
    failures = job["failures"] + 1
    failed = {"notes": problem, "failures": failures}
    if failures < MAX_ATTEMPTS:
        return {**failed, "status": "not_started", "outcome": ""}
    mend = replans < MAX_REPLANS
    return {**failed, "status": "blocked", "outcome": "failed" if mend else ""}


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

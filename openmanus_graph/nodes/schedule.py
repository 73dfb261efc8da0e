"""`schedule`: which steps begin now."""

from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import Send

from openmanus_graph.config.resolve import safe_name
from openmanus_graph.flow import (
    begun_jobs,
    blocked_jobs,
    given_text,
    jobs_of,
    plan_of,
    progress_of,
    task_of,
    to_review,
    to_run,
    unfinished_plan,
)
from openmanus_graph.history import last_user_message
from openmanus_graph.limits import limit_reached
from openmanus_graph.models.projection import picture_paths
from openmanus_graph.plan_file import show_plan
from openmanus_graph.plans import plan_text
from openmanus_graph.prompts import plan_step
from openmanus_graph.provenance import origin_of
from openmanus_graph.registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.plan import Origin, merge_steps
from openmanus_graph.state.planning import Before, Job, PlanningState, StepInput

SCRATCH = ".openmanus/files/steps"
"""Folder for what a step needs only itself; nothing in it is an artifact."""


async def schedule(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Begin the steps whose dependencies are completed, within the budget. None at a limit."""
    session = await enter_session(runtime)
    settings = session.settings
    branch = session.on_line(state["branch"])
    begins: dict[str, Any] = {"branch": branch, "status": None, "stop_reason": None, "answer": ""}
    jobs = jobs_of(state)
    if unfinished_plan(state) or to_review(jobs):  # a run that was stopped there goes on
        return begins
    if to_run(jobs) or any(job["status"] == "not_started" for job in jobs):
        reason = limit_reached(progress_of(state, settings), settings)
        if reason is not None:
            runtime.stream_writer({"type": "limit", "reason": reason})
            return {"status": "stopped", "stop_reason": reason}
    blocked = blocked_jobs(jobs)
    begun = begun_jobs(jobs, settings.max_parallel_steps)
    steps = merge_steps(state["steps"], [blocked, begun])
    plan = plan_of({**state, "steps": steps})
    await show_plan(plan, session, runtime.stream_writer)
    return {**begins, "steps": {**blocked, **begun}}


async def route_after_schedule(state: PlanningState) -> list[Send] | str:
    """Send each step that begins to `run_step`; without any the run is over."""
    jobs = jobs_of(state)
    if state.get("stop_reason"):
        return "finalize"
    if again := unfinished_plan(state):
        return again
    if to_review(jobs):
        return "review_step"
    begun = [Send("run_step", step_input(job, state)) for job in to_run(jobs)]
    return begun or "finalize"


def _pictures(state: PlanningState) -> list[str]:
    user = last_user_message(state["messages"])
    return [] if user is None else list(picture_paths(user))


def step_origin(job: Job, state: PlanningState) -> Origin:
    """Return what vouches for addresses in a step: the user's words, and links seen before it."""
    links = [link for name in job["depends_on"] for link in state["steps"][name]["links"]]
    user = last_user_message(state["messages"])
    # The plan shows what steps came to, so that any of them may have written what it says now.
    worked = any(job["attempt"] for job in state["steps"].values()) and not _is_first(job, state)
    return origin_of(user, links, tainted=worked)


def _is_first(job: Job, state: PlanningState) -> bool:
    """Say whether nothing ran before the steps that begin now."""
    return job["attempt"] == 1 and all(
        not other["result"] and not other["notes"] for other in state["steps"].values()
    )


def step_input(job: Job, state: PlanningState) -> StepInput:
    """Return what a step's run is given."""
    scratch = f"{SCRATCH}/{safe_name(job['id'])}"
    return StepInput(
        job=job,
        message_id=f"{state['branch']}/{state['replans']}/{job['id']}/{job['attempt']}",
        prompt=plan_step(
            task=task_of(state),
            plan=plan_text(plan_of(state), around=state["order"].index(job["id"])),
            step=job["id"],
            text=job["text"],
            given=given_text(job, state["steps"]),
            scratch=scratch,
        ),
        scratch=scratch,
        origin=step_origin(job, state),
        images=_pictures(state),
        before=Before(
            steps=state["step_count"], usage=state["usage"], elapsed_s=state["elapsed_s"]
        ),
    )

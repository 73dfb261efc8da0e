"""`schedule`: begins the steps of the plan whose dependencies are completed."""

import uuid
from typing import Any

from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Send

from openmanus_graph.backends.snapshots.thread_snapshots import snapshot_files
from openmanus_graph.conversation.history import last_user_message
from openmanus_graph.model_calls.projection import media_paths, picture_paths
from openmanus_graph.planning.drafting import step_prompt
from openmanus_graph.planning.flow import (
    begun_step_updates,
    blocked_step_updates,
    hand_on,
    is_whole_plan,
    plan_of,
    progress_of,
    step_runs_of,
    steps_under_way,
    task_of,
    unfinished_plan,
)
from openmanus_graph.planning.plan import most_at_once
from openmanus_graph.planning.plan_view import publish_plan
from openmanus_graph.planning.wave import Wave, max_workers
from openmanus_graph.runtime.limits import reached_limit
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.plan import Origin, merge_steps
from openmanus_graph.state.planning import FlowProgress, PlanningState, StepRun, WorkerInput


async def schedule(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Begin a wave with the steps whose dependencies are completed; at a limit stop the run."""
    session = await enter_session(runtime)
    settings = session.settings
    branch = session.on_fork(state["branch"])
    begins: dict[str, Any] = {"branch": branch, "status": None, "stop_reason": None, "answer": ""}
    if unfinished_plan(state):  # a run that was stopped there goes on
        return begins
    step_runs = step_runs_of(state)
    if steps_under_way(step_runs) or any(
        step_run["status"] == "not_started" for step_run in step_runs
    ):
        limit = reached_limit(progress_of(state, settings), settings)
        if limit is not None:
            runtime.stream_writer(limit.event())
            return {"status": "stopped", "stop_reason": limit.reason}
    blocked = blocked_step_updates(step_runs)
    begins |= await snapshot_files(session, state, runtime.stream_writer, only_first=True)
    most = max_workers(session, get_config())
    begun = begun_step_updates(step_runs, most)
    wave = uuid.uuid4().hex
    steps = merge_steps(state["steps"], [blocked, begun])
    now: PlanningState = {**state, "steps": steps, "wave": wave}
    await publish_plan(plan_of(now), session, runtime.stream_writer)
    session.cached((Wave, wave), lambda: Wave(now, session, most))
    return {
        **begins,
        "steps": {**blocked, **begun},
        "wave": wave,
        "workers": wave_width(now, most),
    }


def wave_width(state: PlanningState, most: int) -> int:
    """Return how many workers a wave has: with one step under way it ends before the next."""
    step_runs = step_runs_of(state)
    begun = steps_under_way(step_runs)
    left = [step_run for step_run in step_runs if step_run["status"] == "not_started"]
    return min(most, most_at_once([*begun, *left])) if len(begun) > 1 else len(begun)


async def route_after_schedule(state: PlanningState) -> list[Send] | str:
    """Send the workers to `run_step`, with the steps that begin; without any the run is over."""
    if state.get("stop_reason"):
        return "finalize"
    if again := unfinished_plan(state):
        return again
    begun = steps_under_way(step_runs_of(state))
    given = [step_input(step_run, state) for step_run in begun]
    free = sorted({*range(state["workers"])} - {step_run["worker"] for step_run in begun})
    idle = [{"wave": state["wave"], "worker": worker} for worker in free]
    sends = [Send("run_step", one) for one in (*given, *idle[: state["workers"] - len(begun)])]
    return sends or "finalize"


def step_origin(step_run: StepRun, state: PlanningState) -> Origin:
    """Return what verifies addresses in a step: the user's words, and links seen before it."""
    urls = [url for name in step_run["depends_on"] for url in state["steps"][name]["urls"]]
    steps = state["steps"].values()
    # The plan shows the results of steps, so that any of them may have written what it says now.
    nothing_ran = step_run["attempt"] == 1 and not any(
        other["result"] or other["notes"] for other in steps
    )
    tainted = any(other["attempt"] for other in steps) and not nothing_ran
    # So may files, and what failed in the part of the plan before.
    tainted |= state.get("planned_from_files", False) or state["replans"] > 0
    return hand_on(state, urls, tainted=tainted)


def step_input(step_run: StepRun, state: PlanningState) -> WorkerInput:
    """Return what a step's run is given."""
    user = last_user_message(state["messages"])
    return WorkerInput(
        wave=state["wave"],
        worker=step_run["worker"],
        step_run=step_run,
        message_id=f"{state['branch']}/{state['replans']}/{step_run['id']}/{step_run['attempt']}",
        prompt=step_prompt(step_run, state),
        task=task_of(state) if is_whole_plan(state) else "",
        origin=step_origin(step_run, state),
        images=[] if user is None else [*picture_paths(user), *media_paths(user)],
        before=FlowProgress(
            steps=state["step_count"], usage=state["usage"], elapsed_s=state["elapsed_s"]
        ),
    )

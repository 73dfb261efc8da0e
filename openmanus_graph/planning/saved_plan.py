"""Reads a plan as it stands in the middle of a wave: from its own checkpoint and its workers'."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.types import PregelTask

from openmanus_graph.planning.flow import merge_reports
from openmanus_graph.planning.wave import report_of
from openmanus_graph.runtime.checkpoint_lineage import (
    CHECKPOINTER_KEY,
    MAP_KEY,
    REPLAY_KEY,
    outer_namespace,
)
from openmanus_graph.state.manus import merge_usage
from openmanus_graph.state.plan import merge_steps
from openmanus_graph.state.planning import PlanningState, WorkerReport

AnyGraph = Pregel[Any, Any, Any, Any]


class SavedPlan(NamedTuple):
    """A plan's state, with what its workers have done and saved since."""

    state: PlanningState
    ended: set[str]
    """Steps of tasks that ended in threads of before there were workers: each was one step, whose
    review comes later."""
    left: set[int]
    """Workers whose tasks ended."""


async def plan_around(flow: AnyGraph, config: RunnableConfig) -> SavedPlan:
    """Return the saved plan that the node `run_step` belongs to.

    Args:
        flow: The planning graph.
        config: Of the node.
    """
    configurable = config.get("configurable", {})
    namespace = outer_namespace(config)
    inside: dict[str, Any] = {
        "thread_id": configurable["thread_id"],
        "checkpoint_ns": namespace,
        "checkpoint_id": configurable[MAP_KEY][namespace],
        CHECKPOINTER_KEY: configurable[CHECKPOINTER_KEY],
    }
    # Going back to a checkpoint, LangGraph runs all of its tasks anew.
    is_replay = configurable.get(REPLAY_KEY) is not None
    return await _saved_plan(flow, inside, with_tasks=not is_replay)


async def plan_at(flow: AnyGraph, config: RunnableConfig) -> PlanningState:
    """Return a plan's state at a checkpoint, workers' steps included.

    Args:
        flow: The planning graph, with its checkpointer.
        config: Names the thread and the checkpoint.
    """
    inside = {**config.get("configurable", {}), CHECKPOINTER_KEY: cast("Any", flow).checkpointer}
    state, *_ = await _saved_plan(flow, inside, with_tasks=True)
    order, steps, replans = merge_reports(state, state["reports"].values())
    state["order"], state["steps"], state["replans"] = order, steps, replans
    return state


async def _saved_plan(flow: AnyGraph, inside: Mapping[str, Any], *, with_tasks: bool) -> SavedPlan:
    saved = await flow.aget_state({"configurable": dict(inside)})
    state = cast("PlanningState", dict(saved.values))
    state["reports"] = dict(state.get("reports") or {})
    tasks: Sequence[PregelTask] = saved.tasks if with_tasks else ()
    ended, left = set[str](), set[int]()
    for task in tasks:
        if task.name != "run_step":
            continue
        done = task.result
        if done is None:
            values = await _worker_state(flow, task, inside[CHECKPOINTER_KEY])
            state["reports"][task.id] = report_of(values)
        else:
            values = cast("Mapping[str, Any]", done)
            reports = cast("dict[str, WorkerReport]", values.get("reports") or {})
            state["reports"].update(reports)
            left.update(map(int, reports))
            steps = cast("dict[str, Any]", values.get("steps") or {})
            state["steps"] = merge_steps(state["steps"], [steps])
            ended |= steps.keys()
        state["usage"] = merge_usage(state["usage"], values.get("usage"))
        state["step_count"] += values.get("step_count") or 0
        state["elapsed_s"] = max(state["elapsed_s"], values.get("elapsed_s") or 0.0)
    return SavedPlan(state, ended, left)


async def _worker_state(flow: AnyGraph, task: PregelTask, saver: Any) -> Mapping[str, Any]:
    """Return the state of a worker that has not ended; empty if it has not begun."""
    graphs: dict[str, Any] = dict(cast("Any", flow).get_subgraphs())  # typed by their parts only
    inner = cast("RunnableConfig", task.state).get("configurable", {})
    found = await graphs["run_step"].aget_state(
        {"configurable": {**inner, CHECKPOINTER_KEY: saver}}
    )
    return cast("Mapping[str, Any]", found.values)

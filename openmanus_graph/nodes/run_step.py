"""`run_step`: one worker of a wave, which does step after step in a graph of its own."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.pregel import Pregel
from langgraph.runtime import Runtime

from openmanus_graph.planning.wave import Wave, report_of, worker_of
from openmanus_graph.runtime.checkpoint_lineage import CHECKPOINTER_KEY, outer_namespace
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import PlanningState, StepInput, StepState
from openmanus_graph.state.reducers import merge_usage, no_usage
from openmanus_graph.state.renamed import with_current_names

AnyGraph = Pregel[Any, Any, Any, Any]


@dataclass
class PlanGraphs:
    """The graphs that a node of theirs reads the saved state with."""

    worker: AnyGraph
    flow: AnyGraph | None = None
    """The planning graph; set when it is compiled."""


async def run_step(
    given: StepInput, runtime: Runtime[Context], *, graphs: PlanGraphs, worker: AnyGraph
) -> dict[str, Any]:
    """Have a worker do its steps until the wave ends."""
    session = await enter_session(runtime)
    name = given.get("wave", "")
    if session.find_cached((Wave, name)) is None:  # the process that began the wave is gone
        async with session.cached((asyncio.Lock, name), asyncio.Lock):
            await _restore_wave(name, session, graphs)
    wave, number = wave_of(session, given), worker_of(cast("StepState", given))
    try:
        done = await worker.ainvoke(given)
    except GraphInterrupt as asked:
        # At once: LangGraph reports it when the other workers have ended as well.
        for waiting in () if session.is_plan_step else asked.args[0]:
            runtime.stream_writer({"plan_step": wave.step_of(number), **interrupt_event(waiting)})
        raise
    finally:
        wave.leave(number)
    return {
        "reports": {str(number): report_of(done)},
        "usage": done.get("usage") or no_usage(),
        "step_count": done.get("step_count", 0),
        "elapsed_s": done.get("elapsed_s", 0.0),
    }


def wave_of(session: Session, step: StepInput) -> Wave:
    """Return the wave that a worker belongs to."""
    wave = session.find_cached((Wave, step.get("wave", "")))
    if not isinstance(wave, Wave):
        raise RuntimeError("This node runs outside of the wave that it belongs to.")
    return wave


async def _restore_wave(name: str, session: Session, graphs: PlanGraphs) -> None:
    if session.find_cached((Wave, name)) is None and graphs.flow is not None:
        state, ended = await saved_plan_state(graphs.flow, graphs.worker, get_config())
        session.cached((Wave, name), lambda: Wave(state, session, ended))


async def saved_plan_state(
    flow: AnyGraph, worker: AnyGraph, config: RunnableConfig
) -> tuple[PlanningState, set[str]]:
    """Return a plan's state with what its workers have done and saved so far.

    Also the steps of tasks that ended in threads of before there were workers: each was one step,
    whose review comes later.

    Args:
        flow: The planning graph.
        worker: The graph inside `run_step`.
        config: Of the node `run_step`.
    """
    configurable = config.get("configurable", {})
    saver = configurable[CHECKPOINTER_KEY]
    place = {
        "thread_id": configurable["thread_id"],
        "checkpoint_ns": outer_namespace(config),
        CHECKPOINTER_KEY: saver,
    }
    saved = await flow.aget_state({"configurable": place})
    state = cast("PlanningState", with_current_names(saved.values))
    reports, ended = dict(state.get("reports", {})), set[str]()
    for task in saved.tasks:
        if task.name != "run_step" or not task.state:
            continue
        if task.result is not None:  # what it wrote is in `values` already
            ended |= (task.result.get("steps") or {}).keys()
            continue
        inner = cast("RunnableConfig", task.state).get("configurable", {})
        found = await worker.aget_state({"configurable": {**inner, CHECKPOINTER_KEY: saver}})
        values = cast("Mapping[str, Any]", found.values)
        reports[task.id] = report_of(values)
        state["usage"] = merge_usage(state["usage"], values.get("usage"))
        state["step_count"] += values.get("step_count", 0)
        state["elapsed_s"] = max(state["elapsed_s"], values.get("elapsed_s", 0.0))
    state["reports"] = reports
    return state, ended

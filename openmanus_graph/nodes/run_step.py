"""`run_step`: one worker of a wave, which does step after step in a graph of its own."""

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.runtime import Runtime

from openmanus_graph.planning.wave import (
    AnyGraph,
    Wave,
    max_workers,
    plan_around,
    report_of,
    worker_of,
)
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import no_usage
from openmanus_graph.state.planning import WorkerInput, WorkerState


@dataclass
class Flow:
    """The planning graph, for its own nodes that read its saved state."""

    graph: AnyGraph | None = None
    """Set when it is compiled."""


async def run_step(
    given: WorkerInput, runtime: Runtime[Context], *, worker: AnyGraph, flow: Flow
) -> dict[str, Any]:
    """Have a worker do its steps until the wave ends."""
    session = await enter_session(runtime)
    name = given.get("wave", "")
    if session.find_cached((Wave, name)) is None:  # the process that began the wave is gone
        async with session.cached((asyncio.Lock, name), asyncio.Lock):
            await _restore_wave(name, session, flow)
    wave, number = wave_of(session, given), worker_of(cast("WorkerState", given))
    wave.emit = runtime.stream_writer
    await wave.enter(number)
    try:
        done = await worker.ainvoke(given)
    except GraphInterrupt as asked:
        # At once: LangGraph reports it when the other workers have ended as well.
        for waiting in () if session.is_nested else asked.args[0]:
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


def wave_of(session: Session, state: WorkerInput) -> Wave:
    """Return the wave that a worker belongs to."""
    wave = session.find_cached((Wave, state.get("wave", "")))
    if not isinstance(wave, Wave):
        raise RuntimeError("This node runs outside of the wave that it belongs to.")
    return wave


async def _restore_wave(name: str, session: Session, flow: Flow) -> None:
    if session.find_cached((Wave, name)) is None and flow.graph is not None:
        saved = await plan_around(flow.graph, get_config())
        most = max_workers(session, get_config())
        wave = Wave(saved.state, session, most, ended=saved.ended, left=saved.left)
        session.cached((Wave, name), lambda: wave)

"""`next_step`: a worker takes the next step of the plan, or waits for one."""

from typing import Any

from langgraph.runtime import Runtime

from openmanus_graph.nodes.run_step import wave_of
from openmanus_graph.nodes.schedule import step_input
from openmanus_graph.planning.wave import report_of, worker_of
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import WorkerState


async def next_step(state: WorkerState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Say what the last step came to, and take the next one that can start."""
    session = await enter_session(runtime)
    wave, worker = wave_of(session, state), worker_of(state)
    wave.learn(worker, report_of(state))
    step_run = await wave.next_step(worker)
    if step_run is None:
        return {"step_run": None, "elapsed_s": wave.elapsed_s}
    taken = {key: step_run[key] for key in ("status", "attempt", "worker")}
    return {**step_input(step_run, wave.state), "steps": {step_run["id"]: taken}}

"""`judge_check`: a judge looks at a check that failed and that the step's executor disputes."""

from typing import Any

from langgraph.runtime import Runtime

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.outcome import failure
from openmanus_graph.model_calls.budget import sharing
from openmanus_graph.nodes.check_step import review
from openmanus_graph.nodes.run_step import wave_of
from openmanus_graph.planning.checks import judge_disputed_check
from openmanus_graph.planning.flow import current_step
from openmanus_graph.planning.wave import report_of, worker_of
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import RunEnd, WorkerState


async def judge_check(state: WorkerState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Correct the check, so that it runs next, or let the step fail by it."""
    session = await enter_session(runtime)
    wave, step_run = wave_of(session, state), current_step(state)
    wave.learn(worker_of(state), report_of(state))
    try:
        with sharing(wave.budget):
            ruling = await judge_disputed_check(step_run, wave.state, session, wave.emit)
    except LimitReached as ended:
        return {"run_end": RunEnd(status="stopped", stop_reason=ended.reason, answer="")}
    except ModelError as error:
        return {"run_end": failure(error.sentence)}
    if ruling.done_when is None:
        problem = f"{step_run.get('disputed')} A judge looked at the check: {ruling.reason}"
        update = review(step_run, problem, wave, session)
    else:
        corrected = f"`{step_run['done_when']}` was wrong and is now `{ruling.done_when}`"
        notice(wave.emit, f"The check of step {step_run['id']}, {corrected}: {ruling.reason}")
        update = {"done_when": ruling.done_when}
    update |= {
        "disputed": "",
        "judged_attempt": step_run["attempt"],
        "cost_usd": step_run["cost_usd"] + ruling.usage["cost_usd"],
    }
    return {
        "steps": {step_run["id"]: update},
        "usage": ruling.usage,
        "elapsed_s": wave.elapsed_s,
    }

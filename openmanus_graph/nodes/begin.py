"""`begin`: begins the run, in graphs where a middleware's hook comes before the first `think`."""

from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import Command, Overwrite

from openmanus_graph.backends.persistence.steering import steering_reader
from openmanus_graph.nodes.think import begin_run, reset_state
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusState
from openmanus_graph.tool_calls.agent import Agent


async def begin(
    state: ManusState, runtime: Runtime[Context], *, agent: Agent, first_node: str, loop_entry: str
) -> Command[Any]:
    """Reset the counts as `think` does, so that hooks see a run that has begun.

    Args:
        state: Before the run.
        runtime: LangGraph's.
        agent: Whose run it is.
        first_node: The node to go to when a run begins.
        loop_entry: The first node of the loop, to go to when a run goes on after a limit, say.
    """
    session = await enter_session(runtime)
    begun = await begin_run(state, session, agent, runtime.stream_writer)
    update: dict[str, Any] = reset_state(begun, state)
    if begun:
        steering = await steering_reader(session)
        await steering.record_read(state.get("steering", []), begun=True)
        update |= {
            "steering": [],
            "usage": Overwrite(begun["usage"]),
            "elapsed_s": Overwrite(begun["elapsed_s"]),
            "branch": session.on_fork(begun["branch"]),
        }
    return Command(update=update, goto=first_node if begun else loop_entry)

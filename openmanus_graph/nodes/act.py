"""`act`: one chain of tool calls, in call order."""

import time
from typing import Any

from langgraph.runtime import Runtime

from openmanus_graph.agent import Agent
from openmanus_graph.limits import deadline
from openmanus_graph.registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput
from openmanus_graph.tools.run_call import run_call
from openmanus_graph.tools.scope import open_scope
from openmanus_graph.tools.toolset import run_tools


async def act(chain: ActInput, runtime: Runtime[Context], *, agent: Agent) -> dict[str, Any]:
    """Run the chain's calls and answer each with a tool message."""
    started = time.monotonic()
    session = await enter_session(runtime)
    scope = await open_scope(
        session,
        run_tools(agent, session),
        runtime.stream_writer,
        branch=chain["branch"],
        plans=chain["plans"],
        deadline=deadline(session.settings, started, chain["elapsed_s"]),
    )
    messages = [await run_call(call, scope) for call in chain["calls"]]
    changed = {"plans": scope.book.plans} if scope.book.plans is not chain["plans"] else {}
    return {
        **changed,
        "messages": messages,
        "branch": scope.branch,
        "elapsed_s": chain["elapsed_s"] + time.monotonic() - started,
    }

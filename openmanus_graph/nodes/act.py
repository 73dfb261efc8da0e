"""`act`: one chain of tool calls, in call order."""

import functools
import time
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.runtime import Runtime

from openmanus_graph.agent import Agent
from openmanus_graph.limits import Progress
from openmanus_graph.lost import changes
from openmanus_graph.plan_file import plan_event
from openmanus_graph.registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput
from openmanus_graph.state.reducers import Usage, add_usage, no_usage
from openmanus_graph.tools.offered import offered_tools
from openmanus_graph.tools.run_call import run_call
from openmanus_graph.tools.scope import open_scope


async def act(chain: ActInput, runtime: Runtime[Context], *, agent: Agent) -> dict[str, Any]:
    """Run the chain's calls and answer each with a tool message."""
    started = time.monotonic()
    session = await enter_session(runtime)
    offered = await offered_tools(agent, session, runtime.stream_writer)
    scope = await open_scope(
        session,
        offered.toolset,
        runtime.stream_writer,
        branch=chain["branch"],
        progress=Progress(0, chain["usage"], chain["elapsed_s"]),
        plans=chain["plans"],
        held=chain["held"],
        granted=chain["granted"],
    )
    messages = [await run_call(call, scope) for call in chain["calls"]]
    update: dict[str, Any] = {
        "messages": messages,
        "branch": scope.branch,
        "elapsed_s": chain["elapsed_s"] + time.monotonic() - started,
        "usage": spent_by(messages),
    }
    if held := changes(chain["held"], scope.held):
        update["held"] = held
    if scope.granted != chain["granted"]:
        update["granted"] = scope.granted
    if scope.book.plans is not chain["plans"]:
        update["plans"] = scope.book.plans
        if (active := scope.book.plans["active"]) is not None:
            runtime.stream_writer(plan_event(scope.book.plans["plans"][active]))
    return update


def spent_by(messages: Sequence[ToolMessage]) -> Usage:
    """Add up what tools' own questions to the model cost."""
    spent = (
        message.artifact["usage"] for message in messages if "usage" in (message.artifact or ())
    )
    return functools.reduce(add_usage, spent, no_usage())

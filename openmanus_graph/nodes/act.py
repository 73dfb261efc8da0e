"""`act`: one chain of tool calls, in call order."""

import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.runtime import Runtime
from langgraph.types import Command

from openmanus_graph.planning.plan_view import plan_event
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.middleware_hooks import with_hook
from openmanus_graph.runtime.middleware_updates import with_updates
from openmanus_graph.runtime.session import changed_state
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput, PlannedCall
from openmanus_graph.state.reducers import Usage, add_usage, no_usage
from openmanus_graph.tool_calls.agent import Agent
from openmanus_graph.tool_calls.context import ToolCallContext, open_call_context
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import resolve_tools

RunCall = Callable[[PlannedCall, ToolCallContext], Awaitable[ToolMessage]]


async def act(
    chain: ActInput, runtime: Runtime[Context], *, agent: Agent
) -> dict[str, Any] | list[dict[str, Any] | Command[Any]]:
    """Run the chain's calls and answer each with a tool message."""
    started = time.monotonic()
    session = await enter_session(runtime)
    resolved = await resolve_tools(agent, session, runtime.stream_writer)
    context = await open_call_context(
        session,
        resolved.toolset,
        runtime.stream_writer,
        branch=chain["branch"],
        progress=Progress(0, chain["usage"], chain["elapsed_s"]),
        plans=chain["plans"],
        handle_state=chain["handle_state"],
        standing_approvals=chain["standing_approvals"],
    )
    run = wrapped_run_call(agent) or run_call
    messages = [await run(call, context) for call in chain["calls"]]
    update: dict[str, Any] = {
        "messages": messages,
        "branch": context.branch,
        "elapsed_s": chain["elapsed_s"] + time.monotonic() - started,
        "usage": spent_by(messages),
    }
    if handle_state := changed_state(chain["handle_state"], context.handle_state):
        update["handle_state"] = handle_state
    if context.standing_approvals != chain["standing_approvals"]:
        update["standing_approvals"] = context.standing_approvals
    if context.plans is not chain["plans"]:
        update["plans"] = context.plans
        if (active := context.plans["active"]) is not None:
            runtime.stream_writer(plan_event(context.plans["plans"][active]))
    return with_updates(update, context.updates)


def wrapped_run_call(agent: Agent) -> RunCall | None:
    """Return how calls are run inside the hooks of middlewares, if one has a hook for them."""
    hooks = with_hook(agent.middleware, "wrap_tool_call")
    if not hooks:
        return None
    from openmanus_graph.tool_calls.wrapped_call import run_wrapped_call

    return partial(run_wrapped_call, middleware=hooks)


def spent_by(messages: Sequence[ToolMessage]) -> Usage:
    """Add up what tools' own questions to the model cost."""
    spent = (
        message.artifact["usage"] for message in messages if "usage" in (message.artifact or ())
    )
    return functools.reduce(add_usage, spent, no_usage())

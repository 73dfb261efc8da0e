"""`act`: runs one chain of tool calls, in call order."""

import time
from collections.abc import Awaitable, Callable
from functools import partial, reduce
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Command

from openmanus_graph.planning.plan_view import ShownPlan
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.middleware import with_hook, with_updates
from openmanus_graph.runtime.session import Session, changed_state
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.runtime.tool_runtime import Subagents
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput, PendingCall, add_usage, no_usage
from openmanus_graph.state.plan import active_plan
from openmanus_graph.tool_calls.agent import Agent
from openmanus_graph.tool_calls.context import ToolCallContext, open_call_context
from openmanus_graph.tool_calls.permission import request_permissions
from openmanus_graph.tool_calls.questions import UNBELIEVED, believed, seal
from openmanus_graph.tool_calls.resolve_tools import resolve_tools
from openmanus_graph.tool_calls.run_call import run_call

RunCall = Callable[[PendingCall, ToolCallContext], Awaitable[ToolMessage]]


async def act(
    state: ActInput, runtime: Runtime[Context], *, agent: Agent
) -> dict[str, Any] | list[dict[str, Any] | Command[Any]]:
    """Run the chain's calls and answer each with a tool message."""
    started = time.monotonic()
    session = await enter_session(runtime)
    resolved = await resolve_tools(agent, session, runtime.stream_writer)
    approvals, values = await believed_approvals(session, state, runtime.stream_writer)
    context = await open_call_context(
        session,
        resolved.toolset,
        runtime.stream_writer,
        branch=state["branch"],
        progress=Progress(0, state["usage"], state["elapsed_s"]),
        plans=state["plans"],
        handle_state=state["handle_state"],
        remembered_approvals=approvals,
        approved_values=values,
    )
    context.subagents, context.serializer = subagents_of(agent, state, context), agent.serializer
    run: RunCall = run_call
    if hooks := with_hook(agent.middleware, "wrap_tool_call"):
        from openmanus_graph.tool_calls.wrapped_call import run_wrapped_call

        run = partial(run_wrapped_call, middleware=hooks)  # only they know what will run
    else:
        await request_permissions(state["calls"], context)
    messages = [await run(call, context) for call in state["calls"]]
    spent = (
        message.artifact["usage"] for message in messages if "usage" in (message.artifact or ())
    )
    update: dict[str, Any] = {
        "messages": messages,
        "branch": context.branch,
        "elapsed_s": state["elapsed_s"] + time.monotonic() - started,
        "usage": reduce(add_usage, spent, no_usage()),
    }
    if handle_state := changed_state(state["handle_state"], context.handle_state):
        update["handle_state"] = handle_state
    if context.remembered_approvals != approvals:
        update["remembered_approvals"] = await seal(
            context.config, "call", context.remembered_approvals
        )
    if context.approved_values != values:
        update["approved_values"] = await seal(context.config, "value", context.approved_values)
    if context.plans is not state["plans"]:
        update["plans"] = context.plans
        if (active := active_plan(context.plans)) is not None:
            shown = session.cached((ShownPlan, state["branch"]), ShownPlan)
            if event := shown.next_event(active):
                runtime.stream_writer(event)
    return with_updates(update, context.updates)


async def believed_approvals(
    session: Session, state: ActInput, emit: Emit
) -> tuple[list[str], list[str]]:
    """Return the approved calls and values, and say once if some stored ones do not count."""
    config, calls = get_config(), state["remembered_approvals"]
    values = state.get("approved_values", [])
    found = await believed(config, "call", calls), await believed(config, "value", values)
    reported = session.cached_across_runs("unbelieved approvals", list[str])
    if [*map(len, found)] != [len(calls), len(values)] and not reported:
        reported.append(UNBELIEVED)
        notice(emit, UNBELIEVED)
    return found


def subagents_of(agent: Agent, state: ActInput, context: ToolCallContext) -> Subagents | None:
    """Return what the calls need to run other agents; None for an agent that has none."""
    if agent.subagents is None:
        return None
    before = Progress(state.get("step_count", 0), state["usage"], state["elapsed_s"])
    return Subagents(agent.subagents, context.config, before)

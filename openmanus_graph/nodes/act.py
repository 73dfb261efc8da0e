"""`act`: runs one sequential group of tool calls."""

import time
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.runtime import Runtime
from langgraph.types import Command

from openmanus_graph.nodes.user_hooks import hooks_at_question
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.middleware import with_hook, with_updates
from openmanus_graph.runtime.session import Session, changed_state
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.runtime.tool_runtime import Subagents
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput, PendingCall, active_plan, add_usage, no_usage
from openmanus_graph.state.planning import ShownPlan
from openmanus_graph.tool_calls.agent import Agent, resolve_tools
from openmanus_graph.tool_calls.context import ToolCallContext, open_call_context
from openmanus_graph.tool_calls.permission import request_permissions
from openmanus_graph.tool_calls.questions import UNBELIEVED, believed, seal
from openmanus_graph.tool_calls.run_call import run_call


async def act(
    state: ActInput, runtime: Runtime[Context], *, agent: Agent
) -> dict[str, Any] | list[dict[str, Any] | Command[Any]]:
    """Run the group's calls in order and answer each with a tool message."""
    started, emit = time.monotonic(), runtime.stream_writer
    session = await enter_session(runtime)
    resolved = await resolve_tools(agent, session, emit)
    approvals, values = await believed_approvals(session, state, emit)
    elapsed_s, handle_state = state.get("elapsed_s", 0.0), state.get("handle_state", {})
    progress = Progress(0, state["usage"], elapsed_s)
    context = await open_call_context(
        session, resolved.toolset, emit, progress, branch=state["branch"]
    )
    context.plans = plans = state.get("plans") or context.plans
    context.handle_state, context.serializer = dict(handle_state), agent.serializer
    context.remembered_approvals, context.approved_values = [*approvals], [*values]
    if agent.subagents is not None:
        before = Progress(state.get("step_count", 0), state["usage"], elapsed_s)
        context.subagents = Subagents(agent.subagents, context.config, before)
    try:
        messages = await run_group(state["calls"], context, agent)
    except GraphInterrupt as waiting:
        await hooks_at_question(session, waiting, emit)
        raise
    spent = (one.artifact["usage"] for one in messages if "usage" in (one.artifact or ()))
    update: dict[str, Any] = {
        "messages": messages,
        "branch": context.branch,
        "elapsed_s": elapsed_s + time.monotonic() - started,
        "usage": reduce(add_usage, spent, no_usage()),
    }
    if changed := changed_state(handle_state, context.handle_state):
        update["handle_state"] = changed
    if context.remembered_approvals != approvals:
        sealed = await seal(context.config, "call", context.remembered_approvals)
        update["remembered_approvals"] = sealed
    if context.approved_values != values:
        update["approved_values"] = await seal(context.config, "value", context.approved_values)
    if context.plans is not plans:
        update["plans"] = context.plans
        shown = session.cached((ShownPlan, state["branch"]), ShownPlan)
        active = active_plan(context.plans)
        if active is not None and (event := shown.next_event(active)):
            emit(event)
    return with_updates(update, context.updates)


async def run_group(
    calls: Sequence[PendingCall], context: ToolCallContext, agent: Agent
) -> list[ToolMessage]:
    if hooks := with_hook(agent.middleware, "wrap_tool_call"):
        from openmanus_graph.tool_calls.wrapped_call import run_wrapped_call

        run = partial(run_wrapped_call, middleware=hooks)  # only they know what will run
        return [await run(call, context) for call in calls]
    await request_permissions(calls, context)
    return [await run_call(call, context) for call in calls]


async def believed_approvals(
    session: Session, state: ActInput, emit: Emit
) -> tuple[list[str], list[str]]:
    """Return the approved calls and values, and report once if some stored ones do not count."""
    config, calls = get_config(), state.get("remembered_approvals", [])
    values = state.get("approved_values", [])
    found = await believed(config, "call", calls), await believed(config, "value", values)
    reported = session.cached_across_runs("unbelieved approvals", list[str])
    if [*map(len, found)] != [len(calls), len(values)] and not reported:
        reported.append(UNBELIEVED)
        notice(emit, UNBELIEVED)
    return found

"""The seam through which every tool call runs.

validate -> look into the ledger -> decide permission -> record the intent -> execute within the
time limit and observe -> record the outcome. Where nobody need be asked, the look into the ledger
records the intent as well. Whatever a tool does, the model gets an observation; only interrupts,
wrong configuration and cancellation pass.
"""

import time
from dataclasses import replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, is_invalid_resume

from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.errors import ConfigError, RefusedDataError, ToolError
from openmanus_graph.prompts import render
from openmanus_graph.runtime import traces
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import lost_state
from openmanus_graph.state.manus import ManusState, PendingCall
from openmanus_graph.state.plan import current_plan_step
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.call_ledger import (
    exception_of,
    find_entry,
    record_intent,
    record_outcome,
    record_waiting,
    replay_outcome,
    resolve_unknown_outcome,
    runs_as_task,
    was_cut_off,
)
from openmanus_graph.tool_calls.context import CallExecution, ToolCallContext
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.execution import repeat_call, run_tool
from openmanus_graph.tool_calls.permission import (
    Permission,
    RejectedError,
    evaluate,
    request_permission,
)


async def run_call(call: PendingCall, context: ToolCallContext) -> ToolMessage:
    """Run one tool call and return the message that answers it."""
    execution = CallExecution(call, context)
    message = await run_to_message(execution)
    if execution.update:
        context.updates.append(execution.update)
    return message


async def run_to_message(execution: CallExecution) -> ToolMessage:
    """Run a call, or replay its outcome, and return the message that answers it.

    Sets `execution.raised` to what the tool raised, and `execution.update` to what it writes to the
    state beside the message.
    """
    call, refusal = execution.call, None
    with traces.tool_call(call["name"], call["id"], call["args"]) as span:
        try:
            observation = await execute_once(execution)
        except ToolError as error:
            refusal = error
            execution.announce(call["args"])
            said = [error.reason] if isinstance(error, RejectedError) and error.reason else ()
            observation = Observation(str(error), failed=True, trusted_text=True, said=said)
        if observation.raised is not None and execution.raised is None:  # it stood in the ledger
            execution.raised = exception_of(observation.raised)
        failure = execution.raised or refusal or ToolError("")
        span.record_result(
            observation.text,
            error_type=type(failure).__name__ if observation.failed else "",
            replayed=execution.replayed,
        )
    if observation.update is not None:
        execution.update = written_update(execution, observation.update)
    announce_end(execution, observation.text, ok=not observation.failed)
    return tool_message(execution, observation)


def written_update(execution: CallExecution, stored: str) -> dict[str, Any]:
    """Return what a call writes to the state beside its message, as the ledger holds it.

    Raises:
        RefusedDataError: It holds what is not stored so, or keys that are the graph's own.
    """
    update: object = execution.context.serializer.from_text(stored)
    own = ManusState.__annotations__.keys() - {"messages", "loaded_tools"}
    if not isinstance(update, dict) or own & cast("dict[str, Any]", update).keys():
        raise RefusedDataError(f"an update of {execution.name} that no tool may write")
    return cast("dict[str, Any]", update)


async def execute_once(execution: CallExecution) -> Observation:
    """Return a call's observation: from the ledger, or by running it. ToolError: it may not run."""
    validate(execution)
    permission = await permission_at_once(execution)
    entry = await find_entry(execution, begin=permission is not None)
    execution.begun = permission is not None and entry is None
    if entry is not None and entry.outcome is not None:
        await execution.context.questions.skip(execution.key)
        execution.replayed = True
        await repeat_call(execution, entry)
        return await replay_outcome(execution, entry)
    if entry is not None and await runs_as_task(execution, entry):
        execution.server_task, permission = entry.server_task, Permission(entry.args)
    elif entry is not None and was_cut_off(execution, entry):
        if (outcome := await resolve_unknown_outcome(execution, entry)) is not None:
            return outcome
        permission = Permission(entry.args)
    else:
        permission = permission or await get_permission(execution)
    if permission.result_from_person is not None:  # nothing runs with these arguments
        execution.announce(execution.call["args"])
        return Observation(permission.result_from_person, edited=True, said=permission.said)
    execution.announce(permission.args)
    await record_intent(execution, permission)
    try:
        tool = partial(run_tool, execution, permission.args)
        observation = await execution.context.questions.run_with_answers(execution.key, tool)
        observation = replace(observation, said=permission.said) if permission.said else observation
    except Exception as error:
        if isinstance(error, GraphBubbleUp | ConfigError) or is_invalid_resume(error):
            await record_waiting(execution, permission)
        raise
    observation = shown_once(execution, permission.args, observation)
    await record_outcome(execution, permission, observation)
    edited = permission.args != execution.call["args"]
    return replace(observation, edited=True) if edited else observation


def shown_once(
    execution: CallExecution, args: dict[str, Any], observation: Observation
) -> Observation:
    """Return an observation; one line where a call that only reads shows again what it did last.

    The model has made the same call before in this run. A client of ours keeps no conversation.
    """
    context, plain = execution.context, not (observation.failed or observation.images)
    if execution.traits.effect != "read_only" or not plain or observation.ends_run is not None:
        return observation
    shown = context.session.cached(("shown", context.branch), dict[str, int])
    key = f"{execution.name} {canonical_args(args)}"
    before, shown[key] = shown.get(key), hash(observation.text)
    if before != shown[key] or not (context.for_our_model and execution.call["occurrence"]):
        return observation
    return replace(observation, text=render("same_result"), trusted_text=True)


def validate(execution: CallExecution) -> None:
    """Check the call against the tool's schema. ToolError says what is wrong with it."""
    call, toolset = execution.call, execution.context.toolset
    if call["problem"] is not None:
        raise ToolError(call["problem"])
    traits = traits_of(toolset.find(call["name"]))
    toolset.check(call["name"], call["args"])
    execution.traits = replace(traits, effect=traits.effect_of(call["args"]))


async def get_permission(execution: CallExecution) -> Permission:
    """Have a call allowed, whose process must still be there. ToolError: it may not run."""
    refuse_if_process_ended(execution)
    return await request_permission(execution)


async def permission_at_once(execution: CallExecution) -> Permission | None:
    """Return what a call may do that the policy allows and nothing else stands against.

    None: that is to be asked for, where the ledger does not know the call already.
    """
    context = execution.context
    if current_replay() is not None or execution.key in context.decisions:
        return None
    if process_has_ended(execution):
        return None
    args = execution.call["args"]
    return Permission(args) if (await evaluate(execution, args)).decision == "allow" else None


def process_has_ended(execution: CallExecution) -> bool:
    """Say whether the process that a call was meant for has ended since it was requested.

    In a new process it would not do what was meant: `rm *` after a `cd` that is forgotten. What
    changes nothing, opening another page say, may run all the same.
    """
    traits, context = execution.traits, execution.context
    resource = None if traits.effect == "read_only" else traits.resource_of(execution.call["args"])
    live = context.session.identities()
    return bool(resource and lost_state(context.handle_state, live, f"{resource}:"))


def refuse_if_process_ended(execution: CallExecution) -> None:
    """Raise ToolError for a call whose process has ended since the model requested it."""
    if process_has_ended(execution):
        raise ToolError(
            f"{execution.name} was not run: the process it was meant for has ended, and with it "
            "what earlier calls had left there. Make that again if this call needs it, then repeat "
            "it."
        )


def announce_end(execution: CallExecution, text: str, *, ok: bool) -> None:
    """Send the event that the call is over."""
    execution.context.emit(
        {
            "type": "tool_end",
            "call_id": execution.call["id"],
            "tool": execution.name,
            "ok": ok,
            "seconds": round(time.monotonic() - execution.started, 3),
            "output": text,
        }
    )


def tool_message(execution: CallExecution, observation: Observation) -> ToolMessage:
    """Return the message for the model, and keep the plans that the call changed."""
    noted = {
        key: value
        for key in (
            "images",
            "site",
            "links",
            "openings",
            "usage",
            "structured",
            "ends_run",
            "said",
        )
        if (value := getattr(observation, key)) not in (None, (), [], "", {})
    }
    noted |= {
        key: True for key in ("edited", "listing", "trusted_text") if getattr(observation, key)
    }
    if execution.traits.private:  # its tool may be gone when this is read
        noted["private"] = execution.traits.private
    if (plan_step := current_plan_step(execution.context.plans)) is not None:
        noted["plan_step"] = plan_step
    if observation.plans is not None:
        execution.context.plans = observation.plans
    return ToolMessage(
        content=observation.text,
        name=execution.name,
        tool_call_id=execution.call["id"],
        status="error" if observation.failed else "success",
        artifact=noted or None,
    )

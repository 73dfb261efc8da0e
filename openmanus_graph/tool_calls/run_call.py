"""The seam through which every tool call runs.

validate -> look into the ledger -> decide permission -> record the intent -> execute within the
time limit and observe -> record the outcome. Whatever a tool does, the model gets an observation;
only interrupts, wrong configuration and cancellation pass.
"""

import time
from dataclasses import replace
from functools import partial

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, is_invalid_resume

from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.session import lost_state
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.state.plan import current_step
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.call_ledger import (
    deserialised,
    exception_of,
    find_entry,
    record_intent,
    record_outcome,
    record_waiting,
    replay_outcome,
    resolve_unknown_outcome,
    was_cut_off,
)
from openmanus_graph.tool_calls.context import CallRun, ToolCallContext
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.execution import run_tool
from openmanus_graph.tool_calls.permission import Permission, request_permission


async def run_call(call: PlannedCall, context: ToolCallContext) -> ToolMessage:
    """Run one tool call and return the message that answers it."""
    run = CallRun(call, context)
    message = await run_to_message(run)
    if run.update:
        context.updates.append(run.update)
    return message


async def run_to_message(run: CallRun) -> ToolMessage:
    """Run a call, or replay its outcome, and return the message that answers it.

    Sets `run.raised` to what the tool raised, and `run.update` to what it writes to the state
    beside the message.
    """
    try:
        observation = await execute_once(run)
    except ToolError as error:
        run.announce(run.call["args"])
        observation = Observation(str(error), failed=True, trusted_text=True)
    if observation.raised is not None and run.raised is None:  # it stood in the ledger
        run.raised = exception_of(observation.raised)
    if observation.update is not None:
        run.update = deserialised(observation.update)
    announce_end(run, observation.text, ok=not observation.failed)
    return tool_message(run, observation)


async def execute_once(run: CallRun) -> Observation:
    """Return a call's observation: from the ledger, or by running it. ToolError: it may not run."""
    validate(run)
    entry = await find_entry(run)
    if entry is not None and entry.outcome is not None:
        await run.context.questions.skip(run.key)
        return replay_outcome(run, entry)
    if entry is not None and was_cut_off(run, entry):
        if (outcome := await resolve_unknown_outcome(run, entry)) is not None:
            return outcome
        permission = Permission(entry.args)
    else:
        refuse_if_process_ended(run)
        permission = await request_permission(run)
    run.announce(run.call["args"] if permission.result is not None else permission.args)
    if permission.result is not None:  # a person gave it: nothing ran with these arguments
        return Observation(permission.result, edited=True)
    await record_intent(run, permission)
    try:
        tool = partial(run_tool, run, permission.args)
        observation = await run.context.questions.run_with_answers(run.key, tool)
    except Exception as error:
        if isinstance(error, GraphBubbleUp | ConfigError) or is_invalid_resume(error):
            await record_waiting(run)
        raise
    await record_outcome(run, permission, observation)
    edited = permission.args != run.call["args"]
    return replace(observation, edited=True) if edited else observation


def validate(run: CallRun) -> None:
    """Check the call against the tool's schema. ToolError says what is wrong with it."""
    call, toolset = run.call, run.context.toolset
    if call["problem"] is not None:
        raise ToolError(call["problem"])
    traits = traits_of(toolset.find(call["name"]))
    toolset.check(call["name"], call["args"])
    run.traits = replace(traits, effect=traits.effect_of(call["args"]))


def refuse_if_process_ended(run: CallRun) -> None:
    """Raise ToolError for a call whose process has ended since the model planned it.

    In a new process it would not do what was meant: `rm *` after a `cd` that is forgotten. What
    changes nothing, opening another page say, may run all the same.
    """
    resource = None if run.traits.effect == "pure" else run.traits.resource_of(run.call["args"])
    live = run.context.session.identities()
    if resource and lost_state(run.context.handle_state, live, f"{resource}:"):
        raise ToolError(
            f"{run.name} was not run: the process it was meant for has ended, and with it what "
            "earlier calls had left there. Make that again if this call needs it, then repeat it."
        )


def announce_end(run: CallRun, text: str, *, ok: bool) -> None:
    """Send the event that the call is over."""
    run.context.emit(
        {
            "type": "tool_end",
            "call_id": run.call["id"],
            "tool": run.name,
            "ok": ok,
            "seconds": round(time.monotonic() - run.started, 3),
            "output": text,
        }
    )


def tool_message(run: CallRun, observation: Observation) -> ToolMessage:
    """Return the message for the model, and keep the plans that the call changed."""
    noted = {
        key: value
        for key in ("images", "usage", "structured", "ends_run")
        if (value := getattr(observation, key)) not in (None, ())
    }
    noted |= {key: True for key in ("edited", "trusted_text") if getattr(observation, key)}
    if (step := current_step(run.context.plans)) is not None:
        noted["plan_step"] = step
    if observation.plans is not None:
        run.context.plans = observation.plans
    return ToolMessage(
        content=observation.text,
        name=run.name,
        tool_call_id=run.call["id"],
        status="error" if observation.failed else "success",
        artifact=noted or None,
    )

"""Runs every tool call: permission, ledger, time limit, observation.

Whatever a tool does, the model gets an observation; only interrupts, wrong configuration and
cancellation pass.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import RunnableConfig, merge_configs
from langgraph.errors import GraphBubbleUp, is_invalid_resume

from openmanus_graph import errors
from openmanus_graph.backends.persistence.ledger import LedgerEntry
from openmanus_graph.backends.snapshots.remote_objects import FilesUnavailableError
from openmanus_graph.backends.snapshots.shared_files import put_files_back
from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.model_calls.budget import counting_external_calls
from openmanus_graph.model_calls.call_model import ToolModel
from openmanus_graph.model_calls.run_models import run_models
from openmanus_graph.prompts import render
from openmanus_graph.runtime import limits, output, replaying, traces
from openmanus_graph.runtime.session import changed_state
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool
from openmanus_graph.safety.unquoted_text import mark_untrusted, without_mark
from openmanus_graph.state import manus
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.call_hooks import after_call
from openmanus_graph.tool_calls.call_ledger import RAN_IN_PART, exception_of, exception_record
from openmanus_graph.tool_calls.cell import Cell, add_calls_of, run_calls_left
from openmanus_graph.tool_calls.context import CallExecution, ToolCallContext
from openmanus_graph.tool_calls.permission import (
    Permission,
    RejectedError,
    evaluate,
    permission_at_once,
    prepare,
    reachable_hosts,
    request_permission,
)
from openmanus_graph.tool_calls.questions import believed, seal

log = logging.getLogger(__name__)
_NOT_SHOWN = (
    "[You are not shown pictures: this model is not known to see them. Read what you need by "
    "Python (PIL, OCR); a person can set vision_model.]"
)
_OBSERVATION_FIELDS = {field.name for field in fields(Observation)}
_NOTED = ("images", "site", "links", "openings", "unsupported", "usage", "structured", "ends_run",
          "said", "inner", "edited", "listing", "trusted_text")  # fmt: skip
"""Fields of an observation that are kept with its message."""


async def run_call(call: manus.PendingCall, context: ToolCallContext) -> ToolMessage:
    """Run one tool call and return the message that answers it."""
    execution = CallExecution(call, context)
    message = await run_to_message(execution)
    if execution.update:
        context.updates.append(execution.update)
    return message


async def run_to_message(execution: CallExecution) -> ToolMessage:
    """Run a call, or replay its outcome, and return the message that answers it.

    Sets `execution.raised` to the tool's exception, and `execution.update` to what it writes to the
    state in addition to the message.
    """
    call, refusal = execution.call, None
    with traces.tool_call(call["name"], call["id"], call["args"]) as span:
        try:
            observation = await execute_once(execution)
            if observation.calls:
                observation = await run_calls_left(execution, observation, run_call)
        except errors.ToolError as error:
            refusal = error
            execution.announce(call["args"])
            said = [error.reason] if isinstance(error, RejectedError) and error.reason else ()
            observation = Observation(str(error), failed=True, trusted_text=True, said=said)
            if execution.hooked.stops is not None:
                observation = replace(observation, ends_run="failure")
        if observation.raised is not None and execution.raised is None:  # from the ledger
            execution.raised = exception_of(observation.raised)
        failure = execution.raised or refusal or errors.ToolError("")
        traces.record_result(
            span,
            observation.text,
            error_type=type(failure).__name__ if observation.failed else "",
            replayed=execution.replayed,
        )
    if observation.update is not None:
        execution.update = execution.written_update(observation.update)
    execution.announce_end(observation.text, ok=not observation.failed)
    return tool_message(execution, observation)


async def execute_once(execution: CallExecution) -> Observation:
    """Return a call's observation: from the ledger, or by running it. ToolError: it may not run."""
    await prepare(execution)
    permission = await permission_at_once(execution)
    entry = await find_entry(execution, begin=permission is not None)
    if entry is not None and entry.outcome is not None:
        return await replay_outcome(execution, entry)
    if entry is not None and await runs_as_task(execution, entry):
        execution.server_task, permission = entry.server_task, Permission(entry.args)
        execution.recorded.begun = True
    elif entry is not None and was_cut_off(execution, entry):
        if (settled := await settle(execution, entry)) is not None:
            return settled
        permission = Permission(entry.args)
    elif permission is None:
        permission = await request_permission(execution)
    if permission.result_from_person is not None:  # nothing runs with these arguments
        execution.by_person = True
        execution.announce(execution.call["args"])
        return Observation(permission.result_from_person, edited=True, said=permission.said)
    execution.announce(permission.args)
    execution.context.add_remembered_approval(
        permission.remembered_approval, permission.approved_values
    )
    await execution.recorded.intend(permission.args)
    observation = await run_recorded(execution, permission)
    if permission.said:
        observation = replace(observation, said=permission.said)
    shown = shown_once(execution, permission.args, observation)
    observation = await after_call(execution, permission.args, shown)
    await record_outcome(execution, permission, observation)
    edited = permission.args != execution.call["args"] or execution.hooked.args is not None
    return replace(observation, edited=True) if edited else observation


async def run_recorded(execution: CallExecution, permission: Permission) -> Observation:
    """Run the tool. If the run is cancelled, what the call has printed is its outcome."""
    tool = partial(run_tool, execution, permission.args)
    try:
        return await execution.recorded.run(permission.args, tool)
    except asyncio.CancelledError:
        if (found := execution.cut_off) is not None:
            text = f"{found.text}\n{RAN_IN_PART.format(execution.name)}"
            shown = await _for_model(execution, replace(found, text=text, failed=True))
            shown = await add_calls_of(execution, shown)
            await record_outcome(execution, permission, shown, settled=True)
        raise


async def find_entry(execution: CallExecution, *, begin: bool) -> LedgerEntry | None:
    """Return what the ledger, or the recording of a replay, knows of the call.

    In a replay every call is known. ReplayEndedError: this one is not.
    """
    replay, args = replaying.current_replay(), execution.call["args"]
    if replay is None:
        return await execution.recorded.look_up(args, begin=begin)
    if (before := replay.policy_before) is not None:
        then, now = await evaluate(execution, args, before), await evaluate(execution, args)
        replay.check_decision(
            f"{execution.name} {canonical_args(args)}",
            f"{then.decision}: {then.why}",
            f"{now.decision}: {now.why}",
        )
    recorded: LedgerEntry = await replay.outcome(execution.key, execution.call["id"])
    return recorded


async def replay_outcome(execution: CallExecution, entry: LedgerEntry) -> Observation:
    """Return the observation of a call that has run, with what it changed for its group."""
    context, config = execution.context, execution.context.config
    await context.questions.skip(execution.key)
    execution.replayed = True
    await repeat_call(execution, entry)
    outcome = entry.outcome or {}
    execution.announce(entry.args)
    context.handle_state.update(outcome.get("handle_state", {}))
    for approval in await believed(config, "call", [outcome.get("remembered_approval", "")]):
        context.add_remembered_approval(approval)
    approved = await believed(config, "value", outcome.get("approved_values", ()))
    context.add_remembered_approval("", approved)
    found: dict[str, Any] = {key: outcome[key] for key in _OBSERVATION_FIELDS & outcome.keys()}
    raised = outcome.get("raised")  # JSON made lists of tuples
    found |= {"images": tuple(outcome["images"]), "raised": tuple(raised) if raised else None}
    found["edited"] = execution.hooked.args is not None or entry.args != execution.call["args"]
    return Observation(**found)


async def repeat_call(execution: CallExecution, recorded: LedgerEntry) -> None:
    """Run a recorded call with its effects, if the current replay repeats such calls.

    The graph continues with the recorded outcome, so that the run asks for the same next. The
    policy decides as if the call were made for the first time, and no person can be asked.
    ReplayEndedError: it is not allowed, or its result is not the recorded one.
    """
    replay, outcome = replaying.current_replay(), recorded.outcome or {}
    repeatable = outcome.get("repeatable")
    if replay is None or repeatable is None or not replay.repeats(execution.name):
        return
    shown = f"{execution.name} {canonical_args(recorded.args)}"
    verdict = await evaluate(execution, recorded.args)
    if verdict.decision == "deny":
        replay.refuse_repeat(shown, f"The policy refuses it. {verdict.why}")
    if verdict.decision == "ask":
        replay.refuse_repeat(
            shown, f"The policy would ask a person. {verdict.why} To allow it: --policy auto."
        )
    now = await run_tool(execution, recorded.args, repeatable)
    replay.record_repeat(
        shown, without_mark(outcome["text"]), without_mark(now.text), failed=now.failed
    )


async def runs_as_task(execution: CallExecution, entry: LedgerEntry) -> bool:
    """Return True if another side runs the call as a task whose result it can still tell."""
    if not entry.server_task:
        return False
    tool = execution.context.toolset.find(execution.name)
    return execution.key.digest in execution.context.session.open_calls or (
        isinstance(tool, JsonSchemaTool) and await tool.knows_task(entry.server_task)
    )


def was_cut_off(execution: CallExecution, entry: LedgerEntry) -> bool:
    """Return True if a crash ended the call and it must not simply run again."""
    traits = execution.traits
    waits = execution.key.digest in execution.context.session.open_calls
    repeatable = traits.effect == "read_only" or traits.runs_agent
    return entry.stage in ("intent", "task") and not waits and not repeatable


async def settle(execution: CallExecution, entry: LedgerEntry) -> Observation | None:
    """Return the outcome of a call that a crash cut off, recorded; None: it has to run again."""
    settled = await execution.recorded.settle(entry.args, entry)
    if settled is not None:
        before = dict(execution.context.handle_state)
        settled = await add_calls_of(execution, settled)
        execution.announce(entry.args)
        changed = changed_state(before, execution.context.handle_state)
        further = {"settled": True} | ({"handle_state": changed} if changed else {})
        await execution.recorded.conclude(entry.args, asdict(settled) | further)
    return settled


async def record_outcome(
    execution: CallExecution, permission: Permission, observation: Observation, **more: Any
) -> None:
    """Record the outcome of the call, and what its handles hold since.

    Its files are put back first, so that another machine that reads the outcome finds them.
    StorageError afterwards: they cannot be.
    """
    context = execution.context
    if context.ledger is None:
        return
    unavailable: FilesUnavailableError | None = None
    try:
        if execution.traits.effect != "read_only":
            await put_files_back(context.session, context.emit)
    except FilesUnavailableError as error:  # it is noted that they are newer here
        unavailable = error
    changed = changed_state(context.handle_state, context.session.handle_states())
    context.handle_state.update(changed)
    approval = [permission.remembered_approval] if permission.remembered_approval else []
    further = {
        "handle_state": changed,
        "remembered_approval": "".join(await seal(context.config, "call", approval)),
        "approved_values": await seal(context.config, "value", permission.approved_values),
        **more,
    }
    outcome = asdict(observation) | {name: value for name, value in further.items() if value}
    await execution.recorded.conclude(permission.args, outcome)
    if unavailable is not None:
        raise unavailable


def shown_once(
    execution: CallExecution, args: dict[str, Any], observation: Observation
) -> Observation:
    """Return one line for a call that only reads and shows the same result as before.

    Only if the model has made the same call in this run: a client keeps no conversation.
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


def tool_message(execution: CallExecution, observation: Observation) -> ToolMessage:
    """Return the message for the model, and keep the plans that the call changed."""
    noted = {
        key: value
        for key in _NOTED
        if (value := getattr(observation, key)) not in (None, False, (), [], "", {})
    }
    if execution.traits.private:  # its tool may be gone when this is read
        noted["private"] = execution.traits.private
    if observation.edited and execution.ran_with != execution.call["args"]:
        noted["args"] = execution.ran_with  # for who reads the thread; the model's are kept
    if (plan_step := manus.current_plan_step(execution.context.plans)) is not None:
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


async def run_tool(
    execution: CallExecution, args: dict[str, Any], repeats: Mapping[str, Any] | None = None
) -> Observation:
    """Run the tool within its time limit and return an observation of limited length.

    Only interrupts, wrong configuration and the cancellation of the run pass as exceptions.

    Args:
        repeats: The `repeatable` of the recorded call, if this one repeats it.
    """
    context = execution.context
    if execution.traits.effect != "read_only":
        context.session.files_may_differ = True
    model = ToolModel(context.session, context.progress, context.emit)
    with counting_external_calls() as calls:  # of models that the tool brings along
        config = merge_configs(context.config, {"callbacks": [calls]})
        # Groups keep calls of one resource apart by the model's arguments. A person's edit or a
        # middleware may have moved the call to the resource of another group.
        resource, apart = execution.traits.resource_of(args), cast("Any", nullcontext())
        if resource is not None:
            apart = context.session.cached(("at work", resource), asyncio.Lock)
        async with cast("AbstractAsyncContextManager[Any]", apart):
            limit = limits.limit_call(
                context.toolset.own_limit_s(execution.name, args),
                execution.traits,
                context.session.settings.sandbox,
                time.monotonic(),
                context.deadline,
                stops_itself=execution.name in context.toolset.self_stopping,
            )
            doing = partial(_invoke, execution, args, model, limit, config, repeats)
            observation = await _run_within(limit, execution, doing)
    spent = manus.add_usage(model.spent, await calls.spent(context.session, context.emit))
    if spent["model_calls"]:
        within = observation.usage or manus.no_usage()
        observation = replace(observation, usage=manus.add_usage(within, spent))
    return await _for_model(execution, observation)


async def _run_within(
    limit: limits.TimeLimit, execution: CallExecution, doing: Callable[[], Awaitable[Observation]]
) -> Observation:
    """Run the tool until its time limit, or the run's stop; errors become observations."""
    clock = asyncio.timeout(limit.cut_off_at - time.monotonic())
    # The next request may show what a tool holds open.
    trusted, read_only = execution.traits.resource is None, execution.traits.effect == "read_only"
    try:
        async with clock:
            return await limits.unless_stopped(doing(), read_only=read_only)
    except (GraphBubbleUp, errors.ConfigError):
        raise  # the model cannot repair it
    except limits.RunStopping:
        text = (
            f"{execution.name} was given up: the run was stopped. Repeat it if it is still needed."
        )
        return Observation(text, failed=True, trusted_text=trusted)
    except errors.ToolError as error:
        ours = isinstance(error, errors.TrustedToolError)
        names = isinstance(error, errors.NamesError)
        return Observation(str(error), failed=True, trusted_text=ours, listing=names)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Observation(f"{execution.name} cancelled itself.", failed=True)
    except Exception as error:  # one raising tool must not end the run
        if is_invalid_resume(error):
            raise  # of an answer, which is asked for again
        return _failure(execution, error, limit.seconds if clock.expired() else None)


def _failure(execution: CallExecution, error: Exception, expired_s: float | None) -> Observation:
    """Return the observation of a call that raised, or whose time limit was over."""
    trusted, execution.raised = False, error
    text = f"{type(error).__name__}: {error}"
    if expired_s is None:
        log.info("tool %s raised", execution.name, exc_info=error)
    else:
        trusted = execution.traits.resource is None
        advice = (
            "Try a smaller piece of the work."
            if execution.traits.effect == "read_only"
            else "It may have taken effect in part or in full: look before you repeat it."
        )
        after = f"{round(expired_s, 2):g} s, its time limit"
        text = f"{execution.name} was cut off after {after}. {advice}"
        execution.raised = TimeoutError(text)
    raised = exception_record(execution.raised)
    return Observation(text, failed=True, trusted_text=trusted, raised=raised)


async def _invoke(
    execution: CallExecution,
    args: dict[str, Any],
    model: ToolModel,
    limit: limits.TimeLimit,
    config: RunnableConfig,
    repeats: Mapping[str, Any] | None,
) -> Observation:
    context, call = execution.context, execution.call

    async def ask_person(request: Mapping[str, Any], name: str = "question") -> Any:
        return await context.questions.ask(execution.key, name, request)

    async def record_server_task(task_id: str) -> None:
        if context.ledger is not None:
            await context.ledger.begin_task(execution.key, args, task_id)

    calls_tools = execution.traits.calls_tools and context.toolset.code_mode
    runtime = CallRuntime(
        session=context.session,
        key=execution.key.digest,
        idempotency_key=execution.recorded.idempotency_key,
        emit=context.emit,
        plans=context.plans,
        ask_person=ask_person,
        ask_model=model.ask,
        converse=model.converse,
        subagents=context.subagents,
        tainted=call.get("tainted", True),
        untrusted_prompt=context.toolset.untrusted_prompt,
        time_limit=limit,
        server_task=execution.server_task,
        record_server_task=record_server_task,
        repeats=repeats,
        hosts=await reachable_hosts(execution, args),
        cell=Cell(execution, run_call) if calls_tools else None,
        keep_cut_off=partial(setattr, execution, "cut_off"),
    )
    return await context.toolset.invoke(
        execution.name, args, call["id"], runtime, config, context.serializer
    )


async def _for_model(execution: CallExecution, observation: Observation) -> Observation:
    """Shorten an observation's text, mark untrusted text, and say if pictures are not shown."""
    if observation.ends_run is not None:
        return observation  # the answer itself, which is never cut
    text, session = observation.text, execution.context.session
    max_chars = session.max_observation_chars
    if len(text) > output.with_overrun(max_chars) and not observation.bounded:
        text = await asyncio.to_thread(output.shorten, text, session.workspace, max_chars)
    if execution.traits.untrusted and not observation.trusted_text:
        text = mark_untrusted(text)
    pictured = observation.images and execution.context.for_our_model
    if pictured and not await run_models(session).see_pictures():
        text = f"{text}\n{_NOT_SHOWN}"
    return observation if text is observation.text else replace(observation, text=text)

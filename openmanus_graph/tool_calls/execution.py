"""Runs a tool within its time limit, and turns whatever happens into an observation."""

import asyncio
import base64
import logging
import mimetypes
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import RunnableConfig, merge_configs
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.types import Command

from openmanus_graph.backends.persistence.ledger import LedgerEntry
from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.errors import ConfigError, NamesError, ToolError, TrustedToolError
from openmanus_graph.model_calls.budget import counting_external_calls
from openmanus_graph.model_calls.call_model import ToolModel
from openmanus_graph.model_calls.run_models import run_models
from openmanus_graph.runtime.limits import RunStopping, TimeLimit, limit_call, unless_stopped
from openmanus_graph.runtime.middleware import added_messages
from openmanus_graph.runtime.output import shorten, with_overrun
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.unquoted_text import mark_untrusted, without_mark
from openmanus_graph.state.manus import ManusState, add_usage, no_usage
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.call_ledger import exception_record
from openmanus_graph.tool_calls.context import CallExecution
from openmanus_graph.tool_calls.permission import evaluate

log = logging.getLogger(__name__)

_NOT_SHOWN = (
    "[You are not shown pictures: this model is not known to see them. Read what you need by "
    "Python (PIL, OCR); a person can set vision_model.]"
)


async def run_tool(
    execution: CallExecution, args: dict[str, Any], repeats: Mapping[str, Any] | None = None
) -> Observation:
    """Run the tool with these arguments and return an observation of bearable length.

    Only interrupts, wrong configuration and the cancellation of the run pass as exceptions.

    Args:
        execution: Of the call.
        args: To run with.
        repeats: The `repeatable` of the recorded call that is done again, if one is.
    """
    context = execution.context
    if execution.traits.effect != "read_only":
        context.session.files_may_differ = True
    model = ToolModel(context.session, context.progress, context.emit)
    with counting_external_calls() as calls:  # of models that the tool brings along
        config = merge_configs(context.config, {"callbacks": [calls]})
        async with _alone_at_its_resource(execution, args):
            limit = limit_call(
                context.toolset.own_limit_s(execution.name, args),
                execution.traits,
                context.session.settings.sandbox,
                time.monotonic(),
                context.deadline,
                stops_itself=execution.name in context.toolset.self_stopping,
            )
            doing = partial(_invoke, execution, args, model, limit, config, repeats)
            observation = await _run_within(limit, execution, doing)
    spent = add_usage(model.spent, await calls.spent(context.session, context.emit))
    if spent["model_calls"]:
        within = observation.usage or no_usage()
        observation = replace(observation, usage=add_usage(within, spent))
    return await _for_model(execution, observation)


def _alone_at_its_resource(
    execution: CallExecution, args: dict[str, Any]
) -> AbstractAsyncContextManager[Any]:
    """Keep calls of one resource apart, as chains do by what the model asked for.

    A person's edit or a middleware may have moved the call to the resource of another chain.
    """
    resource = execution.traits.resource_of(args)
    if resource is None:
        return nullcontext()
    return execution.context.session.cached(("at work", resource), asyncio.Lock)


async def _run_within(
    limit: TimeLimit, execution: CallExecution, doing: Callable[[], Awaitable[Observation]]
) -> Observation:
    """Run the tool until its time limit, or the run's stop; errors become observations."""
    clock = asyncio.timeout(limit.cut_off_at - time.monotonic())
    # What a tool holds open may show itself in the next request.
    trusted, read_only = execution.traits.resource is None, execution.traits.effect == "read_only"
    try:
        async with clock:
            return await unless_stopped(doing(), read_only=read_only)
    except (GraphBubbleUp, ConfigError):
        raise  # nothing the model could repair
    except RunStopping:
        text = (
            f"{execution.name} was given up: the run was stopped. Repeat it if it is still needed."
        )
        return Observation(text, failed=True, trusted_text=trusted)
    except ToolError as error:
        ours = isinstance(error, TrustedToolError)
        names = isinstance(error, NamesError)
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
        read_only = execution.traits.effect == "read_only"
        advice = (
            "Try a smaller piece of the work."
            if read_only
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
    limit: TimeLimit,
    config: RunnableConfig,
    repeats: Mapping[str, Any] | None,
) -> Observation:
    context = execution.context

    async def ask_person(request: Mapping[str, Any], name: str = "question") -> Any:
        return await context.questions.ask(execution.key, name, request)

    async def record_server_task(task_id: str) -> None:
        if context.ledger is not None:
            await context.ledger.begin_task(execution.key, args, task_id)

    runtime = CallRuntime(
        session=context.session,
        key=execution.key.digest,
        idempotency_key=execution.first_key.digest,
        emit=context.emit,
        plans=context.plans,
        ask_person=ask_person,
        ask_model=model.ask,
        converse=model.converse,
        subagents=context.subagents,
        tainted=execution.call.get("tainted", True),
        untrusted_prompt=context.toolset.untrusted_prompt,
        time_limit=limit,
        server_task=execution.server_task,
        record_server_task=record_server_task,
        repeats=repeats,
    )
    tool = context.toolset.find(execution.name)
    if isinstance(tool, JsonSchemaTool):
        return await tool.observe(args, runtime)
    request = {
        "type": "tool_call",
        "id": execution.call["id"],
        "name": execution.name,
        "args": args,
    }
    message = await context.toolset.invoke(request, runtime, config)
    update: str | None = None
    if isinstance(message, Command):
        message, update = split_command(message, execution)
    if isinstance(message.artifact, Observation):
        return message.artifact
    failed = message.status == "error"
    if isinstance(message.content, str):
        return Observation(message.content or "(no output)", failed=failed, update=update)
    found = await asyncio.to_thread(read_blocks, message, failed, context.session.workspace)
    return replace(found, update=update)


async def _for_model(execution: CallExecution, observation: Observation) -> Observation:
    """Shorten an observation's text, and say what is from outside or a picture not shown."""
    if observation.ends_run is not None:
        return observation  # the answer itself, which is never cut
    text, session = observation.text, execution.context.session
    max_chars = session.max_observation_chars
    if len(text) > with_overrun(max_chars) and not observation.bounded:
        text = await asyncio.to_thread(shorten, text, session.workspace, max_chars)
    if execution.traits.untrusted and not observation.trusted_text:
        text = mark_untrusted(text)
    pictured = observation.images and execution.context.for_our_model
    if pictured and not await run_models(session).see_pictures():
        text = f"{text}\n{_NOT_SHOWN}"
    return observation if text is observation.text else replace(observation, text=text)


def read_blocks(message: ToolMessage, failed: bool, workspace: Workspace) -> Observation:
    """Read the content blocks of a LangChain tool's result; pictures become files. Blocks."""
    images: list[str] = []
    for block in message.content_blocks:
        if block["type"] == "image" and "base64" in block:
            suffix = mimetypes.guess_extension(block.get("mime_type", "")) or ".png"
            kept = workspace.keep(base64.b64decode(block["base64"]), suffix)
            images.append(workspace.relative(kept))
    shown = f"Pictures: {', '.join(images)}" if images else "(no output)"
    return Observation(str(message.text) or shown, images=tuple(images), failed=failed)


def split_command(command: Command[Any], execution: CallExecution) -> tuple[ToolMessage, str]:
    """Return a command's message for the call, and what else it writes to the state, serialised.

    Raises:
        ToolError: It is more than an update, or writes what is the graph's own.
    """
    update = command.update
    if command.goto or command.graph is not None or not isinstance(update, Mapping):
        raise ToolError(
            f"{execution.name} returned a Command that is more than an update of the state, which "
            "this graph does not carry out. Return Command(update={...})."
        )
    given: dict[str, Any] = dict(cast("Mapping[str, Any]", update))
    if own := sorted(given.keys() & (ManusState.__annotations__.keys() - {"messages"})):
        raise ToolError(
            f"{execution.name} may not write {', '.join(own)}, which is the graph's own."
        )
    try:
        added = added_messages(given)
    except ConfigError as error:
        raise ToolError(str(error)) from error
    messages: list[Any] = added.pop("messages", [])
    own_result = [
        one for one in messages if getattr(one, "tool_call_id", "") == execution.call["id"]
    ]
    others = [one for one in messages if one not in own_result]
    if not own_result:
        raise ToolError(f"{execution.name} returned a Command without a ToolMessage for its call.")
    written = {**added, "messages": others} if others else added
    try:
        return own_result[-1], execution.context.serializer.to_text(written)
    except ConfigError as error:
        raise ToolError(f"What {execution.name} writes to the state is refused. {error}") from error


async def repeat_call(execution: CallExecution, recorded: LedgerEntry) -> None:
    """Run a recorded call with its effects, if the replay under way does such calls again.

    The graph goes on with the recorded outcome, so the run asks for the same next. The policy
    decides as if the call were made for the first time; there is nobody to be asked.

    Raises:
        ReplayEndedError: It is not allowed, or it does not come out as it was recorded.
    """
    replay, outcome = current_replay(), recorded.outcome or {}
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

"""`stuck_check`: where a step's calls join.

It takes a snapshot of changed files, ends a run that is over or repeats itself, and sets hints for
the next request.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from langgraph.types import Send

from openmanus_graph.backends.persistence.interjections import interjection_reader
from openmanus_graph.backends.snapshots.thread_snapshots import snapshot_files
from openmanus_graph.conversation.history import (
    LENGTH_LIMIT,
    TEXT_CALLS_KEY,
    has_pending_calls,
    last_reply,
    last_results,
    last_text,
)
from openmanus_graph.conversation.outcome import (
    ToolEnding,
    asked_to_end_before,
    failure,
    tool_ending,
    tool_outcome,
)
from openmanus_graph.conversation.replies import (
    NO_FILES,
    ReplyKind,
    ReplyReading,
    answer_beside_calls,
    read_reply,
    replies_without_calls,
    task_of,
)
from openmanus_graph.conversation.stuck import StuckLevel, detect_stuck
from openmanus_graph.nodes.think import sends_of_calls
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import find_named_files
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusState
from openmanus_graph.tool_calls.agent import Agent

UNANSWERED = (
    "The model ended the run as a success without any answer, also when it was asked for one."
)
FAILED: dict[ReplyKind, str] = {
    "announcement": "The model announced work and did not do it, also when it was asked to.",
    "unread_call": "The model writes its tool calls as text in a form that is not read, also when "
    "it was asked about it; turn on the parser of tool calls at its server.",
    "cut": f"The reply was cut off by {LENGTH_LIMIT} again and again.",
    "unstructured": "The model gave no answer in the form that was asked for.",
}
"""Why a run fails that gets no answer, by the kind of its last replies."""
NOTICES: dict[ReplyKind, str] = {
    "announcement": "The reply announces work and does none; the model is asked about it.",
    "cut": f"The reply was cut off by {LENGTH_LIMIT}; the model goes on with it.",
    "unread_call": "The reply seems to make a tool call as text; the model is asked about it.",
    "empty": "The reply was empty; the model is asked again.",
    "unstructured": "The reply is not in the form that was asked for; the model is asked again.",
}
HINTS: dict[ReplyKind, str] = {
    "announcement": "reply_announced",
    "unread_call": "reply_unread_call",
    "cut": "reply_cut",
    "empty": "empty_reply",
    "unstructured": "structured_answer",
}
"""What the model is asked about a reply that is neither calls nor the answer."""


async def stuck_check(state: ManusState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Take a snapshot of changed files, and end a run that is over or repeats itself."""
    if calls_are_left(state["messages"]):
        return {}
    session = await enter_session(runtime)
    snapshot = await snapshot_files(session, state, runtime.stream_writer)
    return {**snapshot, **await end_or_steer(state, session, runtime)}


async def end_or_steer(
    state: ManusState, session: Session, runtime: Runtime[Context]
) -> dict[str, Any]:
    """End a run that is over, has failed or repeats itself; else steer it with a hint."""
    messages, hint_before = state["messages"], state.get("hint", "")
    ending, stuck = tool_ending(messages), detect_stuck(messages)
    files = NO_FILES
    if ending is not None or replies_without_calls(messages):  # it may look through the workspace
        run, task = state["run_message"], task_of(messages)
        files = await asyncio.to_thread(find_named_files, session.workspace, run, task)
    reading = read_reply(messages, session.settings.response_format, files)
    said = answer_beside_calls(messages, files) if ending else ""
    ended = ended_by_tool(messages, ending, said) or ended_by_reply(messages, reading)
    interjections = await interjection_reader(session)
    # A person who has said something meanwhile does not want it to end without that.
    if ended is not None and not await interjections.unread(state.get("interjections", [])):
        return ended
    if stuck.level == "stop":
        runtime.stream_writer({"type": "limit", "reason": "stuck"})
        return {"status": "stopped", "stop_reason": "stuck"}
    if reading.kind in NOTICES:
        notice(runtime.stream_writer, NOTICES[reading.kind])
    interjections.fetch_soon()
    hint = "\n\n".join(hints_for(messages, reading, ending, said, stuck))
    return {} if hint == hint_before else {"hint": hint}


def ended_by_tool(
    messages: Sequence[AnyMessage], ending: ToolEnding | None, said: str
) -> dict[str, Any] | None:
    """Return how a tool's request ends the run; None if it does not, or is asked about."""
    if ending is None or ending.failed:
        return None
    outcome = tool_outcome(ending, said)
    if outcome is None and asked_to_end_before(messages):
        return failure(UNANSWERED)
    return outcome


def ended_by_reply(messages: Sequence[AnyMessage], reading: ReplyReading) -> dict[str, Any] | None:
    """Return how a reply fails the run that is no answer, also when it was asked about."""
    if not reading.failed:
        return None
    return failure(f"{FAILED[reading.kind]} Its last words: {last_text(messages)}")


def hints_for(
    messages: Sequence[AnyMessage],
    reading: ReplyReading,
    ending: ToolEnding | None,
    said: str,
    stuck: StuckLevel,
) -> Iterator[str]:
    """Yield what the next request should say."""
    if reading.kind in HINTS:
        yield render(HINTS[reading.kind])
    reply = last_reply(messages)
    if reply is not None and reply.tool_calls and TEXT_CALLS_KEY in reply.additional_kwargs:
        yield render("reply_text_calls")
    if ending is not None and ending.failed:
        yield render("terminate_refused", failed=", ".join(ending.failed))
    elif ending is not None and ending.ending == "success" and not said:
        yield render("terminate_unanswered")
    if stuck.level != "ok":
        name = "stuck_hint" if stuck.level == "hint" else "stuck_change"
        yield render(name, repeats=str(stuck.repeats))


def calls_are_left(messages: Sequence[AnyMessage]) -> bool:
    """Say whether some calls of the reply have run, and others were to come after them."""
    return bool(last_results(messages)) and has_pending_calls(messages)


async def route_after_stuck_check(
    state: ManusState, config: RunnableConfig, *, agent: Agent
) -> list[Send] | Literal["think", "terminate"]:
    """Think on, unless the run is over, or the reply has calls that waited for others."""
    if state.get("stop_reason"):
        return "terminate"
    if calls_are_left(state["messages"]):
        return await sends_of_calls(state, config, agent)
    return "think"

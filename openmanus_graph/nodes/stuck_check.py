"""`stuck_check`: ends a run that is over or repeats itself, and sets hints for the next request."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.runtime import Runtime

from openmanus_graph.backends.persistence.interjections import interjection_reader
from openmanus_graph.conversation.history import is_interjection, last_reply
from openmanus_graph.conversation.outcome import ToolEnding, tool_ending, tool_outcome
from openmanus_graph.conversation.stuck import StuckLevel, detect_stuck
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusState


async def stuck_check(state: ManusState, runtime: Runtime[Context]) -> dict[str, Any]:
    """End a run that a tool ended or that repeats itself; else steer it with a hint."""
    messages = state["messages"]
    ending = tool_ending(messages)
    if ending is not None and not ending.failed:
        interjections = await interjection_reader(await enter_session(runtime))
        # A person who has said something meanwhile does not want it to end without that.
        if not await interjections.unread(state.get("interjections", [])):
            return tool_outcome(messages, ending)
    stuck = detect_stuck(messages)
    if stuck.level == "stop":
        runtime.stream_writer({"type": "limit", "reason": "stuck"})
        return {"status": "stopped", "stop_reason": "stuck"}
    if (reply := silent_reply(messages)) is not None:
        what = "is not in the form that was asked for" if reply.text.strip() else "was empty"
        notice(runtime.stream_writer, f"The reply {what}; the model is asked again.")
    hint = "\n\n".join(hints_for(messages, ending, stuck))
    return {} if hint == state.get("hint", "") else {"hint": hint}


def silent_reply(messages: Sequence[AnyMessage]) -> AIMessage | None:
    """Return the model's newest message if it calls nothing and nobody has said anything since."""
    reply = last_reply(messages)
    called = reply is not None and (reply.tool_calls or reply.invalid_tool_calls)
    return None if called or is_interjection(messages[-1]) else reply


def hints_for(
    messages: Sequence[AnyMessage], ending: ToolEnding | None, stuck: StuckLevel
) -> Iterator[str]:
    """Yield what the next request should say."""
    if (reply := silent_reply(messages)) is not None:
        # A text that was no answer gets here only where the caller wants a structured one.
        yield render("structured_answer" if reply.text.strip() else "empty_reply")
    if ending is not None and ending.failed:
        yield render("terminate_refused", failed=", ".join(ending.failed))
    if stuck.level != "ok":
        name = "stuck_hint" if stuck.level == "hint" else "stuck_change"
        yield render(name, repeats=str(stuck.repeats))


async def route_after_stuck_check(state: ManusState) -> Literal["think", "terminate"]:
    """Think on, unless the run is over."""
    return "terminate" if state.get("stop_reason") else "think"

"""`stuck_check`: does the run get anywhere, is it over, and what should the next request say?"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from langchain_core.messages import AnyMessage
from langgraph.runtime import Runtime

from openmanus_graph.history import last_reply
from openmanus_graph.inbox import open_inbox
from openmanus_graph.outcome import ToolEnding, tool_ending, tool_outcome
from openmanus_graph.prompts import (
    empty_reply_hint,
    structured_answer_hint,
    stuck_hint,
    terminate_refused,
)
from openmanus_graph.registry import enter_session
from openmanus_graph.remarks import is_remark
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusState
from openmanus_graph.stuck import Verdict, judge


async def stuck_check(state: ManusState, runtime: Runtime[Context]) -> dict[str, Any]:
    """End a run that a tool ended or that repeats itself; else steer it with a hint."""
    messages = state["messages"]
    ending = tool_ending(messages)
    if ending is not None and not ending.failed:
        inbox = await open_inbox(await enter_session(runtime))
        # A person who has said something meanwhile does not want it to end without that.
        if not await inbox.unread(state.get("remarks", [])):
            return tool_outcome(messages, ending)
    verdict = judge(messages)
    if verdict.level == "stop":
        runtime.stream_writer({"type": "limit", "reason": "stuck"})
        return {"status": "stopped", "stop_reason": "stuck"}
    hint = "\n\n".join(hints_for(messages, ending, verdict))
    return {} if hint == state.get("hint", "") else {"hint": hint}


def hints_for(
    messages: Sequence[AnyMessage], ending: ToolEnding | None, verdict: Verdict
) -> Iterator[str]:
    """Yield what the next request should say."""
    reply = last_reply(messages)
    silent = reply is not None and not reply.tool_calls and not reply.invalid_tool_calls
    if reply is not None and silent and not is_remark(messages[-1]):
        # A text that was no answer gets here only where the caller wants a structured one.
        yield structured_answer_hint() if reply.text.strip() else empty_reply_hint()
    if ending is not None and ending.failed:
        yield terminate_refused(failed=", ".join(ending.failed))
    if verdict.level != "ok":
        yield stuck_hint(verdict)


async def route_after_stuck_check(state: ManusState) -> Literal["think", "terminate"]:
    """Think on, unless the run is over."""
    return "terminate" if state.get("stop_reason") else "think"

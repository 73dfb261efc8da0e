"""Reading the conversation: pure functions over `messages`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.state.manus import PlannedCall


def canonical(args: Mapping[str, Any]) -> str:
    """Write arguments so that equal ones are equal text."""
    return json.dumps(args, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)


def last_user_message(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    """Return the user message that began the current run."""
    return next((m for m in reversed(messages) if isinstance(m, HumanMessage)), None)


def run_messages(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """Return what was said since the last user message."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].type == "human":
            return messages[index + 1 :]
    return messages


def last_reply(messages: Sequence[AnyMessage]) -> AIMessage | None:
    """Return the model's newest message in the current run."""
    return next((m for m in reversed(run_messages(messages)) if isinstance(m, AIMessage)), None)


def last_results(messages: Sequence[AnyMessage]) -> list[ToolMessage]:
    """Return the results of the model's newest message."""
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        results.append(message)
    return results[::-1]


def last_text(messages: Sequence[AnyMessage]) -> str:
    """Return the newest text the model wrote in the current run, or nothing."""
    texts = (m.text.strip() for m in reversed(run_messages(messages)) if isinstance(m, AIMessage))
    return next(filter(None, texts), "")


def planned_calls(messages: Sequence[AnyMessage]) -> list[PlannedCall]:
    """Return the calls of the model's newest message that nobody answered yet, in call order.

    A call whose arguments could not be read is among them, with its problem.
    """
    reply = last_reply(messages)
    if reply is None:
        return []
    run = run_messages(messages)
    answered = {m.tool_call_id for m in run if isinstance(m, ToolMessage)}
    earlier = [
        call for m in run if isinstance(m, AIMessage) and m is not reply for call in m.tool_calls
    ]
    planned: list[PlannedCall] = []
    for call in reply.tool_calls:
        same = [c for c in (*earlier, *planned) if _same(c, call["name"], call["args"])]
        planned.append(_plan(call["id"], call["name"], call["args"], len(same), None))
    for broken in reply.invalid_tool_calls:
        problem = broken["error"] or "The arguments are not a JSON object. Call it again."
        planned.append(_plan(broken["id"], broken["name"] or "", {}, 0, problem))
    return [call for call in planned if call["id"] not in answered]


def _plan(
    call_id: str | None, name: str, args: dict[str, Any], occurrence: int, problem: str | None
) -> PlannedCall:
    return PlannedCall(
        id=call_id or "", name=name, args=args, occurrence=occurrence, problem=problem
    )


def _same(call: Mapping[str, Any], name: str, args: dict[str, Any]) -> bool:
    return bool(call["name"] == name and call["args"] == args)

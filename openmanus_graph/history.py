"""Reading the conversation: pure functions over `messages`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
)

from openmanus_graph.canonical import canonical
from openmanus_graph.index import index_of
from openmanus_graph.remarks import is_remark
from openmanus_graph.state.manus import PlannedCall

_PLACES = "broken_calls_at"


@dataclass(frozen=True)
class MadeCall:
    """A tool call as the model made it."""

    id: str
    name: str
    args: dict[str, Any]
    broken: InvalidToolCall | None = None
    """What is known of it where it cannot be run."""


def last_user_message(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    """Return the user message that began the current run."""
    position = index_of(messages).run_start
    message = messages[position] if position >= 0 else None
    return message if isinstance(message, HumanMessage) else None


def has_task(messages: Sequence[AnyMessage]) -> bool:
    """Say whether a user message asks for something, in words or by a picture or file."""
    message = last_user_message(messages)
    if message is None:
        return False
    return bool(message.content.strip() if isinstance(message.content, str) else message.content)


def run_messages(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """Return what was said since the last user message."""
    return messages[index_of(messages).run_start + 1 :]


def newest_first(messages: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    """Yield what was said since the last user message, from the end."""
    for message in reversed(messages):
        if message.type == "human" and not is_remark(message):
            return
        yield message


def recently_called(messages: Sequence[AnyMessage], tool: str, last: int) -> bool:
    """Say whether one of the last messages calls a tool, or is its result."""
    return any(
        message.name == tool
        if isinstance(message, ToolMessage)
        else isinstance(message, AIMessage) and any(c["name"] == tool for c in message.tool_calls)
        for message in messages[-last:]
    )


def last_reply(messages: Sequence[AnyMessage]) -> AIMessage | None:
    """Return the model's newest message in the current run."""
    return next((m for m in newest_first(messages) if m.type == "ai"), None)


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
    texts = (m.text.strip() for m in newest_first(messages) if m.type == "ai")
    return next(filter(None, texts), "")


def calls_in_order(reply: AIMessage) -> list[MadeCall]:
    """Return all calls of a reply as the model made them, those that cannot be run in their places.

    LangChain keeps the two kinds apart; `with_places` remembers where the broken ones stood.
    """
    calls = [MadeCall(call["id"] or "", call["name"], call["args"]) for call in reply.tool_calls]
    places: Sequence[int] = reply.additional_kwargs.get(_PLACES, ())
    for number, call in enumerate(reply.invalid_tool_calls):
        place = places[number] if number < len(places) else len(calls)
        calls.insert(place, MadeCall(call["id"] or "", call["name"] or "", {}, call))
    return calls


def with_places(additional_kwargs: Mapping[str, Any], broken_at: Sequence[int]) -> dict[str, Any]:
    """Return a reply's further fields with the places of its broken calls, if it has any."""
    others = {key: value for key, value in additional_kwargs.items() if key != _PLACES}
    return {**others, _PLACES: list(broken_at)} if broken_at else others


def planned_calls(messages: Sequence[AnyMessage]) -> list[PlannedCall]:
    """Return the calls of the model's newest message that nobody answered yet, in call order.

    A call whose arguments could not be read is among them, with its problem.
    """
    reply = last_reply(messages)
    if reply is None:
        return []
    answered = {m.tool_call_id for m in last_results(messages)}
    # The index counts the reply's own calls, too.
    own = Counter((call["name"], canonical(call["args"])) for call in reply.tool_calls)
    earlier = Counter({key: index_of(messages).calls[key] - own[key] for key in own})
    planned: list[PlannedCall] = []
    for call in calls_in_order(reply):
        if call.broken is not None:
            problem = call.broken["error"] or "The arguments are not a JSON object. Call it again."
            planned.append(_plan(call.id, call.name, {}, 0, problem))
            continue
        key = (call.name, canonical(call.args))
        planned.append(_plan(call.id, call.name, call.args, earlier[key], None))
        earlier[key] += 1
    return [call for call in planned if call["id"] not in answered]


def _plan(
    call_id: str | None, name: str, args: dict[str, Any], occurrence: int, problem: str | None
) -> PlannedCall:
    return PlannedCall(
        id=call_id or "", name=name, args=args, occurrence=occurrence, problem=problem
    )

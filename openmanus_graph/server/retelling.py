"""What happened in a thread before the server had it, told from its conversation.

The command line keeps no events. A thread that was begun there is shown all the same: without
times, tokens and notices, but with every message, call and result.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.final import final_event
from openmanus_graph.persistence.journal import Numbered
from openmanus_graph.persistence.threads import Thread
from openmanus_graph.remarks import is_remark
from openmanus_graph.server.store import Store, state_of
from openmanus_graph.server.threads import open_questions
from openmanus_graph.state.reducers import no_usage


async def retold(store: Store, thread: str, until: str | None = None) -> list[Numbered]:
    """Return a thread's past as numbered events; nothing for one that the server has events of.

    Args:
        store: Where the threads are.
        thread: Its id.
        until: Id of the message that begins the run under way, which is told as it happens.
    """
    known = await store.find(thread)
    if known is None or await store.journal.last(thread):
        return []
    state = await state_of(thread, known.agent)
    if state is None:
        return []
    messages: list[AnyMessage] = state.values.get("messages", [])
    before = itertools.takewhile(lambda one: until is None or one.id != until, messages)
    events = [*told_messages(known, before)]
    if known.status not in ("running", "interrupted"):
        events += await open_questions(thread, known.agent)
        events.append(final_event(state, cancelled=known.status == "cancelled"))
    moment = f"{known.updated.replace(' ', 'T')}+00:00"
    same: Mapping[str, Any] = {"run": "", "ns": "", "thread": thread, "ts": moment}
    return [
        (number, json.dumps({**event, **same, "seq": number}, default=str))
        for number, event in enumerate(events, start=1)
    ]


def told_messages(thread: Thread, messages: Iterable[AnyMessage]) -> Iterator[dict[str, Any]]:
    """Tell a conversation as events."""
    step = 0
    for message in messages:
        if isinstance(message, HumanMessage) and is_remark(message):
            yield {"type": "steer", "id": message.id, "text": message.text}
        elif isinstance(message, HumanMessage):
            step = 0
            yield _start(thread, message)
        elif isinstance(message, AIMessage):
            step += 1
            yield from _reply(message, step)
        elif isinstance(message, ToolMessage):
            yield {
                "type": "tool_end",
                "call_id": message.tool_call_id,
                "tool": message.name or "",
                "ok": message.status != "error",
                "seconds": 0.0,
                "output": message.text,
            }


def _start(thread: Thread, message: HumanMessage) -> dict[str, Any]:
    return {
        "type": "run_start",
        "kind": "start",
        "task": message.text,
        "agent": thread.agent,
        "model": str(thread.options.get("model") or ""),
        "workspace": str(thread.options.get("workspace") or ""),
    }


def _reply(message: AIMessage, step: int) -> Iterator[dict[str, Any]]:
    calls = [
        {"call_id": call["id"] or "", "tool": call["name"], "args": call["args"]}
        for call in message.tool_calls
    ]
    yield {
        "type": "think_end",
        "step": step,
        "text": message.text,
        "tool_calls": calls,
        "usage": no_usage(),
        "seconds": 0.0,
    }
    for call in calls:
        yield {"type": "tool_start", **call}

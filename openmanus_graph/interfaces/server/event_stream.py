"""The route that streams a thread's events: the past ones, then new ones as they happen.

The past of a thread that ran in the terminal is rebuilt from its messages.
"""

import itertools
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.backends.persistence.journal import Numbered
from openmanus_graph.backends.persistence.recording import Recording
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.conversation.history import is_steering
from openmanus_graph.interfaces.server.store import (
    Store,
    own_server,
    read_final_event,
    state_of,
    store,
)
from openmanus_graph.interfaces.server.threads import open_questions, require_thread
from openmanus_graph.state.manus import no_usage

PING_S = 15.0
router = APIRouter(prefix="/app/api/threads/{thread}")


async def replay_events(store: Store, thread: str, until: str | None = None) -> list[Numbered]:
    """Return a thread's past as numbered events; empty if the server has stored events of it.

    Args:
        store: Holds the threads and their events.
        thread: Its id.
        until: Id of the message that started the current run, whose events are sent live.
    """
    known = await store.find(thread)
    if known is None or await store.journal.last(thread):
        return []
    state = await state_of(thread, known.agent)
    if state is None:
        return []
    messages: list[AnyMessage] = state.values.get("messages", [])
    before = itertools.takewhile(lambda one: until is None or one.id != until, messages)
    events = [*events_from_messages(known, before)]
    if known.status not in ("running", "interrupted"):
        events += await open_questions(thread, known.agent)
        stopped = known.status == "cancelled"
        events.append(await read_final_event(thread, known.agent, state, cancelled=stopped))
    moment = f"{known.updated.replace(' ', 'T')}+00:00"
    shared: Mapping[str, Any] = {"run": "", "ns": "", "thread": thread, "ts": moment}
    return [
        (number, json.dumps({**event, **shared, "seq": number}, default=str))
        for number, event in enumerate(events, start=1)
    ]


def events_from_messages(
    thread: Thread | Recording, messages: Iterable[AnyMessage]
) -> Iterator[dict[str, Any]]:
    """Yield the events of a conversation."""
    step = 0
    for message in messages:
        if isinstance(message, HumanMessage) and is_steering(message):
            yield {"type": "steer", "id": message.id, "text": message.text}
        elif isinstance(message, HumanMessage):
            step = 0
            yield {
                "type": "run_start",
                "kind": "start",
                "task": message.text,
                "agent": thread.agent,
                "model": str(thread.options.get("model") or ""),
                "workspace": str(thread.options.get("workspace") or ""),
            }
        elif isinstance(message, AIMessage):
            step += 1
            yield from _reply_events(message, step)
        elif isinstance(message, ToolMessage):
            yield {
                "type": "tool_end",
                "call_id": message.tool_call_id,
                "tool": message.name or "",
                "ok": message.status != "error",
                "seconds": 0.0,
                "output": message.text,
            }


def _reply_events(message: AIMessage, step: int) -> Iterator[dict[str, Any]]:
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


@router.get("/events")
async def follow_events(
    thread: str,
    after: int = Query(0, alias="from", ge=0, lt=1 << 62),
    last_event_id: int | None = Header(None, ge=0, lt=1 << 62),
) -> StreamingResponse:
    """Stream a thread's events as server-sent events until the client leaves."""
    await require_thread(thread)
    begin = after if last_event_id is None else last_event_id
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _sse_chunks(thread, begin), media_type="text/event-stream", headers=headers
    )


async def _sse_chunks(thread: str, after: int) -> AsyncGenerator[str]:
    journal = store().journal
    if past := [event for event in await replay_events(store(), thread) if event[0] > after]:
        after = past[-1][0]
        yield _as_sse(past)
    async for events in journal.follow(thread, after, PING_S):
        if events is None:
            yield ": ping\n\n"
        elif not events:
            running = json.dumps(await _is_running(thread))
            yield f'event: live\ndata: {{"running": {running}, "seq": {after}}}\n\n'
        else:
            after = events[-1][0]
            yield _as_sse(events)


async def _is_running(thread: str) -> bool:
    """Say whether a run of the server works on a thread, in this process or another one of it."""
    if store().journal.is_running(thread):
        return True
    return not own_server().is_alone and await store().is_held_elsewhere(thread)


def _as_sse(events: list[Numbered]) -> str:
    return "".join(f"id: {seq}\ndata: {text}\n\n" for seq, text in events)

"""The route that streams a thread's events: the past ones, then new ones as they happen."""

from collections.abc import AsyncGenerator

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from openmanus_graph.backends.persistence.journal import Numbered
from openmanus_graph.interfaces.server.event_replay import replay_events
from openmanus_graph.interfaces.server.store import store
from openmanus_graph.interfaces.server.threads import require_thread

PING_S = 15.0
router = APIRouter(prefix="/app/api/threads/{thread}")


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
            running = "true" if journal.is_running(thread) else "false"
            yield f'event: live\ndata: {{"running": {running}, "seq": {after}}}\n\n'
        else:
            after = events[-1][0]
            yield _as_sse(events)


def _as_sse(events: list[Numbered]) -> str:
    return "".join(f"id: {seq}\ndata: {text}\n\n" for seq, text in events)

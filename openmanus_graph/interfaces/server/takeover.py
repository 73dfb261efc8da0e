"""Routes by which a person takes a thread's browser over, and gives it back.

Nothing that is sent here is logged, stored or passed on but to the browser.
"""

import json
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Literal

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from openmanus_graph.interfaces.server.store import store
from openmanus_graph.interfaces.server.threads import require_thread
from openmanus_graph.interfaces.server.visits import (
    Visit,
    begin_takeover,
    end_takeover,
    find_visit,
)

FRAME_WAIT_S = 1.0
MOST_INPUTS = 500
router = APIRouter(prefix="/app/api/threads/{thread}/takeover")


class Wish(BaseModel):
    """Which of the thread's browsers, and whether to take it from whoever has it."""

    worker: str = Field("", max_length=200)
    force: bool = False


class GivenInput(BaseModel):
    """Something that the person does; see `backends.browser.takeover.Input`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    kind: Literal["move", "down", "up", "wheel", "text", "key", "back", "reload", "dialog"]
    x: float = Field(0, ge=0, le=1e5)
    y: float = Field(0, ge=0, le=1e5)
    dx: float = Field(0, ge=-1e5, le=1e5)
    dy: float = Field(0, ge=-1e5, le=1e5)
    button: Literal["left", "middle", "right"] = "left"
    count: int = Field(1, ge=1, le=3)
    text: str = Field("", max_length=10_000, repr=False)
    modifiers: tuple[str, ...] = ()
    accept: bool = True


@router.post("", status_code=201)
async def take_over(thread: str, wish: Wish) -> dict[str, str]:
    """Take the browser over, from another person if that is wished."""
    await require_thread(thread)
    visit = await begin_takeover(thread, wish.worker, force=wish.force)
    return {"id": visit.takeover.id}


@router.get("/{takeover}/frames")
async def follow_frames(thread: str, takeover: str) -> StreamingResponse:
    """Stream what the browser shows as server-sent events, until the takeover ends."""
    visit = find_visit(thread, takeover)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_frames(visit), media_type="text/event-stream", headers=headers)


@router.post("/{takeover}/input", status_code=204)
async def act(thread: str, takeover: str, inputs: list[GivenInput]) -> Response:
    """Do what the person did."""
    from openmanus_graph.backends.browser.browsers import browser_loop
    from openmanus_graph.backends.browser.takeover import Input

    visit = find_visit(thread, takeover)
    done = [Input(**one.model_dump()) for one in inputs[:MOST_INPUTS]]
    await browser_loop.run(lambda: visit.takeover.act(done))
    return Response(status_code=204)


@router.delete("/{takeover}", status_code=204)
async def give_back(thread: str, takeover: str) -> Response:
    """Give the browser back to the agent."""
    await end_takeover(find_visit(thread, takeover))
    return Response(status_code=204)


async def _frames(visit: Visit) -> AsyncGenerator[str]:
    from openmanus_graph.backends.browser.browsers import browser_loop

    after = 0
    with visit.watched():
        while not visit.takeover.ended and not store().journal.is_closing:
            frame = await browser_loop.run(lambda: visit.takeover.next_frame(after, FRAME_WAIT_S))  # noqa: B023  # awaited here
            if frame is None:
                yield ": ping\n\n"
                continue
            after = frame.number
            yield f"data: {json.dumps({'type': 'frame', **asdict(frame)})}\n\n"
        yield 'data: {"type": "ended"}\n\n'

"""Shows how far work on many files is, while it lasts."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from openmanus_graph.runtime.events import Emit, notice

FIRST_PROGRESS_S, LONGEST_PAUSE_S = 5.0, 60.0
"""When it is shown first; after it each pause is twice the one before."""


@asynccontextmanager
async def progress_shown(progress: Callable[[], str], emit: Emit) -> AsyncGenerator[None]:
    """Emit notices of how far something is, if it takes long.

    Args:
        progress: Returns a sentence; "" while there is nothing to say.
        emit: Takes the notices, each new sentence once.
    """

    async def show() -> None:
        shown, pause_s = "", FIRST_PROGRESS_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if (text := progress()) != shown:
                shown = text
                notice(emit, text, "info")

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()

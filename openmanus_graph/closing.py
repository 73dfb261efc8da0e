"""Letting go of what a process holds for its graphs."""

import asyncio
import sys

from openmanus_graph.models.build import close_models
from openmanus_graph.persistence.database import close_databases
from openmanus_graph.registry import close_unused


async def close() -> None:
    """Let go of everything: kernels, shells, browsers, connections, databases, their threads.

    For an app that shuts down, or that is done with its graphs for now: the next run opens what it
    needs again. Threads that somebody owns (`open_session`) and runs under way keep what they have;
    as long as there are any, so does all that they share. A process that simply ends needs no call.

    Connections to models belong to an event loop, and are closed for the one this is called in.
    """
    if not await asyncio.to_thread(close_unused):
        return
    await close_models()
    browsers = sys.modules.get("openmanus_graph.browser.browsers")
    if browsers is not None:  # it was never loaded where no browser was used
        await asyncio.to_thread(browsers.close_browsers)
    await asyncio.to_thread(close_databases)

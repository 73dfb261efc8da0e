"""The web app inside LangGraph's server; langgraph.json names `app`."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator

from fastapi import FastAPI
from langgraph_api.graph import get_assistant_id

from openmanus_graph.interfaces.server.restore import add_questions, ignore_pickles, restore_threads
from openmanus_graph.interfaces.server.runs import stop_all_runs
from openmanus_graph.interfaces.server.web_app import build_app, serving
from openmanus_graph.interfaces.service.http import end_in_time


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Restore the server's list of threads; at the end stop all runs."""
    async with serving(end_in_time) as store:
        deferred = await restore_threads(store)
        adding_questions = asyncio.create_task(add_questions(deferred))
        try:
            yield
        finally:
            await stop_all_runs(store)
            adding_questions.cancel()


# The server's own log of whole requests, at DEBUG: keys of the form, and what a person types into a
# browser that he took over.
logging.getLogger("asgi").setLevel(logging.INFO)
ignore_pickles()  # here, because the server loads them before the lifespan starts
app = build_app(get_assistant_id, lifespan)


@app.get("/health")
async def health() -> dict[str, bool]:
    """Say that the server answers, for monitors and containers."""
    return {"ok": True}

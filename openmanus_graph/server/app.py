"""The web app inside LangGraph's server: guard, page and routes; langgraph.json names `app`."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator
from importlib import import_module

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from openmanus_graph.errors import ConfigError
from openmanus_graph.registry import close_all
from openmanus_graph.server import (
    browser_view,
    choices,
    files,
    following,
    pages,
    runs,
    threads,
)
from openmanus_graph.server.admission import Refused
from openmanus_graph.server.guard import ServerGuard
from openmanus_graph.server.recorder import Recorder
from openmanus_graph.server.restore import restore_threads, tell_questions
from openmanus_graph.server.runs import stop_all_runs
from openmanus_graph.server.store import open_store
from openmanus_graph.server.token import server_token
from openmanus_graph.watching import watch

WARM_UP_S = 1.0


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Open what the routes need; at the end close every kernel, shell and browser."""
    await asyncio.to_thread(server_token)
    store = await open_store()
    watch(Recorder(store))
    others = await restore_threads(store)
    gc.freeze()  # looking through all modules takes a tenth of a second, in which nobody is served
    later = [asyncio.create_task(warm_up()), asyncio.create_task(tell_questions(others))]
    with store.journal.ended_by_signals():
        try:
            yield
        finally:
            await stop_all_runs(store)
            await store.journal.close()
            await asyncio.to_thread(close_all)
            for task in later:
                task.cancel()


async def warm_up() -> None:
    """Load what the first step needs, once the server answers."""
    await asyncio.sleep(WARM_UP_S)
    # Slow to load, and the client of most models.
    await asyncio.to_thread(import_module, "langchain_openai")
    gc.freeze()


app = FastAPI(title="OpenManus", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
app.add_middleware(ServerGuard)
for part in (choices, threads, runs, following, browser_view, pages):
    app.include_router(part.router)
app.include_router(files.api)
app.include_router(files.router)
app.mount("/app/static", pages.Assets(directory=pages.STATIC, check_dir=False))


@app.exception_handler(Refused)
async def refuse(request: Request, refusal: Refused) -> JSONResponse:
    """Say why a request is not granted."""
    return JSONResponse({"detail": str(refusal)}, refusal.status)


@app.exception_handler(ConfigError)
async def complain(request: Request, error: ConfigError) -> JSONResponse:
    """Say what is wrong with the configuration."""
    return JSONResponse({"detail": str(error)}, 422)

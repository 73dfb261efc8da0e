"""The web app inside LangGraph's server: guard, page and routes; langgraph.json names `app`."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from importlib import import_module

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server import (
    choices,
    event_stream,
    files,
    memory,
    pages,
    runs,
    screen_views,
    setup,
    takeover,
    threads,
)
from openmanus_graph.interfaces.server.admission import Refused
from openmanus_graph.interfaces.server.ag_ui import routes as ag_ui_routes
from openmanus_graph.interfaces.server.assistant_names import AssistantNames
from openmanus_graph.interfaces.server.guard import ServerGuard
from openmanus_graph.interfaces.server.openai_api import chat, responses
from openmanus_graph.interfaces.server.recorder import Recorder, write_missing_ends
from openmanus_graph.interfaces.server.restore import add_questions, ignore_pickles, restore_threads
from openmanus_graph.interfaces.server.runs import stop_all_runs
from openmanus_graph.interfaces.server.store import open_store
from openmanus_graph.interfaces.server.token import server_token
from openmanus_graph.interfaces.service.garbage_collection import relax_garbage_collection
from openmanus_graph.interfaces.service.trace_export import send_traces
from openmanus_graph.runtime.run_observer import observe_runs
from openmanus_graph.runtime.session_registry import close_all

SEND_TRACES_S = 5.0
"""How long the traces of the last seconds may take to be sent when the server stops."""
WARM_UP_S = 1.0


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Open what the routes need; at the end close every kernel, shell and browser."""
    await asyncio.to_thread(server_token)
    store = await open_store()
    observe_runs(Recorder(store))
    await write_missing_ends(store)
    deferred = await restore_threads(store)
    relax_garbage_collection()
    background = [asyncio.create_task(warm_up()), asyncio.create_task(add_questions(deferred))]
    with store.journal.end_followers_on_signals():
        try:
            yield
        finally:
            await stop_all_runs(store)
            await store.journal.close()
            await asyncio.to_thread(close_all)
            for task in background:
                task.cancel()
            with contextlib.suppress(TimeoutError):  # a signal ends the process, without its exit
                await asyncio.wait_for(asyncio.to_thread(send_traces), SEND_TRACES_S)


async def warm_up() -> None:
    """Load what the first step needs, once the server answers."""
    await asyncio.sleep(WARM_UP_S)
    # Slow to load, and the client of most models.
    await asyncio.to_thread(import_module, "langchain_openai")
    relax_garbage_collection()


ignore_pickles()  # here, because the server loads them before the lifespan starts
app = FastAPI(title="OpenManus", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
app.add_middleware(AssistantNames)
app.add_middleware(ServerGuard)
for part in (
    choices, setup, threads, runs, event_stream, screen_views, takeover, pages, chat, responses,
    ag_ui_routes, memory,
):  # fmt: skip
    app.include_router(part.router)
app.include_router(files.api)
app.include_router(files.router)
app.mount("/app/static", pages.Assets(directory=pages.STATIC, check_dir=False))


@app.exception_handler(Refused)
async def handle_refusal(request: Request, refusal: Refused) -> JSONResponse:
    """Say why a request is not granted."""
    return JSONResponse({"detail": str(refusal)}, refusal.status)


@app.exception_handler(ConfigError)
async def handle_config_error(request: Request, error: ConfigError) -> JSONResponse:
    """Say what is wrong with the configuration."""
    return JSONResponse({"detail": str(error)}, 422)

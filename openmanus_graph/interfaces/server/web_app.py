"""The web app inside a server of the Agent Protocol: guard, page and routes, and what they need."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from importlib import import_module

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import Lifespan

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
from openmanus_graph.interfaces.server.client_messages import CheckedStateUpdates
from openmanus_graph.interfaces.server.guard import ServerGuard
from openmanus_graph.interfaces.server.openai_api import chat, responses
from openmanus_graph.interfaces.server.recorder import Recorder, write_missing_ends
from openmanus_graph.interfaces.server.store import Store, open_store
from openmanus_graph.interfaces.server.token import server_token
from openmanus_graph.interfaces.service.lock import relax_garbage_collection
from openmanus_graph.interfaces.service.trace_export import send_traces
from openmanus_graph.runtime.run_observer import observe_runs
from openmanus_graph.runtime.session_registry import close_all_at_once

SEND_TRACES_S = 5.0
"""How long the traces of the last seconds may take to be sent when the server stops."""
WARM_UP_S = 1.0


def build_app(
    assistant_id: Callable[[str], str], lifespan: Lifespan[FastAPI] | None = None
) -> FastAPI:
    """Build the app.

    Args:
        assistant_id: Returns the UUID of the assistant for a graph's name.
        lifespan: What is open while the server runs.
    """
    app = FastAPI(
        title="OpenManus", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.add_middleware(AssistantNames, assistant_id=assistant_id)
    app.add_middleware(CheckedStateUpdates)
    app.add_middleware(ServerGuard)
    for part in (
        choices, setup, threads, runs, event_stream, screen_views, takeover, pages, chat, responses,
        ag_ui_routes, memory,
    ):  # fmt: skip
        app.include_router(part.router)
    app.include_router(files.api)
    app.include_router(files.router)
    app.mount("/app/static", pages.Assets(directory=pages.STATIC, check_dir=False))
    app.add_exception_handler(Refused, _say_refusal)
    app.add_exception_handler(ConfigError, _say_config_error)
    return app


@contextlib.asynccontextmanager
async def serving(on_signal: Callable[[], None] = lambda: None) -> AsyncGenerator[Store]:
    """Open what the routes need; at the end close every kernel, shell and browser.

    Args:
        on_signal: Is called when a signal is to end the process.
    """
    await asyncio.to_thread(server_token)
    store = await open_store()
    observe_runs(Recorder(store))
    await write_missing_ends(store)
    relax_garbage_collection()
    warming_up = asyncio.create_task(_warm_up())
    with store.journal.end_followers_on_signals(on_signal):
        try:
            yield store
        finally:
            await store.journal.close()
            await close_all_at_once()
            warming_up.cancel()
            with contextlib.suppress(TimeoutError):  # a signal ends the process, without its exit
                await asyncio.wait_for(asyncio.to_thread(send_traces), SEND_TRACES_S)


async def _warm_up() -> None:
    """Load what the first step needs, once the server answers."""
    await asyncio.sleep(WARM_UP_S)
    # Slow to load, and the client of most models.
    await asyncio.to_thread(import_module, "openmanus_graph.backends.models.openai_compatible")
    relax_garbage_collection()


async def _say_refusal(request: Request, refusal: Exception) -> JSONResponse:
    """Say why a request is not granted."""
    status = refusal.status if isinstance(refusal, Refused) else 500
    return JSONResponse({"detail": str(refusal)}, status)


async def _say_config_error(request: Request, error: Exception) -> JSONResponse:
    """Say what is wrong with the configuration."""
    return JSONResponse({"detail": str(error)}, 422)

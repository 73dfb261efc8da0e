"""The web app inside a server of the Agent Protocol: guard, page and routes, and what they need."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send
from typing_extensions import override

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server import ag_ui as ag_ui_routes
from openmanus_graph.interfaces.server import event_stream, files, runs, setup, takeover, threads
from openmanus_graph.interfaces.server.admission import CheckedStateUpdates, Refused
from openmanus_graph.interfaces.server.guard import ServerGuard
from openmanus_graph.interfaces.server.openai_api import chat, responses
from openmanus_graph.interfaces.server.recorder import Recorder, write_missing_ends
from openmanus_graph.interfaces.server.store import Store, open_store
from openmanus_graph.interfaces.server.token import server_token
from openmanus_graph.interfaces.service.garbage_collection import relax_garbage_collection
from openmanus_graph.interfaces.service.trace_export import send_traces
from openmanus_graph.runtime.run_observer import observe_runs
from openmanus_graph.runtime.session_registry import close_all_at_once

_ASSISTANT = re.compile(r"/assistants/(?P<name>[^/]+)(?P<rest>(?:/.*)?)")


class AssistantNames:
    """Puts the UUID of a graph's assistant in the place of the graph's name.

    Args:
        app: Handles the requests.
        assistant_id: Returns the UUID for a graph's name; any other text as it is.
    """

    def __init__(self, app: ASGIApp, assistant_id: Callable[[str], str]) -> None:
        self._app, self._assistant_id = app, assistant_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the UUID in its path."""
        match = _ASSISTANT.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None and scope["method"] == "GET":
            path = f"/assistants/{self._assistant_id(match['name'])}{match['rest']}"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)


STATIC = Path(__file__).parent / "static"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "frame-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",
}
router = APIRouter()


@router.get("/app", include_in_schema=False)
@router.get("/app/", include_in_schema=False)
@router.get("/app/t/{thread:path}", include_in_schema=False)
async def page() -> FileResponse:
    """Send the page; its script reads from the address which thread to show."""
    return FileResponse(STATIC / "index.html", headers=HEADERS)


class Assets(StaticFiles):
    """The page's scripts and styles."""

    @override
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


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
        setup.router, setup.memory_router, threads.router, runs.router, event_stream.router,
        takeover.router, takeover.screen_router, router, chat.router, responses.router,
        ag_ui_routes.router, files.api, files.router,
    ):  # fmt: skip
        app.include_router(part)
    app.mount("/app/static", Assets(directory=STATIC, check_dir=False))
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

"""The web app inside a server of the Agent Protocol: guard, page, routes, and their resources."""

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from importlib import import_module

import httpx
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send
from typing_extensions import override

from openmanus_graph.config.entry_points import installed, load
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.server import (
    STATIC,
    ag_ui,
    files,
    hooks,
    login,
    openai_chat,
    openai_responses,
    page_routes,
    recorder,
    runs,
    setup,
    sharing,
    takeover,
    usage,
)
from openmanus_graph.interfaces.server.admission import CheckedStateUpdates
from openmanus_graph.interfaces.server.guard import ServerGuard, server_token
from openmanus_graph.interfaces.server.store import Store, delete_from_server, open_store
from openmanus_graph.interfaces.service.accounts import Refused, serving_accounts
from openmanus_graph.interfaces.service.own_process import (
    RunError,
    relax_garbage_collection,
    send_traces,
)  # fmt: skip
from openmanus_graph.interfaces.service.retention import prune_when_due
from openmanus_graph.runtime.events import observe_runs
from openmanus_graph.runtime.session_registry import close_all_at_once, close_session

_ASSISTANT = re.compile(r"/assistants/(?P<name>[^/]+)(?P<rest>(?:/.*)?)")


class RenamedPaths:
    """ASGI middleware that replaces a graph's name in a path by the UUID of its assistant.

    `assistant_id` returns the UUID of a graph's name, and any other text unchanged. `/metrics` is
    ours instead of LangGraph's.
    """

    def __init__(self, app: ASGIApp, assistant_id: Callable[[str], str]) -> None:
        self._app, self._assistant_id = app, assistant_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _ASSISTANT.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None and scope["method"] == "GET":
            path = f"/assistants/{self._assistant_id(match['name'])}{match['rest']}"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        if scope.get("path") == "/metrics":
            scope = {**scope, "path": "/app/metrics", "raw_path": b"/app/metrics"}
        await self._app(scope, receive, send)


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; media-src 'self' blob:; connect-src 'self'; frame-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
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
    """Send the page. Its script reads the thread to show from the address."""
    return FileResponse(STATIC / "index.html", headers=HEADERS)


class Assets(StaticFiles):
    @override
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


SEND_TRACES_S = 5.0
"""Seconds for sending the last traces when the server stops."""
WARM_UP_S = 1.0
PRUNE_CHECK_S = 3600.0
log = logging.getLogger(__name__)


def build_app(
    assistant_id: Callable[[str], str], lifespan: Lifespan[FastAPI] | None = None
) -> FastAPI:
    app = FastAPI(
        title="OpenManus", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.add_middleware(RenamedPaths, assistant_id=assistant_id)
    app.add_middleware(CheckedStateUpdates)
    app.add_middleware(ServerGuard)
    for part in (
        page_routes.router, setup.router, runs.router, recorder.router, takeover.router, router,
        openai_chat.router, openai_responses.router, ag_ui.router, files.api, files.router,
        sharing.router, login.router, usage.router, hooks.router,
    ):  # fmt: skip
        app.include_router(part)
    for point in installed("routes"):
        app.include_router(load(point, "routes"))
    app.mount("/app/static", Assets(directory=STATIC, check_dir=False))
    app.add_exception_handler(Refused, _answer_error)
    app.add_exception_handler(ConfigError, _answer_error)
    return app


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    status = error.status if isinstance(error, Refused) else 422
    return JSONResponse({"detail": str(error)}, status)


@contextlib.asynccontextmanager
async def serving(
    on_signal: Callable[[], None] = lambda: None, keep_s: Mapping[str, float] | None = None
) -> AsyncGenerator[Store]:
    """Open what the routes need; at the end close every kernel, shell and browser.

    Args:
        on_signal: Called when a signal will end the process.
        keep_s: How long the server keeps threads by status, unless `[storage] keep` says more.
    """
    await asyncio.to_thread(server_token)
    store = await open_store()
    observe_runs(recorder.Recorder(store))
    await recorder.write_missing_ends()
    relax_garbage_collection()
    tasks = [asyncio.create_task(one) for one in (_warm_up(), _prune_daily(keep_s or {}))]
    of_server = serving_accounts(store.threads.database)
    with of_server, store.journal.end_followers_on_signals(on_signal):
        try:
            async with hooks.working():
                yield store
        finally:
            await store.journal.close()
            await close_all_at_once()
            for task in tasks:
                task.cancel()
            # Here, because a signal may end the process without its exit handlers.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(send_traces), SEND_TRACES_S)


async def _prune_daily(server_keep_s: Mapping[str, float]) -> None:
    """Delete old threads once a day, in one process of all that share them."""
    halt = threading.Event()
    try:
        while True:
            try:
                gone, freed = await asyncio.to_thread(prune_when_due, server_keep_s, halt.is_set)
                for thread in gone:
                    await asyncio.to_thread(close_session, thread)
                    await delete_from_server(thread)
                if gone:
                    log.info("Deleted %d old threads: %.1f MB", len(gone), freed / 1e6)
            except (ConfigError, RunError, StorageError, OSError, httpx.HTTPError) as error:
                log.warning("Old threads are not deleted now: %s", error)
            await asyncio.sleep(PRUNE_CHECK_S)
    finally:
        halt.set()


async def _warm_up() -> None:
    """Load what the first step needs, after the server has started to answer."""
    await asyncio.sleep(WARM_UP_S)
    # Slow to load, and the client of most models.
    await asyncio.to_thread(import_module, "openmanus_graph.backends.models.openai_compatible")
    relax_garbage_collection()

"""Stands before the model's server, and counts what each agent asks of it, for all alike.

It listens on a Unix socket, and refuses requests beyond a run's limit of model calls.
"""

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

_OF_ONE_HOP = {
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "authorization",
    "accept-encoding", "content-encoding",
}  # fmt: skip


@dataclass
class Counts:
    """What one run asked."""

    calls: int = 0
    """Model calls that were passed on."""
    tokens_in: int = 0
    tokens_out: int = 0
    """As the server reports them."""


class Proxy:
    """Passes requests on to a server, and counts.

    Args:
        base_url: Of the server, usually with `/v1` at its end.
        most_calls: Of one run.
    """

    def __init__(self, base_url: str, most_calls: int) -> None:
        self._base_url = base_url.rstrip("/")
        self._most_calls = most_calls
        self.counts = Counts()
        """Of the run that is under way; whoever begins one sets it."""

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncGenerator[None]:
        """Serve on a Unix socket."""
        app = web.Application(client_max_size=1 << 28)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=True) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._pass_on(session, request)

            app.router.add_route("*", "/{path:.*}", handle)
            # A client that is gone ends its request: the model must not work on.
            runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
            await runner.setup()
            try:
                await web.UnixSite(runner, str(path)).start()
                yield
            finally:
                await runner.cleanup()

    async def _pass_on(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        counts = self.counts
        if is_call := request.method == "POST":
            if counts.calls >= self._most_calls:
                error = {"message": f"The limit of {self._most_calls} model calls is reached."}
                return web.json_response({"error": error}, status=403)
            counts.calls += 1
        headers = _passed_on(request.headers)
        if key := os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        url, body = self._address(request.path_qs), await request.read()
        async with session.request(request.method, url, data=body, headers=headers) as answer:
            response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
            await response.prepare(request)
            seen = bytearray()
            async for piece in answer.content.iter_any():
                seen += piece
                await response.write(piece)
            if is_call:
                used = usage_of(bytes(seen))
                counts.tokens_in += used.get("prompt_tokens") or 0
                counts.tokens_out += used.get("completion_tokens") or 0
            await response.write_eof()
            return response

    def _address(self, path: str) -> str:
        """Return where a path lies on the server: the protocol's own begin with `/v1`."""
        if path.startswith("/v1/"):
            return self._base_url + path.removeprefix("/v1")
        return self._base_url.removesuffix("/v1") + path


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name.lower() not in _OF_ONE_HOP}


def usage_of(body: bytes) -> dict[str, Any]:
    """Return the usage that an answer reports: one whole object, or the last of a stream's."""
    used: dict[str, Any] = {}
    text = body.decode(errors="replace")
    streamed = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    for part in streamed or [text]:
        try:
            used = json.loads(part).get("usage") or used
        except (ValueError, AttributeError):  # "[DONE]", an error page
            continue
    return used

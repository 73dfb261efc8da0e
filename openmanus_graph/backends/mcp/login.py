"""Logging in to a server over HTTP with a person's browser, and logging out."""

import asyncio
import contextlib
import html
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import httpx2
from aiohttp import web
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from openmanus_graph.backends.mcp.connection import connect_outside_run
from openmanus_graph.backends.mcp.failures import ServerError
from openmanus_graph.backends.mcp.oauth import LoginStore, NewLogin, StoredLogin, configured_client
from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.context import MCPServer

logging.getLogger("aiohttp.server").addHandler(logging.NullHandler())  # not on the terminal

HOST, CALLBACK = "127.0.0.1", "/callback"
REVOKE_S = 10.0
REPLY_S = 1.0
"""How long the page after the redirect may take to be sent."""


@dataclass(frozen=True)
class LoginResult:
    needed: bool
    """Whether the server asked for a login."""
    tools: int
    """How many tools the server lists."""
    scope: str = ""


async def login(
    server: MCPServer, show: Callable[[str], Awaitable[None]], timeout_s: float
) -> LoginResult:
    """Log in to a server with a url, and list its tools. `show` shows the user the address to open.

    Raises:
        ConfigError: The port of the redirect is taken, or the login cannot be stored.
        ServerError: The server or its authorization server refused, or the time is over.
    """
    store = LoginStore(server)
    registered = (await asyncio.to_thread(store.read)).client
    uris = registered.redirect_uris if registered is not None else None
    known_port = (uris[0].port or 0) if uris else 0
    async with _listen(show, server.oauth.redirect_port, known_port) as browser:
        provider = NewLogin(server, store, browser.redirect_uri, browser.open, browser.wait)
        try:
            async with (
                asyncio.timeout(timeout_s),
                connect_outside_run(server, auth=provider) as connection,
            ):
                tools = await connection.tools()
        except TimeoutError as error:
            text = f"was not logged in to within {timeout_s:g} s. Run the command again."
            raise ServerError(text, lasting=True) from error
    new = provider.context.current_tokens
    return LoginResult(new is not None, len(tools), (new.scope if new else None) or "")


async def logout(server: MCPServer) -> str:
    """Delete a login and revoke it. ConfigError: there is no login.

    Returns:
        Why the login could not be revoked; empty if it was.
    """
    store = LoginStore(server)
    async with store.locked():  # a run may be refreshing it: its new tokens are revoked
        known = await asyncio.to_thread(store.read)
        await asyncio.to_thread(store.forget)
    if known.tokens is None:
        raise ConfigError(f"There is no login at the MCP server {server.name!r}.")
    if known.revocation_endpoint is None:
        return "Its authorization server cannot revoke logins; this one ends there by itself."
    provider = StoredLogin(server, store)
    provider.context.client_info = client_info = configured_client(server) or known.client
    token = known.tokens.refresh_token or known.tokens.access_token
    kind = "refresh_token" if known.tokens.refresh_token else "access_token"
    data = {"token": token, "token_type_hint": kind}
    if client_info is not None:
        data["client_id"] = client_info.client_id
    data, headers = provider.context.prepare_token_auth(data, {})
    try:
        tls = await asyncio.to_thread(tls_context)
        async with httpx2.AsyncClient(verify=tls, timeout=REVOKE_S) as client:
            response = await client.post(known.revocation_endpoint, data=data, headers=headers)
    except httpx2.HTTPError as error:
        return f"It could not be revoked: {type(error).__name__}."
    return "" if response.is_success else f"It could not be revoked: {response.status_code}."


class _Browser:
    """Shows the user the login page, and receives the redirect to us afterwards."""

    def __init__(self, show: Callable[[str], Awaitable[None]]) -> None:
        self._show, self._state, self.redirect_uri = show, "", ""
        self._result: asyncio.Future[AuthorizationCodeResult] = asyncio.Future()

    async def open(self, url: str) -> None:
        """Show the login page. Only a redirect with the same `state` is accepted."""
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        await self._show(url)

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the redirect. OAuthFlowError: the user or the server refused."""
        return await self._result

    async def answer(self, request: web.Request) -> web.Response:
        status, text = self._take(request.query)
        page = f"<!doctype html><title>OpenManus</title><p>{html.escape(text)}</p>"
        headers = {"Cache-Control": "no-store"}
        return web.Response(status=status, text=page, content_type="text/html", headers=headers)

    def _take(self, given: Mapping[str, str]) -> tuple[int, str]:
        if not self._state or given.get("state") != self._state or self._result.done():
            return 400, "This is not an answer to the login that is under way."
        if "code" in given:
            self._result.set_result(
                AuthorizationCodeResult(
                    code=given["code"], state=given["state"], iss=given.get("iss")
                )
            )
            return 200, "You can close this page and go back to OpenManus."
        why = given.get("error_description") or given.get("error", "no code was sent")
        self._result.set_exception(OAuthFlowError(f"the login was refused: {why[:200]}"))
        return 200, "The login was refused. You can close this page."


@contextlib.asynccontextmanager
async def _listen(
    show: Callable[[str], Awaitable[None]], port: int | None, known_port: int
) -> AsyncGenerator[_Browser]:
    """Listen for the redirect at `port`. Without one, prefer `known_port` if it is free."""
    browser, app = _Browser(show), web.Application()
    app.router.add_get(CALLBACK, browser.answer)
    # Browsers connect in advance, and then send nothing: such connections are not waited for.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=REPLY_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port or known_port).start()
        except OSError as error:
            if port is not None:
                text = f"Port {port} (oauth.redirect_port) is taken. Free it."
                raise ConfigError(text) from error
            await web.TCPSite(runner, HOST, 0).start()
        browser.redirect_uri = f"http://{HOST}:{runner.addresses[0][1]}{CALLBACK}"
        yield browser
    finally:
        await runner.cleanup()

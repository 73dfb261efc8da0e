"""OAuth of servers over HTTP, with the SDK's providers.

A run uses a login and refreshes it. Only `login.py` begins one, with the user.
"""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from filelock import AsyncFileLock
from mcp.client import auth
from mcp.client.auth.utils import extract_field_from_www_auth, issuers_match, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import BaseModel

from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.config.files import config_home, write_file
from openmanus_graph.config.secret_values import MCP_LOGINS
from openmanus_graph.state.context import MCPServer


class Login(BaseModel):
    url: str
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None
    revocation_endpoint: str | None = None
    wanted_scope: str | None = None
    """The scope that the server has requested since; the next login requests it too."""


class LoginStore:
    """The file of one server's login; the SDK reads and writes it as its token storage."""

    def __init__(self, server: MCPServer) -> None:
        self._url = server.url or ""
        key = json.dumps([self._url, server.oauth.client_id, server.oauth.grant])
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        self.path = config_home() / MCP_LOGINS / f"{urlsplit(self._url).hostname}-{digest}.json"

    def read(self) -> Login:
        """Return the login; an empty one if there is none, or the file is broken. Blocks."""
        try:
            return Login.model_validate_json(self.path.read_text("utf-8"))
        except (OSError, ValueError):  # ValidationError and UnicodeDecodeError among them
            return Login(url=self._url)

    def update(self, **changes: Any) -> None:
        """Change fields of the login. Blocks. ConfigError if the file cannot be written."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        changed = self.read().model_copy(update=changes)
        write_file(self.path, changed.model_dump_json(exclude_none=True) + "\n", mode=0o600)

    def forget(self) -> None:
        """Delete the login; the caller holds its lock. Blocks."""
        self.path.unlink(missing_ok=True)
        self._lock_path.unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Keep other processes and threads from changing the login at the same time.

        Authorization servers withdraw a login whose refresh token is used twice.
        """
        await asyncio.to_thread(self.path.parent.mkdir, 0o700, parents=True, exist_ok=True)
        async with AsyncFileLock(self._lock_path, mode=0o600):
            yield

    async def get_tokens(self) -> OAuthToken | None:
        return (await asyncio.to_thread(self.read)).tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await asyncio.to_thread(self.update, tokens=tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return (await asyncio.to_thread(self.read)).client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await asyncio.to_thread(self.update, client=client_info)

    @property
    def _lock_path(self) -> Path:
        return self.path.with_suffix(".lock")


class Uncommitted(LoginStore):
    """The storage of a login in progress. It writes nothing, because the login may fail."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Write nothing."""

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Write nothing."""


CLIENT_NAME = "OpenManus"
PROBLEM_CHARS = 300
UNREGISTERED = (
    ". Where clients cannot register themselves, make one there and name it in `oauth.client_id`"
)
_ERROR_CODE = re.compile(r'"error"\s*:\s*"([\w-]+)"')
NO_REDIRECT = "http://127.0.0.1/callback"
"""The address that a client must name even if it only refreshes."""


def wants_login(response: httpx2.Response) -> bool:
    """Return True if a response has the challenge of RFC 6750, which requires a login."""
    challenge = response.headers.get("www-authenticate", "")
    return response.status_code == 401 and challenge.lower().startswith("bearer")


def wanted_scope(response: httpx2.Response) -> str | None:
    """Return the missing scope of a request; empty if it is not named, None if none is missing."""
    if response.status_code != 403:
        return None
    if extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return None
    return extract_field_from_www_auth(response, "scope") or ""


def problem_of(error: Exception) -> str:
    """Return why a login failed, in one line. For a refused token, that is only the error code."""
    text = str(error)
    if isinstance(error, auth.OAuthTokenError) and (code := _ERROR_CODE.search(text)):
        text = f"{text.partition('):')[0]}): {code[1]}"
    line = redact_secrets(text.strip().partition("\n")[0]).rstrip(".: ")
    problem = f"{line[:1].lower()}{line[1:PROBLEM_CHARS]}"
    return problem + UNREGISTERED if isinstance(error, auth.OAuthRegistrationError) else problem


class Provider(auth.OAuthClientProvider):
    """The SDK's flow, except that requests with a valid token do not wait for each other."""

    server: MCPServer
    store: LoginStore

    widens_scope = True
    """Whether it can request the scope that a request lacked, which may need the user."""

    async def _is_enough(self, response: httpx2.Response) -> bool:
        """Return True if a request needs no other login."""
        lacks_scope = self.widens_scope and wanted_scope(response) is not None
        return response.status_code != 401 and not lacks_scope

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if not self._initialized:
            await self._initialize()
        if self.context.is_token_valid():
            self._add_auth_header(request)
            response = yield request
            if await self._is_enough(response):
                return
        flow = super()._auth_flow(request)
        async with contextlib.AsyncExitStack() as exclusive, contextlib.aclosing(flow):
            await exclusive.enter_async_context(self._alone())
            await self._reload()
            try:
                outgoing = await anext(flow)
                while True:
                    if outgoing is request:  # it may take as long as the call it carries
                        await exclusive.aclose()
                        response = yield outgoing
                        if await self._is_enough(response):
                            return
                        await exclusive.enter_async_context(self._alone())
                    else:
                        self._check_request(outgoing)
                        response = yield outgoing
                    outgoing = await flow.asend(response)
            except StopAsyncIteration:
                return

    def _alone(self) -> AbstractAsyncContextManager[None]:
        return self.store.locked()

    async def _reload(self) -> None:
        """Load what another process has stored in the meantime."""
        before = self.context.current_tokens
        await self._initialize()
        if self.context.current_tokens != before:
            self.context.token_expiry_time = None  # unknown until a request fails

    def _select_authorization_server(self, advertised: list[str]) -> str:
        """Choose the server that knows the client. No other server may receive its data."""
        known = self._known_issuer()
        if known is None:
            return advertised[0]
        for one in advertised:
            if issuers_match(one, known):
                return one
        raise auth.OAuthFlowError(f"it names the authorization server {advertised[0]}, not {known}")

    def _known_issuer(self) -> str | None:
        """Return the only authorization server that may receive client data; None if any may."""
        return self.server.oauth.issuer

    def _check_authorization_server(self) -> None:
        """Refuse a server that is not the known one, or that does not describe itself.

        The SDK would send the user, the secret and the tokens to the MCP server instead.
        """
        found, known = self.context.oauth_metadata, self._known_issuer()
        named = known or self.context.auth_server_url
        if found is None and named is not None:
            raise auth.OAuthFlowError(f"the authorization server {named} does not describe itself")
        if found is not None and known is not None and not issuers_match(str(found.issuer), known):
            raise auth.OAuthFlowError(
                f"it names the authorization server {found.issuer}, not {known}"
            )

    def _check_request(self, request: httpx2.Request) -> None:
        """Check the address of a request of the login."""
        if urlsplit(self.context.server_url).scheme == "https" and request.url.scheme != "https":
            raise auth.OAuthFlowError(f"its login at {request.url.host} is not encrypted")
        if request.method == "POST":
            self._check_authorization_server()


class StoredLogin(Provider):
    """Uses and refreshes a user's login. A wider scope needs the user."""

    widens_scope = False

    def __init__(self, server: MCPServer, store: LoginStore) -> None:
        super().__init__(server.url or "", _metadata(server, NO_REDIRECT), store)
        self.server, self.store = server, store
        self._issuer: str | None = None

    async def _is_enough(self, response: httpx2.Response) -> bool:
        if scope := wanted_scope(response):
            async with self.store.locked():
                known = await asyncio.to_thread(self.store.read)
                wanted = union_scopes(known.wanted_scope, scope)
                await asyncio.to_thread(self.store.update, wanted_scope=wanted)
        return await super()._is_enough(response)

    async def _initialize(self) -> None:
        await super()._initialize()
        client = configured_client(self.server) or self.context.client_info
        self.context.client_info = client
        self._issuer = client.issuer if client is not None else None

    def _known_issuer(self) -> str | None:
        return super()._known_issuer() or self._issuer

    def _check_request(self, request: httpx2.Request) -> None:
        if request.method == "POST" and self.context.client_info is None:  # to register one
            raise auth.OAuthFlowError("the login has expired")
        super()._check_request(request)

    async def _perform_authorization(self) -> httpx2.Request:
        """Refresh, where the SDK would send the user to log in."""
        if self.context.current_tokens is not None:  # else they belong to another issuer
            self.context.current_tokens = await self.store.get_tokens()
        if not self.context.can_refresh_token():
            raise auth.OAuthFlowError("the login has expired")
        choose_auth_method(self)
        return await self._refresh_token()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        if not await self._handle_refresh_response(response):
            status = response.status_code
            gone = status in (400, 401)
            text = "the login is not valid any more" if gone else "the login cannot be refreshed"
            raise auth.OAuthTokenError(f"{text} (the authorization server answered {status})")


class NewLogin(Provider):
    """Logs in with the user, whether or not there is a login already."""

    def __init__(
        self,
        server: MCPServer,
        store: LoginStore,
        redirect_uri: str,
        redirect: Callable[[str], Awaitable[None]],
        callback: Callable[[], Awaitable[AuthorizationCodeResult]],
    ) -> None:
        """Reuse only a client that is already registered for `redirect_uri`.

        The store gets the login once it is complete. `redirect` shows the user the login page, and
        `callback` waits for the redirect.
        """
        metadata = _metadata(server, redirect_uri)
        super().__init__(server.url or "", metadata, Uncommitted(server), redirect, callback)
        self.server, self.store, self._redirect_uri = server, store, redirect_uri

    def _alone(self) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()  # the user takes minutes

    async def _reload(self) -> None:
        """Do nothing: only this login counts."""

    async def _initialize(self) -> None:
        await super()._initialize()
        self.context.clear_tokens()
        registered = self.context.client_info
        usable = registered is not None and self._redirect_uri in map(
            str, registered.redirect_uris or ()
        )
        self.context.client_info = configured_client(self.server) or (
            registered if usable else None
        )

    async def _perform_authorization(self) -> httpx2.Request:
        self._check_authorization_server()
        found = self.context.oauth_metadata
        methods = found.code_challenge_methods_supported if found is not None else None
        if methods is not None and "S256" not in methods:
            raise auth.OAuthFlowError("its authorization server does not support PKCE with S256")
        scope = self.context.client_metadata.scope
        known = await asyncio.to_thread(self.store.read)
        for more in (self.server.oauth.scope, known.wanted_scope):
            scope = union_scopes(scope, more)
        self.context.client_metadata.scope = scope
        choose_auth_method(self)
        return await super()._perform_authorization()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        found = self.context.oauth_metadata
        endpoint = str(found.revocation_endpoint) if found and found.revocation_endpoint else None
        async with self.store.locked():
            await asyncio.to_thread(
                self.store.update,
                tokens=self.context.current_tokens,
                client=None if self.server.oauth.client_id else self.context.client_info,
                revocation_endpoint=endpoint,
                wanted_scope=None,
            )


def configured_client(server: MCPServer) -> OAuthClientInformationFull | None:
    """Return the client of the configuration; None if the client registers itself."""
    client = server.oauth
    if client.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=client.client_id,
        client_secret=client.client_secret,
        issuer=client.issuer,
        token_endpoint_auth_method="client_secret_basic" if client.client_secret else "none",
    )


def choose_auth_method(provider: auth.OAuthClientProvider) -> None:
    """Send a configured client's secret in a way that its authorization server supports."""
    client, found = provider.context.client_info, provider.context.oauth_metadata
    methods = found.token_endpoint_auth_methods_supported if found else None
    basic_only = client is not None and client.token_endpoint_auth_method == "client_secret_basic"
    if client and basic_only and methods and "client_secret_basic" not in methods:
        client.token_endpoint_auth_method = "client_secret_post"


def _metadata(server: MCPServer, redirect_uri: str) -> OAuthClientMetadata:
    described: dict[str, Any] = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "token_endpoint_auth_method": "none",
        "scope": server.oauth.scope,
    }
    return OAuthClientMetadata.model_validate(described)

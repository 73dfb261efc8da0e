"""Refuses requests with a wrong Host, Origin or token, or of another user's threads.

It wraps the whole API, LangGraph's own routes included. There are no cookies, so a page in the
user's browser cannot send credentials unless it knows the token. Host and Origin are checked
because an attacker can make a name resolve to this machine (DNS rebinding).
"""

import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import Generator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from langgraph_sdk import Auth
from langgraph_sdk.errors import NotFoundError
from starlette.types import ASGIApp
from typing_extensions import override

from openmanus_graph.backends.persistence.memory import USERS, user_namespace
from openmanus_graph.config.homes import make_folder, openmanus_home, write_once
from openmanus_graph.config.secret_values import SERVER_TOKEN_FILE
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.admission import (
    admit,
    admit_deletion,
    contexts_in,
    drop_reserved,
    require_allowed,
)
from openmanus_graph.interfaces.server.store import (
    OPENAI_PREFIX,
    OWNER_KEY,
    as_uuid,
    current,
    openai_error,
    own_server,
)
from openmanus_graph.interfaces.service import accounts, http
from openmanus_graph.interfaces.service.accounts import Action, Refused
from openmanus_graph.interfaces.service.http import Receive, Scope, Send

TOKEN_VARIABLE = "OPENMANUS_TOKEN"
MIN_CHARS = 16
MAX_BODY_BYTES = 32 << 20
"""Enough for a picture or a recording that a model accepts, as base64."""
MAX_VALUES = 2_000_000
"""An empty list takes three bytes in a body, and more than 60 in memory."""
_MOST_DISCARDED = 256 << 20
"""Bytes of a refused body that are read; a longer one is cut off."""
_VALUE_MARKS = b",[{"
_MOST_REFUSAL_BYTES = 4000
"""Of a 422: validators repeat what they were given."""
_UPLOAD = re.compile(r"/app/api/threads/[^/]+/files/.+")


@lru_cache(maxsize=1)
def server_token() -> str:
    """Return the token of the environment, of the home folder, or a new one. Blocks.

    ConfigError if it is too short to be secret, or its file cannot be written.
    """
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return _checked(given, TOKEN_VARIABLE)
    path = token_file()
    try:
        make_folder(path.parent)
        write_once(path, secrets.token_urlsafe(32) + "\n")
        path.chmod(0o600)  # a copied home may have lost it
        return _checked(path.read_text("ascii").strip(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The server's token cannot be kept in {path}: {error}. "
            f"Set OPENMANUS_HOME to another folder, or {TOKEN_VARIABLE}."
        ) from error


def token_file() -> Path:
    return openmanus_home() / SERVER_TOKEN_FILE


def token_source() -> str:
    in_environment = os.environ.get(TOKEN_VARIABLE, "").strip()
    return TOKEN_VARIABLE if in_environment else str(token_file())


def is_token(given: str) -> bool:
    return http.equals_secret(given, server_token())


def _checked(token: str, source: str) -> str:
    if len(token) < MIN_CHARS or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"The token in {source} is not a secret: use {MIN_CHARS} printable characters or more."
        )
    return token


def refusal_of(scope: Scope, status: int, reason: str) -> dict[str, Any]:
    if scope["path"].startswith(f"{OPENAI_PREFIX}/"):
        return openai_error(Refused(status, reason))
    return {"detail": reason}


class _Exchange:
    """A request and its answer. A body over the limits is answered with 413."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._bytes = self._values = 0
        self._has_begun = False
        self._invalid: dict[str, Any] | None = None
        """The head of a 422, until its body is known."""
        self._body = b""
        self.is_refused = False
        """Whether the body was over a limit."""

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] != "http.request" or self.is_refused:
            return message
        part: bytes = message.get("body", b"")
        self._bytes += len(part)
        self._values += sum(part.count(mark) for mark in _VALUE_MARKS)
        problem = ""
        if self._bytes > MAX_BODY_BYTES:
            problem = f"The body is longer than {MAX_BODY_BYTES >> 20} MB."
        elif self._values > MAX_VALUES:
            problem = f"The body holds more than {MAX_VALUES:,} values."
        if not problem or self._has_begun:
            return message
        self.is_refused = True
        # Read and discard the rest: a client that still sends it may miss the answer.
        left = _MOST_DISCARDED
        while message.get("more_body") and left > 0:
            message = await self._receive()
            left -= len(message.get("body", b""))
        advice = f"{problem} Send less, or upload large files to the thread's folder first."
        await self._answer(413, advice)
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.is_refused:
            return
        self._has_begun = True
        if message["type"] == "http.response.start" and message["status"] == 422:
            self._invalid = message
        elif self._invalid is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            if len(self._body) > _MOST_REFUSAL_BYTES:
                shown = self._body[:_MOST_REFUSAL_BYTES].decode("utf-8", "replace")
                await self._answer(422, f"The request has the wrong form: {shown} ...")
            else:
                await self._send(self._invalid)
                await self._send({"type": "http.response.body", "body": self._body})

    async def _answer(self, status: int, reason: str) -> None:
        content = refusal_of(self._scope, status, reason)
        await http.answer_json(self._send, status, content, {"connection": "close"})


STUDIO_ORIGINS = ("https://smith.langchain.com", "https://eu.smith.langchain.com")
HOSTS_VARIABLE = "OPENMANUS_ALLOWED_HOSTS"
ORIGINS_VARIABLE = "OPENMANUS_ALLOWED_ORIGINS"
PUBLIC = (
    "/app", "/app/static/", "/app/pages/", "/app/t/", "/app/files/", "/app/shared/",
    "/app/login", "/app/login/", "/hooks/",
)  # fmt: skip
"""Paths without a token: pages, which have no data, files and threads with secret links, and hooks,
whose requests are signed."""
PROBES = ("/ok", "/health", "/ready")
METRICS = ("/metrics", "/app/metrics")
INTERNAL = "/noauth"
"""Root path of requests that the server makes to itself; external requests cannot have one."""


_THREAD = re.compile(r"(?:/app/api)?/threads/(?P<thread>[^/]+)(?:/.*)?")
_THREAD_ITSELF = re.compile(rf"(?:{INTERNAL})?/threads/[^/]+/?")
_OF_ALL = ("search", "count", "prune", "bulk")
"""In place of a thread's id: requests about several threads."""
_READING_POSTS = re.compile(
    r"/(?:threads|assistants)/(?:search|count)|/store/(?:items/search|namespaces)"
    r"|/threads/[^/]+/(?:history|state/checkpoint)|/assistants/[^/]+/versions|/app/api/session"
)
_ADMINS = re.compile(
    r"/app/api/setup(?:/\w+)?|/threads/prune|(?:/threads/[^/]+)?/runs/crons.*|/assistants(?:/[^/]+)?|/profile"
)
"""Paths whose writing needs an admin."""


class ServerGuard(http.RequestGuard):
    host_refused = f"This server does not answer to that Host. Set more names in {HOSTS_VARIABLE}."
    origin_refused = (
        f"Pages of other sites cannot call this server. Allow sites in {ORIGINS_VARIABLE}."
    )
    token_refused = (
        "This server requires its token as `Authorization: Bearer TOKEN` or `X-Api-Key: TOKEN`. "
        "`openmanus serve` prints it; it is kept in OPENMANUS_HOME."
    )

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            app,
            bound_to=("127.0.0.1", *_list_variable(HOSTS_VARIABLE)),
            origins=(*STUDIO_ORIGINS, *_list_variable(ORIGINS_VARIABLE)),
        )
        self.needs_token = True
        self._deleting = asyncio.Lock()
        """LangGraph's server in memory deletes others if two threads are deleted at once."""

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root: str = scope.get("root_path", "")
        is_internal = root == INTERNAL or root.startswith(f"{INTERNAL}/")
        answer = self.app if is_internal else super().__call__
        if scope.get("method") == "DELETE" and _THREAD_ITSELF.fullmatch(scope["path"]):
            async with self._deleting:
                await answer(scope, receive, send)
        else:
            await answer(scope, receive, send)

    @override
    async def authorize(self, scope: Scope) -> None:
        """Decide by method and path. The handlers below see ids in bodies."""
        path, action = scope["path"].rstrip("/"), cast("Action", "write")
        if path.startswith("/hooks/"):
            return
        is_read = scope.get("method", "GET") in ("GET", "HEAD", "OPTIONS")
        if is_read or _READING_POSTS.fullmatch(path):
            action = "read"
        elif _ADMINS.fullmatch(path):
            action = "administer"
        if path in METRICS and not current().server.metrics_public:
            action = "administer"
        found = _THREAD.fullmatch(path)
        named = found["thread"] if found and found["thread"] not in _OF_ALL else None
        await accounts.authorize(action, named)
        if named is not None and (uuid := as_uuid(named)) != named:  # LangGraph's server takes both
            await accounts.authorize(action, uuid)

    @override
    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        is_upload = is_http and scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"])
        if not is_http or is_upload:  # uploads of files are not parsed, and have their own limits
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.is_refused:  # else the app misses the rest of the body
                raise

    @override
    def refusal_body(self, scope: Scope, status: int, reason: str) -> dict[str, Any]:
        return refusal_of(scope, status, reason)

    @override
    def is_token(self, given: str) -> bool:
        return is_token(given)

    @override
    def is_public(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            return True  # a browser asks before the request, without credentials
        if path in METRICS:
            return current().server.metrics_public
        if path in PROBES:
            return not scope.get("query_string")
        return any(path == one or (one.endswith("/") and path.startswith(one)) for one in PUBLIC)


def _list_variable(variable: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in os.environ.get(variable, "").split(",") if part.strip())


auth = Auth()


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes] | dict[str, str]) -> Auth.types.MinimalUserDict:
    """Name the user that the guard has found for this request."""
    user = accounts.current_user()
    if user == accounts.NOBODY:
        raise Auth.exceptions.HTTPException(401, detail="The token is missing or wrong.")
    return {"identity": user.identity, "is_authenticated": True}


@auth.on
async def allow(ctx: Auth.types.AuthContext, value: Any) -> bool:
    """Allow what has no handler below: the guard has checked the user's role."""
    drop_reserved(value)
    return True


@auth.on.threads
async def check_thread(ctx: Auth.types.AuthContext, value: Any) -> Auth.types.FilterType:
    """Show a user only threads of their own, also those that a body names."""
    with _refusals_as_http_errors():
        if (thread := value.get("thread_id")) is not None:
            await accounts.authorize("read", str(thread))
    return _own_threads(value)


@auth.on.threads.create
async def check_new_thread(
    ctx: Auth.types.AuthContext, value: Auth.types.ThreadsCreate
) -> Auth.types.FilterType:
    if (thread := value.get("thread_id")) is not None:  # else it is claimed at its first run
        with _refusals_as_http_errors():
            await accounts.claim(str(thread))
    return _own_threads(value)


@auth.on.threads.create_run
async def check_run(
    ctx: Auth.types.AuthContext, value: Auth.types.RunsCreate
) -> Auth.types.FilterType | None:
    """Refuse runs that cannot work, and complete the others with their thread's options.

    LangGraph's server passes a run's arguments as `kwargs`, others pass the request itself.
    """
    thread, run = value.get("thread_id"), cast("dict[str, Any]", value.get("kwargs", value))
    assistant: Mapping[str, Any] = {}
    with contextlib.suppress(NotFoundError):  # which the server reports itself
        assistant = await own_server.connect().assistants.get(str(value.get("assistant_id")))
    with _refusals_as_http_errors():
        if thread is not None:
            await accounts.claim(str(thread))
        if run.get("webhook") and accounts.current_user().role != "admin":
            raise Refused(403, "Only an admin may set a webhook. Leave it out.")
        drop_reserved(value)
        drop_reserved(run)
        require_allowed(*contexts_in(run))
        await admit(None if thread is None else str(thread), run, assistant)
    # Other servers know their threads' owners, and take the changed run only without a filter.
    return _own_threads(value) if run is not value else None


@auth.on.threads.delete
async def check_deletion(
    ctx: Auth.types.AuthContext, value: Auth.types.ThreadsDelete
) -> Auth.types.FilterType:
    thread = str(value.get("thread_id"))
    with _refusals_as_http_errors():
        await accounts.authorize("write", thread)
        await admit_deletion(thread)
    return _own_threads(value)


@auth.on.store
async def check_namespace(ctx: Auth.types.AuthContext, value: Any) -> bool:
    """Put the items of a named user into a namespace of their own, which only they reach."""
    user, given = accounts.current_user(), tuple[str, ...](value.get("namespace") or ())
    own = user_namespace(user.name)
    if own and given[: len(own)] != own:
        value["namespace"] = (*own, *given)
    names_all = not own and not given and await asyncio.to_thread(lambda: accounts.accounts().any())
    if not own and (names_all or given[:1] == (USERS,)):
        raise Auth.exceptions.HTTPException(
            status_code=403,
            detail=f"Name a namespace; those below {USERS!r} belong to the server's users.",
        )
    return True


def _own_threads(value: Any) -> Auth.types.FilterType:
    """Return the filter of the current user's threads; a new or changed one becomes theirs."""
    own = {OWNER_KEY: accounts.current_user().identity}
    drop_reserved(value)
    if isinstance(value.get("metadata"), dict):
        value["metadata"].update(own)
    return own


@contextlib.contextmanager
def _refusals_as_http_errors() -> Generator[None]:
    try:
        yield
    except Refused as refusal:
        raise Auth.exceptions.HTTPException(
            status_code=refusal.status, detail=str(refusal)
        ) from refusal

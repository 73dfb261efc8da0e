"""Sends requests to a model's server, over connections that are kept for the next request.

aiohttp and not the openai SDK: its import takes a seventh of the SDK's, a request a quarter of the
CPU time and a streamed reply half of it; and its pool finds an idle connection without a look at
all others, which with fifty agents in a process took the SDK's client a quarter of its time.
"""

import io
import json
import logging
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import aiohttp

from openmanus_graph.backends.models.request_errors import StatusError, TransportError
from openmanus_graph.state.addresses import without_secrets

log = logging.getLogger(__name__)

_HEADER_LIMIT = 65_536
"""Bytes of a line; gateways send long cookies and policies, which nobody here reads."""
_SAID_CHARS = 100
"""Of what a server sent that is no answer."""


class Body:
    """The body of an answer, decompressed, piece by piece as it arrives."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    def __aiter__(self) -> Self:
        """Return itself: it can be read once."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next bytes. TransportError: the answer broke off or is unreadable."""
        try:
            piece = await self._answer.content.readany()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _transport_error(error, str(self._answer.url)) from error
        if not piece:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """Give up what was not read. The connection is kept if there was nothing left."""
        self._answer.close()


@dataclass
class Connections:
    """The connections to one server. Used in one event loop, with which they are closed."""

    context: ssl.SSLContext | bool
    """What certificates are checked by; True: the system's authorities."""
    proxy: str | None
    """Address of an HTTP or, with the package aiohttp-socks, SOCKS proxy."""
    connect_timeout_s: float
    idle_timeout_s: float
    """How long the server may stay silent."""
    _owner: AsyncGenerator[aiohttp.ClientSession] | None = field(default=None, repr=False)
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    async def post(
        self,
        url: str,
        content: bytes,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_s: float | None = None,
    ) -> Body:
        """Send a request and return the body of a success, of which nothing has been read.

        Raises:
            StatusError: The server refused it.
            TransportError: It could not be reached, did not answer in time, or broke off.
        """
        if self._session is None:
            self._owner = self._open()
            self._session = await anext(self._owner)
        options: dict[str, Any] = {}
        if idle_timeout_s is not None:
            options["timeout"] = self._timeout(idle_timeout_s)
        # Bytes of megabytes would be written in one go, which holds the event loop.
        data, params = io.BytesIO(content), query or None
        try:
            answer = await self._session.post(
                url, data=data, headers=headers, params=params, **options
            )
            if log.isEnabledFor(logging.INFO):
                log.info("%s answered with %s", without_secrets(url), answer.status)
            if answer.method != "POST":  # as servers do that send http:// on to https://
                answer.close()
                raise StatusError(answer.history[-1].status, _moved_to(str(answer.url)), {})
            if answer.status < 400:
                return Body(answer)
            async with answer:
                body = _json_or_text(await answer.read())
        except aiohttp.TooManyRedirects as error:
            last = error.history[-1]
            raise StatusError(last.status, _moved_to(str(last.url)), {}) from error
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise _transport_error(error, url) from error
        raise StatusError(answer.status, body, {k.lower(): v for k, v in answer.headers.items()})

    async def aclose(self) -> None:
        """Close them; a later request opens new ones."""
        owner, self._owner, self._session = self._owner, None, None
        if owner is not None:
            await owner.aclose()

    def unopened(self) -> Self:
        """Return the same for another event loop."""
        return replace(self, _owner=None, _session=None)

    async def _open(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """Yield a session. As a generator it is closed at the latest when the event loop ends."""
        async with aiohttp.ClientSession(
            connector=self._connector(),
            timeout=self._timeout(self.idle_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=None if self._through_socks else self.proxy,
            max_line_size=_HEADER_LIMIT,
            max_field_size=_HEADER_LIMIT,
        ) as session:
            yield session

    @property
    def _through_socks(self) -> bool:
        return self.proxy is not None and self.proxy.lower().startswith("socks")

    def _connector(self) -> aiohttp.BaseConnector:
        if self.proxy is None or not self._through_socks:
            return aiohttp.TCPConnector(limit=0, ssl=self.context)
        from aiohttp_socks import ProxyConnector  # looked for by who chose the proxy

        return ProxyConnector.from_url(self.proxy, limit=0, ssl=self.context)

    def _timeout(self, idle_s: float) -> aiohttp.ClientTimeout:
        connect_s = min(idle_s, self.connect_timeout_s)
        return aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=idle_s)


def _moved_to(url: str) -> str:
    return f"it sends requests on to {without_secrets(url)}"


def _transport_error(error: Exception, url: str) -> TransportError:
    """Say why, as the system does: aiohttp's own texts repeat the address."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return TransportError(f"the proxy refused it with {error.status} {error.message}", url)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return TransportError("no connection was made", url)
    if isinstance(error, TimeoutError):
        return TransportError("nothing came", url)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return TransportError(f"the connection was closed without an answer{_if_plain(url)}", url)
    if isinstance(error, aiohttp.ClientResponseError):
        said = " ".join(error.message.split())[:_SAID_CHARS]
        return TransportError(f"what came is no answer in HTTP ({said}){_if_plain(url)}", url)
    causes = [str(link) for link in (error, error.__cause__) if link is not None and str(link)]
    why = causes[-1] if causes else type(error).__name__
    if "WRONG_VERSION_NUMBER" in why:
        why += "; perhaps it speaks http, not https"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        why = f"the proxy {error.host}:{error.port}: {why}"
    return TransportError(why, url)


def _if_plain(url: str) -> str:
    return "; perhaps it speaks https, not http" if url.startswith("http://") else ""


def _json_or_text(body: bytes) -> object:
    text = body.decode("utf-8", "replace").strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

"""The way to a server: the environment's proxies and certificates, and connections for requests."""

import io
import logging
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import is_loopback, without_secrets
from openmanus_graph.state.json_values import json_or

log = logging.getLogger(__name__)
_HEADER_LIMIT = 65_536
"""Bytes of a line; gateways send long cookies and policies, which are not used here."""
_SHOWN_CHARS = 100
"""Of what a server sent that is not HTTP."""


def environment_proxy(scheme: str, host: str, port: int) -> str | None:
    """Return the address of the environment's proxy for a host, if it is not exempt.

    This machine is never reached through a proxy elsewhere.
    """
    if is_loopback(host):
        return None
    proxies = getproxies_environment()
    server = proxies.get(scheme) or proxies.get("all")
    exempt = proxy_bypass(f"{host}:{port}") or proxy_bypass(host)
    return server if server and not exempt else None


def tls_context() -> ssl.SSLContext:
    """Return the context that trusts the environment's authorities, or else the system's.

    REQUESTS_CA_BUNDLE is what companies set. ConfigError as `certificate_path`. Reads files.
    """
    return _tls_context(certificate_path())


@lru_cache
def _tls_context(path: Path | None) -> ssl.SSLContext:
    if path is None:
        from httpcore2 import default_ssl_context  # knows the stores of macOS and Windows

        return default_ssl_context()
    if path.is_dir():
        return ssl.create_default_context(capath=path)
    return ssl.create_default_context(cafile=path)


def certificate_path() -> Path | None:
    """Return the file or folder of authorities that the environment names.

    ConfigError: it does not exist.
    """
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"):
        if path := os.environ.get(variable):
            if not Path(path).exists():
                raise ConfigError(f"{variable} names {path!r}, which does not exist.")
            return Path(path)
    return None


class StatusError(Exception):
    """A request that a server refused.

    Attributes:
        status_code: 300 to 599; below 400 the request was redirected, and lost its body.
        body: The answer's JSON, or its text.
        headers: The answer's, their names in small letters.
    """

    def __init__(self, status_code: int, body: object, headers: Mapping[str, str]) -> None:
        super().__init__(body if isinstance(body, str) else "")
        self.status_code = status_code
        self.body = body
        self.headers = headers


class TransportError(Exception):
    def __init__(self, message: str, url: str) -> None:
        super().__init__(message)
        self.url = url


async def _body(answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """Yield the body of an answer, decompressed, in the pieces that arrive.

    Closing it gives up the unread rest. The connection is kept if there is none. TransportError:
    the answer broke off or is unreadable.
    """
    try:
        while piece := await answer.content.readany():
            yield piece
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _transport_error(error, str(answer.url)) from error
    finally:
        answer.close()


@dataclass
class Connections:
    """The connections to one server. Used in one event loop, with which they are closed."""

    context: ssl.SSLContext | bool
    """Checks certificates; True: by the system's authorities."""
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
    ) -> AsyncGenerator[bytes]:
        """Send a request and return the body of a success, of which nothing has been read.

        StatusError: the server refused it. TransportError: it could not be reached, did not answer
        in time, or broke off.
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
            if answer.method != "POST":  # as servers do that redirect http:// to https://
                answer.close()
                raise _redirected(answer.history[-1].status, str(answer.url))
            if answer.status < 400:
                return _body(answer)
            async with answer:
                text = (await answer.read()).decode("utf-8", "replace").strip()
                body = json_or(text, text)
        except aiohttp.TooManyRedirects as error:
            raise _redirected(error.history[-1].status, str(error.history[-1].url)) from error
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise _transport_error(error, url) from error
        raise StatusError(answer.status, body, {k.lower(): v for k, v in answer.headers.items()})

    async def aclose(self) -> None:
        owner, self._owner, self._session = self._owner, None, None
        if owner is not None:
            await owner.aclose()

    def unopened(self) -> Self:
        """Return the same for another event loop."""
        return replace(self, _owner=None, _session=None)

    async def _open(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """Yield a session. As a generator it is closed at the latest when the event loop ends."""
        through_socks = self.proxy is not None and self.proxy.lower().startswith("socks")
        options: dict[str, Any] = {"limit": 0, "ssl": self.context}
        if through_socks:
            from aiohttp_socks import ProxyConnector  # its presence was checked with the proxy

            connector: aiohttp.BaseConnector = ProxyConnector.from_url(str(self.proxy), **options)
        else:
            connector = aiohttp.TCPConnector(**options)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout(self.idle_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=None if through_socks else self.proxy,
            max_line_size=_HEADER_LIMIT,
            max_field_size=_HEADER_LIMIT,
        ) as session:
            yield session

    def _timeout(self, idle_s: float) -> aiohttp.ClientTimeout:
        connect_s = min(idle_s, self.connect_timeout_s)
        return aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=idle_s)


def _redirected(status: int, url: str) -> StatusError:
    return StatusError(status, f"it redirects requests to {without_secrets(url)}", {})


def _transport_error(error: Exception, url: str) -> TransportError:
    """Return the reason in the system's words: aiohttp's own texts repeat the address."""
    maybe_tls = "; perhaps it speaks https, not http" if url.startswith("http://") else ""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        why = f"the proxy refused it with {error.status} {error.message}"
    elif isinstance(error, aiohttp.ConnectionTimeoutError):
        why = "no connection was made"
    elif isinstance(error, TimeoutError):
        why = "nothing came"
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        why = f"the connection was closed without an answer{maybe_tls}"
    elif isinstance(error, aiohttp.ClientResponseError):
        shown = " ".join(error.message.split())[:_SHOWN_CHARS]
        why = f"what came is not an answer in HTTP ({shown}){maybe_tls}"
    else:
        causes = [str(one) for one in (error, error.__cause__) if one is not None and str(one)]
        why = causes[-1] if causes else type(error).__name__
        if "WRONG_VERSION_NUMBER" in why:
            why += "; perhaps it speaks http, not https"
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            why = f"the proxy {error.host}:{error.port}: {why}"
    return TransportError(why, url)

"""A model's endpoint: its key, its address, the way to it, and which certificates are trusted."""

import io
import json
import logging
import math
import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp

from openmanus_graph.backends.models.spec import ModelSpec
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import is_loopback, without_secrets
from openmanus_graph.state.model_settings import ModelSettings


def api_key(spec: ModelSpec, settings: ModelSettings) -> str | None:
    """Return the key: of the settings, the provider's variable, what is stored, else a dummy.

    Raises:
        ConfigError: There is none and the provider wants one, or it cannot be a key.
    """
    provider = spec.provider
    given = settings.api_key.get_secret_value() if settings.api_key is not None else ""
    stored = settings.stored_key.get_secret_value() if settings.stored_key is not None else ""
    named = (os.environ.get(variable, "") for variable in provider.key_variables)
    values = (given, *named, stored)
    key = next((value.strip() for value in values if value.strip()), None)
    if key is not None:
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"The key of the model {spec} holds characters that no key has (a dash or quote "
                "of a word processor, or a line break). Copy it again."
            )
        return key
    if not provider.takes_key:
        return None
    if is_other_server(spec, settings):
        return "none"  # local servers want none, but the SDK insists on one
    names = " or ".join(provider.key_variables)
    raise ConfigError(
        f"No key for the model {spec}. Run openmanus init, or set the environment variable "
        f"{names}, or api_key in the configuration file. A server of your own needs no key: give "
        "its address as base URL."
    )


def base_url(spec: ModelSpec, settings: ModelSettings) -> str | None:
    """Return the address: the settings', else the provider's own.

    Raises:
        ConfigError: It is no web address.
    """
    given = settings.base_url
    if not given:
        return spec.provider.base_url
    try:
        parts = urlsplit(given)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        raise ConfigError(
            f"The base URL {given!r} of the model {spec} is no web address. Write it like "
            "http://127.0.0.1:8000/v1."
        )
    # People copy the whole address from documentation; the client adds this part itself.
    return given.strip().rstrip("/").removesuffix("/chat/completions")


def is_other_server(spec: ModelSpec, settings: ModelSettings) -> bool:
    """Say whether an OpenAI-compatible model is asked at another server than its provider's."""
    usual = spec.provider.base_url
    if usual is None or not settings.base_url:
        return False
    return urlsplit(settings.base_url).hostname != urlsplit(usual).hostname


def environment_proxy(scheme: str, host: str, port: int) -> str | None:
    """Return the address of the environment's proxy for a host, if it is not exempt.

    This machine is never reached through a proxy elsewhere.
    """
    if is_loopback(host):
        return None
    proxies = getproxies_environment()
    server = proxies.get(scheme) or proxies.get("all")
    if not server or proxy_bypass(f"{host}:{port}") or proxy_bypass(host):
        return None
    return server


def tls_context() -> ssl.SSLContext:
    """Return what certificates are checked by: the environment's authorities, or the system's.

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

    Raises:
        ConfigError: It does not exist.
    """
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"):
        path = os.environ.get(variable)
        if not path:
            continue
        if not Path(path).exists():
            raise ConfigError(f"{variable} names {path!r}, which does not exist.")
        return Path(path)
    return None


class StatusError(Exception):
    """A request that a server refused.

    Attributes:
        status_code: 300 to 599; below 400 the request was sent on elsewhere, and lost its body.
        body: The answer's JSON, or its text.
        headers: The answer's, their names in small letters.
    """

    def __init__(self, status_code: int, body: object, headers: Mapping[str, str]) -> None:
        super().__init__(body if isinstance(body, str) else "")
        self.status_code = status_code
        self.body = body
        self.headers = headers


class TransportError(Exception):
    """A server that could not be reached, did not answer in time, or broke its answer off."""

    def __init__(self, message: str, url: str) -> None:
        super().__init__(message)
        self.url = url


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


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DAY_S = 24 * 3600.0


def retry_after_s(
    headers: Mapping[str, str], text: str = "", now: datetime | None = None
) -> float | None:
    """Return the seconds to wait, from the headers or else the server's words.

    Args:
        headers: Those of the answer; `retry-after-ms` wins over `retry-after`.
        text: The server's message: "Please try again in 1m2.5s", or Google's `retryDelay`.
        now: This machine's time, against which an HTTP date is read if the answer has no `Date`.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    until = _moment(value)
    if until is not None:
        # By the server's own clock, if it sends one. By this machine's, which may be wrong, a wait
        # of days is no hint at all.
        server_now = _moment(headers.get("date"))
        seconds = (until - (server_now or now or datetime.now(UTC))).total_seconds()
        return None if server_now is None and seconds > DAY_S else max(0.0, seconds)
    return None if value else _seconds_in(text)


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "nan")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _moment(http_date: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(http_date) if http_date else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def _seconds_in(text: str) -> float | None:
    match = re.search(
        r"(?:(?:try again|retry) in |\bretryDelay\W{1,5})((?:\d+(?:\.\d+)?(?:ms|s|m|h))+)", text
    )
    if match is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", match.group(1))
    return sum(float(number) * _UNITS[unit] for number, unit in parts)

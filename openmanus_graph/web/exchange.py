"""One request and its answer: read as a stream, unpacked within bounds, errors in words."""

import asyncio
import functools
import re
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import version
from typing import TYPE_CHECKING, NoReturn

from openmanus_graph.errors import OwnWordsError, ToolError
from openmanus_graph.files.text_file import size_text
from openmanus_graph.web.addresses import WebAddress
from openmanus_graph.web.guard import Guard

if TYPE_CHECKING:
    from httpcore2 import AsyncConnectionPool, Response

CONNECT_S = 15.0
_TEXT = re.compile(r"text/.*|application/(?:.*[+/-])?(?:json|xml|javascript|yaml|x-ndjson)")
_SHOWN = re.compile(r"(image|audio|video)/|application/pdf")
"""What a browser opens instead of keeping it."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


@dataclass(frozen=True)
class Request:
    """What is asked for, and how much of it is taken."""

    address: WebAddress
    headers: Mapping[str, str]
    limit_bytes: int
    text_limit_bytes: int
    download_limit_bytes: int = 0
    """What `browser_use` may download, which is advised where it helps."""


@dataclass(frozen=True)
class Reply:
    """What one server answered."""

    status: int
    media_type: str
    charset: str | None
    location: str
    filename: str
    body: bytes
    cut: bool


def is_text(media_type: str) -> bool:
    """Say whether a media type is text, of which a part is worth something."""
    return _TEXT.fullmatch(media_type) is not None


@functools.cache
def user_agent() -> str:
    """Say who asks; blocks once. Many sites refuse the default names of HTTP libraries."""
    return f"Mozilla/5.0 (compatible; openmanus-graph/{version('openmanus-graph')})"


async def exchange(request: Request, guard: Guard) -> Reply:
    """Send one request and read the answer. ToolError says why there is none."""
    # Imported and opened in a thread: both read files.
    pool = await asyncio.to_thread(_open, request.address, guard)
    import httpcore2  # loaded by now

    try:
        async with pool:
            return await _exchanged(pool, request)
    except (httpcore2.NetworkError, httpcore2.ProxyError, httpcore2.TimeoutException) as error:
        _no_answer(request.address, error)
    except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
        raise ToolError(
            f"{request.address.origin} does not answer as a web server does ({error}). Check host "
            "and port, or try browser_use."
        ) from error


def _open(address: WebAddress, guard: Guard) -> "AsyncConnectionPool":
    from openmanus_graph.web.connections import open_pool

    user_agent()
    return open_pool(address, guard)


async def _exchanged(pool: "AsyncConnectionPool", request: Request) -> Reply:
    headers = {
        "User-Agent": user_agent(),
        "Accept-Language": "en;q=0.8,*;q=0.5",
        **request.headers,
        # No others: we unpack these ourselves, within bounds.
        "Accept-Encoding": "gzip, deflate",
    }
    async with pool.stream(
        "GET",
        request.address.url,
        headers=list(headers.items()),
        extensions={"timeout": {"connect": CONNECT_S}},
    ) as response:
        known = _Headers(response)
        text = is_text(known.media_type) or not known.media_type
        limit = request.text_limit_bytes if text else request.limit_bytes
        if not text and known.length is not None and known.length > limit:
            _too_long(request, known, limit)
        body, cut = await _read(response, known.encoding, limit, request.address)
        if cut and not text:
            _too_long(request, known, limit)
        return Reply(
            response.status, known.media_type, known.charset, known["location"], known.filename,
            body, cut,
        )  # fmt: skip


class _Headers:
    """The headers of an answer that are of use here."""

    def __init__(self, response: "Response") -> None:
        self._message = Message()
        for name, value in response.headers:
            self._message[name.decode("latin-1")] = _as_sent(value)
        typed = self["content-type"].strip()
        self.media_type = self._message.get_content_type() if typed else ""
        charset = self._message.get_param("charset")
        self.charset = charset if isinstance(charset, str) else None
        self.encoding = self["content-encoding"].strip().lower()
        length = self["content-length"].strip()
        self.length = int(length) if length.isdecimal() else None
        self.filename = self._message.get_filename() or ""

    def __getitem__(self, name: str) -> str:
        return str(self._message.get(name, ""))


def _as_sent(value: bytes) -> str:
    """Read a header; servers write names and addresses in UTF-8 although they should not."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return text.replace("\r", " ").replace("\n", " ")


async def _read(
    response: "Response", encoding: str, limit: int, address: WebAddress
) -> tuple[bytes, bool]:
    """Return the unpacked body up to the limit, and whether there was more."""
    body = bytearray()
    async for piece in _unpacked(response, encoding, limit + 1, address):
        body += piece
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


async def _unpacked(
    response: "Response", encoding: str, most: int, address: WebAddress
) -> AsyncIterator[bytes]:
    """Unpack a stream, never more than `most` bytes of a piece: it may be made to explode."""
    plain = encoding in ("", "identity")
    if not plain and encoding not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(
            f"{address.url} answered in the encoding {encoding!r}, which was not asked for and is "
            "not known here. Try browser_use."
        )
    unpack = None
    async for piece in response.aiter_stream():
        if plain:
            yield piece
            continue
        try:
            unpack = unpack or _unpacker(piece)
            yield unpack(piece, most)
        except zlib.error as error:
            raise ToolError(
                f"{address.url} sent damaged data ({error}). Try again, or try browser_use."
            ) from error


def _unpacker(first: bytes) -> Callable[[bytes, int], bytes]:
    """Choose by the first bytes: some servers send bare deflate data, without zlib's frame."""
    try:
        zlib.decompressobj(_GZIP_OR_ZLIB).decompress(first, 1)
    except zlib.error:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress
    return zlib.decompressobj(_GZIP_OR_ZLIB).decompress


def _too_long(request: Request, known: _Headers, limit: int) -> NoReturn:
    declared = known.length or 0  # of what is packed, if it is packed
    size = size_text(declared) if declared > limit else f"more than {size_text(limit)}"
    most = request.download_limit_bytes
    downloads = declared <= most and most > 0 and not _SHOWN.match(known.media_type)
    further = f", or download it with browser_use (up to {size_text(most)})" if downloads else ""
    raise ToolError(
        f"{request.address.url} is {known.media_type} of {size}; the limit is {size_text(limit)}, "
        f"and nothing was kept. Look for a smaller version{further}."
    )


def _no_answer(address: WebAddress, error: Exception) -> NoReturn:
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = text.partition("CERTIFICATE_VERIFY_FAILED] ")[2].partition(" (_ssl")[0]
        raise OwnWordsError(
            f"{address.origin} was reached, but its certificate is not trusted ({reason}). It may "
            "be an impostor: do not send it anything, and find another source."
        ) from error
    if "SSL" in text.upper():
        raise OwnWordsError(
            f"{address.origin} was reached, but no TLS connection came about ({text}). Perhaps it "
            "speaks http:// only on this port."
        ) from error
    raise OwnWordsError(
        f"{address.origin} cannot be reached ({text}). Check host and port, try again later, or "
        "find another source."
    ) from error

"""The events of an answer: server-sent events or one JSON document, whatever its headers claim."""

import asyncio
import codecs
import json
from collections.abc import AsyncIterator
from typing import Any, Protocol, cast

from openmanus_graph.backends.models.failures import ReplyError

Event = dict[str, Any]
DONE: Event = {"done": True}
"""Stands for `data: [DONE]`."""


class ByteResponse(Protocol):
    """The part of an httpx response that is used here."""

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Iterate over the decoded body."""
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


async def read_events(response: ByteResponse) -> AsyncIterator[Event]:
    """Yield the JSON objects of an answer, and DONE where the server says so.

    Raises:
        ReplyError: The body is neither.
    """
    body = response.aiter_bytes()
    try:
        start = await _first_bytes(body)
        if start[:1] in (b"{", b"[", b"<", b""):
            yield _document(start + b"".join([part async for part in body]))
            return
        seen = False
        async for data in _event_data(start, body):
            seen = True
            if data.strip() == b"[DONE]":
                yield DONE
                await _drain(body)
                return
            yield _parse(data)
        if not seen:
            raise ReplyError(f"the server sent no event of a reply: {_shown(start)}")
    finally:
        await response.aclose()


async def _first_bytes(body: AsyncIterator[bytes]) -> bytes:
    """Read until something else than white space came, which some servers send to stay awake."""
    async for part in body:
        if start := part.removeprefix(codecs.BOM_UTF8).lstrip():
            return start
    return b""


def _document(body: bytes) -> Event:
    try:
        parsed = json.loads(_text(body))
    except ValueError:
        parsed = None
    if isinstance(parsed, list) and parsed:  # Google wraps its errors in a list
        parsed = cast("list[object]", parsed)[0]
    if isinstance(parsed, dict):
        return cast("Event", parsed)
    shown = _shown(body)
    if body[:1] == b"<":  # a web server answers, not a model's
        raise ReplyError(f"the server sent an HTML page: {shown}", kind="page")
    what = f"something that is not a chat completion: {shown}" if shown else "nothing"
    raise ReplyError(f"the server sent {what}")


async def _event_data(start: bytes, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each event. Only CR and LF end a line, never U+2028 as in `splitlines`."""
    data: list[bytes] = []
    async for line in _lines(start, body):
        if not line and data:
            yield b"\n".join(data)
            data = []
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line[:1] == b"{":  # an error object thrown into the stream as it is
            data.append(line)
    if data:
        yield b"\n".join(data)


async def _lines(start: bytes, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield lines without their ends. A line of megabytes is put together only once."""
    open_line: list[bytes] = []
    part: bytes | None = start
    while part is not None:
        *ended, rest = part.split(b"\n")
        for piece in ended:
            yield b"".join([*open_line, piece]).removesuffix(b"\r")
            open_line.clear()
        open_line.append(rest)
        part = await anext(body, None)
    if line := b"".join(open_line):
        yield line


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read what follows the end, so that the connection can be used again."""
    try:
        async with asyncio.timeout(1):
            async for _ in body:
                pass
    except TimeoutError:
        pass


def _parse(data: bytes) -> Event:
    try:
        parsed = json.loads(_text(data))
    except ValueError as error:
        raise ReplyError(f"the stream holds something that is not JSON: {_shown(data)}") from error
    if not isinstance(parsed, dict):
        raise ReplyError(f"the stream holds something that is no object: {str(parsed)[:200]}")
    return cast("Event", parsed)


def _text(data: bytes) -> str:
    """Decode JSON; bytes that are no UTF-8 become surrogates, which are dealt with later."""
    return data.decode("utf-8", "surrogateescape")


def _shown(data: bytes) -> str:
    return data[:200].decode("utf-8", "replace").strip()

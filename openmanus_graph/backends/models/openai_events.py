"""The events of an answer: server-sent events or one JSON document, whatever its headers claim."""

import asyncio
import codecs
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from openmanus_graph.backends.models.connections import Body
from openmanus_graph.backends.models.failures import ReplyError

Event = dict[str, Any]
DONE: Event = {"done": True}
"""Stands for `data: [DONE]`."""


async def read_events(body: Body) -> AsyncIterator[Event]:
    """Yield the JSON objects of an answer, and DONE where the server says so.

    Raises:
        ReplyError: The body is neither.
    """
    try:
        start = await _first_bytes(body)
        if start[:1] in (b"{", b"[", b"<", b""):
            yield _document(start + b"".join([part async for part in body]))
            return
        lines, seen = EventLines(), False
        piece: bytes | None = start
        while piece is not None:
            for data in lines.add(piece):
                seen = True
                if data.strip() == b"[DONE]":
                    yield DONE
                    await _drain(body)
                    return
                yield _parse(data)
            piece = await anext(body, None)
        if (rest := lines.rest()) is not None:
            seen = True
            yield DONE if rest.strip() == b"[DONE]" else _parse(rest)
        if not seen:
            raise ReplyError(f"the server sent no event of a reply: {_shown(start)}")
    finally:
        body.close()


async def _first_bytes(body: AsyncIterator[bytes]) -> bytes:
    """Read until something else than white space came, which some servers send to stay awake."""
    async for part in body:
        if start := part.removeprefix(codecs.BOM_UTF8).lstrip():
            return start
    return b""


class EventLines:
    """Puts the data of server-sent events together from the pieces in which they arrive.

    Only CR and LF end a line, never U+2028 as in `splitlines`. A line of megabytes is put
    together only once.
    """

    def __init__(self) -> None:
        self._open_line: list[bytes] = []
        self._data: list[bytes] = []

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of the events that a piece completes."""
        *ended, rest = piece.split(b"\n")
        for end in ended:
            line = b"".join([*self._open_line, end]).removesuffix(b"\r")
            self._open_line.clear()
            if line:
                self._take(line)
            elif self._data:
                yield b"\n".join(self._data)
                self._data.clear()
        self._open_line.append(rest)

    def rest(self) -> bytes | None:
        """Return the data of an event that nothing ended."""
        if line := b"".join(self._open_line):
            self._take(line)
        return b"\n".join(self._data) if self._data else None

    def _take(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif line[:1] == b"{":  # an error object thrown into the stream as it is
            self._data.append(line)


def _document(body: bytes) -> Event:
    try:
        parsed = json.loads(_text(body))
    except (ValueError, RecursionError):
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
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"the stream holds something that is not JSON: {_shown(data)}") from error
    if not isinstance(parsed, dict):
        raise ReplyError(f"the stream holds something that is no object: {str(parsed)[:200]}")
    return cast("Event", parsed)


def _text(data: bytes) -> str:
    """Decode JSON; bytes that are no UTF-8 become surrogates, which are dealt with later."""
    return data.decode("utf-8", "surrogateescape")


def _shown(data: bytes) -> str:
    return data[:200].decode("utf-8", "replace").strip()

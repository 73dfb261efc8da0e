"""Limits of the JSON that a client sends: what it is parsed to takes 60 times its size and more."""

import re
from typing import Any

from openmanus_graph.interfaces.server.openai_api import errors as openai_errors
from openmanus_graph.interfaces.service.http import App, Receive, Scope, Send, answer_json

MAX_BODY_BYTES = 32 << 20
"""As much as a picture or a recording that a model takes, as base64."""
MAX_VALUES = 2_000_000
"""An empty list takes three bytes in a body, and more than 60 in memory."""
_MOST_THROWN_AWAY = 256 << 20
"""Bytes of a refused body that are read; a longer one is cut off."""
_VALUE_MARKS = b",[{"
_MOST_REFUSAL_BYTES = 4000
"""Of a 422: validators repeat what they were given."""
_UPLOAD = re.compile(r"/app/api/threads/[^/]+/files/.+")


async def limited(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Have an app answer a request, unless its body is over the limits: that is answered with 413.

    Uploads of files are not parsed, and have limits of their own.
    """
    is_upload = scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"])
    if is_upload:
        await app(scope, receive, send)
        return
    exchange = _Exchange(scope, receive, send)
    try:
        await app(scope, exchange.receive, exchange.send)
    except Exception:
        if not exchange.is_refused:  # else the app misses the rest of the body
            raise


def refusal_of(scope: Scope, status: int, reason: str) -> dict[str, Any]:
    """Return the JSON of a refusal, in the form of the door that was knocked at."""
    if scope["path"].startswith(f"{openai_errors.PREFIX}/"):
        return openai_errors.error_body(status, reason)
    return {"detail": reason}


class _Exchange:
    """A request and its answer, both within limits."""

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
        await self._read_rest(message)
        advice = f"{problem} Send less, or upload large files to the thread's folder first."
        await self._answer(413, advice)
        return {"type": "http.disconnect"}

    async def _read_rest(self, message: Any) -> None:
        """Throw away the rest of the body: a client that still sends it may miss the answer."""
        left = _MOST_THROWN_AWAY
        while message.get("more_body") and left > 0:
            message = await self._receive()
            left -= len(message.get("body", b""))

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
            if not message.get("more_body"):
                await self._send_invalid(self._invalid)

    async def _send_invalid(self, head: dict[str, Any]) -> None:
        if len(self._body) > _MOST_REFUSAL_BYTES:
            shown = self._body[:_MOST_REFUSAL_BYTES].decode("utf-8", "replace")
            await self._answer(422, f"The request has another form than this takes: {shown} ...")
            return
        await self._send(head)
        await self._send({"type": "http.response.body", "body": self._body})

    async def _answer(self, status: int, reason: str) -> None:
        content = refusal_of(self._scope, status, reason)
        await answer_json(self._send, status, content, {"connection": "close"})

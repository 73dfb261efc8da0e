"""HTTP for our servers, with limits on how slowly a request may come and an answer be read.

uvicorn waits for the rest of a request for ever, so that a few sockets of anybody, the token
unknown, fill a server. A request that comes at a fair rate may take as long as it needs.
"""

import asyncio
from typing import Literal

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

PROTOCOL = f"{__name__}:TimedProtocol"
"""As uvicorn's option `--http` takes it."""
Phase = Literal["head", "body", "complete"]


class TimedProtocol(H11Protocol):
    """One connection. What stops halfway is answered with 408, and closed."""

    head_s = 15.0
    """Seconds in which the line and the headers of a request must have come."""
    window_s = 10.0
    """Seconds over which the rate of a body is measured."""
    least_rate = 500
    """Bytes of a body that must come per second, while we are ready to read them."""
    stalled_s = 60.0
    """Seconds after which a client that reads nothing of an answer is given up."""

    _phase: Phase = "complete"
    _came = 0
    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._begin("complete")
        self._cancel_unread()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        super().data_received(data)
        self._watch()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.stalled_s, self._look_at_unread, self._buffered())

    @override
    def resume_writing(self) -> None:
        self._cancel_unread()
        super().resume_writing()

    def _watch(self) -> None:
        """Note which part of a request comes next, and begin to wait for it."""
        state = self.conn.their_state
        phase: Phase = "complete"
        if not self.transport.is_closing() and self.transport.get_protocol() is self:
            if state is h11.IDLE:
                phase = "head"
            elif state is h11.SEND_BODY:
                phase = "body"
        if phase != self._phase:
            self._begin(phase)

    def _begin(self, phase: Phase) -> None:
        self._phase, self._came = phase, 0
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if phase != "complete":
            seconds = self.head_s if phase == "head" else self.window_s
            self._waiting = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        fast = self.flow.read_paused or self._came >= self.least_rate * self.window_s
        if self._phase == "body" and fast and not self.cycle.response_complete:
            self._begin("body")
        else:
            self._refuse()

    def _refuse(self) -> None:
        answerable = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        if self._phase == "body":
            self.cycle.disconnected = True  # what the app answers now is left out
            self.cycle.message_event.set()
        if answerable and (self._came or self._phase == "body"):
            text = f"The {self._phase} of this request came too slowly, or not to its end."
            headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
            answer = [
                h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
                h11.Data(data=text.encode()),
                h11.EndOfMessage(),
            ]
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in answer))
        self._begin("complete")
        self.transport.close()

    def _buffered(self) -> int:
        return self.transport.get_write_buffer_size()

    def _look_at_unread(self, before: int) -> None:
        if (now := self._buffered()) < before:
            self._unread = self.loop.call_later(self.stalled_s, self._look_at_unread, now)
        else:
            self.transport.abort()

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

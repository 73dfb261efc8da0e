"""A local HTTP server for the protocols of Anthropic, Google and OpenAI's Responses.

Each protocol is a module's: `anthropic_wire`, `google_wire`, `responses_wire` build the events of
a reply as documented, and say why their service would refuse a request.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, cast

Body = dict[str, Any]
Complaint = Callable[[Body], str | None]
"""Says why a request is refused; None if it is taken."""


@dataclass(frozen=True)
class WireReply:
    """One answer."""

    events: Sequence[Mapping[str, Any]] = ()
    """Streamed as they are; one with a `type` is named by it."""
    status: int = 200
    error: object = None
    """The body of an error status."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class WireRequest:
    """One request as it came in."""

    path: str
    headers: Mapping[str, str]
    body: Body


class WireServer:
    """Serves a script on 127.0.0.1; a context manager.

    Args:
        script: Replies in order.
        complaint: Says why a request is refused.
        error_of: Makes the body of such a refusal.
    """

    def __init__(
        self,
        script: Iterable[WireReply],
        complaint: Complaint,
        error_of: Callable[[str], object],
    ) -> None:
        self.script, self.requests = list(script), list[WireRequest]()
        self.complaint, self.error_of = complaint, error_of
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]  # for the handler
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def bodies(self) -> list[Body]:
        return [request.body for request in self.requests]

    def answer(self, request: WireRequest) -> WireReply:
        self.requests.append(request)
        if fault := self.complaint(request.body):
            return WireReply(status=400, error=self.error_of(fault))
        if not self.script:
            return WireReply(status=400, error=self.error_of("the script has run out"))
        return self.script.pop(0)

    def __enter__(self) -> "WireServer":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        owner = cast("WireServer", vars(self.server)["owner"])
        reply = owner.answer(WireRequest(self.path, headers, body))
        streamed = reply.status == 200
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if not streamed:
            self.wfile.write(json.dumps(reply.error).encode())
        for event in reply.events:
            named = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{named}data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()

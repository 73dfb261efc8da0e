"""A local HTTP server that speaks the protocols of the search engines, and can be broken.

Requests are checked against what each engine documents; one that the real engine would refuse is
refused here in the same way. `KEY` is the right key for all of them.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from tests.support import search_protocols as protocols
from tests.support.local_http import LocalServer, SilentHandler
from tests.support.search_protocols import KEY, Asked, Found

__all__ = ["API_ENGINES", "KEY", "Behaviour", "Found", "SearchServer", "found"]

API_ENGINES = ("searxng", "tavily", "brave", "google", "baidu")

Fault = Literal["", "html", "truncated", "list", "silent", "drip", "wordless", "deep"]


@dataclass(frozen=True)
class Behaviour:
    """What comes instead of results."""

    fault: Fault = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    """Sent as JSON in place of results, if given."""


def found(number: int, site: str = "site") -> list[Found]:
    """Make results."""
    return [
        Found(f"Title {n}", f"https://{site}.example/page/{n}", f"About {n}.")
        for n in range(1, number + 1)
    ]


class SearchServer:
    """Serves on 127.0.0.1; a context manager.

    `results` are what each engine finds, `script` what it does first: each entry is used up by
    one request.
    """

    def __init__(self) -> None:
        self.results: dict[str, list[Found]] = {}
        self.raw: dict[str, list[Any]] = {}
        """Entries as the engine would send them, after the results."""
        self.script: dict[str, list[Behaviour]] = {}
        self.pages: dict[str, tuple[int, str, bytes]] = {}
        """Status, media type and body of what lies at other paths."""
        self.requests: list[Asked] = []
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(_Handler)
        self._server.owner = self

    @property
    def url(self) -> str:
        """The address of every engine."""
        return self._server.url

    def asked(self, engine: str) -> list[Asked]:
        """Return the requests that an engine got."""
        return [request for request in self.requests if request.engine == engine]

    def take(self, request: Asked) -> Behaviour | None:
        """Record a request and return what is scripted for it."""
        with self._lock:
            self.requests.append(request)
            script = self.script.get(request.engine)
            return script.pop(0) if script else None

    def __enter__(self) -> "SearchServer":
        self._server.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        self._server.end()


class _Server(LocalServer):
    owner: SearchServer


class _Handler(SilentHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]  # made by it alone

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Asked(
            protocols.engine_of(method, parts.path),
            method,
            parts.path,
            headers,
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            body,
        )
        owner = self.server.owner
        behaviour = owner.take(request)
        if behaviour is not None:
            self._misbehave(behaviour)
            return
        if parts.path in owner.pages:
            status, kind, page = owner.pages[parts.path]
            self._send(status, page, kind=kind)
            return
        refusal = protocols.refusal(request)
        if refusal is not None:
            self._send(refusal[0], json.dumps(refusal[1]).encode())
            return
        hits, raw = owner.results.get(request.engine, []), owner.raw.get(request.engine, [])
        kind, answer = protocols.answer(request, hits, raw)
        self._send(200, answer, kind=kind)

    def _misbehave(self, behaviour: Behaviour) -> None:
        if behaviour.fault == "silent":
            self.server.owner.stopping.wait()
        elif behaviour.fault == "wordless":
            self.close_connection = True
        elif behaviour.fault == "drip":
            self._drip()
        elif behaviour.fault == "truncated":
            self._send(200, b'{"results": [{"title": "Half a ti')
        elif behaviour.fault == "deep":
            self._send(200, b"[" * 100_000)  # beyond Python's recursion limit
        elif behaviour.fault == "list":
            self._send(200, b"[1, 2]")
        elif behaviour.fault == "html":
            page = b"<!doctype html><html><body>Are you a robot?</body></html>"
            self._send(behaviour.status, page, behaviour.headers, "text/html")
        else:
            body = json.dumps(behaviour.body or {}).encode()
            self._send(behaviour.status, body, behaviour.headers)

    def _drip(self) -> None:
        """Send a byte now and then, so that no read ever times out."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        while not self.server.owner.stopping.wait(0.05):
            self.wfile.write(b" ")

    def _send(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

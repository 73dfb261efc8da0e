"""A web site on this machine, well-behaved and otherwise, for tests of everything that reads one.

    with PageServer() as site:
        site.add("/hello", "<h1>Hello</h1>")
        ... site.url("/hello") ...

Beside the pages a test adds there are: `/redirect?to=URL`, `/circle`, `/endless/0`, `/status/404`,
`/slow` (sends half a page and hangs), `/drip` (a byte now and then, for ever), `/silent` (accepts
and says nothing), `/big?mb=50&type=text/html`, `/bomb` (gzip, 1000 times as long), `/broken-gzip`,
`/cut-off` (fewer bytes than announced), `/echo` (the request's headers), `/post` (its body),
`/meet` (waits for the other parties of `meeting`).
"""

import functools
import gzip
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from tests.support.limits import BACKSTOP_S
from tests.support.local_http import LocalServer, SilentHandler

Headers = dict[str, str]
BOMB_BYTES = 64 * 1024 * 1024


@dataclass
class Answer:
    """What stands at an address."""

    body: bytes
    headers: Headers
    status: int = 200


@dataclass
class Asked:
    """A request that came in."""

    method: str
    path: str
    headers: Headers
    body: bytes = b""


@dataclass
class PageServer:
    """Serves until the block ends. Thread-safe enough for tests."""

    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    asked: list[Asked] = field(default_factory=list[Asked])
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    meeting: threading.Barrier | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "PageServer":
        site = self

        class Handler(_Handler):
            server_of = site

        self._server = LocalServer(Handler, self.host)
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._server.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        self._server.end()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def place(self) -> str:
        """HOST:PORT, as `--allow-host` takes it."""
        return f"{self.host}:{self.port}"

    def url(self, path: str = "/", host: str | None = None) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    def add(
        self,
        path: str,
        body: str | bytes,
        media_type: str = "text/html; charset=utf-8",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Put something at a path and return its address."""
        data = body.encode() if isinstance(body, str) else body
        given = {"Content-Type": media_type} if media_type else {}
        self.answers[path] = Answer(data, {**given, **(headers or {})}, status)
        return self.url(path)

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]


@functools.cache
def _bomb() -> bytes:
    return gzip.compress(b"\0" * BOMB_BYTES, 1)


class _Handler(SilentHandler):
    server_of: PageServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        site = self.server_of
        body = self._body()
        site.asked.append(Asked(self.command, self.path, dict(self.headers.items()), body))
        if self.path in site.answers:
            answer = site.answers[self.path]
            self._send(answer.status, answer.body, answer.headers)
            return
        parts = urlsplit(self.path)
        name = parts.path.split("/")[1].replace("-", "_")
        special = getattr(self, f"_{name}_page", None)
        if special is None:
            self._send(404, b"<h1>Nothing here</h1>", {"Content-Type": "text/html"})
        else:
            special({key: values[0] for key, values in parse_qs(parts.query).items()})

    do_POST = do_HEAD = do_PUT = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size + 2)[:-2]
        self.rfile.readline()
        return body

    def _send(self, status: int, body: bytes, headers: Headers) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _redirect_page(self, query: Headers) -> None:
        self._send(int(query.get("status", 302)), b"", {"Location": query["to"]})

    def _circle_page(self, query: Headers) -> None:
        self._send(302, b"", {"Location": "/circle"})

    def _endless_page(self, query: Headers) -> None:
        number = int(self.path.rsplit("/", 1)[1])
        self._send(302, b"", {"Location": f"/endless/{number + 1}"})

    def _status_page(self, query: Headers) -> None:
        status = int(self.path.rsplit("/", 1)[1])
        self._send(status, f"<h1>Status {status}</h1>".encode(), {"Content-Type": "text/html"})

    def _slow_page(self, query: Headers) -> None:
        self._begin({"Content-Length": "1000", "Content-Type": "text/html"})
        self.wfile.write(b"<h1>Half")
        self.server_of.over.wait()

    def _drip_page(self, query: Headers) -> None:
        self._begin({"Content-Length": "100000", "Content-Type": "text/html"})
        while not self.server_of.over.wait(0.05):
            self.wfile.write(b"x")

    def _silent_page(self, query: Headers) -> None:
        self.server_of.over.wait()
        self.close_connection = True

    def _big_page(self, query: Headers) -> None:
        size = int(float(query.get("mb", "50")) * 1024 * 1024)
        headers = {"Content-Type": query.get("type", "text/html")}
        if query.get("length") != "no":
            headers["Content-Length"] = str(size)
        else:
            headers["Connection"] = "close"
        self._begin(headers)
        piece = b"<p>many words</p>\n" * 4096
        for start in range(0, size, len(piece)):
            self.wfile.write(piece[: size - start])

    def _bomb_page(self, query: Headers) -> None:
        kind = query.get("type", "text/html")
        self._send(200, _bomb(), {"Content-Type": kind, "Content-Encoding": "gzip"})

    def _broken_gzip_page(self, query: Headers) -> None:
        self._send(200, b"\x1f\x8b\x08\0garbage garbage", {"Content-Encoding": "gzip"})

    def _cut_off_page(self, query: Headers) -> None:
        self._begin({"Content-Length": "1000", "Content-Type": "text/html"})
        self.wfile.write(b"<h1>Half")
        self.close_connection = True

    def _echo_page(self, query: Headers) -> None:
        text = "\n".join(f"{name}: {value}" for name, value in self.headers.items())
        self._send(200, text.encode(), {"Content-Type": "text/plain"})

    def _post_page(self, query: Headers) -> None:
        self._send(200, self.server_of.asked[-1].body, {"Content-Type": "text/plain"})

    def _meet_page(self, query: Headers) -> None:
        if self.server_of.meeting is not None:
            self.server_of.meeting.wait(BACKSTOP_S)
        self._send(200, b"all three are here", {"Content-Type": "text/plain"})

    def _begin(self, headers: Headers) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

"""A local web server for pages written for the tests."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.local_http import LocalServer, SilentHandler

SITES = Path(__file__).parent / "sites"


class SiteHandler(SilentHandler, SimpleHTTPRequestHandler):
    """Serves files; `/slow?ms=300` answers that much later, `/drip` and `/stream` end later."""

    stopped = threading.Event()

    def do_GET(self) -> None:
        """Answer a request."""
        parts = urlsplit(self.path)
        if parts.path in ("/slow", "/poll"):
            wait_ms = int(parse_qs(parts.query)["ms"][0])
            self.stopped.wait(wait_ms / 1000)
            self.send_json({"ms": wait_ms})
        elif parts.path in ("/drip", "/stream"):
            self.send_response(200)
            kinds = {"/drip": "application/json", "/stream": "text/event-stream"}
            self.send_header("Content-Type", kinds[parts.path])
            self.end_headers()
            self.wfile.write(b"data: one\n\n")
            self.wfile.flush()
            self.stopped.wait(int(parse_qs(parts.query)["ms"][0]) / 1000)
        elif parts.query == "slow":
            self.stopped.wait(0.5)
            super().do_GET()
        else:
            super().do_GET()

    def send_json(self, value: object, status: int = 200, **headers: str) -> None:
        """Answer with JSON."""
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(handler: type[SiteHandler] = SiteHandler, folder: Path = SITES) -> Generator[str]:
    """Serve a folder on a free port of this machine; gives the address without a slash."""
    server = LocalServer(partial(handler, directory=str(folder)))
    server.begin()
    try:
        yield server.url
    finally:
        server.end()

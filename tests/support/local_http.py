"""What the web servers of the tests have in common: they are on this machine, and silent."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalServer(ThreadingHTTPServer):
    """Listens on a free port; answers from `begin` to `end`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self, handler: Callable[..., BaseHTTPRequestHandler], host: str = "127.0.0.1"
    ) -> None:
        super().__init__((host, 0), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The address, without a slash."""
        return f"http://127.0.0.1:{self.server_port}"

    def begin(self) -> None:
        """Answer requests."""
        self._thread.start()

    def end(self) -> None:
        """Answer no more, and give the port back."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what some tests are about."""


class SilentHandler(BaseHTTPRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: object) -> None:  # the base class's names
        """Stay silent."""

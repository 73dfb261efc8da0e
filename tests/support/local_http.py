"""The web servers of the tests: on this machine, on a free port, and silent."""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalServer(ThreadingHTTPServer):
    """Answers from `begin` to `end`, and ends its connections then.

    Args:
        handler: Handles a request; see `SilentHandler`.
        host: Its address.
        port: 0 takes a free one.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        handler: Callable[..., BaseHTTPRequestHandler],
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._open: set[socket.socket] = set()
        self.accepted = 0
        """How many connections were opened so far."""
        super().__init__((host, port), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The address, without a slash."""
        return f"http://127.0.0.1:{self.server_port}"

    def begin(self) -> None:
        """Answer requests."""
        self._thread.start()

    def end(self) -> None:
        """Answer no more, wake handlers that wait for a client, and give the port back."""
        self.shutdown()
        for connection in list(self._open):
            with contextlib.suppress(OSError):  # the other side may have been faster
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()
        self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:  # as in the base class
        """Count a connection."""
        self._open.add(request)
        self.accepted += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # as in the base class
        """Forget a connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # as in the base class
        """Show faults of the handler; clients that go away are what some tests are about."""
        if not isinstance(sys.exc_info()[1], ConnectionError | ValueError):
            super().handle_error(request, client_address)


class SilentHandler(BaseHTTPRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: object) -> None:  # the base class's names
        """Stay silent."""

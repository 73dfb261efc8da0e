"""A channel's other side: keeps what it receives, and does not deduplicate."""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

from tests.support.local_http import LocalServer, SilentHandler


class Receiver:
    """Receives messages by `POST /`; `GET /status/KEY` tells whether one came."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.statuses: list[int] = []
        """Answers of the next requests; then 200."""
        self.before_answer: Callable[[], None] = lambda: None
        """Called before a message is answered, and after it was kept."""
        self.server = LocalServer(partial(_Handler, self))

    def __enter__(self) -> "Receiver":
        self.server.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.end()

    @property
    def answers(self) -> "Counter[str]":
        """How often each answer came, by its key; questions are left out."""
        return Counter(one["key"] for one in self.messages if "question" not in one)


class _Handler(SilentHandler):
    def __init__(self, receiver: Receiver, *args: Any) -> None:
        self.receiver = receiver
        super().__init__(*args)

    def do_POST(self) -> None:  # the base class's name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.receiver.statuses.pop(0) if self.receiver.statuses else 200
        if status == 200:
            self.receiver.bodies.append(body)
            self.receiver.headers.append({k.lower(): v for k, v in self.headers.items()})
            self.receiver.messages.append(json.loads(body))
        self.receiver.before_answer()
        self._answer(status)

    def do_GET(self) -> None:  # the base class's name
        key = unquote(self.path.removeprefix("/status/"))
        known = key in {one["key"] for one in self.receiver.messages}
        self._answer(200 if known else 404)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

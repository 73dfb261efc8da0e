"""A server that speaks Telegram's Bot API, and does not deduplicate."""

import json
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.support.local_http import LocalServer, SilentHandler

TOKEN = "123456:a-bot-token"
BOUNDARY = re.compile(r'name="(?P<name>\w+)"(?:; filename="(?P<file>[^"]*)")?')


class Telegram:
    """Keeps what the bot sends, and gives it the updates that were put in."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        """Messages and documents, each with its `method`."""
        self.actions: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.refusals: list[dict[str, Any]] = []
        """What the next sending methods answer."""
        self.files: dict[str, bytes] = {}
        self.repeats = 1
        """How often each update is in an answer."""
        self.before_answer: Callable[[], None] = lambda: None
        self._new = threading.Condition()
        self.server = LocalServer(partial(_Handler, self))

    def __enter__(self) -> "Telegram":
        self.server.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.end()

    def say(self, text: str, sender: int = 7, chat: int = 7, **more: Any) -> None:
        """Bring a message to the bot."""
        person = {"id": sender, "is_bot": False, "first_name": "Anna"}
        number = len(self.updates) + 1
        message = {"message_id": number, "from": person, "chat": {"id": chat}}
        self.put({"message": message | ({"text": text} if text else {}) | more})

    def press(self, data: str, sender: int = 7, chat: int = 7) -> None:
        """Press a button."""
        person = {"id": sender, "is_bot": False, "first_name": "Anna"}
        message = {"message_id": 1, "chat": {"id": chat}}
        pressed = {"id": "p1", "from": person, "data": data, "message": message}
        self.put({"callback_query": pressed})

    def put(self, update: dict[str, Any]) -> None:
        with self._new:
            self.updates.append({"update_id": 1000 + len(self.updates), **update})
            self._new.notify_all()

    def take(self, offset: int, timeout: float) -> list[dict[str, Any]]:
        """Return the updates from an offset, or wait for them."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.updates if one["update_id"] >= offset]

        with self._new:
            self._new.wait_for(found, min(timeout, 0.5))
            return [one for one in found() for _ in range(self.repeats)]

    @property
    def texts(self) -> list[str]:
        return [one.get("text", "") for one in self.sent]


class _Handler(SilentHandler):
    def __init__(self, telegram: Telegram, *args: Any) -> None:
        self.telegram = telegram
        super().__init__(*args)

    def do_POST(self) -> None:  # the base class's name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        prefix = f"/bot{TOKEN}/"
        if not self.path.startswith(prefix):
            self._answer(401, {"ok": False, "error_code": 401, "description": "Unauthorized"})
            return
        method, given = self.path.removeprefix(prefix), _fields(self.headers, body)
        telegram, result = self.telegram, True
        if method == "getUpdates":
            found: Any = telegram.take(given.get("offset", 0), given.get("timeout", 0))
            self._answer(200, {"ok": True, "result": found})
            return
        if method == "getMe":
            self._answer(200, {"ok": True, "result": {"id": 123456, "username": "test_bot"}})
            return
        if method == "getFile":
            self._answer(200, {"ok": True, "result": {"file_path": given["file_id"]}})
            return
        if method in ("sendMessage", "sendDocument"):
            if telegram.refusals:
                refusal = telegram.refusals.pop(0)
                self._answer(refusal["error_code"], {"ok": False, **refusal})
                return
            telegram.sent.append({"method": method, **given})
            telegram.before_answer()
        else:
            telegram.actions.append({"method": method, **given})
        self._answer(200, {"ok": True, "result": result})

    def do_GET(self) -> None:  # the base class's name
        data = self.telegram.files.get(self.path.removeprefix(f"/file/bot{TOKEN}/"))
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _fields(headers: Any, body: bytes) -> dict[str, Any]:
    kind = headers.get("Content-Type", "")
    if not kind.startswith("multipart/form-data"):
        found: dict[str, Any] = json.loads(body or b"{}")
        return found
    fields: dict[str, Any] = {}
    for part in body.split(b"--" + kind.partition("boundary=")[2].encode())[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        match = BOUNDARY.search(head.decode())
        assert match is not None, head
        fields[match["name"]] = content.removesuffix(b"\r\n")
        if match["file"] is not None:
            fields["name"] = match["file"]
    return fields

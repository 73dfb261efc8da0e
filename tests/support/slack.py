"""Slack: a server that speaks its Web API and does not deduplicate, and what it sends by itself."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tests.support.local_http import LocalServer, SilentHandler

TOKEN, SECRET = "xoxb-a-bot-token", "a signing secret"


def signed(body: bytes, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    """Return the headers with which Slack signs a body."""
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256)
    return {
        "x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={digest.hexdigest()}",
        "content-type": "application/json",
    }  # fmt: skip


def message(text: str, number: int, user: str = "U7", room: str = "D7", **more: Any) -> bytes:
    """Return the body of a message's event."""
    event = {"type": "message", "channel_type": "im", "user": user, "text": text, "channel": room}
    event |= {"ts": f"17000000{number:02}.000100", **more}
    fields = {"type": "event_callback", "event_id": f"Ev{number}", "event": event}
    return json.dumps({**fields, "authorizations": [{"user_id": "UBOT"}]}).encode()


def button(value: str, number: int, user: str = "U7", room: str = "D7", **message: str) -> bytes:
    """Return the body of a pressed button, which is a form."""
    payload = {
        "type": "block_actions", "user": {"id": user}, "channel": {"id": room},
        "message": {"ts": "1.1", **message},
        "actions": [{"action_ts": f"2.{number}", "value": value}],
    }  # fmt: skip
    return urlencode({"payload": json.dumps(payload)}).encode()


class Slack:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        """The messages that were posted, and (`file`) the contents of files."""
        self.uploads: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        """What people sent, by path."""
        self.statuses: list[dict[str, Any]] = []
        """What it shows that the bot does."""
        self.limits: list[int] = []
        """Seconds for which the next posts are refused with 429."""
        self.before_answer: Callable[[], None] = lambda: None
        self.server = LocalServer(partial(_Handler, self))

    def __enter__(self) -> "Slack":
        self.server.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.end()


class _Handler(SilentHandler):
    def __init__(self, slack: Slack, *args: Any) -> None:
        self.slack = slack
        super().__init__(*args)

    def do_POST(self) -> None:  # the base class's name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        slack, method = self.slack, self.path.removeprefix("/api/")
        if method.startswith("/upload/"):
            slack.uploads[method.removeprefix("/upload/")] = body
            self._answer(200, b"OK")
            return
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json({"ok": False, "error": "invalid_auth"})
            return
        kind = self.headers.get("Content-Type", "")
        form: dict[str, Any] = {} if "json" in kind else dict(parse_qsl(body.decode()))
        self._call(method, form or json.loads(body or b"{}"))

    def _call(self, method: str, given: dict[str, Any]) -> None:
        slack = self.slack
        match method:
            case "auth.test":
                self._json({"ok": True, "user": "bot", "user_id": "UBOT", "team": "Test"})
            case "chat.postMessage":
                if slack.limits:
                    self._answer(429, b"", ("Retry-After", str(slack.limits.pop(0))))
                    return
                assert len(given["text"]) <= 40_000, "Slack would cut it"
                for section in given.get("blocks", ())[:1]:
                    assert len(section["text"]["text"]) <= 3000, "Slack would refuse it"
                slack.sent.append(given)
                slack.before_answer()
                self._json({"ok": True, "ts": str(len(slack.sent)), "channel": given["channel"]})
            case "conversations.history" | "conversations.replies":
                rooms = [one for one in slack.sent if one["channel"] == given["channel"]]
                thread = [one for one in rooms if one.get("thread_ts") == given.get("ts")]
                assert given["include_all_metadata"] == "true"
                start = int(given.get("cursor") or 0)  # one message a page
                more = str(start + 1) if start + 1 < len(thread) else ""
                page = {"ok": True, "messages": thread[start : start + 1]}
                self._json({**page, "response_metadata": {"next_cursor": more}})
            case "assistant.threads.setStatus":
                slack.statuses.append(given)
                self._json({"ok": True})
            case _:
                self._call_files(method, given)

    def _call_files(self, method: str, given: dict[str, Any]) -> None:
        match method:
            case "files.getUploadURLExternal":
                name = given["filename"]
                address = f"{self.slack.server.url}/upload/{name}"
                self._json({"ok": True, "upload_url": address, "file_id": name})
            case "files.completeUploadExternal":
                assert "channel_id" not in given, "it would be seen before its message"
                self._json({"ok": True, "files": given["files"]})  # ids and titles, as documented
            case "files.info":
                link = f"https://test.slack.com/files/{given['file']}"
                self._json({"ok": True, "file": {"permalink": link}})
            case _:
                self._json({"ok": False, "error": "unknown_method"})

    def do_GET(self) -> None:  # the base class's name
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        data = self.slack.files.get(self.path) if known else None
        self._answer(404 if data is None else 200, data or b"")

    def _json(self, body: Any) -> None:
        self._answer(200, json.dumps(body).encode(), ("Content-Type", "application/json"))

    def _answer(self, status: int, data: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for header in (*headers, ("Content-Length", str(len(data)))):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(data)

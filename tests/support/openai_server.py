"""A local HTTP server that speaks OpenAI's chat completions, with a script and with faults.

By hand: `python -m tests.support.openai_server SCRIPT.json --port 8001`, where the script is a
list of replies (see `openai_script.Reply`).
"""

import argparse
import contextlib
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.support.limits import BACKSTOP_S
from tests.support.local_http import LocalServer, SilentHandler
from tests.support.openai_script import (
    Answer,
    Reply,
    body_of,
    completion,
    events,
    reply_from_json,
)
from tests.support.strict_openai import complaint


@dataclass(frozen=True)
class Request:
    """One request as it came in; header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)
    """When it came."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation that was sent."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages


class OpenAIServer:
    """Serves a script on 127.0.0.1; a context manager.

    Args:
        script: Replies in order; a callable is given the request's body. More can be added to
            `script` at any time. When it has run out, requests are answered with 400.
        strict: Refuse conversations that a strict endpoint refuses.
        models: Names that `GET /v1/models` lists.
        loop: Start the script again when it has run out.
        port: 0 takes a free one.
    """

    endings: tuple[str, ...] = ("/chat/completions",)
    """Of the paths that the script answers."""

    def __init__(
        self,
        script: Iterable[Answer] = (),
        *,
        strict: bool = False,
        models: Iterable[str] = ("test-model",),
        loop: bool = False,
        port: int = 0,
    ) -> None:
        self.script = list(script)
        self.strict = strict
        self.models = tuple(models)
        self.loop = loop
        self.requests: list[Request] = []
        self.facts: dict[str, Any] = {}
        """By path: what the server tells beside chat completions, as JSON."""
        self.asked: list[tuple[str, str]] = []
        """Path and key of each request for facts or the list of models."""
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._played = 0
        self._server = LocalServer(partial(_Handler, self), port=port)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_port

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return f"{self._server.url}/v1"

    @property
    def connections(self) -> int:
        """How many connections were opened so far."""
        return self._server.accepted

    def add(self, *answers: Answer) -> None:
        """Append to the script."""
        with self._lock:
            self.script.extend(answers)

    def begin_again(self) -> None:
        """Forget script and requests: the next test has its own."""
        with self._lock:
            self.script.clear()
            self.requests.clear()
            self.facts.clear()
            self.asked.clear()
            self._played = 0

    def next_reply(self, request: Request) -> tuple[Reply, int]:
        """Record a request and choose its answer, and count it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            if self.strict and (fault := complaint(request.body)):
                error = {"message": fault, "type": "invalid_request_error", "code": None}
                return Reply(status=400, error=error), number
            if self.loop and self.script:
                self._played %= len(self.script)
            if self._played >= len(self.script):
                error = {"message": "the script of the test server has run out"}
                return Reply(status=400, error=error), number
            answer = self.script[self._played]
            self._played += 1
        return (answer if isinstance(answer, Reply) else answer(request.body)), number

    def __enter__(self) -> Self:
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


class _Handler(SilentHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, owner: OpenAIServer, *args: Any) -> None:  # the base class's own
        self.owner = owner
        super().__init__(*args)

    def do_GET(self) -> None:
        if self._reported():
            return
        if not self.path.endswith("/models"):
            self._json(404, {"error": {"message": f"no route {self.path}"}})
            return
        names = [{"id": name, "object": "model"} for name in self.owner.models]
        self._json(200, {"object": "list", "data": names})

    def _reported(self) -> bool:
        self.owner.asked.append((self.path, self.headers.get("authorization", "")))
        if self.path not in self.owner.facts:
            return False
        self._json(200, self.owner.facts[self.path])
        return True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "completions" not in self.path and self._reported():
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, body)
        if not self.path.partition("?")[0].endswith(self.owner.endings):
            self._json(404, {"error": {"message": f"no route {self.path}"}})
            return
        reply, number = self.owner.next_reply(request)
        if reply.delay_s:
            self.owner.stopping.wait(reply.delay_s)
        self._answer(reply, body, number)

    def _answer(self, reply: Reply, body: dict[str, Any], number: int) -> None:
        model = str(body.get("model"))
        options: dict[str, Any] = body.get("stream_options") or {}
        usage, stream = bool(options.get("include_usage")), bool(body.get("stream"))
        if reply.raw is not None:
            self._body(reply.status, reply.raw[0].encode(), reply.raw[1], reply)
        elif reply.fault == "reset":
            self._reset()
        elif reply.status != 200:
            self._json(reply.status, {"error": reply.error or {"message": "scripted"}}, reply)
        elif reply.fault == "html":
            self._body(200, b"<html><body>Welcome to nginx!</body></html>", "text/html", reply)
        elif reply.fault in ("error_inside", "no_choices", "null_choices") or (
            reply.fault == "error_mid" and not stream
        ):
            self._json(200, _without_choices(reply), reply)
        elif reply.alter is not None:
            data = body_of(reply, model, number, stream=stream, usage=usage)
            kind = "text/event-stream" if stream else "application/json"
            self._body(200, reply.alter(data), kind, reply)
        elif stream and reply.fault != "plain_json":
            self._stream(reply, list(events(reply, model, number, usage=usage)))
        else:
            self._whole(reply, json.dumps(completion(reply, model, number)).encode())

    def _whole(self, reply: Reply, data: bytes) -> None:
        if reply.fault in ("reset_mid", "cut", "stall"):
            self._head(200, "application/json", len(data), reply)
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self._break_off(reply)
            return
        if reply.fault in ("truncated", "broken_json"):
            data = data[: len(data) // 2]
        kind = "text/plain" if reply.fault == "wrong_content_type" else "application/json"
        self._body(200, data, kind, reply)

    def _stream(self, reply: Reply, items: list[dict[str, Any]]) -> None:
        kind = "text/plain" if reply.fault == "wrong_content_type" else "text/event-stream"
        self._head(200, kind, None, reply)
        middle = len(items) // 2
        for position, item in enumerate(items):
            if position == middle and reply.fault in ("reset_mid", "cut", "stall"):
                self._break_off(reply)
                return
            if position == middle and reply.fault == "truncated":
                break
            if position == middle and reply.fault == "error_mid":
                self._event(json.dumps({"error": reply.error or {"message": "scripted"}}))
                break
            text = json.dumps(item)
            self._event(text[:-9] if reply.fault == "broken_json" and position == middle else text)
        if reply.fault not in ("truncated", "error_mid", "no_done"):
            self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, status: int, body: object, reply: Reply | None = None) -> None:
        self._body(status, json.dumps(body).encode(), "application/json", reply)

    def _body(self, status: int, data: bytes, kind: str, reply: Reply | None) -> None:
        self._head(status, kind, len(data), reply)
        self.wfile.write(data)

    def _head(self, status: int, kind: str, length: int | None, reply: Reply | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if reply:
            for name, value in reply.headers.items():
                self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _reset(self) -> None:
        self._end(reset=True)

    def _break_off(self, reply: Reply) -> None:
        if reply.fault == "stall":
            self.owner.stopping.wait(BACKSTOP_S)
        self._end(reset=reply.fault == "reset_mid")

    def _end(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:  # closing with unsent data thrown away sends RST
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.wfile.close()
            self.rfile.close()
            self.connection.close()


def _without_choices(reply: Reply) -> dict[str, Any]:
    if reply.fault in ("error_inside", "error_mid"):
        return {"error": reply.error or {"message": "scripted"}}
    return {"id": "x", "object": "chat.completion"} | (
        {"choices": None} if reply.fault == "null_choices" else {}
    )


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    """A server with an empty script: `openai_server.add(Reply(text="Hello"))`."""
    with OpenAIServer() as server:
        yield server


def main() -> None:
    """Serve a script file until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", type=Path, help="JSON list of replies")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--loop", action="store_true", help="start again when it has run out")
    options = parser.parse_args()
    script = [reply_from_json(item) for item in json.loads(options.script.read_text("utf-8"))]
    server = OpenAIServer(script, strict=options.strict, loop=options.loop, port=options.port)
    with server:
        sys.stderr.write(f"serving {server.base_url}\n")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()

"""A local OpenAI server that answers at once: every reply calls tools, up to a number of steps.

Runs as a process of its own, so that its CPU time is not the client's.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Protocol

FILLER = "x" * 700
_END = b"\r\n\r\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
Call = tuple[str, dict[str, Any]]

FIRST_USES: tuple[Call, ...] = (
    ("python_execute", {"code": "print(1)"}),
    ("bash", {"command": "echo 1"}),
    ("str_replace_editor", {"command": "create", "path": "a.txt", "file_text": FILLER}),
    ("python_execute", {"code": "print('long line of output ' * 500_000)"}),
    ("bash", {"command": "seq 1 1000000"}),
    ("bash", {"command": "head -c 3000000 /dev/urandom | base64 > b.txt; echo done"}),
    ("str_replace_editor", {"command": "view", "path": "b.txt"}),
    ("create_chat_completion", {"response": "done"}),
)

SCRIPTS: dict[str, Callable[[int], list[Call]]] = {
    "note": lambda step: [("note", {"n": step, "text": FILLER})],
    "wait": lambda step: [("wait", {"n": 5 * step + n}) for n in range(5)],
    "python": lambda step: [("python_execute", {"code": "1+1" + " " * step})],
    "file": lambda step: [
        (
            "str_replace_editor",
            {"command": "create", "path": f"{step}.txt", "file_text": FILLER},
        )
    ],
    "first uses": lambda step: [FIRST_USES[step % len(FIRST_USES)]],
}
"""The calls of each step."""


class Replying(Protocol):
    """What is served."""

    seen: list[dict[str, float]]
    """Filled by `serve`."""

    def reply(self, body: bytes) -> bytes:
        """Answer a request."""
        ...


class Model:
    """Answers requests. A request's step is the number of its assistant messages."""

    def __init__(self, script: str, steps: int, *, counts: bool) -> None:
        self._calls = SCRIPTS[script]
        self._steps = steps
        self._counts = counts
        """Report the tokens of each request, and let the requests' number end the run."""
        self.seen: list[dict[str, float]] = []

    def reply(self, body: bytes) -> bytes:
        """Answer a request."""
        # Counted, not parsed: parsing a long conversation would take the client's CPU.
        step = body.count(b'"assistant"')
        over = len(self.seen) >= self._steps if self._counts else step >= self._steps
        message: dict[str, Any] = {"role": "assistant", "content": f"step {step}"}
        if not over and b'"tools"' in body:
            message["tool_calls"] = [
                {
                    "id": f"call_{len(self.seen)}_{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(args)},
                }
                for number, (name, args) in enumerate(self._calls(step))
            ]
        asked = len(body) // 4 if self._counts else 100 + step
        reason = "tool_calls" if "tool_calls" in message else "stop"
        answer = {
            "id": f"r{len(self.seen)}", "object": "chat.completion", "created": 0, "model": "bench",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": asked, "completion_tokens": 10, "total_tokens": asked + 10},
        }  # fmt: skip
        return json.dumps(answer).encode()


async def serve(port: int, model: Replying, latency_s: float) -> None:
    """Serve until killed.

    `GET /` returns what was seen of each request: when it came, its bytes, and the milliseconds
    from the last reply to it, which is the client's own time; then the bytes of the newest
    request's last two messages, and the milliseconds of CPU that the server has used.
    """
    loop = asyncio.get_running_loop()
    bodies: list[bytes] = []
    begun_s = time.process_time()

    def figures() -> bytes:
        cpu_ms = 1000 * (time.process_time() - begun_s)
        return json.dumps((model.seen, _bytes_of_step(bodies), cpu_ms)).encode()

    def connection() -> asyncio.Protocol:
        return _Connection(model, bodies, latency_s, figures)

    async with await loop.create_server(connection, "127.0.0.1", port) as server:
        await server.serve_forever()


class _Connection(asyncio.Protocol):
    """Answers one request after the other: as lean as can be, the client is what is measured."""

    def __init__(
        self, model: Replying, bodies: list[bytes], latency_s: float,
        figures: Callable[[], bytes],
    ) -> None:  # fmt: skip
        self._model, self._bodies, self._latency_s = model, bodies, latency_s
        self._figures = figures
        self._received = bytearray()
        self._missing = 0
        """Bytes of the request that is coming in; 0 until its head is complete."""
        self._answered = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport  # a Transport, since the server is one of TCP

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._missing:
            end = self._received.find(_END)
            if end < 0:
                return
            self._arrived = time.perf_counter()
            head = bytes(self._received[:end]).lower()
            del self._received[: end + len(_END)]
            if head.startswith(b"get"):
                self._write(self._figures())
                return
            self._missing = int(head.partition(b"content-length:")[2].partition(b"\r")[0])
        if len(self._received) >= self._missing:
            body, self._received, self._missing = bytes(self._received), bytearray(), 0
            self._bodies[:] = [*self._bodies[-1:], body]
            asyncio.get_running_loop().call_later(self._latency_s, self._answer, body)

    def _answer(self, body: bytes) -> None:
        gap_ms = 1000 * (self._arrived - self._answered) if self._answered else 0.0
        answer = self._model.reply(body)
        self._model.seen.append({"at": self._arrived, "bytes": len(body), "gap_ms": gap_ms})
        self._write(answer)
        self._answered = time.perf_counter()

    def _write(self, answer: bytes) -> None:
        self._transport.write(_HEAD + b"%d" % len(answer) + _END + answer)


def _bytes_of_step(bodies: list[bytes]) -> int:
    """Return the bytes of what the newest request holds beyond the one before."""
    if len(bodies) < 2:
        return 0
    before, now = (json.loads(body)["messages"] for body in bodies)
    return len(json.dumps(now[len(before) :]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--script", choices=SCRIPTS, default="note")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--counts", action="store_true")
    given = parser.parse_args()
    asyncio.run(
        serve(given.port, Model(given.script, given.steps, counts=given.counts), given.latency)
    )

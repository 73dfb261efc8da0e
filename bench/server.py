"""A local OpenAI server that answers at once: every reply calls one tool, up to a number of steps.

Runs as a process of its own, so that its CPU time is not the client's.
"""

import argparse
import asyncio
import json
import time

FILLER = "x" * 700


def reply(step: int, steps: int) -> bytes:
    """Make the reply of a step: a tool call of its own, or the answer."""
    if step >= steps:
        message: dict[str, object] = {"role": "assistant", "content": "done"}
    else:
        call = {
            "id": f"call_{step}",
            "type": "function",
            "function": {"name": "note", "arguments": json.dumps({"n": step, "text": FILLER})},
        }
        message = {"role": "assistant", "content": f"step {step}", "tool_calls": [call]}
    body = {
        "id": f"r{step}", "object": "chat.completion", "created": 0, "model": "bench",
        "choices": [{"index": 0, "message": message,
                     "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}],
        "usage": {"prompt_tokens": 100 + step, "completion_tokens": 10, "total_tokens": 110 + step},
    }  # fmt: skip
    return json.dumps(body).encode()


async def serve(port: int, steps: int, latency_s: float) -> None:
    """Serve until killed. A request's step is the number of its assistant messages.

    `GET /` returns what was seen of each request: its bytes, and the milliseconds from the last
    reply to it, which is the client's own time.
    """
    seen: list[dict[str, float]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = None
        while head := await _head(reader):
            arrived = time.perf_counter()
            if head.startswith(b"GET"):
                answer = json.dumps(seen).encode()
            else:
                body = await reader.readexactly(_length(head))
                if answered is not None:
                    seen.append({"bytes": len(body), "gap_ms": (arrived - answered) * 1000})
                await asyncio.sleep(latency_s)
                # Counted, not parsed: parsing a long conversation would take the client's CPU.
                answer = reply(body.count(b'"assistant"'), steps)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                + str(len(answer)).encode()
                + b"\r\n\r\n"
                + answer
            )
            await writer.drain()
            answered = time.perf_counter()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, limit=2**26)
    async with server:
        await server.serve_forever()


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0)
    given = parser.parse_args()
    asyncio.run(serve(given.port, given.steps, given.latency))

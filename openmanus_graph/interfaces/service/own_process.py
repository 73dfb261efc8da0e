"""What only our own processes do: collect garbage less often, send traces, serve over stdio.

A library leaves these to the app, so nothing that an app imports may use them.
"""

import asyncio
import contextlib
import gc
import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from openmanus_graph.errors import install_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ALLOCATIONS = 50_000
"""Allocations between two collections. Python's default is 700 (2,000 since 3.13), with which it
would scan loaded modules, which stay in memory, hundreds of times."""
SERVICE = "openmanus"
"""The name of our traces."""
PARSE_ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n'
"""JSON-RPC's answer to a line that is not a message."""
FLUSH_S = 2.0
"""Seconds that a client gets to read the last messages."""


def relax_garbage_collection() -> None:
    """Collect garbage less often, and exclude the objects that exist now.

    Called when a process starts, and by a server again when its modules are loaded: a scan of all
    modules takes a tenth of a second, in which no request is served.
    """
    gc.set_threshold(ALLOCATIONS)
    gc.freeze()


def export_traces() -> None:
    """Set up a tracer provider if OpenTelemetry's standard variables ask for one.

    The SDK reads them all: endpoint, headers, sampler, resource, batches. It sends the remaining
    spans when the process exits.
    """
    if not _traces_wanted():
        return
    try:
        installed = all(
            find_spec(name) is not None
            for name in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
        )
    except ModuleNotFoundError:  # a package above it
        installed = False
    if not installed:
        sys.stderr.write(
            "openmanus: traces are not sent, because the extra `otel` is not installed. "
            f"{install_extra('otel')}\n"
        )
        return
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(make_provider())  # else `opentelemetry-instrument` has set one


def _traces_wanted() -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporters := os.environ.get("OTEL_TRACES_EXPORTER", "").replace(" ", ""):
        return "otlp" in exporters.split(",")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return any(os.environ.get(name) for name in endpoints)


def make_provider() -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # An unreachable collector must not write into what the user reads; --log has it.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    ours = Resource.create({SERVICE_NAME: SERVICE})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def send_traces() -> None:
    from opentelemetry import trace

    flush = getattr(trace.get_tracer_provider(), "force_flush", None)  # only the SDK's have it
    if flush is not None:
        flush()


class StdioPipes:
    """The process's stdin and stdout, reserved for a protocol that is spoken over them."""

    def __init__(self) -> None:
        self._reading, self._writing = os.dup(0), os.dup(1)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # Daemons: they may be waiting for the client when the process ends.
        self._writer = threading.Thread(target=self._write, daemon=True, name="stdout")
        self._writer.start()

    def send(self, data: bytes) -> None:
        self._outgoing.put(data)

    def flush(self) -> None:
        """Send what is queued, and stop. Blocks."""
        self._outgoing.put(None)
        self._writer.join(FLUSH_S)

    def listen(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Queue[bytes | None]":
        """Return a queue that gets each line of the client, and None when it has hung up."""
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        def read() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                with contextlib.suppress(OSError):
                    for line in self._lines():
                        loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, None)

        threading.Thread(target=read, daemon=True, name="stdin").start()
        return lines

    def _lines(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        while piece := os.read(self._reading, 1 << 16):
            first, *others = piece.split(b"\n")
            pieces.append(first)
            for other in others:
                yield b"".join(pieces)
                pieces = [other]
        yield b"".join(pieces)

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the client has hung up
            while (data := self._outgoing.get()) is not None:
                while data:
                    data = data[os.write(self._writing, data) :]

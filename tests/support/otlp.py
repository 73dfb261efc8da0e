"""A collector of traces: it decodes what the SDK sends by OTLP over HTTP."""

import gzip
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.local_http import LocalServer, SilentHandler


@dataclass(frozen=True)
class SentSpan:
    """A span as it came."""

    name: str
    id: str
    parent: str
    """Empty if it has none."""
    trace: str
    kind: int
    failed: bool
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]


@dataclass
class Collector:
    """What has been received."""

    url: str = ""
    spans: list[SentSpan] = field(default_factory=list[SentSpan])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    paths: list[str] = field(default_factory=list[str])
    raw: list[bytes] = field(default_factory=list[bytes])
    arrived: threading.Event = field(default_factory=threading.Event)

    def receive(self, body: bytes) -> None:
        self.raw.append(body)
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for group in request.resource_spans:
            resource = _values(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_span(one, resource) for one in scope.spans]
        self.arrived.set()

    def named(self, beginning: str) -> list[SentSpan]:
        """Return the spans whose names begin so, in the order of their ends."""
        return [one for one in self.spans if one.name.startswith(beginning)]

    def one(self, beginning: str) -> SentSpan:
        """Return the only span whose name begins so."""
        (found,) = self.named(beginning)
        return found


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


def _span(span: Any, resource: Mapping[str, Any]) -> SentSpan:
    return SentSpan(
        name=span.name,
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        trace=span.trace_id.hex(),
        kind=span.kind,
        failed=span.status.code == 2,
        attributes=_values(span.attributes),
        resource=resource,
    )


class _Handler(SilentHandler):
    def __init__(self, *args: Any, collector: Collector) -> None:
        self.collector = collector
        super().__init__(*args)

    def do_POST(self) -> None:
        """Take one batch."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.collector.paths.append(self.path)
        self.collector.headers.append(dict(self.headers))
        self.collector.receive(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def collecting() -> Generator[Collector]:
    """Receive traces on a free port of this machine."""
    collector = Collector()
    server = LocalServer(partial(_Handler, collector=collector))
    server.begin()
    collector.url = server.url
    try:
        yield collector
    finally:
        server.end()

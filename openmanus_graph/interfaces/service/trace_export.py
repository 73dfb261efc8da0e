"""Sends the spans of our own processes by OTLP. In an app, its own tracer provider does."""

import logging
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from openmanus_graph.errors import install_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
SERVICE = "openmanus"


def export_traces() -> None:
    """Set up a tracer provider, where OpenTelemetry's standard variables ask for one.

    The SDK reads them all: endpoint, headers, sampler, resource, batches. What is left is sent when
    the process exits.
    """
    if not _is_wanted():
        return
    if any(not _is_installed(name) for name in NEEDED):
        sys.stderr.write(
            "openmanus: traces are not sent, because the extra `otel` is not installed. "
            f"{install_extra('otel')}\n"
        )
        return
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(make_provider())  # else `opentelemetry-instrument` has set one


def send_traces() -> None:
    """Send the spans that have ended, if there are any to send. Blocks."""
    from opentelemetry import trace

    flush = getattr(trace.get_tracer_provider(), "force_flush", None)  # the SDK's alone have it
    if flush is not None:
        flush()


def _is_wanted() -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporters := os.environ.get("OTEL_TRACES_EXPORTER", "").replace(" ", ""):
        return "otlp" in exporters.split(",")
    return any(os.environ.get(name) for name in _ENDPOINTS)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def make_provider() -> "TracerProvider":
    """Return a provider that sends as the environment says."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # An unreachable collector must not write into what the person reads; --log has it.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    ours = Resource.create({SERVICE_NAME: SERVICE})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider

"""OpenTelemetry's variables for generative AI, which its SDK does not read."""

import os

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING = ("true", "1", "span_only", "span_and_event")


def captures_content() -> bool:
    """Return True if spans may hold the texts of messages, tool calls and results."""
    return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURING

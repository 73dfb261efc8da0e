"""When our processes send traces."""

import sys

import pytest
from opentelemetry import trace

from openmanus_graph.interfaces.service.own_process import export_traces

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it say so where it would send, as without the extra."""
    monkeypatch.delenv(ENDPOINT, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)


@pytest.mark.parametrize(
    ("variables", "sends"),
    [
        ({}, False),
        ({ENDPOINT: "http://127.0.0.1:1"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://127.0.0.1:1"}, False),
        ({"OTEL_SDK_DISABLED": "True", ENDPOINT: "http://127.0.0.1:1"}, False),
    ],
)
def test_the_standard_variables_decide_and_a_missing_extra_is_named(
    variables: dict[str, str],
    sends: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = trace.get_tracer_provider()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    export_traces()
    assert ('"openmanus-graph[otel]"' in capsys.readouterr().err) is sends
    assert trace.get_tracer_provider() is before

"""Spans of runs, plans, calls and MCP servers, as a collector receives them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from opentelemetry import trace

from openmanus_graph import MCPServer, build_manus_graph, build_mcp_graph, open_session
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.interfaces.service.own_process import export_traces, make_provider
from tests.support.graphs import add, calls, run_graph
from tests.support.mcp_traced import answer
from tests.support.otlp import Collector, SentSpan, collecting
from tests.support.planning import PlanBrain, Reply, plan_call
from tests.support.static_site import SiteHandler, serving
from tests.support.team import step

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
SERVER = str(Path(__file__).parents[1] / "support" / "mcp_traced.py")
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Collector]:
    """A collector that the environment of this process names; a process sets it up once."""
    with collecting() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=held-by-the-collector")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        patch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        export_traces()
        yield collector
        cast("Any", trace.get_tracer_provider()).shutdown()


class Traces:
    """The spans of one test."""

    def __init__(self, receiver: Collector) -> None:
        self.receiver = receiver
        self.flush()
        receiver.spans.clear()
        receiver.raw.clear()

    def flush(self) -> Collector:
        """Have all spans that have ended sent, and return the collector."""
        assert cast("Any", trace.get_tracer_provider()).force_flush()
        return self.receiver


@pytest.fixture
def traces(receiver: Collector, monkeypatch: pytest.MonkeyPatch) -> Traces:
    monkeypatch.delenv(CAPTURE, raising=False)
    return Traces(receiver)


def children(spans: list[SentSpan], parent: SentSpan) -> list[str]:
    return [one.name for one in spans if one.parent == parent.id]


async def test_a_run_is_one_trace_of_its_agent_models_and_tools(traces: Traces) -> None:
    graph = build_manus_graph(extra_tools=[add], checkpointer=InMemorySaver())
    words = calls(("add", {"a": 1, "b": 2}), ("bash", {"wrong": "secret-word"}))
    await run_graph(graph, words, "three", task="secret-task", config=THREAD)
    sent = traces.flush()
    run = sent.one("invoke_agent")
    assert (run.name, run.parent, run.failed) == ("invoke_agent manus", "", False)
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["openmanus.status"] == "finished"
    assert run.attributes["gen_ai.usage.input_tokens"] == 200
    names = ["chat scripted", "execute_tool add", "execute_tool bash", "chat scripted"]
    assert sorted(children(sent.spans, run)) == sorted(names)
    for one in sent.spans:
        assert one.trace == run.trace
        assert one.attributes["gen_ai.conversation.id"] == "t"
        assert one.attributes["gen_ai.agent.name"] == "manus"
        assert one.resource["service.name"] == "openmanus"
        assert one.resource["deployment.environment.name"] == "test"
    chat = sent.named("chat")[0]
    assert chat.kind == trace.SpanKind.CLIENT.value + 1
    assert chat.attributes["gen_ai.request.model"] == "scripted"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 100
    assert chat.attributes["gen_ai.usage.output_tokens"] == 20
    added, refused = sent.one("execute_tool add"), sent.one("execute_tool bash")
    assert added.attributes["gen_ai.tool.call.id"] == "c1"
    assert not added.failed
    assert refused.failed
    assert refused.attributes["error.type"] == "ToolError"
    assert b"secret-" not in b"".join(sent.raw)
    assert sent.headers[-1]["x-api-key"] == "held-by-the-collector"
    assert sent.paths[-1] == "/v1/traces"


async def test_what_was_said_is_sent_when_the_environment_asks_for_it(
    traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    graph = build_manus_graph(extra_tools=[add])
    await run_graph(graph, calls(("add", {"a": 1, "b": 2})), "it is three")
    sent = traces.flush()
    tool = sent.one("execute_tool").attributes
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"a": 1, "b": 2}
    assert tool["gen_ai.tool.call.result"] == "3"
    first, last = (one.attributes for one in sent.named("chat"))
    asked = json.loads(last["gen_ai.input.messages"])
    assert [one["role"] for one in asked[:3]] == ["user", "assistant", "tool"]
    assert asked[2]["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "3"}]
    (output,) = json.loads(first["gen_ai.output.messages"])
    called = {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}
    assert output["parts"] == [called]
    assert json.loads(first["gen_ai.system_instructions"])[0]["type"] == "text"
    run = sent.one("invoke_agent").attributes
    assert json.loads(run["gen_ai.output.messages"])[0]["parts"][0]["content"] == "it is three"
    assert "gen_ai.conversation.id" not in run


async def test_a_failure_is_sent_by_its_type_and_without_its_words(traces: Traces) -> None:
    with pytest.raises(ValueError, match="secret-words"):
        await run_graph(build_manus_graph(), ValueError("secret-words"))
    sent = traces.flush()
    for one in (sent.one("chat"), sent.one("invoke_agent")):
        assert (one.failed, one.attributes["error.type"]) == (True, "ValueError")
    assert b"secret-words" not in b"".join(sent.raw)


async def test_steps_side_by_side_stand_under_the_plan_with_their_own_calls(
    traces: Traces,
) -> None:
    def work(name: str, messages: list[BaseMessage]) -> Reply:
        if messages[-1].type == "tool":
            return f"{name} is done"
        return calls(("add", {"a": 1, "b": 1}), prefix=f"{name}-")

    executors = {"manus": build_manus_graph(extra_tools=[add])}
    graph = build_planning_graph(executors=executors, checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call(step("a"), step("b"), step("c", "a", "b"))], work)
    await run_graph(graph, model=brain.model(), config=THREAD)
    sent = traces.flush()
    plan = sent.one("invoke_agent planning")
    assert plan.parent == ""
    steps = sent.named("invoke_agent manus")
    assert sorted(one.attributes["openmanus.plan_step"] for one in steps) == ["a", "b", "c"]
    for one in steps:
        assert one.parent == plan.id
        within = [span for span in sent.spans if span.parent == one.id]
        (tool,) = [span for span in within if span.name == "execute_tool add"]
        step_id = one.attributes["openmanus.plan_step"]
        assert tool.attributes["gen_ai.tool.call.id"] == f"{step_id}-1"
        assert sum(span.name == "chat scripted" for span in within) == 2
    assert {one.trace for one in sent.spans} == {plan.trace}
    assert {one.attributes["gen_ai.conversation.id"] for one in sent.spans} == {"t"}


class TracedHandler(SiteHandler):
    """The server of `mcp_traced`, over HTTP."""

    def do_POST(self) -> None:
        """Answer a message."""
        response = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_json(response, 202 if response is None else 200)

    def do_GET(self) -> None:
        """Have no stream of messages."""
        self.send_json({}, 405)


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_call_of_an_mcp_server_carries_the_trace(traces: Traces, kind: str) -> None:
    with serving(TracedHandler) as url:
        server = MCPServer("s", command=sys.executable, args=(SERVER,), approval=False)
        if kind == "http":
            server = MCPServer("s", url=f"{url}/mcp", approval=False)
        graph = build_mcp_graph(extra_tools=[server], checkpointer=InMemorySaver())
        async with open_session("t"):
            ran = await run_graph(
                graph, calls(("mcp_s_where", {})), "there", config=THREAD, policy="auto"
            )
    sent = traces.flush()
    tool, request = sent.one("execute_tool mcp_s_where"), sent.one("MCP send tools/call")
    assert request.parent == tool.id
    assert f"00-{tool.trace}-{request.id}-" in ran.results()[0]


async def test_a_run_that_waits_is_no_error_and_its_thread_is_resumed_in_another_trace(
    traces: Traces,
) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    question = calls(("ask_human", {"inquire": "Which colour?"}))
    ran = await run_graph(graph, question, "Blue then.", config=THREAD)
    await run_graph(graph, model=ran.model, task=Command(resume="blue"), config=THREAD)
    sent = traces.flush()
    waited, asked = sent.named("execute_tool ask_human")
    assert waited.attributes["openmanus.interrupted"] is True
    assert not waited.failed
    assert not asked.failed
    assert waited.trace != asked.trace
    assert {one.attributes["gen_ai.conversation.id"] for one in sent.spans} == {"t"}
    assert [one.failed for one in sent.named("invoke_agent")] == [False, False]


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/api/public/otel", ("Authorization", "Basic cGs6c2s=")),
        ("/otel", ("x-api-key", "lsv2_key")),
    ],
    ids=["langfuse", "langsmith"],
)
def test_the_services_get_their_path_and_key(
    path: str, header: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as service:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", service.url + path)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "=".join(header))
        provider = make_provider()
        provider.get_tracer("test").start_span("one").end()
        provider.shutdown()
    assert service.one("one").resource["service.name"] == "openmanus"
    assert service.paths == [f"{path}/v1/traces"]
    given = {name.lower(): value for name, value in service.headers[0].items()}
    assert given[header[0].lower()] == header[1]


async def test_a_run_stands_under_the_span_of_the_app_that_began_it(traces: Traces) -> None:
    with trace.get_tracer("app").start_as_current_span("request"):
        await run_graph(build_manus_graph(extra_tools=[add]), calls(("add", {"a": 1, "b": 1})), "2")
    sent = traces.flush()
    assert sent.one("invoke_agent").parent == sent.one("request").id
    assert children(sent.spans, sent.one("request")) == ["invoke_agent manus"]

"""OpenTelemetry spans: `invoke_agent` for each run, `chat` and `execute_tool` for calls.

They follow the semantic conventions for generative AI, and go to the process's tracer provider;
without one, no spans are made. Texts of errors are omitted. So are contents of messages and calls,
unless `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for them.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode

from openmanus_graph.config.secret_values import captures_content
from openmanus_graph.conversation.history import FINISH_KEYS
from openmanus_graph.state.manus import Usage
from openmanus_graph.state.model_settings import ModelSettings

Attributes = dict[str, Any]

_tracer = trace.get_tracer("openmanus_graph")
_RUN = otel_context.create_key("openmanus-run")
_PROVIDER_NAMES = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "mistralai": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}
"""The conventions' names of providers, where they differ from ours."""
_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
_REQUEST_OPTIONS = ("temperature", "top_p", "max_tokens", "seed")


class ModelRequest(Protocol):
    """What one model is sent; `model_calls.recorder.ProviderRequest` is one."""

    @property
    def messages(self) -> Sequence[BaseMessage]: ...
    @property
    def tools(self) -> Sequence[Mapping[str, Any]]: ...


def is_tracing() -> bool:
    """Return True if the process has a tracer provider."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class RunSpan:
    """The span of one run of a graph. `SessionKeeper` begins and ends it.

    A callback cannot change the context of its run, so the nodes run inside it by `entered`. This
    also puts parallel steps under their own run.
    """

    def __init__(self, agent: str, thread: str, plan_step: str) -> None:
        common = {"gen_ai.agent.name": agent, "gen_ai.conversation.id": thread}
        self.common: Attributes = {key: value for key, value in common.items() if value}
        """Attributes that the spans inside it have, too."""
        attributes = {"gen_ai.operation.name": "invoke_agent", **self.common}
        if plan_step:
            attributes["openmanus.plan_step"] = plan_step
        self._span = _tracer.start_span(f"invoke_agent {agent}".strip(), attributes=attributes)
        self._context = otel_context.set_value(_RUN, self, trace.set_span_in_context(self._span))

    @contextmanager
    def entered(self) -> Generator[None]:
        """Make it the current span, unless that is one inside it already."""
        if otel_context.get_value(_RUN) is self:
            yield
            return
        token = otel_context.attach(self._context)
        try:
            yield
        finally:
            otel_context.detach(token)

    def end(self, outputs: Any, error: BaseException | None) -> None:
        """End it with what the run returned or raised."""
        if self._span.is_recording():
            if error is not None:
                _record_error(self._span, error)
            elif isinstance(outputs, Mapping):
                self._record_end(cast("Mapping[str, Any]", outputs))
        self._span.end()

    def _record_end(self, outputs: Mapping[str, Any]) -> None:
        ended = {"status": outputs.get("status"), "stop_reason": outputs.get("stop_reason")}
        self._span.set_attributes(
            {f"openmanus.{key}": str(value) for key, value in ended.items() if value}
        )
        if isinstance(usage := outputs.get("usage"), Mapping):
            self._span.set_attributes(_usage_attributes(cast("Usage", usage)))
        if ended["status"] == "failed":
            _record_failure(self._span, str(ended["stop_reason"] or "failed"))
        if captures_content():
            messages: list[BaseMessage] = outputs.get("messages") or []
            task = [one for one in messages if one.type == "human"][-1:]
            answer = [AIMessage(str(outputs["answer"]))] if outputs.get("answer") else []
            for name, shown in (("input", task), ("output", answer)):
                text = _as_json([_message(one) for one in shown])
                self._span.set_attribute(f"gen_ai.{name}.messages", text)


def record_reply(span: Span, reply: AIMessage, usage: Usage) -> None:
    if not span.is_recording():
        return
    said = reply.response_metadata
    attributes = _usage_attributes(usage) | _reported_details(reply)
    if reason := next((said[key] for key in FINISH_KEYS if said.get(key)), None):
        attributes["gen_ai.response.finish_reasons"] = [str(reason)]
    if model := said.get("model_name") or said.get("model"):
        attributes["gen_ai.response.model"] = str(model)
    if identity := said.get("id"):
        attributes["gen_ai.response.id"] = str(identity)
    if captures_content():
        output = {**_message(reply), "finish_reason": str(reason or "")}
        attributes["gen_ai.output.messages"] = _as_json([output])
    span.set_attributes(attributes)


def record_result(span: Span, text: str, *, error_type: str, replayed: bool) -> None:
    """Record how a tool call ended: with the text that the model reads, or with an error.

    `replayed`: its result was in the ledger, and nothing was run.
    """
    if not span.is_recording():
        return
    if replayed:
        span.set_attribute("openmanus.replayed", True)
    if error_type:
        _record_failure(span, error_type)
    if captures_content():
        span.set_attribute("gen_ai.tool.call.result", text)


@contextmanager
def model_call(
    request: ModelRequest, settings: ModelSettings, name: str, provider: str
) -> Generator[Span]:
    """Trace one request to a model, with its retries. End it with `record_reply`.

    `name` is that of the model without its provider; `provider` is empty if it is not known.
    """
    if not is_tracing():
        yield trace.INVALID_SPAN
        return
    attributes: Attributes = {
        "gen_ai.provider.name": _PROVIDER_NAMES.get(provider, provider) or "_OTHER",
        "gen_ai.request.model": name,
        "gen_ai.request.stream": True,
    }
    for option in _REQUEST_OPTIONS:
        if isinstance(value := settings.options.get(option), int | float):
            attributes[f"gen_ai.request.{option}"] = value
    if settings.base_url and (host := urlsplit(settings.base_url)).hostname:
        port = host.port or (80 if host.scheme == "http" else 443)
        attributes |= {"server.address": host.hostname, "server.port": port}
    with _span("chat", name, SpanKind.CLIENT, attributes) as span:
        if span.is_recording() and captures_content():
            system = [one for one in request.messages if one.type == "system"]
            others = [_message(one) for one in request.messages if one.type != "system"]
            parts = [part for one in system for part in _parts(one)]
            span.set_attribute("gen_ai.system_instructions", _as_json(parts))
            span.set_attribute("gen_ai.input.messages", _as_json(others))
            span.set_attribute("gen_ai.tool.definitions", _as_json(request.tools))
        yield span


@contextmanager
def tool_call(name: str, call_id: str, args: Mapping[str, Any]) -> Generator[Span]:
    """Trace one execution of a tool call. End it with `record_result`."""
    if not is_tracing():
        yield trace.INVALID_SPAN
        return
    attributes: Attributes = {
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.type": "function",
    }
    if captures_content():
        attributes["gen_ai.tool.call.arguments"] = _as_json(args)
    with _span("execute_tool", name, SpanKind.INTERNAL, attributes) as span:
        yield span


@contextmanager
def _span(operation: str, name: str, kind: SpanKind, attributes: Attributes) -> Generator[Span]:
    run = otel_context.get_value(_RUN)
    common = run.common if isinstance(run, RunSpan) else {}
    with _tracer.start_as_current_span(
        f"{operation} {name}",
        kind=kind,
        attributes={"gen_ai.operation.name": operation, **common, **attributes},
        record_exception=False,  # its text may quote what was said
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            _record_error(span, error)
            raise


def _record_error(span: Span, error: BaseException) -> None:
    if isinstance(error, GraphBubbleUp):  # it waits for a person, or the process ends
        span.set_attribute("openmanus.interrupted", True)
    else:  # a model's error has a kind
        _record_failure(span, str(getattr(error, "kind", "") or type(error).__name__))


def _record_failure(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR)


def _usage_attributes(usage: Usage) -> Attributes:
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": usage["input_tokens"],
        "gen_ai.usage.output_tokens": usage["output_tokens"],
    }
    if usage["cached_tokens"]:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage["cached_tokens"]
    if usage["cost_usd"]:  # else the price is not known
        attributes["gen_ai.usage.cost"] = usage["cost_usd"]
    return attributes


def _reported_details(reply: AIMessage) -> Attributes:
    reported: Mapping[str, Any] | None = reply.usage_metadata
    if not reported:
        return {"openmanus.usage.estimated": True}
    given, made = reported.get("input_token_details", {}), reported.get("output_token_details", {})
    details = {
        "cache_creation.input_tokens": given.get("cache_creation"),
        "reasoning.output_tokens": made.get("reasoning"),
    }
    return {f"gen_ai.usage.{key}": value for key, value in details.items() if value}


def _message(message: BaseMessage) -> dict[str, Any]:
    return {"role": _ROLES.get(message.type, message.type), "parts": _parts(message)}


def _parts(message: BaseMessage) -> list[dict[str, Any]]:
    """Return a message's parts in the conventions' form; of pictures and sound only the type."""
    if isinstance(message, ToolMessage):
        answer = {"id": message.tool_call_id, "response": str(message.text)}
        return [{"type": "tool_call_response", **answer}]
    parts: list[dict[str, Any]] = []
    for block in message.content_blocks:
        if block["type"] == "text":
            parts.append({"type": "text", "content": block["text"]})
        elif block["type"] == "reasoning":
            parts.append({"type": "reasoning", "content": block.get("reasoning", "")})
        elif block["type"] not in ("tool_call", "tool_call_chunk", "invalid_tool_call"):
            parts.append({"type": block["type"]})
    for call in message.tool_calls if isinstance(message, AIMessage) else ():
        asked = {"id": call["id"], "name": call["name"], "arguments": call["args"]}
        parts.append({"type": "tool_call", **asked})
    return parts


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)

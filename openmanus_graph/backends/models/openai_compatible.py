"""The client for OpenAI and every server that speaks its protocol.

LangChain's own client follows OpenAI's documents; this one follows what servers send. It also
writes each message to JSON once and hands the SDK a ready-made body: the SDK would walk every
message of every request through its type annotations, which costs more at each step of a long run.
"""

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langchain_openai.chat_models.base import BaseChatOpenAI
from openai._constants import RAW_RESPONSE_HEADER  # what `with_raw_response` sends
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import PrivateAttr
from typing_extensions import override

from openmanus_graph.backends.models.chunks import merged_message
from openmanus_graph.backends.models.failures import classify
from openmanus_graph.backends.models.openai_events import ByteResponse, read_events
from openmanus_graph.backends.models.openai_replies import ReplyReader
from openmanus_graph.backends.models.openai_wire import (
    Dialect,
    WireMessage,
    adapt,
    dialect_of,
    is_reasoning_model,
    refuses_temperature,
)
from openmanus_graph.conversation.history import ConversationCache

Payload = dict[str, Any]

_NOT_IN_BODY = frozenset({"messages", "extra_headers", "extra_query", "extra_body", "timeout"})
_JSON = {"Content-Type": "application/json", RAW_RESPONSE_HEADER: "raw"}


class _Compatible(BaseChatOpenAI):
    """Copes with what compatible servers leave out, add and get wrong.

    Reasoning goes to `additional_kwargs["reasoning_content"]`. A server that refuses
    `stream_options` or streaming is asked again without, and that is remembered.
    """

    _wire: ConversationCache[bytes] = PrivateAttr(default_factory=ConversationCache[bytes])
    _refused: set[str] = PrivateAttr(default_factory=set[str])

    @property
    def dialect(self) -> Dialect:
        """What the server accepts."""
        return dialect_of(self.openai_api_base, self.model_name)

    @override
    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> Payload:
        if self._use_responses_api({**self._default_params, **kwargs}):
            return cast("Payload", super()._get_request_payload(input_, stop=stop, **kwargs))
        payload = cast("Payload", super()._get_request_payload([], stop=stop, **kwargs))
        payload["messages"] = [
            self._wire_form(message) for message in self._convert_input(input_).to_messages()
        ]
        _fit_parameters(payload, self.dialect)
        return payload

    def _wire_form(self, message: BaseMessage) -> WireMessage:
        payload = cast("Payload", super()._get_request_payload([message]))
        return adapt(payload["messages"][0], message, self.dialect)

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        stream_usage: bool | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if self._use_responses_api({**kwargs, **self.model_kwargs}):
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):
                yield chunk
            return
        payload = self._get_request_payload([], stop=stop, **{**kwargs, "stream": True})
        if self._should_stream_usage(stream_usage, **kwargs):
            payload["stream_options"] = {"include_usage": True}
        async for chunk in self._reply(payload, messages):
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if self._use_responses_api({**kwargs, **self.model_kwargs}):
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        payload = self._get_request_payload([], stop=stop, **{**kwargs, "stream": False})
        chunks = [chunk async for chunk in self._reply(payload, messages)]
        message = merged_message(cast("AIMessageChunk", chunk.message) for chunk in chunks)
        if "response_format" in payload:
            _attach_parsed(message.additional_kwargs, message.text)
        info = chunks[-1].generation_info
        return ChatResult(generations=[ChatGeneration(message=message, generation_info=info)])

    async def _reply(
        self, payload: Payload, messages: list[BaseMessage]
    ) -> AsyncIterator[ChatGenerationChunk]:
        """Ask, and yield the pieces of the reply; the last one carries usage and reason."""
        reader = ReplyReader()
        wire = self._wire.get(
            messages, lambda one: json.dumps(self._wire_form(one), ensure_ascii=False).encode()
        )
        async for event in read_events(await self._open(payload, wire)):
            chunk = reader.read(event)
            if chunk is not None:
                yield chunk
        yield reader.finish()

    async def _open(self, payload: Payload, wire: list[bytes]) -> ByteResponse:
        """Send the request, leaving out what this server has refused before or refuses now."""
        while True:
            if "stream" in self._refused:
                payload["stream"] = False
            if self._refused and "stream_options" in payload:
                del payload["stream_options"]
            try:
                return await self._post(payload, wire)
            except openai.APIStatusError as error:
                refused = _refused_parameter(error, payload)
                if refused is None:
                    raise
                self._refused.add(refused)

    async def _post(self, payload: Payload, wire: list[bytes]) -> ByteResponse:
        options: dict[str, Any] = {"headers": {**_JSON, **(payload.get("extra_headers") or {})}}
        for option, name in (("params", "extra_query"), ("timeout", "timeout")):
            if payload.get(name) is not None:
                options[option] = payload[name]
        raw: Any = await self.root_async_client.post(
            "/chat/completions",
            cast_to=ChatCompletion,
            content=_body(payload, wire),
            options=cast("Any", options),  # a TypedDict of the SDK's own
            stream=bool(payload.get("stream")),
            stream_cls=openai.AsyncStream[ChatCompletionChunk],
        )
        return cast("ByteResponse", raw.http_response)


class OpenAICompatibleModel(_Compatible, ChatOpenAI):
    """OpenAI, and any server that speaks its protocol."""


class AzureCompatibleModel(_Compatible, AzureChatOpenAI):
    """Azure OpenAI: the same protocol at other addresses, with another key header."""


def _refused_parameter(error: openai.APIStatusError, payload: Payload) -> str | None:
    """Name the parameter a server refuses and that the request can do without."""
    failure = classify(error)
    kind = failure.kind if failure else None
    if kind == "no_stream_options" and "stream_options" in payload:
        return "stream_options"
    return "stream" if kind == "no_streaming" and payload.get("stream") else None


def _body(payload: Payload, wire: list[bytes]) -> bytes:
    """Join the messages, written already, with the parameters."""
    parameters = {key: value for key, value in payload.items() if key not in _NOT_IN_BODY}
    rest = json.dumps({**parameters, **(payload.get("extra_body") or {})}, ensure_ascii=False)
    # The ends are glued to messages, so that megabytes are joined, and copied, only once.
    parts = wire or [b""]
    parts = [b'{"messages":[' + parts[0], *parts[1:]]
    parts[-1] += b"]," + rest.encode()[1:]
    return b",".join(parts)


def _fit_parameters(payload: Payload, dialect: Dialect) -> None:
    """Name the token limit as the server knows it and drop a temperature it refuses."""
    model = str(payload["model"])
    if refuses_temperature(model, payload.get("reasoning_effort")):
        payload.pop("temperature", None)
    # Strict servers refuse a parameter they do not know, so only one of the two is sent.
    if not dialect.official and not is_reasoning_model(model):
        limit = payload.pop("max_completion_tokens", None)
        if limit is not None:
            payload["max_tokens"] = limit


def _attach_parsed(additional_kwargs: dict[str, Any], text: str) -> None:
    """Put the parsed reply where LangChain's structured output looks for it."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return
    if isinstance(parsed, dict):
        additional_kwargs["parsed"] = parsed

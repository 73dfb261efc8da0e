"""The client for OpenAI and every server that speaks its protocol of chat completions.

LangChain's own client follows OpenAI's documents; this one follows what servers send. It writes
each message to JSON once: the openai SDK would check every message of every request against its
type annotations, and takes longer to load than everything else. The Responses API is left to
LangChain's client.
"""

import asyncio
import importlib.util
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import (
    BaseChatModel,
    LangSmithParams,
    LanguageModelInput,
    ModelProfile,
)
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ToolMessage,
    convert_to_openai_data_block,
    is_data_content_block,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field, PrivateAttr, model_validator
from typing_extensions import override

from openmanus_graph.backends.models.chunks import merged_message
from openmanus_graph.backends.models.dialects import Dialect, Reasoning, known_dialect
from openmanus_graph.backends.models.endpoint import Connections
from openmanus_graph.backends.models.openai_replies import ReplyReader, read_events
from openmanus_graph.conversation.caches import ConversationCache
from openmanus_graph.state.json_values import json_or

WireMessage = dict[str, Any]


def wire_message(message: BaseMessage, dialect: Dialect) -> WireMessage:
    """Return a message in the form that strict and simple servers accept as well.

    ValueError: it is of a kind, or holds a block, that chat completions do not have.
    """
    kind = message.type.removesuffix("MessageChunk").lower()
    role = message.role if isinstance(message, ChatMessage) else _ROLES.get(kind)
    role = dialect.system_role if kind == "system" else role
    if role is None:
        raise ValueError(f"A message of the kind {message.type!r} cannot be sent to a model.")
    form: WireMessage = {"role": role, "content": _content(message.content, role)}
    if isinstance(message, ToolMessage):
        form["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        form["name"] = message.name
    if isinstance(message, AIMessage):
        if calls := _tool_calls(message):
            form["tool_calls"] = calls
        _return_reasoning(form, message, dialect.reasoning)
        if (audio := message.additional_kwargs.get("audio")) and "id" in audio:
            form["audio"] = {"id": audio["id"]}
    return form


_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "function": "function"}


def _content(content: str | list[str | dict[str, Any]], role: str) -> object:
    """Join blocks that are all plain text; many servers accept lists for pictures only."""
    if isinstance(content, str):
        return _sendable(content)
    if role == "tool":  # pictures are refused there
        blocks = [
            block if isinstance(block, str) or block.get("type") == "text" else "(picture left out)"
            for block in content
        ]
    else:
        blocks = [sent for block in content if (sent := _block(block)) is not None]
    texts = [_plain_text(block) for block in blocks]
    if all(text is not None for text in texts):
        return ("" if role == "assistant" else "\n\n").join(cast("list[str]", texts))
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in blocks]


_NOT_SENT = frozenset({
    "tool_use", "tool_call", "invalid_tool_call", "function_call", "code_interpreter_call",
    "thinking", "reasoning", "reasoning_content",
})  # fmt: skip
"""Blocks of other providers' replies: calls, which are sent as such, and thoughts."""


def _block(block: str | dict[str, Any]) -> str | dict[str, Any] | None:
    """Return a block as chat completions have it; None for one that is left out."""
    if isinstance(block, str):
        return block
    if block.get("type") in _NOT_SENT:
        return None
    if block.get("type") == "image" and isinstance(block.get("source"), dict):  # Anthropic's
        source = cast("dict[str, Any]", block["source"])
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    return convert_to_openai_data_block(block) if is_data_content_block(block) else block


def _plain_text(block: str | dict[str, Any]) -> str | None:
    if isinstance(block, str):
        return _sendable(block)
    # Further keys (cache_control) are hints that joining would lose.
    if block.get("type") == "text" and set(block) <= {"type", "text", "id", "index"}:
        return _sendable(str(block["text"]))
    return None


def _sendable(text: str) -> str:
    """Replace lone surrogates, which file names and broken output hold, but no request can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _tool_calls(message: AIMessage) -> list[dict[str, Any]]:
    extras = cast("dict[str, Any]", message.additional_kwargs.get("tool_call_extras", {}))
    return [
        {
            "type": "function",
            "id": call["id"],
            "function": {
                "name": re.sub(r"[^a-zA-Z0-9_-]", "_", call["name"] or "unnamed")[:64],
                "arguments": _object_text(call["args"]),
            },
            **extras.get(call["id"] or "", {}),
        }
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    ]


def _object_text(arguments: object) -> str:
    """Return arguments as a JSON object: templates of several servers crash on anything else."""
    if not isinstance(arguments, str):
        return _sendable(json.dumps(arguments or {}, ensure_ascii=False))
    text = _sendable(arguments)
    if isinstance(json_or(text, strict=False), dict):
        return text
    return json.dumps({"not_a_json_object": text}, ensure_ascii=False) if text.strip() else "{}"


def _return_reasoning(form: WireMessage, message: AIMessage, wanted: Reasoning) -> None:
    extra = message.additional_kwargs
    reasoning = str(extra.get("reasoning_content") or "")
    if wanted in ("every", "filled"):  # also where a model had none, or it was another model's
        form["reasoning_content"] = reasoning or ("" if wanted == "every" else " ")
    elif "tool_calls" not in form:
        return
    elif details := extra.get("reasoning_details"):  # OpenRouter's, which may be signed
        form["reasoning_details"] = details
    elif wanted == "calls" and reasoning:
        form[extra.get("reasoning_field", "reasoning_content")] = reasoning


Payload = dict[str, Any]

_PARAMETERS = (
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "frequency_penalty",
    "presence_penalty", "seed", "stop", "n", "logprobs", "top_logprobs", "logit_bias",
    "reasoning_effort", "verbosity", "service_tier", "store", "prompt_cache_options",
)  # fmt: skip
"""Fields that are sent in each request if they are set."""
_NOT_IN_BODY = frozenset({
    "extra_headers", "extra_query", "extra_body", "timeout", "stream_usage", "dialect",
})  # fmt: skip


class OpenAICompatibleModel(BaseChatModel):
    """A model of OpenAI, of Azure, or of any server that speaks their protocol.

    Reasoning goes to `additional_kwargs["reasoning_content"]`. Fields have the names of LangChain's
    `ChatOpenAI`; an unknown one is a parameter of the request.
    """

    model_name: str = Field(alias="model")
    base_url: str = Field(repr=False)
    url: str = Field(repr=False)
    headers: Mapping[str, str] = Field(repr=False, exclude=True)
    connections: Connections = Field(repr=False, exclude=True)
    default_query: Mapping[str, str] = Field(default_factory=dict[str, str], repr=False)
    ls_provider: str = "openai"
    streaming: bool = False
    stream_usage: bool = True

    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: list[str] | str | None = Field(default=None, alias="stop_sequences")
    n: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: Mapping[str, int] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    prompt_cache_options: Mapping[str, Any] | None = None
    extra_body: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    """Parameters that only this server knows."""
    model_kwargs: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    """Further parameters of each request."""

    model_config = ConfigDict(populate_by_name=True, arbitrary_types_allowed=True)

    _wire: ConversationCache[bytes] = PrivateAttr(default_factory=ConversationCache[bytes])
    _wire_dialect: Dialect | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _gather_parameters(cls, values: dict[str, Any]) -> dict[str, Any]:
        known = {name for key, one in cls.model_fields.items() for name in (key, one.alias) if name}
        unknown = {key: value for key, value in values.items() if key not in known}
        kept = {key: value for key, value in values.items() if key in known}
        return {**kept, "model_kwargs": {**unknown, **(values.get("model_kwargs") or {})}}

    @property
    def dialect(self) -> Dialect:
        """The dialect that is known beforehand; a call may be given another one."""
        return known_dialect("openai", self.base_url, self.model_name, self.reasoning_effort)

    @property
    def sent_parameters(self) -> set[str]:
        """Names of the parameters of each request."""
        streaming = {"stream", "stream_options"} if self.stream_usage else {"stream"}
        return {*self._parameters(), *self.extra_body, *streaming} - {"model"}

    @property
    @override
    def _llm_type(self) -> str:
        return "openai-chat"

    @property
    @override
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, **self._parameters()}

    @override
    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = self.ls_provider
        return params

    @override
    def _resolve_model_profile(self) -> ModelProfile | None:
        profile = _profiles().get(self.model_name)
        if profile and profile.get("mid_conversation_tools"):  # by the Responses API alone
            return {**profile, "mid_conversation_tools": False}
        return profile

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        definitions = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        names = [definition.get("function", {}).get("name") for definition in definitions]
        if tool_choice in names:
            tool_choice = {"type": "function", "function": {"name": tool_choice}}
        elif tool_choice is True or tool_choice == "any":
            tool_choice = "required"
        if tool_choice:
            kwargs["tool_choice"] = tool_choice
        if parallel_tool_calls is not None:
            kwargs["parallel_tool_calls"] = parallel_tool_calls
        return self.bind(tools=definitions, **kwargs)

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        payload = {**self._parameters(stop), **kwargs, "stream": True}
        if kwargs.get("stream_usage", self.stream_usage):
            payload.setdefault("stream_options", {"include_usage": True})
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
        payload = {**self._parameters(stop), **kwargs, "stream": False}
        chunks = [chunk async for chunk in self._reply(payload, messages)]
        message = merged_message(cast("AIMessageChunk", chunk.message) for chunk in chunks)
        info = chunks[-1].generation_info
        return ChatResult(generations=[ChatGeneration(message=message, generation_info=info)])

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        async def ask() -> ChatResult:
            connections = self.connections.unopened()
            model = self.model_copy(update={"connections": connections})
            try:
                return await model._agenerate(messages, stop, **kwargs)
            finally:
                await connections.aclose()

        with ThreadPoolExecutor(1) as thread:  # where there may be no event loop yet
            return thread.submit(asyncio.run, ask()).result()

    def _parameters(self, stop: list[str] | None = None) -> Payload:
        fields = self.__dict__  # attributes of a pydantic model are slower
        given = {name: fields[name] for name in _PARAMETERS if fields[name] is not None}
        if stop is not None:
            given["stop"] = stop
        return {"model": self.model_name, **given, **self.model_kwargs}

    async def _reply(
        self, payload: Payload, messages: list[BaseMessage]
    ) -> AsyncIterator[ChatGenerationChunk]:
        """Send a request, and yield the pieces of the reply; the last one has the usage."""
        dialect, reader = payload.get("dialect") or self.dialect, ReplyReader()
        _rename_parameters(payload, dialect)
        if dialect != self._wire_dialect:
            self._wire_dialect, self._wire = dialect, ConversationCache()
        wire = self._wire.get(
            messages,
            lambda one: json.dumps(wire_message(one, dialect), ensure_ascii=False).encode(),
        )
        body = await self.connections.post(
            self.url,
            _body(payload, wire, self.extra_body),
            {**self.headers, **(payload.get("extra_headers") or {})},
            query={**self.default_query, **(payload.get("extra_query") or {})},
            idle_timeout_s=payload.get("timeout"),
        )
        async for event in read_events(body):
            chunk = reader.read(event)
            if chunk is not None:
                yield chunk
        yield reader.finish()


def _body(payload: Payload, wire: list[bytes], extra: Mapping[str, Any]) -> bytes:
    """Join the messages, which are JSON already, with the parameters."""
    parameters = {key: value for key, value in payload.items() if key not in _NOT_IN_BODY}
    further: Payload = {**extra, **(payload.get("extra_body") or {})}
    rest = json.dumps({**parameters, **further}, ensure_ascii=False)
    # The ends are added to messages, so that megabytes are copied only once.
    parts = wire or [b""]
    parts = [b'{"messages":[' + parts[0], *parts[1:]]
    parts[-1] += b"]," + rest.encode()[1:]
    return b",".join(parts)


def _rename_parameters(payload: Payload, dialect: Dialect) -> None:
    """Rename parameters to the server's names, and remove those that it refuses."""
    for name in payload.keys() & dialect.parameters.keys():
        value, new = payload.pop(name), dialect.name_of(name)
        if new is not None:
            payload.setdefault(new, value)
    if "stream" not in payload:
        payload.pop("stream_options", None)


@cache
def _profiles() -> Mapping[str, ModelProfile]:
    """Return LangChain's profiles of OpenAI's models, without loading its client."""
    package = importlib.util.find_spec("langchain_openai")
    if package is None or package.origin is None:
        return {}
    path = Path(package.origin).parent / "data" / "_profiles.py"
    spec = importlib.util.spec_from_file_location("langchain_openai_profiles", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Mapping[str, ModelProfile]", module._PROFILES)

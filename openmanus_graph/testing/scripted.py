"""A chat model that plays scripted replies and records its requests."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr
from typing_extensions import override

Reply: TypeAlias = AIMessage | str | Exception
ScriptedReply: TypeAlias = Reply | Callable[[list[BaseMessage]], Reply]


class ScriptExhaustedError(Exception):
    """There were more requests than scripted replies."""


class ScriptedChatModel(BaseChatModel):
    """Plays replies in order, streamed or not, with or without tools.

    Args:
        replies: A message, a text, an exception to raise, or a function from the request's
            messages to one of these.
        latency_s: Waited before each reply.
        usage: Input and output tokens reported with replies that carry none; None reports none.
    """

    model_name: str = "scripted"
    latency_s: float = 0
    usage: tuple[int, int] | None = (100, 20)
    piece_size: int = 8
    """Characters of one streamed chunk."""
    _replies: list[ScriptedReply] = PrivateAttr(default_factory=list[ScriptedReply])
    _requests: list[list[BaseMessage]] = PrivateAttr(default_factory=list[list[BaseMessage]])
    _options: list[dict[str, Any]] = PrivateAttr(default_factory=list[dict[str, Any]])

    def __init__(self, replies: Iterable[ScriptedReply] = (), **fields: Any) -> None:
        super().__init__(**fields)
        self._replies = list(replies)

    @property
    def requests(self) -> list[list[BaseMessage]]:
        """The messages of each request so far."""
        return self._requests

    @property
    def options(self) -> list[dict[str, Any]]:
        """The options of each request: `tools` as OpenAI's schema, `stop` and so on."""
        return self._options

    @property
    def remaining(self) -> int:
        """How many replies are left."""
        return max(0, len(self._replies) - len(self._requests))

    def tool_names(self, request: int = -1) -> list[str]:
        """Return the names of the tools offered in a request, the last one by default."""
        return [tool["function"]["name"] for tool in self._options[request].get("tools", ())]

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if self.latency_s:
            time.sleep(self.latency_s)
        return ChatResult(generations=[ChatGeneration(message=self._next(messages, kwargs))])

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        await asyncio.sleep(self.latency_s)
        return ChatResult(generations=[ChatGeneration(message=self._next(messages, kwargs))])

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        if self.latency_s:
            time.sleep(self.latency_s)
        for chunk in _chunks(self._next(messages, kwargs), self.piece_size):
            yield ChatGenerationChunk(message=chunk)

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        await asyncio.sleep(self.latency_s)
        for chunk in _chunks(self._next(messages, kwargs), self.piece_size):
            yield ChatGenerationChunk(message=chunk)
            await asyncio.sleep(0)  # lets other tasks run, as a network would

    @property
    @override
    def _llm_type(self) -> str:
        return "scripted"

    def _next(self, messages: list[BaseMessage], options: dict[str, Any]) -> AIMessage:
        """Record a request and return its reply, with usage.

        Raises:
            ScriptExhaustedError: There is none left.
        """
        self._requests.append(list(messages))
        self._options.append(options)
        position = len(self._requests) - 1
        if position >= len(self._replies):
            raise ScriptExhaustedError(self._out_of_replies(messages))
        reply = self._replies[position]
        if callable(reply) and not isinstance(reply, Exception):
            reply = reply(list(messages))
        if isinstance(reply, Exception):
            raise reply
        message = AIMessage(reply) if isinstance(reply, str) else reply
        usage = message.usage_metadata
        if not usage and self.usage is not None:
            given, written = self.usage
            usage = UsageMetadata(
                input_tokens=given, output_tokens=written, total_tokens=given + written
            )
        # A copy: several models may play the same reply, and a run may change it.
        return message.model_copy(update={"usage_metadata": usage})

    def _out_of_replies(self, messages: list[BaseMessage]) -> str:
        return (
            f"The script has {len(self._replies)} replies, and the model was asked "
            f"{len(self._requests)} times. The last message it was sent is "
            f"{describe_last_message(messages, empty='nothing')}"
        )


def describe_last_message(messages: Sequence[BaseMessage], *, empty: str) -> str:
    """Return the type and the beginning of the last message, or `empty` if there is none."""
    return f"{messages[-1].type}: {str(messages[-1].content)[:200]}" if messages else empty


def _chunks(message: AIMessage, size: int) -> Iterator[AIMessageChunk]:
    """Split a message into chunks as providers do: text, then tool calls, then usage."""
    content = message.content
    if isinstance(content, str):
        for start in range(0, len(content), size):
            yield AIMessageChunk(content=content[start : start + size])
    else:
        whole = cast("Any", content)  # the constructor knows lists of str or of dict only
        yield AIMessageChunk(content=whole)
    valid = [
        (call["name"], json.dumps(call["args"], ensure_ascii=False), call["id"])
        for call in message.tool_calls
    ]
    invalid = [
        (call["name"], call["args"] or "", call["id"]) for call in message.invalid_tool_calls
    ]
    for index, (name, arguments, call_id) in enumerate([*valid, *invalid]):
        for start in range(0, max(1, len(arguments)), size):
            chunk = tool_call_chunk(
                name=None if start else name,
                args=arguments[start : start + size],
                id=None if start else call_id,
                index=index,
            )
            yield AIMessageChunk(content="", tool_call_chunks=[chunk])
    yield AIMessageChunk(
        content="" if isinstance(content, str) else [],
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        chunk_position="last",
    )

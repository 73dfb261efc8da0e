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
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk
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
        return _result(self._next(messages, kwargs))

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        await asyncio.sleep(self.latency_s)
        return _result(self._next(messages, kwargs))

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
        yield from _pieces(self._next(messages, kwargs), self.piece_size)

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        await asyncio.sleep(self.latency_s)
        for piece in _pieces(self._next(messages, kwargs), self.piece_size):
            yield piece
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
        # A copy: several models may play the same reply, and a run may change it.
        return message.model_copy(
            update={"usage_metadata": message.usage_metadata or _usage(self.usage)}
        )

    def _out_of_replies(self, messages: list[BaseMessage]) -> str:
        last = f"{messages[-1].type}: {str(messages[-1].content)[:200]}" if messages else "nothing"
        return (
            f"The script has {len(self._replies)} replies, and the model was asked "
            f"{len(self._requests)} times. The last message it was sent is {last}"
        )


def _usage(tokens: tuple[int, int] | None) -> UsageMetadata | None:
    if tokens is None:
        return None
    return UsageMetadata(
        input_tokens=tokens[0], output_tokens=tokens[1], total_tokens=tokens[0] + tokens[1]
    )


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _pieces(message: AIMessage, size: int) -> Iterator[ChatGenerationChunk]:
    """Split a message into chunks as providers do: text, then tool calls, then usage."""
    content = message.content
    if isinstance(content, str):
        for start in range(0, len(content), size):
            yield _chunk(AIMessageChunk(content=content[start : start + size]))
    else:
        whole = cast("Any", content)  # the constructor knows lists of str or of dict only
        yield _chunk(AIMessageChunk(content=whole))
    for index, call in enumerate(_call_chunks(message)):
        arguments = call["args"] or ""
        for start in range(0, max(1, len(arguments)), size):
            piece = tool_call_chunk(
                name=None if start else call["name"],
                args=arguments[start : start + size],
                id=None if start else call["id"],
                index=index,
            )
            yield _chunk(AIMessageChunk(content="", tool_call_chunks=[piece]))
    yield _chunk(
        AIMessageChunk(
            content="" if isinstance(content, str) else [],
            additional_kwargs=message.additional_kwargs,
            response_metadata=message.response_metadata,
            usage_metadata=message.usage_metadata,
            chunk_position="last",
        )
    )


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message)


def _call_chunks(message: AIMessage) -> list[ToolCallChunk]:
    valid = [
        tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"], ensure_ascii=False), id=call["id"]
        )
        for call in message.tool_calls
    ]
    invalid = [
        tool_call_chunk(name=call["name"], args=call["args"], id=call["id"])
        for call in message.invalid_tool_calls
    ]
    return valid + invalid

"""Chat models that play scripted replies, or the replies of a recorded conversation."""

import asyncio
import json
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
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
        """Record a request and return its reply, with usage."""
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
            f"{_describe_last(messages, empty='nothing')}"
        )


def _describe_last(messages: Sequence[BaseMessage], *, empty: str) -> str:
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


class RecordingError(Exception):
    """A recording is invalid, or a conversation differs from it."""


@dataclass(frozen=True)
class RecordedReply:
    """One reply of the model."""

    label: str
    """A few words about the reply, for errors."""
    text: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """`id, name, args` of each."""
    usage: Mapping[str, Any] | None = None
    after: tuple[str, ...] | None = None
    """Names of the tools whose results come right before it. None: not checked."""
    additional_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Recording:
    """The replies of one conversation."""

    name: str
    replies: tuple[RecordedReply, ...]
    model: str = ""
    """The recorded model."""


Conversations = Mapping[str, Recording]
"""Recordings by a text that is in the first messages of that conversation only."""
_MAX_ROUNDS = 10
"""How often all replies of a plan may be requested: failed steps are tried again."""


class RecordedChatModel(ScriptedChatModel):
    """Plays a recording, and fails when the conversation differs from it."""

    _recording: Recording = PrivateAttr()

    def __init__(self, recording: Recording, **fields: Any) -> None:
        fields.setdefault("model_name", recording.model or "recorded")
        super().__init__(
            [partial(play, recording, n) for n in range(len(recording.replies))], **fields
        )
        self._recording = recording

    @override
    def _out_of_replies(self, messages: list[BaseMessage]) -> str:
        recording = self._recording
        last = f", the last one {recording.replies[-1].label!r}" if recording.replies else ""
        return (
            f"The conversation departs from the recording {recording.name!r}: it holds "
            f"{len(recording.replies)} replies{last}, and one more was asked for after "
            f"{_describe_last(messages, empty='no message')}."
        )


def recording_of(
    messages: Sequence[BaseMessage], name: str, *, model: str = "", labels: Sequence[str] = ()
) -> Recording:
    """Make a recording of a finished conversation.

    Args:
        messages: All messages, as in the graph's state.
        name: Shown in errors.
        model: Which model it was.
        labels: Labels of the replies, in order; by default they are made from the replies.
    """
    replies: list[RecordedReply] = []
    for position, message in enumerate(messages):
        if not isinstance(message, AIMessage):
            continue
        number = len(replies)
        names = [call["name"] for call in message.tool_calls]
        label = f"calls {_listed(names)}" if names else str(message.text)[:60]
        label = labels[number] if number < len(labels) else label
        replies.append(
            RecordedReply(
                label=label,
                text=str(message.text),
                tool_calls=tuple(
                    {"id": call["id"], "name": call["name"], "args": call["args"]}
                    for call in message.tool_calls
                ),
                usage=cast("Mapping[str, Any] | None", message.usage_metadata),
                after=_answered(messages[:position]),
                additional_kwargs=message.additional_kwargs,
            )
        )
    return Recording(name, tuple(replies), model)


def save_recording(path: Path, recording: Recording) -> None:
    """Write a recording as JSON that a person can read and edit."""
    text = json.dumps(asdict(recording), ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def load_recording(path: Path) -> Recording:
    """Read a recording. RecordingError: the file is not one."""
    with _reading(path, "is not a recording") as data:
        return _recording_in(data, data["replies"])


@contextmanager
def _reading(path: Path, what_is_wrong: str) -> Generator[Any]:
    try:
        yield json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{path} {what_is_wrong}: {type(error).__name__} {error}") from error


def _recording_in(data: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> Recording:
    replies: list[RecordedReply] = []
    for item in items:
        after = item.get("after")
        fields: dict[str, Any] = {**item, "tool_calls": tuple(item.get("tool_calls", ()))}
        fields["after"] = None if after is None else tuple(after)
        replies.append(RecordedReply(**fields))
    return Recording(data["name"], tuple(replies), data.get("model", ""))


def play(recording: Recording, number: int, messages: Sequence[BaseMessage]) -> AIMessage:
    """Return a reply. RecordingError: the tool results before it differ from the recorded ones."""
    reply = recording.replies[number]
    found = _answered(messages)
    if reply.after is not None and sorted(found) != sorted(reply.after):
        raise RecordingError(
            f"The conversation departs from the recording {recording.name!r} at reply "
            f"{number + 1} ({reply.label!r}): expected the results of "
            f"{_listed(reply.after)}, found {_listed(found)} before it."
        )
    return AIMessage(
        content=reply.text,
        tool_calls=[
            tool_call(name=call["name"], args=call["args"], id=call["id"])
            for call in reply.tool_calls
        ],
        usage_metadata=cast("UsageMetadata | None", reply.usage),
        additional_kwargs=dict(reply.additional_kwargs),
        response_metadata={"cost_usd": 0.0},  # a replay costs nothing
    )


def _answered(messages: Sequence[BaseMessage]) -> tuple[str, ...]:
    """Return the names of the tools whose results follow the last reply."""
    results: dict[str, str] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message.name or "tool"
        elif isinstance(message, AIMessage):
            names = {call["id"]: call["name"] for call in message.tool_calls}
            ordered = reversed(results.items())
            return tuple(names.get(call_id, name) for call_id, name in ordered)
    return ()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no tool"


class RecordedPlanModel(ScriptedChatModel):
    """Finds the conversation that a request belongs to, and returns its next reply.

    Steps of a plan run in parallel, so the replies have no fixed order; an interrupted run can be
    resumed.
    """

    _conversations: Conversations = PrivateAttr()

    def __init__(self, conversations: Conversations, **fields: Any) -> None:
        fields.setdefault("model_name", "recorded")
        replies = sum(len(recording.replies) for recording in conversations.values())
        super().__init__([self._reply] * (_MAX_ROUNDS * replies), **fields)
        self._conversations = conversations

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        beginning = "\n".join(str(message.text) for message in messages[:2])
        for cue, recording in self._conversations.items():
            if cue not in beginning:
                continue
            given = sum(isinstance(message, AIMessage) for message in messages)
            if given >= len(recording.replies):
                raise RecordingError(f"{recording.name!r} holds no reply {given + 1} to {cue!r}.")
            return play(recording, given, messages)
        raise RecordingError(f"No recording answers this: {beginning[-200:]}")


def load_conversations(path: Path) -> Conversations:
    """Read the conversations of a plan. RecordingError: the file is not a recording of one."""
    with _reading(path, "holds no conversations") as data:
        conversations = data["conversations"].items()
        return {cue: _recording_in(data, replies) for cue, replies in conversations}

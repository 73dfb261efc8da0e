"""Replays recorded conversations: the model's replies come from a file, the tools really run."""

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call
from pydantic import PrivateAttr
from typing_extensions import override

from openmanus_graph.testing.scripted import ScriptedChatModel, describe_last_message


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
            f"{describe_last_message(messages, empty='no message')}."
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
    """Read a recording.

    Raises:
        RecordingError: The file is not a recording.
    """
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
    """Return one reply, after checking the tool results before it.

    Raises:
        RecordingError: They differ from those at the time of recording.
    """
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
    """Read the conversations of a plan.

    Raises:
        RecordingError: The file is not a recording of a plan.
    """
    with _reading(path, "holds no conversations") as data:
        conversations = data["conversations"].items()
        return {cue: _recording_in(data, replies) for cue, replies in conversations}

"""Replays the recording of a plan: several parallel conversations of one model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from pydantic import PrivateAttr

from openmanus_graph.testing.recorded import Recording, RecordingError, play, reply_of
from openmanus_graph.testing.scripted import ScriptedChatModel

Conversations = Mapping[str, Recording]
"""Recordings by a text that is in the first messages of that conversation only."""

ROUNDS = 10
"""How often all replies may be requested: failed steps are tried again."""


class RecordedPlanModel(ScriptedChatModel):
    """Finds the conversation that a request belongs to, and returns its next reply.

    Steps of a plan run in parallel, so the replies have no fixed order; an interrupted run can be
    resumed.
    """

    _conversations: Conversations = PrivateAttr()

    def __init__(self, conversations: Conversations, **fields: Any) -> None:
        fields.setdefault("model_name", "recorded")
        replies = sum(len(recording.replies) for recording in conversations.values())
        super().__init__([self._reply] * (ROUNDS * replies), **fields)
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
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {
            cue: Recording(data["name"], tuple(map(reply_of, replies)), data.get("model", ""))
            for cue, replies in data["conversations"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(
            f"{path} holds no conversations: {type(error).__name__} {error}"
        ) from error

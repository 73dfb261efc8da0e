"""Compaction: a conversation that nears the model's window becomes notes and its last turns.

What the user said is kept word for word, by code. The notes are written by the model (`notes`);
where that fails, a mechanical digest stands in, so that compaction always succeeds.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from openmanus_graph.backends.models import prices
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.environment import environment_of
from openmanus_graph.conversation.history import COMPACT_KEY, last_user_message, task_text_of
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.model_calls.candidates import window_of
from openmanus_graph.model_calls.condensed import divide, size_of
from openmanus_graph.model_calls.notes import (
    NotesLimits,
    NotesWriter,
    refused_tokens,
    request_tokens,
)
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached, RunStopping
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.value_labels import labels_of
from openmanus_graph.state.reducers import Usage, add_usage, no_usage

FULL_AT = 0.75
"""Share of the window at which a conversation is compacted before the next call."""
PAST_SHARE, NOTES_SHARE, KEPT_SHARE, NEWEST_SHARE = 0.25, 0.2, 0.2, 0.4
"""Shares of the characters beside the task: earlier messages of the user, the notes as they are
asked for, the newest turns, and the newest one if it alone takes more."""
LONGEST_NOTES = 1.5
"""How much longer than asked for notes may be."""
CHARS_PER_TOKEN = 3
"""Low on purpose: too much is refused, too little only costs some detail."""
LEAST_NOTES = 1500
"""Characters, after a refusal: a server may refuse what is short, and notes must say something."""
MOST_REFUSALS = 3
"""How often a conversation is shortened again for one agent step; each refusal teaches a smaller
window."""


@dataclass(frozen=True)
class ModelCallResult:
    """The result of an agent step's model call, and of those that compaction needed."""

    reply: AIMessage | None
    usage: Usage
    compacted: list[AnyMessage] | None = None
    """The shortened conversation, where it was too long."""
    ended: LimitReached | ModelError | None = None
    """Why there is no reply, or only that of a closing turn; None also where the run was asked to
    stop."""
    answer: str = ""
    """What the run ends with, where a limit ended it."""
    structured: Any = None
    """The object in it that the caller wants, if it is there."""

    @property
    def answered(self) -> bool:
        """Whether the model has replied to the request of the agent step."""
        return self.reply is not None and self.ended is None

    @property
    def was_too_long(self) -> bool:
        """Whether the server refused the request for its length."""
        return isinstance(self.ended, ModelError) and self.ended.kind == "context_length"


@dataclass
class _LearntWindow:
    """What refusals have taught in this run: the window is not larger than that."""

    tokens: float = float("inf")

    def learn(self, refused: int | None) -> None:
        """Learn from a request of so many tokens that was refused, if one was."""
        self.tokens = min(self.tokens, refused or self.tokens)


async def call_with_compaction(call: ModelCall, session: Session, emit: Emit) -> ModelCallResult:
    """Call the model; a conversation that is too long is compacted, before or after a refusal.

    Raises:
        ConfigError: The model's settings are wrong.
    """
    started, before, spent = time.monotonic(), call.progress, no_usage()
    learnt = session.cached(_LearntWindow, _LearntWindow)
    compacted: list[AnyMessage] | None = None
    refusals = 0
    while True:
        # Another model's, once the first one is out of service.
        window = int(min(await window_of(session, call.role), learnt.tokens))
        # A task alone cannot be shortened; a gateway's next server may take more.
        if len(call.history) > 1 if refusals else is_full(call, window) or is_asked_for(call):
            writer = NotesWriter(call, session, emit)
            least_notes = LEAST_NOTES if refusals else 0
            try:
                compacted = await compact(call, window, writer, emit, least_notes)
            except LimitReached as limit:
                usage = add_usage(spent, writer.spent)
                return ModelCallResult(None, usage, compacted, ended=limit)
            learnt.learn(writer.refused)
            spent = add_usage(spent, writer.spent)
            elapsed_s = before.elapsed_s + time.monotonic() - started
            progress = replace(before, usage=add_usage(before.usage, spent), elapsed_s=elapsed_s)
            call = replace(call, history=compacted, progress=progress)
        result = await _call_once(call, session, emit)
        spent = add_usage(spent, result.usage)
        shortest = len(call.history) < 2
        if not result.was_too_long or refusals == MOST_REFUSALS or (refusals and shortest):
            return replace(result, usage=spent, compacted=compacted)
        refusals += 1
        if not shortest:
            learnt.learn(refused_tokens(call))


async def _call_once(call: ModelCall, session: Session, emit: Emit) -> ModelCallResult:
    try:
        return ModelCallResult(*await call_model(call, session, emit))
    except (LimitReached, ModelError) as ended:
        return ModelCallResult(None, ended.spent, ended=ended)
    except RunStopping:
        return ModelCallResult(None, no_usage())


def is_asked_for(call: ModelCall) -> bool:
    """Say whether the user message to answer asks for it, and there is any conversation."""
    return COMPACT_KEY in call.history[-1].additional_kwargs and any(
        isinstance(message, AIMessage) for message in call.history
    )


def is_full(call: ModelCall, window: int) -> bool:
    """Say whether the request comes near the window's end, and compaction would help.

    What fills the window without the conversation (a long task, many tools) is kept all the same:
    the model's server decides.
    """
    limit = FULL_AT * window
    task = last_user_message(call.history)
    if task is None or request_tokens(call) <= limit:
        return False
    words = count_tokens_approximately([HumanMessage(task_text_of(task))])
    beside = count_tokens_approximately([one for one in call.history if one is not task])
    return words < limit / 2 and beside > limit / 4


async def compact(
    call: ModelCall, window: int, writer: NotesWriter, emit: Emit, least_notes: int = 0
) -> list[AnyMessage]:
    """Return a short conversation to go on with.

    Raises:
        LimitReached: The run's limits forbid a call that writes the notes.
    """
    limit, task = FULL_AT * window, last_user_message(call.history)
    told = "\n".join((call.system, *environment_of(call.history)["facts"].values()))
    fixed = prices.estimate_fixed_tokens(told, call.request_suffix, call.tools)
    # How much text a token is in this conversation: Chinese takes more tokens.
    said = sum(map(size_of, call.history)) / max(1, request_tokens(call) - fixed)
    chars_per_token = min(float(CHARS_PER_TOKEN), max(1.0, said))
    beside_task = (limit - fixed) * chars_per_token - (len(task_text_of(task)) if task else 0)
    free_chars = int(max(beside_task, limit / 4))
    shares = (PAST_SHARE, KEPT_SHARE, NEWEST_SHARE)
    parts = divide(call.history, *(int(share * free_chars) for share in shares))
    notes_chars = max(least_notes, int(NOTES_SHARE * free_chars))
    notes_limits = NotesLimits(
        window=window,
        tokens=int(notes_chars / chars_per_token),
        max_chars=int(LONGEST_NOTES * notes_chars),
        chars_per_token=chars_per_token,
    )
    notes = await writer.write(parts, notes_limits)
    text = f"The conversation was compacted: {len(parts.old)} messages became notes."
    notice(emit, text, "info")
    labels = await asyncio.to_thread(
        labels_of, call.history, call.traits, tainted=call.untrusted_prompt
    )
    return parts.with_notes(notes, labels.kept())

"""Compaction: a conversation that nears the model's window becomes notes and its last turns.

What the user said is kept word for word, by code. The notes are written by the model; where that
fails, a mechanical digest stands in, so that compaction always succeeds.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from openmanus_graph.backends.models import prices
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.history import last_user_message
from openmanus_graph.model_calls.call_model import ModelCall, call_model, window_of
from openmanus_graph.model_calls.condensed import (
    DividedConversation,
    cut_middle,
    divide,
    pieces_of,
    size_of,
    task_text_of,
    transcript,
)
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached, RunStopping
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.reducers import Usage, add_usage, no_usage

FULL_AT = 0.75
"""Share of the window at which a conversation is compacted before the next call."""
PAST_SHARE, NOTES_SHARE, KEPT_SHARE = 0.25, 0.25, 0.35
"""Shares of the room beside the task: earlier messages of the user, notes, newest turns."""
NOTES_REQUEST_SHARE = 0.8
"""Share of the window that a request for notes may take."""
CHARS_PER_TOKEN = 3
"""Low on purpose: too much is refused, too little only costs some detail."""
LEAST_PIECE = 500
LEAST_NOTES = 1500
"""Characters, after a refusal: a server may refuse what is short, and notes must say something."""
NOTES_WORDS, CHARS_PER_WORD = 800, 7


@dataclass(frozen=True)
class ModelCallResult:
    """The result of an agent step's model call, and of those that compaction needed."""

    reply: AIMessage | None
    usage: Usage
    compacted: list[AnyMessage] | None = None
    """The shortened conversation, where it was too long."""
    ended: LimitReached | ModelError | None = None
    """Why there is no reply; None also where the run was asked to stop."""


async def call_with_compaction(call: ModelCall, session: Session, emit: Emit) -> ModelCallResult:
    """Call the model; a conversation that is too long is compacted, before or after a refusal.

    Raises:
        ConfigError: The model's settings are wrong.
    """
    started = time.monotonic()
    window, least_notes, refused = await window_of(session.settings), 0, no_usage()
    if not is_full(call, window):
        result = await _call_once(call, session, emit)
        too_long = isinstance(result.ended, ModelError) and result.ended.kind == "context_length"
        if not too_long:
            return result
        if len(call.history) < 2:  # a task alone cannot be shortened; a gateway's next server
            return await _call_once(call, session, emit)  # may take more
        # Its window is smaller than we thought; some servers report less than they were sent.
        window = min(
            window, max(request_tokens(call), count_tokens_approximately(list(call.history)))
        )
        least_notes, refused = LEAST_NOTES, result.usage
    writer = NotesWriter(call, session, emit)
    try:
        compacted = await compact(call, window, writer, emit, least_notes)
    except LimitReached as limit:
        return ModelCallResult(None, add_usage(refused, writer.spent), ended=limit)
    spent = add_usage(refused, writer.spent)
    progress = replace(
        call.progress,
        usage=add_usage(call.progress.usage, spent),
        elapsed_s=call.progress.elapsed_s + time.monotonic() - started,
    )
    result = await _call_once(replace(call, history=compacted, progress=progress), session, emit)
    return replace(result, usage=add_usage(spent, result.usage), compacted=compacted)


async def _call_once(call: ModelCall, session: Session, emit: Emit) -> ModelCallResult:
    try:
        return ModelCallResult(*await call_model(call, session, emit))
    except (LimitReached, ModelError) as ended:
        return ModelCallResult(None, ended.spent, ended=ended)
    except RunStopping:
        return ModelCallResult(None, no_usage())


def request_tokens(call: ModelCall) -> int:
    """Estimate a request's tokens."""
    return prices.estimate_request_tokens(
        call.history, call.system, call.request_suffix, call.tools
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
    words = count_tokens_approximately([task])
    beside = count_tokens_approximately(list(call.history)) - words
    return words < limit / 2 and beside > limit / 4


async def compact(
    call: ModelCall, window: int, writer: "NotesWriter", emit: Emit, least_notes: int = 0
) -> list[AnyMessage]:
    """Return a short conversation to go on with.

    Raises:
        LimitReached: The run's limits forbid a call that writes the notes.
    """
    # How much text a token is in this conversation: Chinese takes more tokens.
    chars = sum(map(size_of, call.history))
    chars_per_token = min(float(CHARS_PER_TOKEN), max(1.0, chars / max(1, request_tokens(call))))
    limit, task = FULL_AT * window, last_user_message(call.history)
    fixed = prices.estimate_fixed_tokens(call.system, call.request_suffix, call.tools)
    beside_task = (limit - fixed) * chars_per_token - (len(task_text_of(task)) if task else 0)
    room = int(max(beside_task, limit / 4))  # characters
    parts = divide(call.history, int(PAST_SHARE * room), int(KEPT_SHARE * room))
    notes_chars = max(least_notes, int(NOTES_SHARE * room))
    shown = int(NOTES_REQUEST_SHARE * window * chars_per_token)
    piece_chars = max(LEAST_PIECE, shown - len(parts.task_text) - notes_chars)
    notes = await writer.write(parts, transcript(parts.old, piece_chars), notes_chars)
    text = f"The conversation was compacted: {len(parts.old)} messages became notes."
    notice(emit, text, "info")
    return parts.with_notes(notes)


class NotesWriter:
    """Asks the model for the notes, piece by piece; where it fails, the text itself is cut."""

    def __init__(self, call: ModelCall, session: Session, emit: Emit) -> None:
        self._session, self._emit = session, emit
        self._call = replace(
            call,
            system=render("compaction_system"),
            request_suffix="",
            tools=(),
            counts_as_step=False,
            live_state=None,
            pause=asyncio.sleep,
            middleware=None,
        )
        self.spent = no_usage()

    async def write(self, parts: DividedConversation, pieces: Sequence[str], max_chars: int) -> str:
        """Return notes of all pieces. LimitReached when the run may not go on."""
        notes, left = parts.notes, list(pieces)
        words = min(NOTES_WORDS, max_chars // CHARS_PER_WORD)
        while left:
            piece = left.pop(0)
            shown = "\n".join(filter(None, (notes, piece)))
            request = render(
                "compaction_request", task=parts.task_text, transcript=shown, words=str(words)
            )
            try:
                written = await self._ask(request)
            except ModelError as error:
                if error.kind == "context_length" and len(piece) > LEAST_PIECE:
                    left = pieces_of([piece, *left], len(piece) // 2)
                    continue
                text = f"The notes could not be written by the model: {error.sentence}"
                notice(self._emit, text)
                written = ""
            notes = cut_middle(written or shown, max_chars)
        return notes

    async def _ask(self, request: str) -> str:
        usage = add_usage(self._call.progress.usage, self.spent)
        progress = replace(self._call.progress, usage=usage)
        call = replace(self._call, history=[HumanMessage(request)], progress=progress)

        def emit_notices(event: dict[str, object]) -> None:
            if event["type"] == "notice":
                self._emit(event)

        reply, cost = await call_model(call, self._session, emit_notices)
        self.spent = add_usage(self.spent, cost)
        return reply.text.strip()

"""Has the model write the notes of a compaction; a mechanical digest stands in where it cannot.

The request is the agent's own with the request for notes at its end: the provider has the rest in
its cache, and the model sees everything as it was. What does not fit in one is sent as text.
"""

import asyncio
import time
from bisect import bisect_right
from dataclasses import dataclass, replace

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from openmanus_graph.backends.models import prices
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.history import cut_by
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.model_calls.candidates import window_of
from openmanus_graph.model_calls.condensed import (
    DividedConversation,
    cut_middle,
    cut_notes,
    digest,
    pieces_of,
    transcript,
    transcript_pieces,
)
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.untrusted_text import mark_untrusted
from openmanus_graph.state.reducers import add_usage, no_usage

WORDS_PER_TOKEN = 0.5
"""Low: figures, paths and scripts without spaces take more than prose."""
PIECE_SHARE = 0.8
"""Share of the window that a request with a piece of the conversation as text may take."""
LEAST_PIECE = 500
"""Characters."""
MOST_CONTINUATIONS = 8
"""Of notes that are cut off by the length limit of a reply."""


@dataclass(frozen=True)
class NotesLimits:
    """How long notes may be, and the request for them."""

    window: int
    """Tokens of request and notes together."""
    tokens: int
    """Of the notes, as they are asked for."""
    max_chars: int
    """Of the notes, as they are taken: counting words is no model's strength."""
    chars_per_token: float

    @property
    def words(self) -> int:
        """Words that are asked for."""
        return max(1, int(self.tokens * WORDS_PER_TOKEN))

    def within(self, window: int) -> "NotesLimits":
        """Return the limits in a window that turned out to be smaller."""
        scale = min(1.0, window / self.window)
        return NotesLimits(
            window=int(scale * self.window),
            tokens=int(scale * self.tokens),
            max_chars=int(scale * self.max_chars),
            chars_per_token=self.chars_per_token,
        )


@dataclass
class _Draft:
    """How far the notes have come."""

    notes: str
    left: list[str]
    """What is not in them yet, as text."""


def request_tokens(call: ModelCall) -> int:
    """Estimate a request's tokens."""
    return prices.estimate_request_tokens(
        call.history, call.system, call.request_suffix, call.tools
    )


def refused_tokens(call: ModelCall) -> int:
    """Estimate a refused request's tokens; some servers report less than they were sent."""
    return max(request_tokens(call), count_tokens_approximately(list(call.history)))


class NotesWriter:
    """Writes the notes of one compaction, and counts what they cost."""

    def __init__(self, call: ModelCall, session: Session, emit: Emit) -> None:
        """Make a writer.

        Args:
            call: The agent's, whose conversation is too long.
            session: Of the run.
            emit: Sends the run's events; of those of the requests for notes only notices.
        """
        self._session, self._emit, self._started = session, emit, time.monotonic()
        # The middlewares stand around this request, too: what they change is part of the prefix,
        # and what they take out must not reach the provider here either. The live state stands
        # behind the prefix, and the next request has it anyway.
        self._call = replace(
            call,
            counts_as_step=False,
            says_what_is_left=False,
            live_state=None,
            sleep=asyncio.sleep,
            role="compaction",
        )
        self.spent = no_usage()
        self.refused: int | None = None
        """Tokens of the shortest request that was refused for its length."""

    async def write(self, parts: DividedConversation, limits: NotesLimits) -> str:
        """Return notes of what is not kept.

        Raises:
            LimitReached: The run's limits forbid a request for them.
        """
        draft = _Draft(parts.notes, transcript(parts.old))
        limits = limits.within(await window_of(self._session, "compaction"))
        try:
            await self._ask_at_the_end(parts, limits, draft)
            if draft.left:
                await self._ask_with_text(parts.task_text, limits, draft)
        except ModelError as error:
            text = f"The notes could not be written by the model: {error.sentence}"
            notice(self._emit, text)
        if not draft.left:
            return cut_notes(draft.notes, limits.max_chars)
        return await asyncio.to_thread(digest, draft.notes, draft.left, limits.max_chars)

    async def _ask_at_the_end(
        self, parts: DividedConversation, limits: NotesLimits, draft: "_Draft"
    ) -> None:
        """Ask at the end of the conversation, or of the longest beginning of it that fits."""
        history = self._call.history
        ends = [
            end
            for end in range(parts.began + 2, len(history) + 1)
            if end == len(history) or history[end].type != "tool"
        ]
        request = render("compaction_request", words=str(limits.words))
        fits = limits.window - limits.tokens - count_tokens_approximately([HumanMessage(request)])
        while found := bisect_right(ends, fits, key=self._tokens_until):
            beginning = history[: ends[found - 1]]
            asked = replace(self._call, history=beginning, request_suffix=request)
            try:
                written = await self._whole_text(asked, limits)
            except ModelError as error:
                self._learn(error, asked)
                fits = self._tokens_until(len(beginning)) // 2
                continue
            if written:  # else it called tools all the same, and is asked without any
                seen = {id(message) for message in beginning}
                draft.notes = written
                draft.left = transcript([one for one in parts.old if id(one) not in seen])
            return

    def _tokens_until(self, end: int) -> int:
        """Estimate a request with the conversation until there."""
        return request_tokens(
            replace(self._call, history=self._call.history[:end], request_suffix="")
        )

    async def _ask_with_text(self, task: str, limits: NotesLimits, draft: "_Draft") -> None:
        """Ask with what is left as text, in pieces, each with the notes so far."""
        limits = limits.within(self.refused or limits.window)
        shown = int(PIECE_SHARE * limits.window * limits.chars_per_token)
        piece_chars = max(LEAST_PIECE, shown - len(task) - limits.max_chars)
        draft.left = transcript_pieces(draft.left, piece_chars)
        request = render("compaction_request", words=str(limits.words))
        system = f"{render('compaction_system')}\n\n{render('text_from_outside')}"
        call = replace(self._call, system=system, request_suffix="", tools=())
        while draft.left:
            # A piece may begin in the middle of text from outside, whose tag is in another one.
            said = "\n".join(filter(None, (draft.notes, mark_untrusted(draft.left[0]))))
            text = render("compaction_transcript", task=task, transcript=said, request=request)
            asked = replace(call, history=[HumanMessage(text)])
            try:
                written = await self._whole_text(asked, limits)
            except ModelError as error:
                self._learn(error, asked)
                if len(draft.left[0]) <= LEAST_PIECE:
                    raise
                draft.left = pieces_of(draft.left, len(draft.left[0]) // 2)
                continue
            if not written:
                return
            draft.notes = cut_middle(written, limits.max_chars)
            del draft.left[0]

    def _learn(self, error: ModelError, asked: ModelCall) -> None:
        """Note that a request was too long; any other error is raised."""
        if error.kind != "context_length":
            raise error
        tokens = refused_tokens(asked)
        self.refused = min(tokens, self.refused or tokens)

    async def _whole_text(self, call: ModelCall, limits: NotesLimits) -> str:
        """Return the reply's text without its calls; one that was cut off is continued."""
        reply = await self._reply(call)
        text = str(reply.text)
        for _ in range(MOST_CONTINUATIONS):
            if not cut_by(reply) or not reply.text.strip() or len(text) > limits.max_chars:
                return text.strip()
            asked = [HumanMessage(call.request_suffix)] if call.request_suffix else []
            call = replace(
                call,
                history=[*call.history, *asked, AIMessage(reply.text)],
                request_suffix=render("compaction_continue"),
            )
            try:
                reply = await self._reply(call)
            except ModelError:
                break
            text += reply.text
        if cut_by(reply):
            notice(self._emit, f"The notes were cut off by {cut_by(reply)}.")
        return text.strip()

    async def _reply(self, call: ModelCall) -> AIMessage:
        before = call.progress
        progress = replace(
            before,
            usage=add_usage(before.usage, self.spent),
            elapsed_s=before.elapsed_s + time.monotonic() - self._started,
        )

        def emit_notices(event: dict[str, object]) -> None:
            if event["type"] == "notice":
                self._emit(event)

        call = replace(call, progress=progress)
        try:
            reply, cost = await call_model(call, self._session, emit_notices)
        except (LimitReached, ModelError) as ended:
            self.spent = add_usage(self.spent, ended.spent)
            raise
        self.spent = add_usage(self.spent, cost)
        return reply

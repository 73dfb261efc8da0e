"""Compaction: a conversation that nears the model's window becomes notes and its last turns.

What the user said is kept word for word, by code. The notes are written by the model (`notes`);
where that fails, a mechanical digest stands in, so that compaction always succeeds.
"""

import asyncio
import time
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from openmanus_graph.backends.models import prices
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.environment import environment_of
from openmanus_graph.conversation.history import (
    COMPACT_KEY,
    cut_by,
    last_user_message,
    task_text_of,
)
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.model_calls.run_models import run_models
from openmanus_graph.model_calls.summaries import (
    DividedConversation,
    cut_middle,
    cut_summary,
    digest,
    divide,
    pieces_of,
    size_of,
    transcript,
    transcript_pieces,
)
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached, RunStopping
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.safety.value_labels import labels_of
from openmanus_graph.state.manus import Usage, add_usage, no_usage

WORDS_PER_TOKEN = 0.5
"""Low: figures, paths and scripts without spaces take more than prose."""
PIECE_SHARE = 0.8
"""Share of the window that a request with a piece of the conversation as text may take."""
LEAST_PIECE = 500
"""Characters."""
MOST_CONTINUATIONS = 8
"""Of notes that are cut off by the length limit of a reply."""


@dataclass(frozen=True)
class SummaryLimits:
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

    def within(self, window: int) -> "SummaryLimits":
        """Return the limits in a window that turned out to be smaller."""
        scale = min(1.0, window / self.window)
        return SummaryLimits(
            window=int(scale * self.window),
            tokens=int(scale * self.tokens),
            max_chars=int(scale * self.max_chars),
            chars_per_token=self.chars_per_token,
        )


@dataclass
class _Draft:
    """How far the notes have come."""

    summary: str
    left: list[str]
    """What is not in them yet, as text."""


def request_tokens(call: ModelCall) -> int:
    """Estimate a request's tokens."""
    return prices.estimate_request_tokens(call.history, call.system, call.reminder, call.tools)


def refused_tokens(call: ModelCall) -> int:
    """Estimate a refused request's tokens; some servers report less than they were sent."""
    return max(request_tokens(call), count_tokens_approximately(list(call.history)))


class SummaryWriter:
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

    async def write(self, parts: DividedConversation, limits: SummaryLimits) -> str:
        """Return notes of what is not kept.

        Raises:
            LimitReached: The run's limits forbid a request for them.
        """
        draft = _Draft(parts.summary, transcript(parts.old))
        limits = limits.within(await run_models(self._session).window("compaction"))
        try:
            await self._ask_at_the_end(parts, limits, draft)
            if draft.left:
                await self._ask_with_text(parts.task_text, limits, draft)
        except ModelError as error:
            text = f"The notes could not be written by the model: {error.sentence}"
            notice(self._emit, text)
        if not draft.left:
            return cut_summary(draft.summary, limits.max_chars)
        return await asyncio.to_thread(digest, draft.summary, draft.left, limits.max_chars)

    async def _ask_at_the_end(
        self, parts: DividedConversation, limits: SummaryLimits, draft: "_Draft"
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
            asked = replace(self._call, history=beginning, reminder=request)
            try:
                written = await self._whole_text(asked, limits)
            except ModelError as error:
                self._learn(error, asked)
                fits = self._tokens_until(len(beginning)) // 2
                continue
            if written:  # else it called tools all the same, and is asked without any
                seen = {id(message) for message in beginning}
                draft.summary = written
                draft.left = transcript([one for one in parts.old if id(one) not in seen])
            return

    def _tokens_until(self, end: int) -> int:
        """Estimate a request with the conversation until there."""
        return request_tokens(replace(self._call, history=self._call.history[:end], reminder=""))

    async def _ask_with_text(self, task: str, limits: SummaryLimits, draft: "_Draft") -> None:
        """Ask with what is left as text, in pieces, each with the notes so far."""
        limits = limits.within(self.refused or limits.window)
        shown = int(PIECE_SHARE * limits.window * limits.chars_per_token)
        piece_chars = max(LEAST_PIECE, shown - len(task) - limits.max_chars)
        draft.left = transcript_pieces(draft.left, piece_chars)
        request = render("compaction_request", words=str(limits.words))
        system = f"{render('compaction_system')}\n\n{render('text_from_outside')}"
        call = replace(self._call, system=system, reminder="", tools=())
        while draft.left:
            # A piece may begin in the middle of text from outside, whose tag is in another one.
            said = "\n".join(filter(None, (draft.summary, mark_untrusted(draft.left[0]))))
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
            draft.summary = cut_middle(written, limits.max_chars)
            del draft.left[0]

    def _learn(self, error: ModelError, asked: ModelCall) -> None:
        """Note that a request was too long; any other error is raised."""
        if error.kind != "context_length":
            raise error
        tokens = refused_tokens(asked)
        self.refused = min(tokens, self.refused or tokens)

    async def _whole_text(self, call: ModelCall, limits: SummaryLimits) -> str:
        """Return the reply's text without its calls; one that was cut off is continued."""
        reply = await self._reply(call)
        text = str(reply.text)
        for _ in range(MOST_CONTINUATIONS):
            if not cut_by(reply) or not reply.text.strip() or len(text) > limits.max_chars:
                return text.strip()
            asked = [HumanMessage(call.reminder)] if call.reminder else []
            call = replace(
                call,
                history=[*call.history, *asked, AIMessage(reply.text)],
                reminder=render("compaction_continue"),
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
    """Why there is no reply, or only that of a final summary; None also where the run was asked to
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
        window = int(min(await run_models(session).window(call.role), learnt.tokens))
        # A task alone cannot be shortened; a gateway's next server may take more.
        if len(call.history) > 1 if refusals else is_full(call, window) or is_asked_for(call):
            writer = SummaryWriter(call, session, emit)
            least_summary = LEAST_NOTES if refusals else 0
            try:
                compacted = await compact(call, window, writer, emit, least_summary)
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
    call: ModelCall, window: int, writer: SummaryWriter, emit: Emit, least_summary: int = 0
) -> list[AnyMessage]:
    """Return a short conversation to go on with.

    Raises:
        LimitReached: The run's limits forbid a call that writes the notes.
    """
    limit, task = FULL_AT * window, last_user_message(call.history)
    reported = "\n".join((call.system, *environment_of(call.history)["facts"].values()))
    fixed = prices.estimate_fixed_tokens(reported, call.reminder, call.tools)
    # How much text a token is in this conversation: Chinese takes more tokens.
    said = sum(map(size_of, call.history)) / max(1, request_tokens(call) - fixed)
    chars_per_token = min(float(CHARS_PER_TOKEN), max(1.0, said))
    beside_task = (limit - fixed) * chars_per_token - (len(task_text_of(task)) if task else 0)
    free_chars = int(max(beside_task, limit / 4))
    shares = (PAST_SHARE, KEPT_SHARE, NEWEST_SHARE)
    parts = divide(call.history, *(int(share * free_chars) for share in shares))
    summary_chars = max(least_summary, int(NOTES_SHARE * free_chars))
    summary_limits = SummaryLimits(
        window=window,
        tokens=int(summary_chars / chars_per_token),
        max_chars=int(LONGEST_NOTES * summary_chars),
        chars_per_token=chars_per_token,
    )
    summary = await writer.write(parts, summary_limits)
    text = f"The conversation was compacted: {len(parts.old)} messages became notes."
    notice(emit, text, "info")
    labels = await asyncio.to_thread(
        labels_of, call.history, call.traits, tainted=call.untrusted_prompt
    )
    return parts.with_summary(summary, labels.kept())

"""The model call of an agent step, at the end of the model's window and of the run's limits.

Compaction: a conversation that nears the window becomes a summary and its last turns. The user's
messages are kept word for word. If the model cannot write the summary, a mechanical digest takes
its place, so that compaction always succeeds. Final summary: at a limit the model is asked once
more, for what is done and what is not.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp

from openmanus_graph.backends.models import prices
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation import evidence, history, replies, text_calls
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls import summaries
from openmanus_graph.model_calls.call_model import ModelCall, call_model, only_notices
from openmanus_graph.model_calls.run_models import run_models
from openmanus_graph.prompts import render
from openmanus_graph.runtime.checkpoint_lineage import own_checkpoint
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.hooks import run_hooks
from openmanus_graph.runtime.limits import Limit, LimitReached, Progress, RunStopping
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.safety.value_labels import labels_of
from openmanus_graph.state.manus import Usage, add_usage, no_usage

FULL_AT = 0.75
"""Share of the window at which a conversation is compacted before the next call."""
PAST_SHARE, SUMMARY_SHARE, KEPT_SHARE, NEWEST_SHARE = 0.25, 0.2, 0.2, 0.4
"""Shares of the characters besides the task: earlier messages of the user, the requested summary,
the newest turns, and the newest turn if it alone takes more."""
MAX_SUMMARY_EXCESS = 1.5
"""How many times longer than requested a summary may be: models count words badly."""
CHARS_PER_TOKEN = 3
"""Low on purpose: a request that is too long is refused, a short one only loses some detail."""
LEAST_SUMMARY_CHARS = 1500
"""After a refusal: a server may refuse short requests, and a summary must say something."""
MAX_REFUSALS = 3
"""How often a conversation is shortened for one agent step; each refusal shows a smaller window."""
WORDS_PER_TOKEN = 0.5
"""Low: figures, paths and scripts without spaces take more tokens than prose."""
PIECE_SHARE = 0.8
"""Share of the window for a request with a piece of the conversation as text."""
LEAST_PIECE_CHARS = 500
MAX_CONTINUATIONS = 8
"""Of a summary that is cut off by the length limit of a reply."""
CUT_MARK = "\n\n[This text was cut off by {cause}.]"


@dataclass(frozen=True)
class ModelCallResult:
    """The result of an agent step's model call, and of those that compaction needed."""

    reply: AIMessage | None
    usage: Usage
    compacted: list[AnyMessage] | None = None
    ended: LimitReached | ModelError | None = None
    """Why there is no reply, or only that of a final summary. None also if the run was asked to
    stop."""
    answer: str = ""
    """The run's answer, if a limit ended it."""
    structured: Any = None

    @property
    def answered(self) -> bool:
        """Whether the model has replied to the request of the agent step."""
        return self.reply is not None and self.ended is None


async def call_with_compaction(call: ModelCall, session: Session, emit: Emit) -> ModelCallResult:
    """Call the model; a conversation that is too long is compacted, before or after a refusal.

    ConfigError: the model's settings are wrong.
    """
    started, before, spent = time.monotonic(), call.progress, no_usage()
    models = run_models(session)
    compacted: list[AnyMessage] | None = None
    refusals = 0
    while True:
        # Another model's, once the first one is out of service.
        window = int(min(await models.window(call.role), models.shortest_refused))
        # A task alone cannot be shortened; a gateway's next server may accept more.
        if len(call.history) > 1 if refusals else is_full(call, window):
            writer = SummaryWriter(call, session, emit)
            least_chars = LEAST_SUMMARY_CHARS if refusals else 0
            wished = history.COMPACT_KEY in call.history[-1].additional_kwargs
            trigger = "manual" if wished else "auto"
            about = {"trigger": trigger, "custom_instructions": ""}
            await run_hooks(session, "PreCompact", about, emit, (trigger,))
            try:
                compacted = await compact(call, window, writer, emit, least_chars)
            except LimitReached as limit:
                usage = add_usage(spent, writer.spent)
                return ModelCallResult(None, usage, compacted, ended=limit)
            models.note_refusal(writer.refused)
            spent = add_usage(spent, writer.spent)
            progress = _later(before, spent, started)
            call = replace(call, history=compacted, progress=progress)
        try:
            result = ModelCallResult(*await call_model(call, session, emit))
        except (LimitReached, ModelError) as ended:
            result = ModelCallResult(None, ended.spent, ended=ended)
        except RunStopping:
            result = ModelCallResult(None, no_usage())
        spent = add_usage(spent, result.usage)
        shortest = len(call.history) < 2
        too_long = isinstance(result.ended, ModelError) and result.ended.kind == "context_length"
        if not too_long or refusals == MAX_REFUSALS or (refusals and shortest):
            return replace(result, usage=spent, compacted=compacted)
        refusals += 1
        if not shortest:
            models.note_refusal(_refused_tokens(call))


def _later(before: Progress, spent: Usage, started: float) -> Progress:
    usage = add_usage(before.usage, spent)
    return replace(before, usage=usage, elapsed_s=before.elapsed_s + time.monotonic() - started)


async def close_run(
    call: ModelCall, result: ModelCallResult, started: float, session: Session, emit: Emit
) -> ModelCallResult:
    """Return the result of a run's last agent step, with the run's answer.

    It is the text of the final summary, for which the model is asked once more. Without one it is
    what the model said last, and which limit ended the run. The agent step `started` then, on the
    monotonic clock.
    """
    if not isinstance(result.ended, LimitReached):
        return result
    limit = result.ended.limit
    emit(limit.event())
    progress = _later(call.progress, result.usage, started)
    call = replace(call, history=result.compacted or call.history, progress=progress)
    reply, structured = None, None
    if call.keeps_reserve and not is_closed(call.history):
        raw, usage = await _final_reply(call, limit, session, emit)
        result = replace(result, usage=add_usage(result.usage, usage))
        if raw is not None:
            reply, structured = _read_final(raw, call, session)
    if reply is None:
        answer = "\n\n".join(filter(None, (history.last_text(call.history), limit.text())))
        return replace(result, answer=answer)
    return replace(result, reply=reply, answer=reply.text, structured=structured)


def is_closed(messages: Sequence[AnyMessage]) -> bool:
    """Return True if a conversation ends with a final summary, of the part before a limit."""
    newest = next((one for one in reversed(messages) if not history.is_steering(one)), None)
    return newest is not None and history.SUMMARY_KEY in newest.additional_kwargs


async def _final_reply(
    call: ModelCall, limit: Limit, session: Session, emit: Emit
) -> tuple[AIMessage | None, Usage]:
    """Return the model's reply and its cost; None if there is no room for it, or it failed."""
    # The request that the limit forbade: providers refuse a history with calls and no tools, and
    # have its beginning in their cache.
    summary = replace(
        call,
        reminder=render("final_summary", limit=limit.words()),
        counts_as_step=False,
        says_what_is_left=False,
        keeps_reserve=False,
        only_answer=True,
    )
    try:
        return await call_model(summary, session, emit)
    except LimitReached as limit_reached:
        return None, limit_reached.spent
    except RunStopping:
        return None, no_usage()
    except (GraphBubbleUp, ConfigError):
        raise
    except Exception as error:  # noqa: BLE001  # the run has stopped at its limit, whatever this is
        notice(emit, f"The model could not be asked for a final summary: {error}")
        return None, error.spent if isinstance(error, ModelError) else no_usage()


def _read_final(raw: AIMessage, call: ModelCall, session: Session) -> tuple[AIMessage | None, Any]:
    """Return a final summary as a reply without calls, and the object in it that is requested."""
    text, metadata = raw.text.strip(), raw.response_metadata
    said = AIMessage(text, response_metadata=metadata)
    structured = replies.read_reply([said], session.settings.response_format).structured
    if structured is None and (found := text_calls.read_text_calls(text, call.tools)):
        text = found[0]
    unread = structured is None and history.UNREAD_CALL_KEY in raw.additional_kwargs
    if not text or unread or evidence.is_echo(text, replies.task_of(call.history), delivered=True):
        return None, None
    if cause := history.cut_by(raw):
        text += CUT_MARK.format(cause=cause)
    reply = AIMessage(
        text,
        id=raw.id,
        additional_kwargs={history.SUMMARY_KEY: True},
        usage_metadata=raw.usage_metadata,
        response_metadata=metadata,
    )
    return reply, structured


def is_full(call: ModelCall, window: int) -> bool:
    """Return True if the request comes near the window's end, and compaction would help.

    It would not if something else fills the window, such as a long task or many tools. Then the
    model's server decides. True also if the user asks for compaction, and there is a reply.
    """
    has_reply = any(isinstance(message, AIMessage) for message in call.history)
    if has_reply and history.COMPACT_KEY in call.history[-1].additional_kwargs:
        return True
    limit = FULL_AT * window
    task = history.last_user_message(call.history)
    if task is None or _request_tokens(call) <= limit:
        return False
    words = count_tokens_approximately([HumanMessage(history.task_text_of(task))])
    others = count_tokens_approximately([one for one in call.history if one is not task])
    return words < limit / 2 and others > limit / 4


def _request_tokens(call: ModelCall) -> int:
    return prices.estimate_request_tokens(call.history, call.system, call.reminder, call.tools)


def _refused_tokens(call: ModelCall) -> int:
    """Estimate a refused request's tokens; some servers report less than they were sent."""
    return max(_request_tokens(call), count_tokens_approximately(list(call.history)))


@dataclass(frozen=True)
class SummaryLimits:
    """The limits of a summary, and of the request for it."""

    window: int
    tokens: int
    """Of the summary, as it is requested."""
    max_chars: int
    """Of the summary, as it is accepted."""
    chars_per_token: float

    def within(self, window: int) -> "SummaryLimits":
        """Return the limits in a window that turned out to be smaller."""
        scale = min(1.0, window / self.window)
        tokens, max_chars = int(scale * self.tokens), int(scale * self.max_chars)
        return SummaryLimits(int(scale * self.window), tokens, max_chars, self.chars_per_token)

    def request(self) -> str:
        return render("compaction_request", words=str(max(1, int(self.tokens * WORDS_PER_TOKEN))))


async def compact(
    call: ModelCall, window: int, writer: "SummaryWriter", emit: Emit, least_chars: int = 0
) -> list[AnyMessage]:
    """Return a short conversation to continue with.

    LimitReached: the run's limits forbid a call that writes the summary.
    """
    limit, task = FULL_AT * window, history.last_user_message(call.history)
    reported = "\n".join((call.system, *history.environment_of(call.history)["facts"].values()))
    fixed = prices.estimate_fixed_tokens(reported, call.reminder, call.tools)
    # How many characters a token has in this conversation: Chinese takes more tokens.
    said = sum(map(summaries.size_of, call.history)) / max(1, _request_tokens(call) - fixed)
    chars_per_token = min(float(CHARS_PER_TOKEN), max(1.0, said))
    task_chars = len(history.task_text_of(task)) if task else 0
    free_chars = int(max((limit - fixed) * chars_per_token - task_chars, limit / 4))
    shares = (PAST_SHARE, KEPT_SHARE, NEWEST_SHARE)
    parts = summaries.divide(call.history, *(int(share * free_chars) for share in shares))
    summary_chars = max(least_chars, int(SUMMARY_SHARE * free_chars))
    limits = SummaryLimits(
        window=window,
        tokens=int(summary_chars / chars_per_token),
        max_chars=int(MAX_SUMMARY_EXCESS * summary_chars),
        chars_per_token=chars_per_token,
    )
    summary = await writer.write(parts, limits)
    text = f"The conversation was compacted: {len(parts.old)} messages became a summary."
    notice(emit, text, "info")
    labels = await asyncio.to_thread(
        labels_of, call.history, call.traits, tainted=call.untrusted_prompt
    )
    return parts.with_summary(summary, labels.kept(), own_checkpoint(get_config()))


class SummaryWriter:
    """Writes the summary of one compaction of the agent's call, and counts its cost."""

    def __init__(self, call: ModelCall, session: Session, emit: Emit) -> None:
        self._session, self._emit, self._started = session, emit, time.monotonic()
        # The middlewares wrap this request, too: what they change is part of the cached prefix, and
        # what they remove must not reach the provider here either. The live state comes after the
        # prefix, and the next request has it anyway.
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
        self._summary = ""
        self._left: list[str] = []
        """Texts that are not in the summary yet."""

    async def write(self, parts: summaries.DividedConversation, limits: SummaryLimits) -> str:
        """Return a summary of the old messages.

        LimitReached: the run's limits forbid a request for it.
        """
        self._summary, self._left = parts.summary, summaries.transcript(parts.old)
        limits = limits.within(await run_models(self._session).window("compaction"))
        try:
            await self._ask_at_the_end(parts, limits)
            if self._left:
                await self._ask_with_text(parts.task_text, limits)
        except ModelError as error:
            text = f"The summary could not be written by the model: {error.sentence}"
            notice(self._emit, text)
        if not self._left:
            return summaries.cut_summary(self._summary, limits.max_chars)
        return await asyncio.to_thread(
            summaries.digest, self._summary, self._left, limits.max_chars
        )

    async def _ask_at_the_end(
        self, parts: summaries.DividedConversation, limits: SummaryLimits
    ) -> None:
        """Ask at the end of the conversation, or of the longest beginning of it that fits."""
        conversation = self._call.history
        ends = [
            end
            for end in range(parts.began + 2, len(conversation) + 1)
            if end == len(conversation) or conversation[end].type != "tool"
        ]
        request = limits.request()
        fits = limits.window - limits.tokens - count_tokens_approximately([HumanMessage(request)])

        def tokens_until(end: int) -> int:
            return _request_tokens(replace(self._call, history=conversation[:end], reminder=""))

        while found := bisect_right(ends, fits, key=tokens_until):
            beginning = conversation[: ends[found - 1]]
            asked = replace(self._call, history=beginning, reminder=request)
            try:
                written = await self._whole_text(asked, limits)
            except ModelError as error:
                self._note_refusal(error, asked)
                fits = tokens_until(len(beginning)) // 2
                continue
            if written:  # else it called tools all the same, and is asked without any
                seen = {id(message) for message in beginning}
                self._summary = written
                self._left = summaries.transcript([one for one in parts.old if id(one) not in seen])
            return

    async def _ask_with_text(self, task: str, limits: SummaryLimits) -> None:
        """Ask with the rest as text, in pieces, each with the summary so far."""
        limits = limits.within(self.refused or limits.window)
        shown = int(PIECE_SHARE * limits.window * limits.chars_per_token)
        piece_chars = max(LEAST_PIECE_CHARS, shown - len(task) - limits.max_chars)
        self._left = summaries.transcript_pieces(self._left, piece_chars)
        request = limits.request()
        system = f"{render('compaction_system')}\n\n{render('text_from_outside')}"
        call = replace(self._call, system=system, reminder="", tools=())
        while self._left:
            # A piece may begin in the middle of text from outside, whose tag is in another one.
            said = "\n".join(filter(None, (self._summary, mark_untrusted(self._left[0]))))
            text = render("compaction_transcript", task=task, transcript=said, request=request)
            asked = replace(call, history=[HumanMessage(text)])
            try:
                written = await self._whole_text(asked, limits)
            except ModelError as error:
                self._note_refusal(error, asked)
                if len(self._left[0]) <= LEAST_PIECE_CHARS:
                    raise
                self._left = summaries.pieces_of(self._left, len(self._left[0]) // 2)
                continue
            if not written:
                return
            self._summary = summaries.cut_middle(written, limits.max_chars)
            del self._left[0]

    def _note_refusal(self, error: ModelError, asked: ModelCall) -> None:
        """Note that a request was too long; any other error is raised."""
        if error.kind != "context_length":
            raise error
        tokens = _refused_tokens(asked)
        self.refused = min(tokens, self.refused or tokens)

    async def _whole_text(self, call: ModelCall, limits: SummaryLimits) -> str:
        """Return the reply's text without its calls; one that was cut off is continued."""
        reply = await self._reply(call)
        text = str(reply.text)
        for _ in range(MAX_CONTINUATIONS):
            if not history.cut_by(reply) or not reply.text.strip() or len(text) > limits.max_chars:
                return text.strip()
            asked = [HumanMessage(call.reminder)] if call.reminder else []
            conversation = [*call.history, *asked, AIMessage(reply.text)]
            call = replace(call, history=conversation, reminder=render("compaction_continue"))
            try:
                reply = await self._reply(call)
            except ModelError:
                break
            text += reply.text
        if cause := history.cut_by(reply):
            notice(self._emit, f"The summary was cut off by {cause}.")
        return text.strip()

    async def _reply(self, call: ModelCall) -> AIMessage:
        call = replace(call, progress=_later(call.progress, self.spent, self._started))
        try:
            reply, cost = await call_model(call, self._session, only_notices(self._emit))
        except (LimitReached, ModelError) as ended:
            self.spent = add_usage(self.spent, ended.spent)
            raise
        self.spent = add_usage(self.spent, cost)
        return reply

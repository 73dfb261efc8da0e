"""The seam through which every model call runs.

Choose the models (`run_models`), check the limits (`budget`), make the request (`projection`), send
it (`sending`), and normalize the reply. Middlewares wrap the sending (`model_middleware`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from openmanus_graph.backends.models import prices
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.models.resolved import ResolvedModel
from openmanus_graph.backends.persistence.leases import require_run_lease
from openmanus_graph.backends.persistence.usage import CountedCall, run_usage
from openmanus_graph.conversation.history import (
    FENCE_KEY,
    UNREAD_CALL_KEY,
    is_steering,
    reasoning_of,
)
from openmanus_graph.conversation.replies import read_reply
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls import budget, normalized_reply, projection, run_models
from openmanus_graph.model_calls.fitting import Fitter
from openmanus_graph.model_calls.recorder import ProviderRequest, recorded
from openmanus_graph.model_calls.sending import Sender
from openmanus_graph.prompts import render
from openmanus_graph.runtime import limits, traces
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import ModelRole
from openmanus_graph.state.manus import Usage, add_usage, no_usage
from openmanus_graph.state.settings import Settings
from openmanus_graph.state.tool_traits import Traits

if TYPE_CHECKING:
    from openmanus_graph.model_calls.model_middleware import ModelCallHandler, ModelCallHooks

EXPECTED_OUTPUT_TOKENS = 500
"""Of a conversation's first call."""
RESAMPLED = 1.0
"""Temperature of a reply that is requested again: above what local servers use, and the only one
that every provider accepts."""
ReadState = Callable[[bool], Awaitable[tuple[str, str | None]]]
"""Reads what a live handle shows: as text and, if the model sees (the argument), as a data URL."""


@dataclass(frozen=True)
class LiveState:
    """What a live handle shows now: read for one request, and never stored."""

    heading: str
    """Our words before it."""
    read: ReadState
    needs_pictures: bool = False
    """Whether it says next to nothing to a model that does not see."""


@dataclass(frozen=True)
class ModelCall:
    """What to send to the model, and the run's progress before it."""

    system: str
    history: Sequence[AnyMessage]
    reminder: str
    """Added at the end of this request only."""
    tools: Sequence[dict[str, Any]]
    progress: limits.Progress
    step: int
    traits: Mapping[str, Traits] = field(default_factory=dict[str, Traits])
    """Of the tools: compaction keeps what their results had verified."""
    untrusted_prompt: bool = False
    """Whether the request holds untrusted text from the start."""
    role: ModelRole | None = None
    """Its purpose, if that may have its own model."""
    counts_as_step: bool = False
    """Whether it counts towards `max_steps`: an agent's step, or the planner's."""
    live_state: LiveState | None = None
    """What the browser or the desktop shows now; it follows the reminder."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Waits so many seconds before a retry; what it raises ends the call."""
    middleware: "ModelCallHooks | None" = None
    """Wraps the sending; each request through it is reserved and counted separately."""
    keeps_reserve: bool = False
    """Whether it leaves the budget of the run's final summary untouched."""
    only_answer: bool = False
    resamples: bool = False
    """Whether the last reply was useless, so that this one gets a higher temperature."""
    says_what_is_left: bool = False
    """Whether the request names what is left of the limits that are near."""
    ends_on_interrupt: bool = True
    """Whether Ctrl-C ends it at once, and with it the node: not so inside of a tool."""


async def call_model(call: ModelCall, session: Session, emit: Emit) -> tuple[AIMessage, Usage]:
    """Ask the model and return its reply, fit to be stored and sent back, and its cost.

    If a model is down, overloaded, out of quota or unknown, the next one is asked. LimitReached:
    the run's limits forbid the call, or its time ended during it. ModelError: the call failed for
    good; holds a sentence for the person. ConfigError: the model's settings are wrong.
    LeaseLostError: another worker has taken over the run's thread.
    """
    live, available = call.live_state, run_models.run_models(session)
    shown = session.cached(projection.Projector, projection.Projector).pictured(call.history)
    pictured = projection.in_this_run(shown, call.history)
    pictured = pictured or (live is not None and live.needs_pictures)
    models = await available.to_ask(call.role, pictured=pictured)
    started, before, spent = time.monotonic(), call.progress, no_usage()
    for model, following in zip_longest(models, models[1:]):
        requests = _Requests(call, model, session, emit, has_alternative=following is not None)
        try:
            reply = await requests.answer(is_first=model is models[0])
        except (limits.LimitReached, ModelError) as ended:
            spent = ended.spent = add_usage(spent, await requests.total_spent())
            if following is None or isinstance(ended, limits.LimitReached):
                raise
            if ended.kind not in run_models.OUT_OF_SERVICE_S:
                raise
            available.pass_over(model.key, ended, time.monotonic())
            notice(emit, f"{ended.sentence} {following.name} is asked instead.")
            elapsed_s = before.elapsed_s + time.monotonic() - started
            usage = add_usage(before.usage, spent)
            call = replace(call, progress=limits.Progress(before.steps, usage, elapsed_s))
        else:
            return reply, add_usage(spent, await requests.total_spent())
    raise ValueError("there is no model to ask")


class _Requests:
    """Sends the requests of one model call to one model: one, unless a middleware sends more."""

    def __init__(
        self,
        call: ModelCall,
        model: ResolvedModel,
        session: Session,
        emit: Emit,
        *,
        has_alternative: bool,
    ) -> None:
        self._call, self._model = call, model
        self._session, self._emit = session, emit
        self._next_call = limits.Progress(int(call.counts_as_step), no_usage(), 0)
        self._sender = Sender(
            session.key,
            call.step,
            emit,
            call.sleep,
            session.cached(Fitter, Fitter),
            session.settings.storage.rate_limit_url,
            has_alternative=has_alternative,
            is_internal=call.role is not None or not call.step,  # a tool's own calls have no step
        )
        self._spent = no_usage()

    async def answer(self, *, is_first: bool) -> AIMessage:
        """Return the reply, fit to be stored. Raises as `call_model`.

        If another model was asked first, the conversation may not fit into this one's window.
        """
        call, model, settings = self._call, self._model, self._session.settings
        tokens = prices.estimate_request_tokens(
            call.history, call.system, call.reminder, call.tools
        )
        last = prices.last_reported(call.history)  # this call's usage will be similar
        expected = prices.CallUsage(
            input_tokens=tokens,
            cached_tokens=min(tokens, last.input_tokens) if last and last.cached_tokens else 0,
            output_tokens=last.output_tokens if last else EXPECTED_OUTPUT_TOKENS,
        )
        if hint := model.small_window:
            _notice_once(self._session, self._emit, hint)
        if not is_first and expected.input_tokens > model.window:
            text = f"The conversation is longer than {model.name} takes."
            raise ModelError("context_length", text)
        self._sender.expected_tokens = expected.input_tokens + expected.output_tokens
        cost, _ = _priced(expected, model, settings)
        self._next_call = replace(self._next_call, usage=cost)
        if call.says_what_is_left and (
            near := budget.near_limits(call.progress, settings, self._next_call)
        ):
            left = render("limit_near", left="; ".join(limit.left_words() for limit in near))
            self._call = call = replace(call, reminder=f"{call.reminder}\n\n{left}".strip())
        if call.middleware is None:
            async with self._reserve(self._spent) as reservation:
                return await self._reply(partial(self._send, reservation=reservation))
        budget.check_limits(
            call.progress, settings, self._next_call, keeps_reserve=call.keeps_reserve
        )
        wrap = call.middleware.wrap_model_call
        return await self._reply(partial(wrap, handler=self._send_within_limits))

    def _reserve(self, spent: Usage) -> AbstractAsyncContextManager[budget.Reservation | None]:
        """Reserve the possible cost of the next request, after what this call has spent."""
        call, settings, next_call = self._call, self._session.settings, self._next_call
        progress = replace(call.progress, usage=add_usage(call.progress.usage, spent))
        if self._sender.attempts:  # a step is counted once, however many requests it sends
            next_call = replace(next_call, steps=0)
        return budget.reserved(
            self._session.key, progress, settings, next_call, keeps_reserve=call.keeps_reserve
        )

    async def _send(
        self, request: ProviderRequest, reservation: budget.Reservation | None
    ) -> AIMessage:
        """Send a request, with retries, and count its cost."""
        session, call, model = self._session, self._call, request.model
        await require_run_lease(session)
        about = {
            "step": call.step,
            "elapsed_s": round(call.progress.elapsed_s, 3),
            "steering": _new_steering(call),
        }
        counter, used = await run_usage(session), None

        async def send(asked: ProviderRequest) -> AIMessage:  # not called in a replay
            nonlocal used
            counted = CountedCall(model.name, self._next_call.usage)
            async with counter.counted(counted):
                reply = await self._sender.send(asked)
                used = await self._used(reply, asked)
                counted.usage = used[0]
            return reply

        with traces.model_call(request, model.settings, model.plain_name, model.provider) as span:
            raw = await recorded(request, send, session=session, role=call.role, about=about)
            usage, unknown = used or await self._used(raw, request)
            traces.record_reply(span, raw, usage)
        self._spent = add_usage(self._spent, usage)
        if reservation is not None:
            reservation.spent = usage
        if _reported(raw):
            await run_models.look_for_cut(session, self._emit, request, usage)
        for text in unknown:
            _notice_once(session, self._emit, text)
        return raw

    async def _used(self, raw: AIMessage, request: ProviderRequest) -> tuple[Usage, list[str]]:
        count = partial(prices.usage_of, raw, request.messages, request.tools)
        # An estimate reads the whole request.
        used = count() if _reported(raw) else await asyncio.to_thread(count)
        return _priced(used, request.model, self._session.settings)

    async def _send_within_limits(self, request: ProviderRequest) -> AIMessage:
        """Send a request of a middleware; each is within the limits by itself."""
        async with self._reserve(await self.total_spent()) as reservation:
            return await self._send(request, reservation)

    async def total_spent(self) -> Usage:
        """Return the cost of all requests, a middleware's own model calls included."""
        middleware, spent = self._call.middleware, self._spent
        return spent if middleware is None else add_usage(spent, await middleware.spent())

    async def _reply(self, send: "ModelCallHandler") -> AIMessage:
        """Build the request, have it sent, and return the reply, fit to be stored."""
        call, emit, settings = self._call, self._emit, self._session.settings
        request = await _request(call, self._model, self._session, emit)
        emit({"type": "think_start", "step": call.step})
        started = time.monotonic()
        left_s = limits.time_left_s(call.progress, settings, keeps_reserve=call.keeps_reserve)
        clock = asyncio.timeout(left_s)
        try:
            async with clock:
                sending = send(request)
                raw = await (
                    limits.unless_interrupted(sending) if call.ends_on_interrupt else sending
                )
        except TimeoutError:
            if clock.expired():
                limit = limits.most_used_limit("timeout", call.progress, settings)
                raise limits.LimitReached(limit) from None
            raise
        raw = normalized_reply.with_thoughts_apart(raw)
        wanted = settings.response_format
        if wanted is None or read_reply([raw], wanted).kind != "answer":
            raw = normalized_reply.with_text_calls(raw, call.tools, call.history)
            odd = {FENCE_KEY, UNREAD_CALL_KEY} & raw.additional_kwargs.keys()
            self._model.note_reply(odd=bool(odd))
        reply = normalized_reply.normalized_reply(raw, call.history)
        if reasoning := reasoning_of(reply):
            notice(emit, f"Reasoning: {reasoning}", "info")
        is_main = self._model.settings is settings.main
        emit(
            {
                "type": "think_end",
                "step": call.step,
                "text": reply.text,
                "tool_calls": [
                    {"call_id": one["id"], "tool": one["name"], "args": one["args"]}
                    for one in reply.tool_calls
                ],
                "usage": await self.total_spent(),
                **({} if is_main else {"model": self._model.name}),
                "seconds": round(time.monotonic() - started, 3),
            }
        )
        return reply


def _new_steering(call: ModelCall) -> list[list[str]]:
    """Return ids and texts of the steering messages that are read for a call: those at its end.

    A planner reads all of them for each call, and its drafts follow them.
    """
    if call.role == "plan":
        newest = [message for message in call.history if is_steering(message)]
    else:
        newest = [*takewhile(is_steering, reversed(call.history))][::-1]
    return [[message.id, message.text] for message in newest if message.id]


async def _request(
    call: ModelCall, model: ResolvedModel, session: Session, emit: Emit
) -> ProviderRequest:
    projector = session.cached(projection.Projector, projection.Projector)
    settings = session.settings
    shown = projector.pictured(call.history)
    pictures: projection.Pictures | None = None
    if shown and model.sees_images:
        pictures = await projection.load_pictures(shown, session)
    elif projection.in_this_run(shown, call.history):
        text = (
            f"Pictures are not sent: it is not known whether {model.name} accepts them. Set "
            "vision_model to a model that does, or [llm] sees_images = true if this one does."
        )
        _notice_once(session, emit, text)
    if (live := call.live_state) is None:
        reminder = projection.reminder_message(call.reminder)
    else:
        text, picture = await live.read(model.sees_images)
        reminder = projection.reminder_message(call.reminder, live.heading, text, picture)
    messages = projector.project(
        call.history, system=call.system, reminder=reminder, pictures=pictures
    )
    if given := projector.with_media(call.history):
        messages = await projection.add_media(
            messages, given, session, taken=model.media, provider=model.wire
        )
    if model.provider and settings.has_several_models:
        messages = projection.without_other_providers_blocks(messages, model.wire)
    stable = None if reminder is None else len(messages) - 1
    marked = projection.with_cache_marks(messages, model.provider, model.name, stable)
    options: dict[str, Any] = {}
    if call.resamples and "temperature" not in model.parameters:
        options["temperature"] = RESAMPLED
    # A call is required only where an answer would be a call, too.
    names = [tool.get("function", {}).get("name") for tool in call.tools]
    may_require = settings.response_format is None and "terminate" in names
    if call.resamples and model.dialect.now.forces and may_require:
        options["tool_choice"] = "any"
    return ProviderRequest(marked, call.tools, model, options, call.history, call.only_answer)


def _reported(raw: AIMessage) -> bool:
    return bool(raw.usage_metadata and raw.usage_metadata["input_tokens"])


def _priced(
    used: prices.CallUsage, model: ResolvedModel, settings: Settings
) -> tuple[Usage, list[str]]:
    """Return what a call costs, and sentences on what is not known about that."""
    cost = model.cost_usd(used, settings.prices)
    unknown: list[str] = []
    if used.estimated:
        unknown.append(f"{model.name} reports no usage; tokens are estimated.")
    if cost is None:
        unknown.append(
            f"The price of {model.name} is not known, so its dollars are not counted. Set it under "
            "[prices] in the configuration, or limit the run by --max-tokens."
        )
    return used.counted(cost), unknown


def _notice_once(session: Session, emit: Emit, text: str) -> None:
    session.cached(text, lambda: notice(emit, text, "info"))


def only_notices(emit: Emit) -> Emit:
    """Return an emitter for notices alone: other events would be taken for the agent's."""

    def emit_notices(event: dict[str, Any]) -> None:
        if event["type"] == "notice":
            emit(event)

    return emit_notices


class ToolModel:
    """Answers the questions of one tool call, within the run's limits, and counts their cost."""

    def __init__(self, session: Session, progress: limits.Progress, emit: Emit) -> None:
        self._session, self._emit = session, only_notices(emit)
        # Steps are the agent's own model calls, not a tool's questions.
        self._progress = replace(progress, steps=0)
        self.spent = no_usage()
        """The cost of the questions."""

    async def ask(self, system: str, question: str) -> str:
        """Ask the model for extraction and return its text.

        ToolError: the run's limits forbid it, or the model failed for good.
        """
        reply = await self.converse(system, [HumanMessage(question)], "extract")
        return reply.text.strip()

    async def converse(
        self, system: str, messages: Sequence[AnyMessage], role: ModelRole | None = None
    ) -> AIMessage:
        """Continue a conversation and return the model's reply. ToolError as `ask`."""
        usage = add_usage(self._progress.usage, self.spent)
        call = ModelCall(
            system=system,
            history=messages,
            reminder="",
            tools=(),
            progress=replace(self._progress, usage=usage),
            step=0,
            role=role,
            ends_on_interrupt=False,
        )
        try:
            with budget.exclude_from_external_calls():
                reply, usage = await call_model(call, self._session, self._emit)
        except limits.LimitReached as limit:
            raise ToolError(
                f"The model was not asked: the run's limit ({limit.reason}) is reached."
            ) from limit
        except ModelError as error:
            raise ToolError(f"The model gave no answer: {error.sentence}") from error
        self.spent = add_usage(self.spent, usage)
        return reply

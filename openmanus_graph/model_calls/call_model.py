"""The seam through which every model call runs.

which models (`candidates`) -> limits -> request (projection) -> send (`sending`) -> reply -> usage.
The `wrap_model_call` hooks of middlewares stand around the sending (`model_middleware`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from openmanus_graph.backends.models.build import client_parameters, model_name, price_of
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.models.prices import (
    CallUsage,
    estimate_request_tokens,
    last_reported,
    usage_of,
)
from openmanus_graph.backends.models.resolved import ResolvedModel
from openmanus_graph.backends.persistence.leases import require_run_lease
from openmanus_graph.conversation.history import FENCE_KEY, UNREAD_CALL_KEY
from openmanus_graph.conversation.replies import read_reply
from openmanus_graph.model_calls.budget import Reservation, check_limits, near_limits, reserved
from openmanus_graph.model_calls.candidates import (
    may_fall_back,
    models_to_ask,
    outages,
    resolved_model,
)
from openmanus_graph.model_calls.fitting import Fitter
from openmanus_graph.model_calls.media import add_media, in_this_run, load_pictures
from openmanus_graph.model_calls.normalized_reply import (
    normalized_reply,
    with_text_calls,
    with_thoughts_apart,
)
from openmanus_graph.model_calls.projection import (
    Pictures,
    Projector,
    reminder_message,
    with_cache_marks,
    without_other_providers_blocks,
)
from openmanus_graph.model_calls.recorder import ProviderRequest, recorded
from openmanus_graph.model_calls.sending import Sender
from openmanus_graph.model_calls.silent_cuts import look_for_cut, within_shown_window
from openmanus_graph.prompts import render
from openmanus_graph.runtime import traces
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import (
    LimitReached,
    Progress,
    most_used_limit,
    time_left_s,
    unless_interrupted,
)
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import ModelRole
from openmanus_graph.state.manus import Usage, add_usage, no_usage
from openmanus_graph.state.settings import Settings
from openmanus_graph.state.tool_traits import Traits

EXPECTED_OUTPUT_TOKENS = 500
"""Of a conversation's first call."""
RESAMPLED = 1.0
"""Temperature of a reply that is asked for again: above what local servers use, and the only one
that every provider takes."""

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


ModelCallHandler = Callable[[ProviderRequest], Awaitable[AIMessage]]


class ModelMiddleware(Protocol):
    """Stands around the sending of a request; `model_middleware` implements it."""

    async def wrap_model_call(
        self, request: ProviderRequest, handler: ModelCallHandler
    ) -> AIMessage:
        """Return the reply. It may call the handler several times, or not at all."""
        ...

    async def spent(self) -> Usage:
        """Return what the model calls cost that it made by itself, past the handler."""
        ...


@dataclass(frozen=True)
class ModelCall:
    """What to send to the model, and how far the run has come that it is sent for."""

    system: str
    history: Sequence[AnyMessage]
    reminder: str
    """Stands at the end of this request only."""
    tools: Sequence[dict[str, Any]]
    """Definitions, as providers are sent them."""
    progress: Progress
    step: int
    """Number of the agent's step, for the events."""
    traits: Mapping[str, Traits] = field(default_factory=dict[str, Traits])
    """Of the tools: compaction keeps what their results had verified."""
    untrusted_prompt: bool = False
    """Whether the request holds untrusted text from the start."""
    role: ModelRole | None = None
    """What it is for, where that may have a model of its own."""
    counts_as_step: bool = False
    """Whether it counts towards `max_steps`: an agent's step, or the planner's."""
    live_state: LiveState | None = None
    """What the browser or the desktop shows now; it stands after the reminder."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Waits so many seconds before it is repeated; what it raises ends the call."""
    middleware: ModelMiddleware | None = None
    """Stands around the sending; each request through it is reserved and counted by itself."""
    keeps_reserve: bool = False
    """Whether it leaves what the run keeps for its final summary."""
    only_answer: bool = False
    """Whether calls in the reply are not run."""
    resamples: bool = False
    """Whether the last reply was useless, so that this one is asked for at a higher temperature."""
    says_what_is_left: bool = False
    """Whether the request says what is left of the limits that are near."""
    ends_on_interrupt: bool = True
    """Whether Ctrl-C ends it at once, and with it the node: not so inside of a tool."""


async def call_model(call: ModelCall, session: Session, emit: Emit) -> tuple[AIMessage, Usage]:
    """Ask the model and return its reply, fit to be stored and sent back, and what it cost.

    Where a model is down, overloaded, out of quota or unknown, the next one is asked.

    Raises:
        LimitReached: The run's limits forbid the call, or its time ended during it.
        ModelError: The call failed for good; holds a sentence for the person.
        ConfigError: The model's settings are wrong.
        LeaseLostError: Another worker has taken over the run's thread, and asks for itself.
    """
    live = call.live_state
    pictured = in_this_run(_projector(session).pictured(call.history), call.history)
    pictured = pictured or (live is not None and live.needs_pictures)
    models = await models_to_ask(call.role, session, pictured=pictured)
    started, before, spent = time.monotonic(), call.progress, no_usage()
    for chosen, following in zip_longest(models, models[1:]):
        model = await resolved_model(chosen, session)
        requests = _Requests(call, model, session, emit, has_alternative=following is not None)
        try:
            reply = await requests.answer(is_first=chosen is models[0])
        except (LimitReached, ModelError) as ended:
            spent = ended.spent = add_usage(spent, await requests.total_spent())
            if following is None or isinstance(ended, LimitReached) or not may_fall_back(ended):
                raise
            outages(session).add(chosen, ended, time.monotonic())
            notice(emit, f"{ended.sentence} {model_name(following)} is asked instead.")
            elapsed_s = before.elapsed_s + time.monotonic() - started
            usage = add_usage(before.usage, spent)
            call = replace(call, progress=Progress(before.steps, usage, elapsed_s))
        else:
            return reply, add_usage(spent, await requests.total_spent())
    raise ValueError("there is no model to ask")


def expected_usage(call: ModelCall) -> CallUsage:
    """Estimate what a call will take, by the last one of the conversation."""
    tokens = estimate_request_tokens(call.history, call.system, call.reminder, call.tools)
    last = last_reported(call.history)
    return CallUsage(
        input_tokens=tokens,
        cached_tokens=min(tokens, last.input_tokens) if last and last.cached_tokens else 0,
        output_tokens=last.output_tokens if last else EXPECTED_OUTPUT_TOKENS,
    )


def _with_what_is_left(call: ModelCall, next_call: Progress, settings: Settings) -> ModelCall:
    """Return the call with a sentence on what is left, where the run comes near to a limit."""
    near = near_limits(call.progress, settings, next_call)
    if not near:
        return call
    left = render("limit_near", left="; ".join(limit.left_words() for limit in near))
    return replace(call, reminder=f"{call.reminder}\n\n{left}".strip())


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
        self._next_call = Progress(int(call.counts_as_step), no_usage(), 0)
        record = partial(recorded, session=session, call=call)
        self._sender = Sender(
            session.key,
            call.step,
            emit,
            call.sleep,
            record,
            session.cached(Fitter, Fitter),
            session.settings.storage.rate_limit_url,
            has_alternative=has_alternative,
        )
        self.spent = no_usage()

    async def answer(self, *, is_first: bool) -> AIMessage:
        """Return the reply, fit to be stored. Raises as `call_model`.

        Args:
            is_first: Whether no other model was asked before: of one that stands in nobody knows
                yet whether the conversation fits into its window.
        """
        model, settings = self._model, self._session.settings
        expected = expected_usage(self._call)
        if hint := model.small_window:
            _notice_once(self._session, self._emit, hint)
        window = within_shown_window(self._session, model.settings, model.window)
        if not is_first and expected.input_tokens > window:
            text = f"The conversation is longer than {model.name} takes."
            raise ModelError("context_length", text)
        self._sender.expected_tokens = expected.input_tokens + expected.output_tokens
        priced, known = partial(_priced, expected, model, settings), (_priced, model.name)
        if self._session.find_cached(known) is None:  # the first one may load the list of prices
            await asyncio.to_thread(priced)
            self._session.cached(known, lambda: True)
        cost, _ = priced()
        self._next_call = replace(self._next_call, usage=cost)
        if self._call.says_what_is_left:
            self._call = _with_what_is_left(self._call, self._next_call, settings)
        if self._call.middleware is None:
            async with self.reserve(self.spent) as reservation:
                return await self.reply(partial(self.send_and_count, reservation=reservation))
        check_limits(
            self._call.progress,
            settings,
            self._next_call,
            keeps_reserve=self._call.keeps_reserve,
        )
        wrap = self._call.middleware.wrap_model_call
        return await self.reply(partial(wrap, handler=self.send_within_limits))

    def reserve(self, spent: Usage) -> AbstractAsyncContextManager[Reservation | None]:
        """Hold back what the next request may cost.

        Args:
            spent: What this model call has cost so far.
        """
        call, settings, next_call = self._call, self._session.settings, self._next_call
        progress = replace(call.progress, usage=add_usage(call.progress.usage, spent))
        if self._sender.attempts:  # a step is counted once, however many requests it sends
            next_call = replace(next_call, steps=0)
        return reserved(
            self._session.key, progress, settings, next_call, keeps_reserve=call.keeps_reserve
        )

    async def send_and_count(
        self, request: ProviderRequest, reservation: Reservation | None
    ) -> AIMessage:
        """Send a request, with retries, and count what it cost."""
        await require_run_lease(self._session)
        model = request.model
        with traces.model_call(request, model.settings, model.plain_name, model.provider) as span:
            raw = await self._sender.send(request)
            account = partial(_account, raw, request, self._session.settings)
            # An estimate reads the whole request.
            reported = raw.usage_metadata and raw.usage_metadata["input_tokens"]
            usage, unknown = account() if reported else await asyncio.to_thread(account)
            span.record_reply(raw, usage)
        self.spent = add_usage(self.spent, usage)
        if reservation is not None:
            reservation.spent = usage
        if reported:
            await look_for_cut(self._session, self._emit, request, usage)
        for text in unknown:
            _notice_once(self._session, self._emit, text)
        return raw

    async def send_within_limits(self, request: ProviderRequest) -> AIMessage:
        """Send a request of a middleware, each of which is within the limits by itself."""
        async with self.reserve(await self.total_spent()) as reservation:
            return await self.send_and_count(request, reservation)

    async def total_spent(self) -> Usage:
        """Return what all requests have cost, a middleware's own model calls included."""
        middleware = self._call.middleware
        return self.spent if middleware is None else add_usage(self.spent, await middleware.spent())

    async def reply(self, send: ModelCallHandler) -> AIMessage:
        """Build the request, have it sent, and return the reply, fit to be stored."""
        call, emit = self._call, self._emit
        request = await _request(call, self._model, self._session, emit)
        emit({"type": "think_start", "step": call.step})
        started = time.monotonic()
        settings = self._session.settings
        clock = asyncio.timeout(
            time_left_s(call.progress, settings, keeps_reserve=call.keeps_reserve)
        )
        try:
            async with clock:
                raw = await (
                    unless_interrupted(send(request)) if call.ends_on_interrupt else send(request)
                )
        except TimeoutError:
            if clock.expired():
                limit = most_used_limit("timeout", call.progress, settings)
                raise LimitReached(limit) from None
            raise
        raw = with_thoughts_apart(raw)
        if not self._is_structured(raw):
            raw = with_text_calls(raw, call.tools, call.history)
            odd = {FENCE_KEY, UNREAD_CALL_KEY} & raw.additional_kwargs.keys()
            self._model.note_reply(odd=bool(odd))
        reply = normalized_reply(raw, call.history)
        if reasoning := reply.additional_kwargs.get("reasoning_content"):
            notice(emit, f"Reasoning: {reasoning}", "info")
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
                **self._stand_in(),
                "seconds": round(time.monotonic() - started, 3),
            }
        )
        return reply

    def _stand_in(self) -> dict[str, str]:
        """Name the model, where it is not the run's main one."""
        is_main = self._model.settings is self._session.settings.main
        return {} if is_main else {"model": self._model.name}

    def _is_structured(self, reply: AIMessage) -> bool:
        """Say whether a text is the object that the caller wants, whatever its form looks like."""
        wanted = self._session.settings.response_format
        return wanted is not None and read_reply([reply], wanted).kind == "answer"


async def _request(
    call: ModelCall, model: ResolvedModel, session: Session, emit: Emit
) -> ProviderRequest:
    shown = _projector(session).pictured(call.history)
    pictures: Pictures | None = None
    if shown and model.sees_images:
        pictures = await load_pictures(shown, session)
    elif in_this_run(shown, call.history):
        text = (
            f"{model.name} is not known to see pictures, so they are left out. Set "
            "vision_model to one that sees, or [llm] sees_images = true if this one does."
        )
        _notice_once(session, emit, text)
    reminder = await _reminder(call, sees=model.sees_images)
    messages = _projector(session).project(
        call.history, system=call.system, reminder=reminder, pictures=pictures
    )
    if given := _projector(session).with_media(call.history):
        messages = await add_media(messages, given, session, taken=model.media, provider=model.wire)
    if model.provider and session.settings.has_several_models:
        messages = without_other_providers_blocks(messages, model.wire)
    stable = None if reminder is None else len(messages) - 1
    marked = with_cache_marks(messages, model.provider, model.name, stable)
    is_set = "temperature" in client_parameters(model.client)
    options: dict[str, Any] = {"temperature": RESAMPLED} if call.resamples and not is_set else {}
    if call.resamples and model.dialect.now.forces and _may_be_forced(call, session.settings):
        options["tool_choice"] = "any"
    return ProviderRequest(marked, call.tools, model, options, call.history, call.only_answer)


def _may_be_forced(call: ModelCall, settings: Settings) -> bool:
    """Return True if a call may be demanded: also an answer is one then."""
    names = [tool.get("function", {}).get("name") for tool in call.tools]
    return settings.response_format is None and "terminate" in names


async def _reminder(call: ModelCall, *, sees: bool) -> HumanMessage | None:
    if call.live_state is None:
        return reminder_message(call.reminder)
    text, picture = await call.live_state.read(sees)
    return reminder_message(call.reminder, call.live_state.heading, text, picture)


def _account(
    reply: AIMessage, request: ProviderRequest, settings: Settings
) -> tuple[Usage, list[str]]:
    """Return what a call cost, and what about that is not known."""
    return _priced(usage_of(reply, request.messages, request.tools), request.model, settings)


def _priced(used: CallUsage, model: ResolvedModel, settings: Settings) -> tuple[Usage, list[str]]:
    name = model.name
    cost = price_of(model.settings, used, settings.prices)
    unknown: list[str] = []
    if used.estimated:
        unknown.append(f"{name} reports no usage; tokens are estimated.")
    if cost is None:
        unknown.append(
            f"The price of {name} is not known, so its dollars are not counted. Set it under "
            "[prices] in the configuration, or limit the run by --max-tokens."
        )
    usage = Usage(
        input_tokens=used.input_tokens,
        cached_tokens=used.cached_tokens,
        output_tokens=used.output_tokens,
        model_calls=1,
        cost_usd=cost or 0.0,
    )
    return usage, unknown


def _notice_once(session: Session, emit: Emit, text: str) -> None:
    """Send the person a notice, once per run."""
    session.cached(text, lambda: notice(emit, text, "info"))


def _projector(session: Session) -> Projector:
    return session.cached(Projector, Projector)

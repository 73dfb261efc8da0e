"""The seam through which every model call runs.

limits -> which model -> request (projection) -> send, with retries and streaming -> reply -> usage.
The `wrap_model_call` hooks of middlewares stand around the sending (`model_middleware`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
)
from langchain_core.prompt_values import ChatPromptValue

from openmanus_graph.backends.files.file_kinds import data_url, read_image
from openmanus_graph.backends.models.build import (
    cache_options,
    context_window,
    model_name,
    prepare_model,
    sees_images,
)
from openmanus_graph.backends.models.chunks import checked_message, merged_message
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.models.prices import (
    CallUsage,
    cost_usd,
    estimate_request_tokens,
    last_reported,
    usage_of,
)
from openmanus_graph.backends.models.spec import provider_of
from openmanus_graph.conversation.history import run_messages
from openmanus_graph.conversation.replies import read_reply
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.budget import Reservation, check_limits, near_limits, reserved
from openmanus_graph.model_calls.projection import (
    Pictures,
    Projector,
    picture_paths,
    request_suffix_message,
    with_cache_marks,
)
from openmanus_graph.model_calls.retries import max_retries_of, with_retries
from openmanus_graph.model_calls.storable import storable, with_text_calls
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import (
    LimitReached,
    Progress,
    most_used_limit,
    time_left_s,
)
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import opened_file
from openmanus_graph.state.reducers import Usage, add_usage, no_usage
from openmanus_graph.state.settings import ModelSettings, Settings

EXPECTED_OUTPUT_TOKENS = 500
"""Of a conversation's first call."""


@dataclass(frozen=True)
class LiveState:
    """What a live handle shows now: read for one request, and never stored."""

    heading: str
    """Our words before it."""
    read: Callable[[bool], Awaitable[tuple[str, str | None]]]
    """Returns it as text and, if the model sees (the argument), as a data URL."""
    needs_pictures: bool = False
    """Whether it says next to nothing to a model that does not see."""


@dataclass(frozen=True)
class ProviderRequest:
    """What one model is sent."""

    messages: list[BaseMessage]
    """A system message first, if there is one."""
    tools: Sequence[dict[str, Any]]
    """Definitions, as providers are sent them."""
    chosen: ModelSettings
    model: BaseChatModel
    """The client of `chosen`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Given to the model with this request: `tool_choice` and the like."""


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
    request_suffix: str
    """Stands at the end of this request only."""
    tools: Sequence[dict[str, Any]]
    """Definitions, as providers are sent them."""
    progress: Progress
    step: int
    """Number of the agent's step, for the events."""
    counts_as_step: bool = False
    """Whether it counts towards `max_steps`: an agent's step, or the planner's."""
    live_state: LiveState | None = None
    """What the browser or the desktop shows now; it stands after the request suffix."""
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Waits so many seconds before it is repeated; what it raises ends the call."""
    middleware: ModelMiddleware | None = None
    """Stands around the sending; each request through it is reserved and counted by itself."""
    keeps_reserve: bool = False
    """Whether it leaves what the run keeps for its closing turn."""
    says_what_is_left: bool = False
    """Whether the request says what is left of the limits that are near."""


async def call_model(call: ModelCall, session: Session, emit: Emit) -> tuple[AIMessage, Usage]:
    """Ask the model and return its reply, fit to be stored and sent back, and what it cost.

    Raises:
        LimitReached: The run's limits forbid the call, or its time ended during it.
        ModelError: The call failed for good; holds a sentence for the person.
        ConfigError: The model's settings are wrong.
    """
    next_call = Progress(int(call.counts_as_step), await expected_cost(call, session), 0)
    if call.says_what_is_left:
        call = _with_what_is_left(call, next_call, session.settings)
    requests = _Requests(call, next_call, session, emit)
    if call.middleware is None:
        async with requests.reserve(requests.spent) as reservation:
            send = partial(requests.send_and_count, reservation=reservation)
            reply = await requests.reply(send)
        return reply, requests.spent
    check_limits(call.progress, session.settings, next_call, keeps_reserve=call.keeps_reserve)
    try:
        wrap = call.middleware.wrap_model_call
        reply = await requests.reply(partial(wrap, handler=requests.send_within_limits))
    except (LimitReached, ModelError) as ended:
        ended.spent = await requests.total_spent()
        raise
    return reply, await requests.total_spent()


async def expected_cost(call: ModelCall, session: Session) -> Usage:
    """Estimate what a call will cost, by the last one of the conversation."""
    chosen = session.settings.main
    await prepare_model(chosen)
    tokens = estimate_request_tokens(call.history, call.system, call.request_suffix, call.tools)
    last = last_reported(call.history)
    used = CallUsage(
        input_tokens=tokens,
        cached_tokens=min(tokens, last.input_tokens) if last and last.cached_tokens else 0,
        output_tokens=last.output_tokens if last else EXPECTED_OUTPUT_TOKENS,
    )
    usage, _ = await asyncio.to_thread(_priced, used, chosen, session.settings)
    return usage


def _with_what_is_left(call: ModelCall, next_call: Progress, settings: Settings) -> ModelCall:
    """Return the call with a sentence on what is left, where the run comes near to a limit."""
    near = near_limits(call.progress, settings, next_call)
    if not near:
        return call
    left = render("limit_near", left="; ".join(limit.left_words() for limit in near))
    return replace(call, request_suffix=f"{call.request_suffix}\n\n{left}".strip())


class _Requests:
    """Sends the requests of one model call: one, unless a middleware sends more."""

    def __init__(self, call: ModelCall, next_call: Progress, session: Session, emit: Emit) -> None:
        self._call, self._next_call = call, next_call
        self._session, self._emit = session, emit
        self._attempts = 0
        self.spent = no_usage()

    def reserve(self, spent: Usage) -> AbstractAsyncContextManager[Reservation | None]:
        """Hold back what the next request may cost.

        Args:
            spent: What this model call has cost so far.
        """
        call, settings, next_call = self._call, self._session.settings, self._next_call
        progress = replace(call.progress, usage=add_usage(call.progress.usage, spent))
        if self._attempts:  # a step is counted once, however many requests it sends
            next_call = replace(next_call, steps=0)
        return reserved(
            self._session.key, progress, settings, next_call, keeps_reserve=call.keeps_reserve
        )

    async def send_and_count(
        self, request: ProviderRequest, reservation: Reservation | None
    ) -> AIMessage:
        """Send a request, with retries, and count what it cost."""
        raw = await self._send_with_retries(request)
        account = partial(_account, raw, request, self._session.settings)
        # An estimate reads the whole request.
        reported = raw.usage_metadata and raw.usage_metadata["input_tokens"]
        usage, unknown = account() if reported else await asyncio.to_thread(account)
        self.spent = add_usage(self.spent, usage)
        if reservation is not None:
            reservation.spent = usage
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
        request = await _request(call, self._session, emit)
        emit({"type": "think_start", "step": call.step})
        started = time.monotonic()
        settings = self._session.settings
        clock = asyncio.timeout(
            time_left_s(call.progress, settings, keeps_reserve=call.keeps_reserve)
        )
        try:
            async with clock:
                raw = await send(request)
        except TimeoutError:
            if clock.expired():
                limit = most_used_limit("timeout", call.progress, settings)
                raise LimitReached(limit) from None
            raise
        if not self._is_structured(raw):
            raw = with_text_calls(raw, call.tools, call.history)
        reply = storable(raw, call.history)
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
                "seconds": round(time.monotonic() - started, 3),
            }
        )
        return reply

    def _is_structured(self, reply: AIMessage) -> bool:
        """Say whether a text is the object that the caller wants, whatever its form looks like."""
        wanted = self._session.settings.response_format
        return wanted is not None and read_reply([reply], wanted).kind == "answer"

    async def _send_with_retries(self, request: ProviderRequest) -> AIMessage:
        options = {**cache_options(request.model, self._session.key), **request.options}
        bound: Any = request.model
        if request.tools:
            bound = request.model.bind_tools(request.tools, **options)
        elif options:
            bound = request.model.bind(**options)

        async def attempt() -> AIMessage:
            if self._attempts:  # voids the tokens of the one before
                self._emit({"type": "think_start", "step": self._call.step})
            self._attempts += 1
            return await _stream(bound, request.messages, self._emit)

        return await with_retries(
            attempt,
            notice=lambda text: notice(self._emit, text),
            subject=model_name(request.chosen),
            max_retries=max_retries_of(request.chosen.options),
            sleep=self._call.pause,
        )


async def window_of(settings: Settings) -> int:
    """Return how many tokens a request to the main model may hold."""
    return context_window(await prepare_model(settings.main), settings.main)


async def choose_model(
    shown: Sequence[AnyMessage], call: ModelCall, settings: Settings
) -> tuple[ModelSettings, BaseChatModel]:
    """Return the vision model when this run shows pictures the main model cannot see.

    Args:
        shown: The conversation's messages with pictures.
        call: To be made.
        settings: Name both models.
    """
    main = await prepare_model(settings.main)
    shows_live = call.live_state is not None and call.live_state.needs_pictures
    if settings.vision is None or not (shows_live or _in_this_run(shown, call.history)):
        return settings.main, main
    if sees_images(main, settings.main):
        return settings.main, main
    return settings.vision, await prepare_model(settings.vision)


async def pictures_reach_a_model(settings: Settings) -> bool:
    """Say whether the model that `choose_model` returns for pictures sees them.

    A vision model always does. It is not prepared for this: a run without pictures needs no key
    for it.
    """
    if settings.vision is not None:
        return True
    return sees_images(await prepare_model(settings.main), settings.main)


async def _request(call: ModelCall, session: Session, emit: Emit) -> ProviderRequest:
    shown = _projector(session).pictured(call.history)
    chosen, model = await choose_model(shown, call, session.settings)
    pictures: Pictures | None = None
    if shown and sees_images(model, chosen):
        pictures = await asyncio.to_thread(_pictures, shown, session)
    elif _in_this_run(shown, call.history):
        text = (
            f"{model_name(chosen)} is not known to see pictures, so they are left out. Set "
            "vision_model to one that sees, or [llm] sees_images = true if this one does."
        )
        _notice_once(session, emit, text)
    request_suffix = await _request_suffix(call, sees=sees_images(model, chosen))
    messages = _projector(session).project(
        call.history, system=call.system, request_suffix=request_suffix, pictures=pictures
    )
    name = model_name(chosen)
    stable = None if request_suffix is None else len(messages) - 1
    marked = with_cache_marks(messages, provider_of(chosen), name, stable)
    return ProviderRequest(marked, call.tools, chosen, model)


async def _request_suffix(call: ModelCall, *, sees: bool) -> HumanMessage | None:
    if call.live_state is None:
        return request_suffix_message(call.request_suffix)
    text, picture = await call.live_state.read(sees)
    return request_suffix_message(call.request_suffix, call.live_state.heading, text, picture)


async def _stream(model: BaseChatModel, request: list[BaseMessage], emit: Emit) -> AIMessage:
    chunks: list[AIMessageChunk] = []
    # LangChain would look at each message of a plain list again.
    ready = ChatPromptValue.model_construct(messages=request)
    async for piece in cast("AsyncIterator[AIMessage]", model.astream(ready)):
        whole = None if isinstance(piece, AIMessageChunk) else checked_message(piece)
        if text := (whole or piece).text:
            emit({"type": "token", "text": text})
        if whole is not None:
            return whole  # of a model that does not stream
        chunks.append(cast("AIMessageChunk", piece))
    return merged_message(chunks)


def _account(
    reply: AIMessage, request: ProviderRequest, settings: Settings
) -> tuple[Usage, list[str]]:
    """Return what a call cost, and what about that is not known."""
    return _priced(usage_of(reply, request.messages, request.tools), request.chosen, settings)


def _priced(used: CallUsage, chosen: ModelSettings, settings: Settings) -> tuple[Usage, list[str]]:
    name = model_name(chosen)
    plain = name.partition(":")[2] if isinstance(chosen.model, str) else name
    cost = cost_usd(plain, provider_of(chosen), used, settings.prices, base_url=chosen.base_url)
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


def _in_this_run(shown: Sequence[AnyMessage], history: Sequence[AnyMessage]) -> bool:
    """Say whether a picture belongs to the newest user message or came after it."""
    if not shown:
        return False
    run = history[-len(run_messages(history)) - 1 :]
    return any(message is shown[-1] for message in run)


def _pictures(shown: Sequence[AnyMessage], session: Session) -> Pictures:
    """Load the pictures of a conversation; each once per run."""
    paths = {path for message in shown for path in picture_paths(message)}
    found = {path: _picture(session, path) for path in paths}
    return {path: url for path, url in found.items() if url is not None}


def _picture(session: Session, path: str) -> str | None:
    return session.cached(("picture", path), lambda: _data_url(session, path))


def _data_url(session: Session, path: str) -> str | None:
    try:
        with opened_file(session.workspace, path) as file:
            content = file.read()
    except ToolError:
        content = b""
    image = read_image(content)
    if image is None:
        return None  # removed or spoilt since; the message's text still says what it was
    return data_url(content, image.media_type)

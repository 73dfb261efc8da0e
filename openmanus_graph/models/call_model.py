"""The seam through which every model call runs.

limits -> which model -> request (projection) -> ask, with retries and streaming -> reply -> usage.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
)
from langchain_core.prompt_values import ChatPromptValue

from openmanus_graph.budget import reserved
from openmanus_graph.events import Emit, notice
from openmanus_graph.files.image_header import read_image
from openmanus_graph.history import run_messages
from openmanus_graph.limits import LimitReached, Progress
from openmanus_graph.models.abilities import context_window, sees_images
from openmanus_graph.models.build import model_name, prepare_model
from openmanus_graph.models.caching import with_cache_marks
from openmanus_graph.models.chunks import merged_message
from openmanus_graph.models.identity import provider_of
from openmanus_graph.models.prices import CallUsage, cost_usd, tokens_of, usage_of
from openmanus_graph.models.projection import Pictures, Projector, picture_paths, steering_message
from openmanus_graph.models.retries import max_retries_of, with_retries
from openmanus_graph.models.storable import storable
from openmanus_graph.sessions import Session
from openmanus_graph.settings import ModelSettings, Settings
from openmanus_graph.state.reducers import Usage
from openmanus_graph.tools.toolset import Toolset

EXPECTED_OUTPUT_TOKENS = 500
"""Of a call that is not made yet."""
LiveState = Callable[[bool], Awaitable[tuple[str, str | None]]]


@dataclass(frozen=True)
class ModelCall:
    """What is asked, and on whose account."""

    system: str
    history: Sequence[AnyMessage]
    steering: str
    """Stands at the end of this request only."""
    tools: Toolset
    progress: Progress
    step: int
    counted: bool = False
    """Whether it is a step of an agent, of which there may be a limited number."""
    live: LiveState | None = None
    """Returns what a tool shows now, as text and, if the model sees (the argument), as a data URL;
    it stands after the steering text."""
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Waits so many seconds before it is repeated; what it raises ends the call."""


async def call_model(call: ModelCall, session: Session, emit: Emit) -> tuple[AIMessage, Usage]:
    """Ask the model and return its reply, fit to be stored and sent back, and what it cost.

    Raises:
        LimitReached: The run's limits forbid the call, or its time ended during it.
        ModelError: The call failed for good; holds a sentence for the person.
        ConfigError: The model's settings are wrong.
    """
    expected = partial(_expected, call, session)
    async with reserved(session.key, call.progress, session.settings, expected) as reservation:
        reply, usage = await _called(call, session, emit)
        if reservation is not None:
            reservation.spent = usage
        return reply, usage


async def _expected(call: ModelCall, session: Session) -> Progress:
    """Estimate what a call will cost."""
    chosen = session.settings.main
    await prepare_model(chosen)
    tokens = tokens_of(call.history, call.system, call.steering, call.tools.definitions)
    used = CallUsage(input_tokens=tokens, cached_tokens=0, output_tokens=EXPECTED_OUTPUT_TOKENS)
    usage, _ = await asyncio.to_thread(_priced, used, chosen, session.settings)
    return Progress(int(call.counted), usage, 0)


async def _called(call: ModelCall, session: Session, emit: Emit) -> tuple[AIMessage, Usage]:
    settings = session.settings
    shown = _projector(session).pictured(call.history)
    chosen, model = await choose_model(shown, call, settings)
    request = await _request(shown, call, chosen, model, session, emit)
    emit({"type": "think_start", "step": call.step})
    started = time.monotonic()
    left_s = None if settings.timeout_s is None else settings.timeout_s - call.progress.elapsed_s
    clock = asyncio.timeout(left_s)
    try:
        async with clock:
            raw = await _ask(request, chosen, model, call, emit)
    except TimeoutError:
        if clock.expired():
            raise LimitReached("timeout") from None
        raise
    reply = storable(raw, call.history)
    if reasoning := reply.additional_kwargs.get("reasoning_content"):
        notice(emit, f"Reasoning: {reasoning}", "info")
    account = partial(_account, raw, request, call, chosen, settings)
    # An estimate reads the whole request.
    told = raw.usage_metadata and raw.usage_metadata["input_tokens"]
    usage, unknown = account() if told else await asyncio.to_thread(account)
    for text in unknown:
        _once(session, emit, text)
    emit(
        {
            "type": "think_end",
            "step": call.step,
            "text": reply.text,
            "tool_calls": [
                {"call_id": made["id"], "tool": made["name"], "args": made["args"]}
                for made in reply.tool_calls
            ],
            "usage": usage,
            "seconds": round(time.monotonic() - started, 3),
        }
    )
    return reply, usage


async def window_of(settings: Settings) -> int:
    """Return how many tokens a request to the main model may hold."""
    return context_window(await prepare_model(settings.main), settings.main)


async def choose_model(
    shown: Sequence[AnyMessage], call: ModelCall, settings: Settings
) -> tuple[ModelSettings, BaseChatModel]:
    """Return the vision model when this run holds pictures the main model cannot see.

    Args:
        shown: The conversation's messages with pictures.
        call: What is asked.
        settings: Name both models.
    """
    main = await prepare_model(settings.main)
    if settings.vision is None or not _in_this_run(shown, call.history):
        return settings.main, main
    if sees_images(main, settings.main):
        return settings.main, main
    return settings.vision, await prepare_model(settings.vision)


async def _request(
    shown: Sequence[AnyMessage],
    call: ModelCall,
    chosen: ModelSettings,
    model: BaseChatModel,
    session: Session,
    emit: Emit,
) -> list[BaseMessage]:
    pictures: Pictures | None = None
    if shown and sees_images(model, chosen):
        pictures = await asyncio.to_thread(_pictures, shown, session)
    elif _in_this_run(shown, call.history):
        text = (
            f"{model_name(chosen)} is not known to see pictures, so they are left out. Set "
            "vision_model to one that sees, or [llm] sees_images = true if this one does."
        )
        _once(session, emit, text)
    steering = await _steering(call, sees=sees_images(model, chosen))
    messages = _projector(session).project(
        call.history, system=call.system, steering=steering, pictures=pictures
    )
    name = model_name(chosen)
    stable = None if steering is None else len(messages) - 1
    return with_cache_marks(messages, provider_of(chosen), name, stable)


async def _steering(call: ModelCall, *, sees: bool) -> HumanMessage | None:
    text, picture = ("", None) if call.live is None else await call.live(sees)
    return steering_message("\n\n".join(filter(None, (call.steering, text))), picture)


async def _ask(
    request: list[BaseMessage],
    chosen: ModelSettings,
    model: BaseChatModel,
    call: ModelCall,
    emit: Emit,
) -> AIMessage:
    bound: Any = model.bind_tools(call.tools.definitions) if call.tools.definitions else model
    first = True

    async def attempt() -> AIMessage:
        nonlocal first
        if not first:
            emit({"type": "think_start", "step": call.step})  # voids the tokens of the failed one
        first = False
        return await _stream(bound, request, emit)

    return await with_retries(
        attempt,
        notice=lambda text: notice(emit, text),
        subject=model_name(chosen),
        max_retries=max_retries_of(chosen.options),
        sleep=call.pause,
    )


async def _stream(model: BaseChatModel, request: list[BaseMessage], emit: Emit) -> AIMessage:
    chunks: list[AIMessageChunk] = []
    # LangChain would look at each message of a plain list again.
    ready = ChatPromptValue.model_construct(messages=request)
    async for piece in cast("AsyncIterator[AIMessage]", model.astream(ready)):
        if piece.text:
            emit({"type": "token", "text": piece.text})
        if not isinstance(piece, AIMessageChunk):
            return piece  # a model that does not stream gives its message whole
        chunks.append(piece)
    return merged_message(chunks)


def _account(
    reply: AIMessage,
    request: list[BaseMessage],
    call: ModelCall,
    chosen: ModelSettings,
    settings: Settings,
) -> tuple[Usage, list[str]]:
    """Return what a call cost, and what about that is not known."""
    return _priced(usage_of(reply, request, call.tools.definitions), chosen, settings)


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


def _once(session: Session, emit: Emit, text: str) -> None:
    """Tell the person something, once per run."""
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
    file = session.workspace.root / path
    try:
        content = Path(file).read_bytes()
    except OSError:
        content = b""
    image = read_image(content)
    if image is None:
        return None  # removed or spoilt since; the message's text still says what it was
    return f"data:{image.media_type};base64,{base64.b64encode(content).decode()}"

"""Sends one request to one model: in its server's dialect, with retries, within its rate limit."""

import asyncio
import json
import random as _random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.prompt_values import ChatPromptValue

from openmanus_graph.backends.models.build import (
    cache_options,
    client_parameters,
    without_parameters,
)
from openmanus_graph.backends.models.chunks import checked_message, merged_message
from openmanus_graph.backends.models.dialects import Dialect, Lesson, lessons
from openmanus_graph.backends.models.failures import (
    Failure,
    FailureKind,
    ModelError,
    classify,
    refusal_text,
)
from openmanus_graph.backends.models.resolved import CallForm, ResolvedModel
from openmanus_graph.conversation.history import is_cut_text
from openmanus_graph.conversation.thoughts import SaidStream
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls.constrained import read_step, steps_request
from openmanus_graph.model_calls.fitting import Fitter, sent_request
from openmanus_graph.model_calls.rate_limits import RateLimit
from openmanus_graph.model_calls.recorder import ProviderRequest
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.state.addresses import RedisUrl

MOST_LESSONS = 8
"""For one request: a server that refuses for a new reason each time is not asked for ever."""


class Learning:
    """What was tried so far so that a server takes one request."""

    def __init__(self, request: ProviderRequest, parameters: Collection[str]) -> None:
        """Begin with what is known of the server.

        Args:
            request: As everybody's is.
            parameters: Names of those that the client sends.
        """
        self._model = request.model
        self._parameters = parameters
        self.now = self.lasting = request.model.dialect.now
        self._before: tuple[Dialect, Dialect] | None = None
        self._refusal = ""
        self._tried = set[str]()
        self._forgot = False

    def unlearn(self, **changes: bool) -> None:
        """Note that the server does not do what was asked, though it did not refuse it."""
        self.now, self.lasting = self.now.changed(changes), self.lasting.changed(changes)

    def learn(
        self, error: ModelError, sent: ProviderRequest, notice: Callable[[str], None]
    ) -> None:
        """Change the dialect so that the server may take the request.

        Args:
            error: How the request failed.
            sent: The request, before it was made to fit.
            notice: Tells the person what is changed.

        Raises:
            ModelError: The same, where nothing more can be done.
        """
        text = refusal_text(error)
        if text is None or len(self._tried) >= 2 * MOST_LESSONS:
            raise error
        if text == self._refusal and self._before is not None:
            self.now, self.lasting = self._before  # the last change was not it
        self._refusal, self._before = text, (self.now, self.lasting)
        lesson = self._next(text, sent)
        if lesson is not None:
            self.now = self.now.changed(lesson.changes)
            if lesson.lasts:
                self.lasting = self.lasting.changed(lesson.changes)
            notice(f"{error.sentence} It is asked again: {lesson.words}.")
            return
        known = self._model.dialect.known
        if self._forgot or self.now == known:
            raise error
        self._forgot, self.now, self.lasting = True, known, known
        notice(f"{error.sentence} It is asked again without what was learnt about it before.")

    def _next(self, text: str, sent: ProviderRequest) -> Lesson | None:
        """Return the first change that is new, and that the settings allow."""
        names = map(self.now.name_of, self._parameters)
        for lesson in lessons(text, sent_request(sent, [name for name in names if name])):
            if "tools" in lesson.changes and self._model.settings.tool_calling != "auto":
                continue
            old = {name: _current(self.now, name, new) for name, new in lesson.changes.items()}
            if old != lesson.changes and not self._is_tried(lesson.changes):
                self._tried |= {_key(old), _key(lesson.changes)}
                return lesson
        return None

    def _is_tried(self, changes: Mapping[str, Any]) -> bool:
        return _key(changes) in self._tried


def _current(dialect: Dialect, name: str, new: Any) -> Any:
    """Return a field as it is, of the parameters only those that would change."""
    value = getattr(dialect, name)
    return {key: value.get(key, key) for key in new} if name == "parameters" else value


def _key(changes: Mapping[str, Any]) -> str:
    return json.dumps(changes, sort_keys=True)


T = TypeVar("T")

MAX_RETRIES = 5
MAX_RETRIES_BEFORE_ANOTHER = 2
"""Where another model is asked afterwards, and the person has not set how many."""
RETRIES: dict[FailureKind, int] = {"withheld": 1, "page": 1}
"""Of failures by a filter or a proxy that may be passing, and mostly are not."""
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
LONGEST_WAIT_S, LONGEST_WAIT_BEFORE_ANOTHER_S = 300.0, 20.0
"""A server that asks for a longer pause is not waited for; the latter where another model is asked
instead."""


@dataclass(frozen=True)
class RetryLimits:
    """How often, and how long, a failing model is waited for."""

    max_retries: int = MAX_RETRIES
    """The first attempt is none."""
    longest_wait_s: float = LONGEST_WAIT_S
    """That the server may ask for."""

    @classmethod
    def of(cls, options: Mapping[str, Any], *, has_alternative: bool = False) -> "RetryLimits":
        """Return a model's limits: its option `max_retries` counts if it is set.

        Args:
            options: Of the model's client.
            has_alternative: Whether another model is asked afterwards.

        Raises:
            ConfigError: The option is no number of retries.
        """
        usual = MAX_RETRIES_BEFORE_ANOTHER if has_alternative else MAX_RETRIES
        wanted = options.get("max_retries", usual)
        if not (isinstance(wanted, int) and wanted >= 0):
            raise ConfigError(f"model_options.max_retries must be 0 or more, not {wanted!r}.")
        return cls(wanted, LONGEST_WAIT_BEFORE_ANOTHER_S if has_alternative else LONGEST_WAIT_S)


USUAL_LIMITS = RetryLimits()


async def with_retries(
    call: Callable[[], Awaitable[T]],
    *,
    notice: Callable[[str], None],
    subject: str = "The model",
    limits: RetryLimits = USUAL_LIMITS,
    asked_to_wait: Callable[[float], Awaitable[None]] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    random: Callable[[], float] = _random.random,
) -> T:
    """Call until it works, waiting longer each time, as long as the failures are passing ones.

    Args:
        call: Makes one attempt.
        notice: Called before each pause, with one sentence.
        subject: How sentences name the model.
        limits: How often and how long the model is waited for.
        asked_to_wait: Called with the seconds that the server asks to wait.
        sleep: Waits that many seconds.
        random: A number from 0 to 1; spreads clients that failed together.

    Raises:
        ModelError: The failure does not pass, or the attempts are used up.
    """
    for attempt in range(1, limits.max_retries + 2):
        try:
            return await call()
        except Exception as error:
            failure = classify(error, subject)
            if failure is None:
                raise
            if asked_to_wait is not None and failure.retry_after_s is not None:
                await asked_to_wait(failure.retry_after_s)
            retries = limits.max_retries
            if failure.kind != "retry":
                retries = min(retries, RETRIES.get(failure.kind, 0))
            max_attempts = 1 + retries
            if attempt >= max_attempts:
                tried = "" if attempt == 1 else f" ({attempt} attempts were made.)"
                raise ModelError(failure.kind, failure.sentence + tried) from error
            pause = _pause_s(failure, attempt, random())
            if pause > limits.longest_wait_s:
                sentence = (
                    f"{failure.sentence} The server asks to wait {pause / 60:.0f} minutes, which "
                    "is too long to wait here; resume the run later, or use another model."
                )
                raise ModelError("retry", sentence) from error
        notice(
            f"{failure.event} Attempt {attempt} of {max_attempts}; the next one in {pause:.0f} s."
        )
        await sleep(pause)
    raise ValueError("max_retries must not be negative")


def _pause_s(failure: Failure, attempt: int, spread: float) -> float:
    if failure.retry_after_s is not None:
        # The server's wish is a lower bound; the spread keeps a crowd from returning at once.
        return failure.retry_after_s + spread
    ceiling: float = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (attempt - 1))
    return (1 + spread) / 2 * ceiling


STEP_TOKENS = 1024
"""Of a small model's constrained step at most, by OpenAI's protocol: it may write on for ever."""


@dataclass
class Sender:
    """Sends the requests of one agent step to models."""

    session_key: str
    step: int
    emit: Emit
    sleep: Callable[[float], Awaitable[object]]
    """Waits so many seconds; what it raises ends the call."""
    recorded: Callable[
        [ProviderRequest, Callable[[ProviderRequest], Awaitable[AIMessage]]], Awaitable[AIMessage]
    ]
    """Has a request sent by a function, and keeps the reply on record."""
    fitter: Fitter
    """Of the session."""
    rate_limits_in: RedisUrl | None = None
    """Where other processes count requests and tokens per minute, too."""
    expected_tokens: int = 0
    """Of a request and its reply, for the rate limit."""
    has_alternative: bool = False
    """Whether another model is asked if this one fails."""
    attempts: int = 0
    """How many were made so far."""

    async def send(self, request: ProviderRequest) -> AIMessage:
        """Return the reply.

        Raises:
            ModelError: The call failed for good.
        """
        return await self.recorded(request, self._send_until_taken)

    async def _send_until_taken(self, request: ProviderRequest) -> AIMessage:
        """Send a request, and learn from each refusal, and each odd reply, what its server does."""
        model = request.model
        learning = Learning(request, self._sent_parameters(model))
        while True:
            form = _call_form(request, learning.now)
            asked = _as_steps(request) if form == "constrained" else request
            fitted = self.fitter.fitted(asked, learning.now, as_text=form == "text")
            emit: Emit = _silent if form == "constrained" else self.emit
            try:
                reply = await self._send_with_retries(fitted, learning.now, emit)
            except ModelError as error:
                learning.learn(error, asked, partial(notice, self.emit))
                continue
            step = read_step(reply, request.tools) if form == "constrained" else reply
            if step is None and is_cut_text(reply):  # nothing of it can be read
                step = reply.model_copy(update={"content": ""})
            elif step is None:
                learning.unlearn(constrains=False)
            if "tool_choice" in fitted.options and not (
                reply.tool_calls or reply.invalid_tool_calls
            ):
                learning.unlearn(forces=False)
            await model.dialect.learn(learning.now, learning.lasting)
            return step or reply

    async def _send_with_retries(
        self, request: ProviderRequest, dialect: Dialect, emit: Emit
    ) -> AIMessage:
        model = request.model
        rate_limit = RateLimit.of(model.settings, self.emit, self.rate_limits_in)

        async def attempt() -> AIMessage:
            if rate_limit is not None:
                await rate_limit.wait(self.expected_tokens, model.name, self.sleep)
            if self.attempts:  # voids the tokens of the one before
                self.emit({"type": "think_start", "step": self.step})
            self.attempts += 1
            reply = await _stream(self._bound(request, dialect), request.messages, emit)
            if rate_limit is not None:
                await rate_limit.count(reply, self.expected_tokens)
            return reply

        return await with_retries(
            attempt,
            notice=lambda text: notice(self.emit, text),
            subject=model.name,
            limits=RetryLimits.of(model.settings.options, has_alternative=self.has_alternative),
            sleep=self.sleep,
            asked_to_wait=None if rate_limit is None else rate_limit.hold,
        )

    def _bound(self, request: ProviderRequest, dialect: Dialect) -> Any:
        client = request.model.client
        options = {**cache_options(client, self.session_key), **request.options}
        if isinstance(getattr(client, "dialect", None), Dialect):  # our own, which writes the rest
            options["dialect"] = dialect
        elif dialect.parameters:
            client = without_parameters(client, dialect.parameters)
            options = {key: one for key, one in options.items() if key not in dialect.parameters}
        if request.tools:
            try:
                return client.bind_tools(request.tools, **options)
            except NotImplementedError as error:
                raise ModelError("no_tools", f"{request.model.name} takes no tools.") from error
        return client.bind(**options) if options else client

    def _sent_parameters(self, model: ResolvedModel) -> set[str]:
        """Return the names of what is sent beside the messages."""
        return {*client_parameters(model.client), *cache_options(model.client, self.session_key)}


def _call_form(request: ProviderRequest, dialect: Dialect) -> CallForm:
    """Return how a request asks for calls. One that names its tool, or has none, has no steps."""
    form = request.model.call_form(dialect)
    steps = request.tools and request.options.get("tool_choice", "any") == "any"
    return dialect.tools if form == "constrained" and not steps else form


def _as_steps(request: ProviderRequest) -> ProviderRequest:
    """Return a request for a model that replies by constrained steps."""
    messages, schema = steps_request(
        request.messages, request.tools, request.history, only_answer=request.only_answer
    )
    kept = {key: value for key, value in request.options.items() if key != "tool_choice"}
    if request.model.wire == "ollama":
        options = {**kept, "format": schema}
    else:
        limits = {"max_tokens", "max_completion_tokens"}
        if request.model.is_small and not limits & client_parameters(request.model.client):
            kept["max_tokens"] = STEP_TOKENS
        wanted = {"name": "step", "strict": True, "schema": schema}
        options = {**kept, "response_format": {"type": "json_schema", "json_schema": wanted}}
    return replace(request, messages=messages, tools=(), options=options)


def _silent(event: dict[str, Any]) -> None:
    """Show nothing of a step while it is written: it is JSON."""


async def _stream(model: BaseChatModel, request: list[BaseMessage], emit: Emit) -> AIMessage:
    chunks, unstreamed, said = list[AIMessageChunk](), None, SaidStream()
    # LangChain would look at each message of a plain list again.
    ready = ChatPromptValue.model_construct(messages=request)
    # To its end, though a model that does not stream has only one piece: else the event loop would
    # have to close LangChain's generators.
    async for piece in cast("AsyncIterator[AIMessage]", model.astream(ready)):
        whole = None if isinstance(piece, AIMessageChunk) else checked_message(piece)
        if text := said.add((whole or piece).text):
            emit({"type": "token", "text": text})
        if whole is None:
            chunks.append(cast("AIMessageChunk", piece))
        else:
            unstreamed = whole
    if text := said.rest():
        emit({"type": "token", "text": text})
    return merged_message(chunks) if unstreamed is None else unstreamed

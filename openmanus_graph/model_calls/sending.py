"""Sends one request to one model: in its server's dialect, with retries, within its rate limit."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.prompt_values import ChatPromptValue

from openmanus_graph.backends.models.build import (
    cache_options,
    client_parameters,
    without_parameters,
)
from openmanus_graph.backends.models.chunks import checked_message, merged_message
from openmanus_graph.backends.models.dialects import Dialect
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.models.resolved import CallForm, ResolvedModel
from openmanus_graph.conversation.history import is_cut_text
from openmanus_graph.conversation.thoughts import SaidStream
from openmanus_graph.model_calls.constrained import read_step, steps_request
from openmanus_graph.model_calls.fitting import Fitter
from openmanus_graph.model_calls.learning import Learning
from openmanus_graph.model_calls.provider_request import ProviderRequest
from openmanus_graph.model_calls.rate_limits import RateLimit
from openmanus_graph.model_calls.retries import RetryLimits, with_retries
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.state.storage_urls import RedisUrl

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

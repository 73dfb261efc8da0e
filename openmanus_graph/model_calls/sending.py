"""Sends one request to one model: retries, its rate limit, and calls as text if it needs that."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.prompt_values import ChatPromptValue

from openmanus_graph.backends.models.build import cache_options, model_name
from openmanus_graph.backends.models.chunks import checked_message, merged_message
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.model_calls.rate_limits import RateLimit
from openmanus_graph.model_calls.retries import RetryLimits, with_retries
from openmanus_graph.model_calls.text_protocol import (
    note_text_only,
    tools_as_text,
    turns_as_text,
    writes_calls_as_text,
)
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.storage_urls import RedisUrl


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
    rate_limits_in: RedisUrl | None = None
    """Where other processes count requests and tokens per minute, too."""
    expected_tokens: int = 0
    """Of a request and its reply, for the rate limit."""
    has_alternative: bool = False
    """Whether another model is asked if this one fails."""
    attempts: int = 0
    """How many were made so far."""

    async def send(self, request: ProviderRequest) -> tuple[AIMessage, ProviderRequest]:
        """Return the reply, and the request as it was sent.

        Raises:
            ModelError: The call failed for good.
        """
        chosen = request.chosen
        if not writes_calls_as_text(chosen):
            try:
                return await self.recorded(request, self._send_with_retries), request
            except ModelError as error:
                if error.kind != "no_tools" or chosen.tool_calling != "auto" or not request.tools:
                    raise
                note_text_only(chosen)
                text = f"{error.sentence} It is asked to write its calls as text instead."
                notice(self.emit, text)
        text_request = _as_text(request)
        return await self.recorded(text_request, self._send_with_retries), text_request

    async def _send_with_retries(self, request: ProviderRequest) -> AIMessage:
        chosen, subject = request.chosen, model_name(request.chosen)
        rate_limit = RateLimit.of(chosen, self.emit, self.rate_limits_in)

        async def attempt() -> AIMessage:
            if rate_limit is not None:
                await rate_limit.wait(self.expected_tokens, subject, self.sleep)
            if self.attempts:  # voids the tokens of the one before
                self.emit({"type": "think_start", "step": self.step})
            self.attempts += 1
            reply = await _stream(self._bound(request), request.messages, self.emit)
            if rate_limit is not None:
                await rate_limit.count(reply, self.expected_tokens)
            return reply

        return await with_retries(
            attempt,
            notice=lambda text: notice(self.emit, text),
            subject=subject,
            limits=RetryLimits.of(chosen.options, has_alternative=self.has_alternative),
            sleep=self.sleep,
            asked_to_wait=None if rate_limit is None else rate_limit.hold,
        )

    def _bound(self, request: ProviderRequest) -> Any:
        options = {**cache_options(request.model, self.session_key), **request.options}
        if request.tools:
            try:
                return request.model.bind_tools(request.tools, **options)
            except NotImplementedError as error:
                name = model_name(request.chosen)
                raise ModelError("no_tools", f"{name} takes no tools.") from error
        return request.model.bind(**options) if options else request.model


def _as_text(request: ProviderRequest) -> ProviderRequest:
    """Return a request for a model that writes its calls as text."""
    options = {key: value for key, value in request.options.items() if key != "tool_choice"}
    messages = tools_as_text(turns_as_text(request.messages), request.tools)
    return replace(request, messages=messages, tools=(), options=options)


async def _stream(model: BaseChatModel, request: list[BaseMessage], emit: Emit) -> AIMessage:
    chunks, unstreamed = list[AIMessageChunk](), None
    # LangChain would look at each message of a plain list again.
    ready = ChatPromptValue.model_construct(messages=request)
    # To its end, though a model that does not stream has only one piece: else the event loop would
    # have to close LangChain's generators.
    async for piece in cast("AsyncIterator[AIMessage]", model.astream(ready)):
        whole = None if isinstance(piece, AIMessageChunk) else checked_message(piece)
        if text := (whole or piece).text:
            emit({"type": "token", "text": text})
        if whole is None:
            chunks.append(cast("AIMessageChunk", piece))
        else:
            unstreamed = whole
    return merged_message(chunks) if unstreamed is None else unstreamed

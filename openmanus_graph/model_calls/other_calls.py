"""Counting model calls that are made past `call_model`: a middleware may ask a model by itself.

They are seen by a LangChain callback. Their cost is the run's, so the next call is refused where
they have used up what it may cost.
"""

import asyncio
import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from functools import partial
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tracers.context import register_configure_hook
from typing_extensions import override

from openmanus_graph.backends.models.prices import CallUsage, cost_usd, usage_of
from openmanus_graph.backends.models.spec import ALIASES
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.reducers import Usage, add_usage, no_usage

_counter: ContextVar["OtherCalls | None"] = ContextVar("openmanus_other_calls", default=None)
register_configure_hook(_counter, inheritable=True)


class OtherCalls(BaseCallbackHandler):
    """The model calls that were made meanwhile by others than us."""

    def __init__(self) -> None:
        self._requests: dict[UUID, tuple[str, str, list[BaseMessage]]] = {}
        self._made: list[tuple[str, str, CallUsage]] = []
        self._spent = no_usage()

    @override
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        told = metadata or {}
        provider, name = str(told.get("ls_provider", "")), str(told.get("ls_model_name", ""))
        self._requests[run_id] = (ALIASES.get(provider, provider), name, messages[0])

    @override
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        provider, name, request = self._requests.pop(run_id, ("", "", []))
        generation = response.generations[0][0] if response.generations else None
        message = generation.message if isinstance(generation, ChatGeneration) else None
        if isinstance(message, AIMessage):
            self._made.append((provider, name, usage_of(message, request)))

    async def spent(self, session: Session, emit: Emit) -> Usage:
        """Return what the calls so far cost. An unknown price is told to the person, once a run."""
        while self._made:
            provider, name, used = self._made.pop(0)
            # The list of prices is read when it is first needed.
            prices = session.settings.prices
            cost = await asyncio.to_thread(cost_usd, name, provider, used, prices)
            if cost is None:
                text = f"The price of {name or 'a model'} is not known; its dollars do not count."
                session.cached(text, partial(notice, emit, text, "info"))
            usage = Usage(
                input_tokens=used.input_tokens,
                cached_tokens=used.cached_tokens,
                output_tokens=used.output_tokens,
                model_calls=1,
                cost_usd=cost or 0.0,
            )
            self._spent = add_usage(self._spent, usage)
        return self._spent


@contextlib.contextmanager
def counting_other_calls() -> Generator[OtherCalls]:
    """Count the model calls that are made meanwhile, in other threads too."""
    calls = OtherCalls()
    token = _counter.set(calls)
    try:
        yield calls
    finally:
        _counter.reset(token)


@contextlib.contextmanager
def not_counting() -> Generator[None]:
    """Leave the calls that are made meanwhile out: they are counted elsewhere."""
    token = _counter.set(None)
    try:
        yield
    finally:
        _counter.reset(token)

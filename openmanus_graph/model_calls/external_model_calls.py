"""Counts external model calls: those that a middleware, tool or node makes past `call_model`.

They are seen by a LangChain callback. Their cost is the run's, so the next call is refused where
they have used up what it may cost. Calls without LangChain are not seen.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Generator
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tracers.context import register_configure_hook
from langgraph.config import get_config, get_stream_writer
from langgraph.types import Command
from typing_extensions import override

from openmanus_graph.backends.models.prices import CallUsage, cost_usd, usage_of
from openmanus_graph.backends.models.spec import ALIASES
from openmanus_graph.model_calls.budget import shared_budget
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import running_session
from openmanus_graph.state.reducers import Usage, add_usage, no_usage

_counter: ContextVar["ExternalModelCalls | None"] = ContextVar(
    "openmanus_external_model_calls", default=None
)
register_configure_hook(_counter, inheritable=True)
_counted_elsewhere: ContextVar[tuple["ExternalModelCalls", ...]] = ContextVar(
    "openmanus_counted_elsewhere", default=()
)
"""Counters that the running code has inherited, and whose calls something else counts."""


class ExternalModelCalls(BaseCallbackHandler):
    """The external model calls of some code, as a LangChain callback."""

    run_inline = True  # else each token of a reply would go through a thread

    def __init__(self) -> None:
        self._requests: dict[UUID, tuple[str, str, list[BaseMessage]]] = {}
        self._uncounted: list[tuple[str, str, CallUsage]] = []
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
        self._begin(run_id, messages[0], metadata)

    @override
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._begin(run_id, [HumanMessage(prompts[0])], metadata)

    def _begin(
        self, run_id: UUID, request: list[BaseMessage], metadata: dict[str, Any] | None
    ) -> None:
        if self in _counted_elsewhere.get():
            return
        known = metadata or {}
        provider, name = str(known.get("ls_provider", "")), str(known.get("ls_model_name", ""))
        self._requests[run_id] = (ALIASES.get(provider, provider), name, request)

    @override
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        started = self._requests.pop(run_id, None)
        if started is None or not response.generations:
            return
        provider, name, request = started
        found: Any = response.generations[0][0]
        message = found.message if isinstance(found, ChatGeneration) else AIMessage(found.text)
        if isinstance(message, AIMessage):
            self._uncounted.append((provider, name, usage_of(message, request)))

    async def spent(self, session: Session, emit: Emit) -> Usage:
        """Return what the calls so far cost. An unknown price is a notice, once a run."""
        while self._uncounted:
            provider, name, used = self._uncounted.pop(0)
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
            if (budget := shared_budget()) is not None:
                budget.count(session.key, usage)
        return self._spent


@contextlib.contextmanager
def counting_external_calls() -> Generator[ExternalModelCalls]:
    """Count the external model calls inside the block, in other threads too."""
    calls = ExternalModelCalls()
    token = _counter.set(calls)
    try:
        yield calls
    finally:
        _counter.reset(token)


def with_external_usage(node: Callable[..., Any]) -> Callable[..., Any]:
    """Add the usage of a caller's own node to its update. It keeps its name and parameters."""

    @wraps(node)
    async def counting_node(*args: Any, **kwargs: Any) -> Any:
        session, emit = running_session(get_config()), get_stream_writer()
        with counting_external_calls() as calls:
            if inspect.iscoroutinefunction(node):
                update = await node(*args, **kwargs)
            else:
                update = await asyncio.to_thread(node, *args, **kwargs)
        usage = await calls.spent(session, emit) if session else no_usage()
        if not usage["model_calls"]:
            return update
        updates = cast("list[Any]", update) if isinstance(update, list) else [update]
        return [*updates, Command(update={"usage": usage})]

    return counting_node


@contextlib.contextmanager
def exclude_from_external_calls() -> Generator[None]:
    """Leave out the calls inside the block, which are counted elsewhere."""
    counter = _counter.get()
    left_out = (*_counted_elsewhere.get(), *([counter] if counter else []))
    token, around = _counter.set(None), _counted_elsewhere.set(left_out)
    try:
        yield
    finally:
        _counter.reset(token)
        _counted_elsewhere.reset(around)

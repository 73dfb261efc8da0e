"""One budget for a whole tree of runs: each model call is reserved before it is made.

A call is made only if its possible cost fits into what is left. Parallel steps of a plan spend from
the same budget, so the reservations of others count.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
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
from openmanus_graph.backends.persistence.usage import CountedCall, run_usage
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import Limit, LimitReached, Progress, reached_limit, run_limits
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import running_session
from openmanus_graph.safety.openings import SharedOpenings
from openmanus_graph.state.manus import Usage, add_usage, no_usage
from openmanus_graph.state.settings import Settings

_budget: ContextVar["SharedBudget | None"] = ContextVar("openmanus_budget", default=None)


@dataclass
class Reservation:
    progress: Progress
    spent: Usage | None = None
    """None if it failed."""


class SharedBudget:
    """What the runs of a tree have spent, and what they are about to spend.

    `before` is the flow's progress before these runs. `openings` counts the links that it had
    opened, by site, on sites that the person did not name.
    """

    def __init__(
        self, settings: Settings, before: Progress, openings: Mapping[str, int] | None = None
    ) -> None:
        self.openings = SharedOpenings(openings or {})
        self._settings = settings
        self._spent = before
        self._started = time.monotonic()
        self._known: set[str] = set()
        self._open: list[Reservation] = []
        self._changed = asyncio.Condition()
        """Notified when a reservation ends."""

    def count_earlier(self, run: str, progress: Progress) -> None:
        """Count what a run had spent in an earlier process. Once for each run."""
        if run not in self._known:
            self._known.add(run)
            self._spent = self._spent.plus(progress)

    def count(self, run: str, usage: Usage) -> None:
        """Count calls of a run that were made without a reservation.

        A run that `count_earlier` has not counted yet is left out: its count will include them.
        """
        if run in self._known:
            self._spent = self._spent.plus(Progress(0, usage, 0))

    @contextlib.asynccontextmanager
    async def reserve(self, next_call: Progress) -> AsyncGenerator[Reservation]:
        """Reserve what a call may cost. Waits while running calls decide whether it fits.

        LimitReached: it does not fit into what is left.
        """
        async with self._changed:
            while self._must_wait(next_call):
                await self._changed.wait()
            reservation = Reservation(next_call)
            self._open.append(reservation)
        try:
            yield reservation
        finally:
            self._open.remove(reservation)
            if reservation.spent is not None:
                self._spent = self._spent.plus(replace(next_call, usage=reservation.spent))
            await asyncio.shield(self._notify())

    def limits(self, next_call: Progress) -> list[Limit]:
        return run_limits(self._counted(self._spent), self._settings, next_call)

    def _must_wait(self, next_call: Progress) -> bool:
        check_limits(self._counted(self._spent), self._settings, next_call)
        spent = self._spent
        for reservation in self._open:
            spent = spent.plus(reservation.progress)
        limit = reached_limit(self._counted(spent), self._settings, next_call)
        return bool(self._open) and limit is not None  # else the wait would never end

    def _counted(self, spent: Progress) -> Progress:
        elapsed_s = spent.elapsed_s + time.monotonic() - self._started
        steps = spent.steps if self._settings.max_steps_set else 0
        return Progress(steps, spent.usage, elapsed_s)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@contextlib.contextmanager
def sharing(budget: SharedBudget) -> Generator[None]:
    """Have all model calls inside the block, however deep, spend from a budget."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def shared_budget() -> SharedBudget | None:
    return _budget.get()


def keeps_summary_reserve(steps: int) -> bool:
    """Return True if a run that has taken so many steps reserves budget for its final summary.

    Before the first step there is nothing to sum up. A part of a tree ends without a summary.
    """
    return steps > 0 and shared_budget() is None


@contextlib.asynccontextmanager
async def reserved(
    run: str,
    progress: Progress,
    settings: Settings,
    next_call: Progress,
    *,
    keeps_reserve: bool = False,
) -> AsyncGenerator[Reservation | None]:
    """Reserve a model call within the limits of its run and of the tree around it.

    With `keeps_reserve` it leaves the budget of the final summary untouched. LimitReached: a limit
    forbids it.
    """
    budget = shared_budget()
    if budget is None:
        check_limits(progress, settings, next_call, keeps_reserve=keeps_reserve)
        yield None
        return
    budget.count_earlier(run, progress)
    async with budget.reserve(next_call) as reservation:
        check_limits(progress, settings, next_call)
        yield reservation


def near_limits(progress: Progress, settings: Settings, next_call: Progress) -> list[Limit]:
    """Return the limits that a run, or the tree around it, is near to."""
    budget = shared_budget()
    own = run_limits(progress, settings, next_call)
    around = [] if budget is None else budget.limits(next_call)
    return list({one.setting: one for one in (*own, *around) if one.is_near()}.values())


def check_limits(
    progress: Progress, settings: Settings, next_call: Progress, *, keeps_reserve: bool = False
) -> None:
    """Raise LimitReached if a run's own limits forbid a model call. Arguments as of `reserved`."""
    limit = reached_limit(progress, settings, next_call, keeps_reserve=keeps_reserve)
    if limit is not None:
        raise LimitReached(limit)


_counter: ContextVar["ExternalModelCalls | None"] = ContextVar(
    "openmanus_external_model_calls", default=None
)
register_configure_hook(_counter, inheritable=True)
_counted_elsewhere: ContextVar[tuple["ExternalModelCalls", ...]] = ContextVar(
    "openmanus_counted_elsewhere", default=()
)
"""Inherited counters that ignore the running code's calls, which are counted elsewhere."""


class ExternalModelCalls(BaseCallbackHandler):
    """Counts model calls that code makes without `call_model`, as a LangChain callback."""

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
        while self._uncounted:
            provider, name, used = self._uncounted.pop(0)
            # The list of prices is read when it is first needed.
            prices = session.settings.prices
            cost = await asyncio.to_thread(cost_usd, name, provider, used, prices)
            if cost is None:
                text = f"The price of {name or 'a model'} is not known; its dollars do not count."
                session.cached(text, partial(notice, emit, text, "info"))
            usage = used.counted(cost)
            self._spent = add_usage(self._spent, usage)
            if (budget := shared_budget()) is not None:
                budget.count(session.key, usage)
            (await run_usage(session)).add(CountedCall(name or "unknown", usage))
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
    """Add the usage of a caller's node to its update. It keeps its name and parameters."""

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

"""The protocol by which a tool call takes effect once, for `run_call` and `EffectLedger`.

Look the call up, record its intent, run it, record its outcome. A call that a crash cut off is
settled before it can run again. The table itself is `backends.persistence.ledger`.
"""

import json
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from langgraph.errors import GraphBubbleUp, is_invalid_resume

from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger, LedgerEntry
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.context import Effect
from openmanus_graph.state.interrupts import unknown_outcome_request
from openmanus_graph.state.tool_traits import Observation, Reconcile
from openmanus_graph.tool_calls.questions import Questions

T = TypeVar("T")
log = logging.getLogger(__name__)
RAN_IN_PART = (
    "{} was cut off while it ran, and may have run in part or in full. Look at what is there "
    "before you repeat it."
)
EXCEPTION_CHARS = 4000
"""Characters kept of an exception's text."""


@dataclass
class LedgerCall:
    """One execution of a tool call in the ledger."""

    key: EffectKey
    call_id: str
    """The model's."""
    ledger: Ledger | None
    """None without a checkpointer: nothing is recorded."""
    questions: Questions
    effect: Effect
    reconcile: Reconcile | None
    idempotency_key: str
    """The other side knows the call by it. All executions of a call have the same."""
    is_open: Callable[[], bool] = lambda: False
    """Returns whether this process holds the call open: it has begun, and ends with the process."""
    begun: bool = False
    """Whether the intent, or more, is recorded."""

    async def look_up(self, args: Mapping[str, Any], *, begin: bool) -> LedgerEntry | None:
        """Return what is recorded of the call; None for a new one.

        With `begin`, the intent of a new call is recorded at the same time.
        """
        if self.ledger is None:
            return None
        if not begin:
            return await self.ledger.find(self.key)
        entry = await self.ledger.begin(self.key, args, self.call_id)
        self.begun = entry is None
        return entry

    async def settle(
        self, args: Mapping[str, Any], entry: LedgerEntry | None
    ) -> Observation | None:
        """Return the outcome of a call that was begun, as far as it can be found out.

        The other side is asked first. If it cannot tell, a person decides about an external call,
        and the model is asked to look at the files itself. None: the call has to run again.
        """
        if (known := await self._ask_other_side(args)) is not None:
            return Observation(known)
        if entry is None:
            return None
        if self.effect != "external":
            if entry.stage == "done":
                return None  # it raised, in this process or another
            return Observation(RAN_IN_PART.format(self.key.tool), failed=True)
        request = unknown_outcome_request(self.key.tool, entry.args, self.call_id)
        name = f"unknown outcome {entry.attempts}"
        decision = await self.questions.decide(self.key, name, request)
        if decision.type == "approve":
            return None
        if decision.type == "respond":
            return Observation(decision.message)
        left = f"{self.key.tool} was cut off while it ran; a person decided not to repeat it."
        return Observation(f"{left} {decision.message}".rstrip(), failed=True)

    async def _ask_other_side(self, args: Mapping[str, Any]) -> str | None:
        if self.reconcile is None:
            return None
        try:
            found = await self.reconcile(dict(args), self.idempotency_key)
        except Exception:  # a person can still be asked
            log.warning("the outcome of a call of %s was not found", self.key.tool, exc_info=True)
            return None
        return found if found is None or isinstance(found, str) else json.dumps(found, default=str)

    async def intend(self, args: Mapping[str, Any]) -> None:
        """Record what is about to run, unless that is done."""
        if self.ledger is not None and not self.begun:
            await self.ledger.intend(self.key, args, self.call_id)

    async def run(self, args: Mapping[str, Any], tool: Callable[[], Awaitable[T]]) -> T:
        """Run the tool with the answers to its questions.

        A call that asks a person, or was never started, is recorded as waiting: its outcome is not
        unknown.
        """
        try:
            return await self.questions.run_with_answers(self.key, tool)
        except Exception as error:
            waits = isinstance(error, GraphBubbleUp | ConfigError) or is_invalid_resume(error)
            if waits and self.ledger is not None and not self.is_open():
                await self.ledger.wait(self.key, args)
            raise

    async def conclude(self, args: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        if self.ledger is not None:
            await self.ledger.conclude(self.key, args, outcome)


def exception_record(error: Exception) -> tuple[str, str]:
    cls = type(error)
    return f"{cls.__module__}:{cls.__qualname__}", str(error)[:EXCEPTION_CHARS]


def exception_of(record: tuple[str, str]) -> Exception:
    """Return an exception like the recorded one.

    It has the same type if this process has loaded it, since retries depend on the type; else it is
    a `RuntimeError`.
    """
    address, text = record
    module, _, name = str(address).partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        # Without `getattr`, by which a module may load another one.
        found = getattr(found, "__dict__", {}).get(part)
    plain = isinstance(found, type) and issubclass(found, Exception)
    if plain and not issubclass(found, GraphBubbleUp):  # what steers the graph is never stored
        made = cast("type[Exception]", found)
        error = made.__new__(made)  # its constructor may want more than a text
        error.args = (text,)
        return error
    return RuntimeError(f"{name}: {text}")

"""Asking people from within a task that may run again from its start.

LangGraph matches answers to `interrupt()` calls by their position within a task. A call whose
outcome stands in the ledger is skipped when its chain runs again, and every later question would
then get the answer of the one before it. So the ledger remembers each question's position.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt

from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger
from openmanus_graph.runtime.run_observer import step_of
from openmanus_graph.state.interrupts import Decision, allowed_decisions, read_decision


class Questions:
    """The questions of one execution of a task."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._position = -1

    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        """Return the answer to a question, or pause the run until there is one.

        Args:
            key: The call that asks.
            name: Tells the call's questions apart.
            request: What the person is shown.
        """
        if step := step_of(get_config()):
            request = {**request, "plan_step": step}
        if self._ledger is None:
            return interrupt(request)
        asked_at = await self._ledger.asked_at(key, name)
        while True:
            self._position += 1
            try:
                value = interrupt(request)
            except GraphInterrupt:
                await self._ledger.ask(key, name, self._position)
                raise
            # Other values answer questions of calls that are done. A question that was never
            # asked has no answer, whatever comes back.
            if self._position == asked_at:
                return value

    async def decide(
        self,
        key: EffectKey,
        name: str,
        request: Mapping[str, Any],
        objection: Callable[[Decision], Awaitable[str]] | None = None,
    ) -> Decision:
        """Return a decision on a call; an answer that is none is asked for again.

        Args:
            key: The call that asks.
            name: Tells the call's questions apart.
            request: What the person is shown.
            objection: Says why a decision cannot be carried out; empty if it can.
        """
        allowed = allowed_decisions(request)
        shown, tries = dict(request), 0
        while True:
            decision = read_decision(await self.ask(key, f"{name} {tries}", shown))
            problem = f"That was no decision ({', '.join(allowed)})."
            if decision is not None and decision.type in allowed:
                problem = await objection(decision) if objection else ""
                if not problem:
                    return decision
            tries += 1
            shown["question"] = f"{problem} {request['question']}"

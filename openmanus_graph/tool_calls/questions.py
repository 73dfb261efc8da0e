"""Asking people from within a task that may run again from its start.

A call whose outcome stands in the ledger is skipped when its chain runs again, and with it its
questions. So the ledger remembers the place of each question among the answers of its task.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.types import interrupt

from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger
from openmanus_graph.runtime.run_observer import step_of
from openmanus_graph.runtime.task_answers import TaskAnswers
from openmanus_graph.state.interrupts import Decision, allowed_decisions, read_decision

T = TypeVar("T")


class Questions:
    """The questions of one execution of a task."""

    def __init__(self, ledger: Ledger | None, config: RunnableConfig | None = None) -> None:
        """Begin.

        Args:
            ledger: Remembers their places; None where nothing is saved.
            config: Of the node, with a ledger.
        """
        self._ledger = ledger
        self._answers = TaskAnswers(config) if ledger and config else None

    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        """Return the answer to a question, or pause the run until there is one.

        Args:
            key: The call that asks.
            name: Tells the call's questions apart.
            request: What the person is shown.
        """
        if step := step_of(get_config()):
            request = {**request, "plan_step": step}

        async def put() -> Any:
            return interrupt(request)

        return await self.answered(key, put, name)

    async def answered(
        self, key: EffectKey, ask: Callable[[], Awaitable[T]], name: str = "interrupt"
    ) -> T:
        """Run what may ask by `interrupt()`, with the answers to what it asked before.

        Args:
            key: The call that it belongs to.
            ask: A tool or a hook, which must be fit to run again up to its question.
            name: Tells the call's questions apart, together with their number.
        """
        answers, ledger = self._answers, self._ledger
        if answers is None or ledger is None:
            return await ask()
        before = await ledger.asked(key) if answers.places else {}
        known: list[int] = []
        while (place := before.get(_numbered(name, len(known)))) is not None:
            known.append(place)

        async def asked(places: list[int]) -> None:
            for number, place in enumerate(places):
                if before.get(_numbered(name, number)) != place:
                    await ledger.ask(key, _numbered(name, number), place)

        return await answers.answered(ask, known, asked=asked)

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


def _numbered(name: str, number: int) -> str:
    return f"{name} ({number})" if number else name

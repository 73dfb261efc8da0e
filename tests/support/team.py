"""Steps of plans that meet, wait and fail as a test wants it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from tests.support.limits import BACKSTOP_S
from tests.support.planning import step_of

Work = Callable[[], Awaitable[str | None]]
"""Returns what a step answers; None for its usual answer."""


class Team:
    """An executor for all steps: somebody else's graph, whose work is a function by step."""

    def __init__(self, **work: Work) -> None:
        self.work: Mapping[str, Work] = work
        self.begun: list[str] = []
        self._reached: dict[str, asyncio.Event] = {}

    def reached(self, name: str) -> asyncio.Event:
        return self._reached.setdefault(name, asyncio.Event())

    async def until(self, *names: str) -> None:
        """Wait until these steps have begun."""
        async with asyncio.timeout(BACKSTOP_S):
            for name in names:
                await self.reached(name).wait()

    def graph(self) -> Any:
        async def do(state: MessagesState) -> dict[str, Any]:
            step = step_of(state["messages"])
            self.begun.append(step)
            self.reached(step).set()
            work = self.work.get(step)
            said = await work() if work else None
            return {"messages": [AIMessage(said or f"result of {step}")]}

        builder = StateGraph(MessagesState)
        builder.add_node("do", do)
        builder.add_edge(START, "do")
        builder.add_edge("do", END)
        return builder.compile()


def step(name: str, *needs: str) -> dict[str, Any]:
    return {"id": name, "text": f"do {name}", "depends_on": list(needs)}

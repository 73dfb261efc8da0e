"""An agent whose code can call tools, and what these did."""

import asyncio
import json
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import build_manus_graph, manus_tool
from openmanus_graph.tools.closing import ask_human
from openmanus_graph.tools.execution import python_execute
from tests.support.graphs import Ran, calls, run_graph, scripted

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


class Office:
    """An agent with Python and tools that its code can call, and what these did."""

    def __init__(self, *replies: Any, **context: Any) -> None:
        self.posted: list[str] = []
        self.sent: list[str] = []
        self.failing: set[str] = set()
        self.under_way = asyncio.Event()
        self.go = asyncio.Event()

        @manus_tool(effect="external", approval=False, sends_to=())
        def post(row: str) -> str:
            """Post a row.

            Args:
                row: Its text.
            """
            if row in self.failing:
                self.failing.discard(row)
                raise ValueError("busy")
            self.posted.append(row)
            return json.dumps({"row": row, "number": len(self.posted)})

        @manus_tool(effect="external", sends_to=("to",))
        def send(to: str, text: str = "hello") -> str:
            """Send a mail.

            Args:
                to: Address.
                text: Its text.
            """
            self.sent.append(to)
            return f"sent to {to}"

        @manus_tool(effect="read_only", untrusted=True)
        def look(name: str, size: int = 1) -> str:
            """Look something up.

            Args:
                name: What.
                size: How much.
            """
            return f"<{name}>" * size

        @manus_tool(effect="read_only", timeout_s=None)
        async def wait(name: str) -> str:
            """Wait."""
            self.under_way.set()
            await self.go.wait()
            return name

        @manus_tool(effect="external", approval=False, sends_to=(), timeout_s=None)
        async def hang(row: str) -> str:
            """Post a row, and never return.

            Args:
                row: Its text.
            """
            self.posted.append(row)
            return await asyncio.Event().wait() and ""

        self.model = scripted(*replies, "done")
        self.graph = build_manus_graph(
            tools=[python_execute, post, send, look, wait, hang, ask_human],
            checkpointer=InMemorySaver(),
        )
        self.context = context

    async def go_on(self, task: Any = "the task") -> Ran:
        return await run_graph(
            self.graph, model=self.model, config=CONFIG, task=task, **self.context
        )

    async def open(self) -> dict[str, dict[str, Any]]:
        state = await self.graph.aget_state(CONFIG)
        return {one.id: one.value for one in state.interrupts}

    async def answer(self, decision: str = "approve") -> Ran:
        return await self.go_on(Command(resume=dict.fromkeys(await self.open(), decision)))


def cell(code: str, **args: Any) -> AIMessage:
    return calls(("python_execute", {"code": code, **args}))

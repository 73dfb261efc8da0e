"""An agent of LangChain's or deepagents' that pays, a line of a file each, and is killed somewhere.

`python -m tests.support.effect_app FOLDER '{"kind": ..., "kill": ...}'` runs it or goes on with it,
and prints what came of it as JSON.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import InjectedToolArg, tool
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from openmanus_graph.middleware import EffectLedger
from openmanus_graph.testing import ScriptedChatModel

ORDERS = (("a", "b"), ("b",), ("c",))
"""What the agent pays, turn by turn; b twice."""


class Shop:
    """The other side: a file with a line for each payment."""

    def __init__(self, folder: Path, kill: str) -> None:
        self.path, self.kill = folder / "payments", kill
        self.timeouts = 0

    def at(self, moment: str) -> None:
        """Kill this process if it was to die at this moment, and has not before."""
        marker = self.path.with_name("killed")
        if moment == self.kill and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def lines(self) -> list[str]:
        return self.path.read_text().split("\n")[:-1] if self.path.exists() else []

    def pay(self, order: str, key: str) -> str:
        number = 1 + sum(line.startswith(order) for line in self.lines())
        self.at(f"before {order}{number}")
        with self.path.open("a") as file:
            file.write(f"{order} {key}\n")
        self.at(f"after {order}{number}")
        if self.timeouts:
            self.timeouts -= 1
            raise TimeoutError("no reply, though it took place")
        return f"paid {order}"

    async def known(self, args: dict[str, Any], key: str) -> str | None:
        return f"paid {args['order']}" if f"{args['order']} {key}" in self.lines() else None


def payer(shop: Shop) -> Any:
    @tool
    async def pay(order: str, idempotency_key: Annotated[str, InjectedToolArg]) -> str:
        """Pay for an order.

        Args:
            order: Which.
            idempotency_key: Of this payment.
        """
        return shop.pay(order, idempotency_key)

    return pay


def brain(messages: list[BaseMessage]) -> AIMessage | str:
    """Pay the next orders, by how many turns have their results."""
    turns = sum(isinstance(one, AIMessage) for one in messages)
    if turns == len(ORDERS):
        return "All is paid."
    calls = [
        {"name": "pay", "args": {"order": order}, "id": f"{turns}-{place}"}
        for place, order in enumerate(ORDERS[turns])
    ]
    return AIMessage("", tool_calls=calls)


class KilledAfterCalls(AgentMiddleware):
    """Kills the process when a call's result is written down, and before the model is asked."""

    def __init__(self, shop: Shop) -> None:
        super().__init__()
        self.shop = shop

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        result = await handler(request)
        self.shop.at(f"done {request.tool_call['id']}")
        return result

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.shop.at(f"asked {sum(isinstance(one, AIMessage) for one in request.messages)}")
        return await handler(request)


class LosingSaver(AsyncSqliteSaver):
    """Never gets to write a checkpoint that holds a reply whose calls are open."""

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        last = (checkpoint["channel_values"].get("messages") or [None])[-1]
        if isinstance(last, AIMessage) and last.tool_calls:
            await asyncio.Event().wait()
        return await super().aput(config, checkpoint, metadata, new_versions)


def agent_of(spec: dict[str, Any], shop: Shop, folder: Path, saver: Any) -> Any:
    ledger = EffectLedger(
        spec.get("database") or f"sqlite:///{folder}/openmanus.db",
        reconcile={"pay": shop.known} if spec.get("reconcile") else {},
    )
    middleware: list[Any] = [KilledAfterCalls(shop), ledger]
    model = ScriptedChatModel([brain] * 20)
    match spec["kind"]:
        case "deep":
            from deepagents import create_deep_agent  # pyright: ignore[reportUnknownVariableType]

            payer_agent: Any = {
                "name": "payer",
                "description": "pays",
                "system_prompt": "Pay.",
                "model": model,
                "tools": [payer(shop)],
                "middleware": middleware,
            }
            task = {"description": "pay all", "subagent_type": "payer"}
            delegates = AIMessage("", tool_calls=[{"name": "task", "args": task, "id": "task"}])

            def outer(messages: list[BaseMessage]) -> AIMessage | str:
                return "All is paid." if messages[-1].type == "tool" else delegates

            return create_deep_agent(
                ScriptedChatModel([outer] * 20), middleware=[ledger], subagents=[payer_agent],
                checkpointer=saver,
            )  # fmt: skip
        case "retry":
            shop.timeouts = 1
            retry = ToolRetryMiddleware(initial_delay=0, max_retries=2)
            middleware.insert(0, retry)
        case _:
            pass
    return create_agent(model, [payer(shop)], middleware=middleware, checkpointer=saver)


@contextlib.asynccontextmanager
async def saver_of(spec: dict[str, Any], folder: Path) -> AsyncGenerator[Any]:
    if "database" in spec:
        async with AsyncPostgresSaver.from_conn_string(spec["database"]) as saver:
            await saver.setup()
            yield saver
        return
    kind = LosingSaver if spec["kind"] == "lost" and spec.get("kill") else AsyncSqliteSaver
    async with kind.from_conn_string(str(folder / "checkpoints")) as saver:
        yield saver


async def main(folder: Path, spec: dict[str, Any]) -> None:
    shop = Shop(folder, spec.get("kill", ""))
    durability = "async" if spec["kind"] == "lost" else "sync"
    config: Any = {"configurable": {"thread_id": "t"}}
    async with saver_of(spec, folder) as checkpoints:
        graph = agent_of(spec, shop, folder, checkpoints)
        begun = (await graph.aget_state(config)).values
        given: Any = None if begun else {"messages": [("user", "Pay.")]}
        if "answer" in spec:
            state = await graph.aget_state(config, subgraphs=True)
            given = Command(resume={one.id: spec["answer"] for one in state.interrupts})
        result = await graph.ainvoke(given, config, durability=durability)
    json.dump({
        "answer": result["messages"][-1].text,
        "asked": [one.value for one in result.get("__interrupt__", ())],
        "results": [one.text for one in result["messages"] if one.type == "tool"],
    }, sys.stdout)  # fmt: skip


def run() -> None:
    """Run the agent in the folder, and as the JSON, of the arguments."""
    asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))

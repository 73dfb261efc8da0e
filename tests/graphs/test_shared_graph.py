"""Runs that a server's worker starts again, because another one has died."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from openmanus_graph import Context, build_manus_graph, manus_tool
from openmanus_graph.backends.persistence.database import close_databases
from openmanus_graph.graphs import catalog
from openmanus_graph.interfaces.server.aegra import SharedGraph, shared_graph
from openmanus_graph.interfaces.server.store import open_server_saver
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import calls
from tests.support.postgres import Postgres

TASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Order tea."}]}


@dataclass
class Server:
    """A server with one graph, whose orders reach the shop and may then never return."""

    graph: SharedGraph
    context: Context
    orders: list[str]
    under_way: asyncio.Event
    hangs: bool = False

    async def deliver(self, run: str, given: Any = TASK, **at: str) -> dict[str, Any]:
        """Do a run to its end, and return the values of its end."""
        config: RunnableConfig = {"configurable": {"thread_id": "t", "run_id": run, **at}}
        streamed = self.graph.astream(
            given, config, context=self.context, stream_mode="values", durability="sync"
        )
        ended: dict[str, Any] = [values async for values in streamed][-1]
        return ended

    async def die_in(self, run: str, given: Any = TASK, **at: str) -> None:
        """Cut a run off in the middle of a call."""
        self.hangs = True
        self.under_way.clear()
        running = asyncio.ensure_future(self.deliver(run, given, **at))
        calling = asyncio.ensure_future(self.under_way.wait())
        await asyncio.wait([running, calling], return_when=asyncio.FIRST_COMPLETED)
        assert not running.done(), running.result()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        self.hangs = False


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch, postgres: Postgres) -> AsyncIterator[Server]:
    monkeypatch.setenv(DATABASE_VARIABLE, postgres.database())

    orders = list[str]()
    under_way = asyncio.Event()

    @manus_tool(effect="workspace")
    async def order(item: str) -> str:
        """Order.

        Args:
            item: What.
        """
        orders.append(item)
        if served.hangs:
            under_way.set()
            await asyncio.Event().wait()
        return "ordered"

    def build(**arguments: Any) -> Any:
        return build_manus_graph(tools=[order], **arguments)

    monkeypatch.setattr(catalog, "_registered", {"buyer": build})
    turn = (calls(("order", {"item": "tea"})), "Done.")
    model = ScriptedChatModel(turn * 3)
    async with open_server_saver():
        graph = shared_graph("buyer").copy({"checkpointer": None, "store": None})
        served = Server(graph, Context(model=model), orders, under_way)
        yield served
    close_databases()


def kinds(values: dict[str, Any]) -> list[str]:
    return [message.type for message in values["messages"]]


async def test_a_run_that_is_delivered_again_goes_on_where_it_was(server: Server) -> None:
    await server.die_in("first")
    ended = await server.deliver("first")
    assert (ended["status"], kinds(ended)) == ("finished", ["human", "ai", "tool", "ai"])
    assert server.orders == ["tea"]


async def test_a_run_whose_end_the_server_did_not_note_does_nothing_more(server: Server) -> None:
    ended = await server.deliver("first")
    again = await server.deliver("first")
    assert [one.id for one in again["messages"]] == [one.id for one in ended["messages"]]
    assert server.orders == ["tea"]


async def test_another_run_with_the_same_words_is_a_new_one(server: Server) -> None:
    await server.deliver("first")
    ended = await server.deliver("second")
    assert kinds(ended) == ["human", "ai", "tool", "ai"] * 2
    assert server.orders == ["tea", "tea"]


async def test_a_run_from_an_earlier_point_goes_back_only_once(server: Server) -> None:
    await server.deliver("first")
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    before = [
        state.config["configurable"]["checkpoint_id"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        async for state in server.graph.aget_state_history(config)
        if state.next == ("think",)
    ][-1]
    await server.die_in("back", None, checkpoint_id=before)
    ended = await server.deliver("back", None, checkpoint_id=before)
    assert kinds(ended) == ["human", "ai", "tool", "ai"]
    assert server.orders == ["tea", "tea"]

"""The long-term store is in the same database as the threads."""

from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph import build_manus_graph, manus_tool
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import calls, run_graph

PLACE = ("memories", "person")


async def test_what_is_stored_is_found_by_another_process(each_database: DatabaseUrl) -> None:
    store = DatabaseStore(each_database)
    for key, what in (("tea", "green"), ("town", "Rome"), ("gone", "x")):
        await store.aput(PLACE, key, {"text": what})
    await store.aput(PLACE, "tea", {"text": "black"})
    await store.adelete(PLACE, "gone")
    other = DatabaseStore(each_database)
    found = await other.aget(PLACE, "tea")
    assert found is not None
    assert found.value == {"text": "black"}
    assert {one.key for one in other.search(("memories",))} == {"tea", "town"}
    assert await other.asearch(PLACE, filter={"text": "Rome"})
    assert other.list_namespaces() == [PLACE]
    assert open_database(each_database).run("SELECT count(*) FROM store") == [(2,)]


async def test_a_tool_reaches_it_by_its_runtime(each_database: DatabaseUrl) -> None:
    @manus_tool(effect="workspace")
    async def remember(text: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Remember.

        Args:
            text: What.
        """
        assert runtime.store is not None
        await runtime.store.aput(PLACE, "note", {"text": text})
        return "noted"

    graph = build_manus_graph(tools=[remember], store=DatabaseStore(each_database))
    assert (await run_graph(graph, calls(("remember", {"text": "Rome"})), "done")).results()
    found = DatabaseStore(each_database).get(PLACE, "note")
    assert found is not None
    assert found.value == {"text": "Rome"}

"""Graphs whose nodes may call `sys.exit()`."""

from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler
from langgraph.graph import END, START, MessagesState, StateGraph
from typing_extensions import override

from openmanus_graph.runtime.session_keeper import guard_system_exit


class Runs(AsyncCallbackHandler):
    def __init__(self) -> None:
        self.names: list[str] = []

    @override
    async def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self.names.append(kwargs["name"])


async def work(state: MessagesState) -> dict[str, Any]:
    return {"messages": [("ai", "done")]}


async def test_a_guarded_graph_has_no_runs_of_its_own() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    graph = builder.compile()
    plain, guarded = Runs(), Runs()
    given: Any = {"messages": [("user", "go")]}
    await graph.ainvoke(given, {"callbacks": [plain]})
    await guard_system_exit(graph).ainvoke(given, {"callbacks": [guarded]})
    assert guarded.names == plain.names

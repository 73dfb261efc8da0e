"""A user message that `update_state` adds to a thread that has ended is done as the next task."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph

from openmanus_graph import Context, build_browser_graph, build_manus_graph, build_planning_graph
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import calls

CONFIG: Any = {"configurable": {"thread_id": "ended"}}
PLAN = calls(("planning", {"command": "create", "title": "P", "steps": ["Say it."]}))
Graph = CompiledStateGraph[Any, Any, Any, Any]


async def ended(graph: Graph, *replies: str | AIMessage, **context: Any) -> Context:
    given = Context(model=ScriptedChatModel(list(replies)), workspace="work", **context)
    await graph.ainvoke({"messages": [HumanMessage("Say a number.")]}, CONFIG, context=given)
    return given


@pytest.mark.parametrize("build", [build_manus_graph, build_browser_graph])
@pytest.mark.parametrize("synchronous", [True, False])
async def test_a_loop_does_the_added_message(build: Any, synchronous: bool) -> None:
    graph = build(checkpointer=InMemorySaver())
    context = await ended(graph, "It is seven.", "It is eight.")
    added = {"messages": [HumanMessage("And another one?")]}
    if synchronous:
        graph.update_state(CONFIG, added)
    else:
        await graph.aupdate_state(CONFIG, added)
    values = await graph.ainvoke(None, CONFIG, context=context)
    assert (values["answer"], values["status"]) == ("It is eight.", "finished")


async def test_a_plan_is_made_for_the_added_message() -> None:
    graph = build_planning_graph(checkpointer=InMemorySaver())
    context = await ended(graph, PLAN, "It is seven.", PLAN, "It is eight.")
    await graph.aupdate_state(CONFIG, {"messages": [HumanMessage("And another one?")]})
    values = await graph.ainvoke(None, CONFIG, context=context)
    assert (values["answer"], values["status"]) == ("It is eight.", "finished")


async def test_other_edits_leave_the_run_ended() -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    await ended(graph, "It is seven.")
    for edit in ({"answer": "8"}, {"messages": [AIMessage("It is nine.")]}):
        await graph.aupdate_state(CONFIG, edit)
        assert (await graph.aget_state(CONFIG)).next == ()

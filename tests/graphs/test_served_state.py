"""What a client of the server's graphs sees: results and messages, and no internals."""

from pathlib import Path
from typing import Any, get_type_hints

import pytest
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import Context
from openmanus_graph.graphs import manus, planning
from openmanus_graph.graphs.catalog import agent_names, build_agent, graph_address, is_ours
from openmanus_graph.state.manus import ManusOutput, ManusState
from tests.graphs.test_compaction import answering, note
from tests.support.graphs import calls, scripted
from tests.support.planning import PlanBrain, plan_call

OUTPUT = {*get_type_hints(ManusOutput)}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


async def streamed(graph: Any, model: Any) -> tuple[list[set[str]], list[set[str]], list[str]]:
    """Return the keys of each update and of each state, and the texts of the messages."""
    updates, states, said = list[set[str]](), list[set[str]](), dict[str, str]()
    parts = graph.astream(
        {"messages": [{"role": "user", "content": "the task"}]},
        CONFIG,
        context=Context(model=model, workspace=str(Path("work"))),
        stream_mode=["updates", "values", "messages"],
    )
    async for mode, part in parts:
        if mode == "updates":
            updates += [{*update} for update in part.values() if update]
        elif mode == "values":
            states.append({*part})
        else:
            said[part[0].id] = said.get(part[0].id, "") + part[0].text
    return updates, states, [*said.values()]


async def test_a_run_shows_what_it_came_to_and_keeps_the_rest_in_its_checkpoint() -> None:
    saver = InMemorySaver()
    graph = manus.graph.copy({"checkpointer": saver})
    model = scripted(calls(("python_execute", {"code": "print(6 * 7)"})), "It is 42.")
    updates, states, said = await streamed(graph, model)
    shown = OUTPUT | {"step_count", "plans"}
    assert "answer" in set.union(*updates)
    assert set.union(*updates, *states) <= shown
    assert {*(await graph.aget_state(CONFIG)).values} <= shown
    assert said == ["", "42", "It is 42."]
    saved = saver.get_tuple(CONFIG)
    assert saved is not None
    assert {"branch", "run_message", "elapsed_s"} <= {*saved.checkpoint["channel_values"]}
    whole = build_agent("manus", checkpointer=saver)
    assert {"branch", "run_message"} <= {*(await whole.aget_state(CONFIG)).values}


async def test_a_plan_shows_its_result_and_none_of_its_drafts() -> None:
    def step(number: str, messages: list[BaseMessage]) -> str:
        return f"Done {number}."

    plan = plan_call({"text": "one", "depends_on": []}, {"text": "two", "depends_on": []})
    brain = PlanBrain([plan], step, summary="Both are done.")
    graph = planning.graph.copy({"checkpointer": InMemorySaver()})
    updates, states, said = await streamed(graph, brain.model())
    assert set.union(*updates, *states) <= OUTPUT | {"step_count", "title", "order"}
    assert said[-1] == "Both are done."
    assert len([text for text in said if text]) == 1, "a draft of a plan is no message"


async def test_the_summary_of_a_compaction_is_no_message() -> None:
    model = scripted(*[answering(60)] * 100)
    model.usage = None  # estimated from the texts
    model.profile = {"max_input_tokens": 4000}
    graph = manus.build_manus_graph(tools=[note], checkpointer=InMemorySaver())
    _, _, said = await streamed(graph, model)
    assert said[-1] == "done"
    assert not [text for text in said if text.startswith("- the numbers so far were noted")]


@pytest.mark.parametrize("name", [name for name in agent_names() if is_ours(name)])
def test_each_served_graph_hides_internals(name: str) -> None:
    module = __import__(graph_address(name).partition(":")[0], fromlist=["graph"])
    internals = {*get_type_hints(ManusState)} - OUTPUT - {"step_count", "plans"}
    assert not internals & {*module.graph.stream_channels_list}
    assert "branch" in build_agent(name).stream_channels_list

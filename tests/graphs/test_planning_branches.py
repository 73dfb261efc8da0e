"""Going back in the thread of a plan, and plans inside plans."""

import asyncio
from pathlib import Path
from threading import Barrier, Thread, current_thread
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import build_manus_graph
from openmanus_graph.graphs import catalog as agents
from openmanus_graph.graphs.catalog import register_agent
from openmanus_graph.graphs.planning import build_planning_graph
from tests.support.graphs import Ran, run_graph
from tests.support.limits import BACKSTOP_S
from tests.support.planning import InnerBrain, PlanBrain, plan_call, use

pytestmark = pytest.mark.slow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def one_line(step: str, messages: list[Any]) -> Any:
    """Write a line, then answer."""
    if messages[-1].type == "tool":
        return f"result of {step}"
    return use("bash", command=f"echo {step} >> log")


async def lines() -> list[str]:
    return (await asyncio.to_thread(Path("work/log").read_text)).split()


async def finished(brain: PlanBrain) -> Any:
    """Run a plan of three steps to its end, and return the graph."""
    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(), config=CONFIG)
    assert ran.values["status"] == "finished"
    return graph


async def checkpoint_with(graph: Any, wanted: tuple[str, ...], done: int) -> Any:
    """Return the checkpoint at which these nodes are next and so many steps are completed."""
    async for state in graph.aget_state_history(CONFIG):
        steps = state.values.get("steps", {}).values()
        completed = sum(step["status"] == "completed" for step in steps)
        if state.next == wanted and completed == done:
            return state.config
    raise AssertionError(f"no checkpoint before {wanted} with {done} completed")


async def go_back(graph: Any, brain: PlanBrain, place: Any, given: Any = None) -> Ran:
    return await run_graph(graph, model=brain.model(), task=given, config=place)


async def test_going_back_keeps_the_steps_before_and_runs_the_later_ones_again() -> None:
    for next_node in ("schedule", "run_step"):
        brain = PlanBrain([plan_call("a", "b", "c")], one_line)
        graph = await finished(brain)
        place = await checkpoint_with(graph, (next_node,), 1)
        ran = await go_back(graph, brain, place)
        assert ran.values["status"] == "finished"
        assert await lines() == ["0", "1", "2"], f"{next_node}: the files are those of then"
        assert [len(brain.requests(step)) for step in "012"] == [2, 4, 4]
        assert len(brain.requests("plan")) == 1
        assert ran.values["usage"]["model_calls"] == 7, next_node
        await asyncio.to_thread(Path("work/log").unlink)


async def test_an_edited_checkpoint_is_a_branch_of_its_own() -> None:
    brain = PlanBrain([plan_call("a", "b", "c")], one_line)
    graph = await finished(brain)
    place = await checkpoint_with(graph, ("schedule",), 1)
    changed = {"steps": {"1": {"text": "another b"}}}
    fork = await graph.aupdate_state(place, changed)
    ran = await go_back(graph, brain, fork)
    assert ran.values["status"] == "finished"
    assert await lines() == ["0", "1", "2"]
    assert [len(brain.requests(step)) for step in "012"] == [2, 4, 4]
    assert "another b" in brain.requests("1")[2][-1].text


async def test_a_halted_step_goes_on_in_a_fork_and_in_its_own_line() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        done = sum(message.type == "tool" for message in messages)
        return use("bash", command="echo x >> log") if done < 3 else "done"

    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    brain = PlanBrain([plan_call("a")], work)
    stopped = await run_graph(graph, model=brain.model(), config=CONFIG, max_steps=3)
    assert stopped.values["stop_reason"] == "max_steps"
    halted = (await graph.aget_state(CONFIG)).config
    again: Command[Any] = Command(goto="schedule")
    ran = await run_graph(graph, model=brain.model(), task=again, config=CONFIG, max_steps=9)
    assert ran.values["status"] == "finished"
    assert await lines() == ["x"] * 3
    ran = await run_graph(graph, model=brain.model(), task=again, config=halted, max_steps=9)
    assert ran.values["status"] == "finished"
    assert await lines() == ["x"] * 3, "the third call is another one on the fork, and its file"
    assert len(brain.requests("0")) == 6  # two in each run


def test_teams_built_in_two_threads_at_once_are_both_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agents, "_registered", {})
    inside, leave = Barrier(2, timeout=BACKSTOP_S), Barrier(2, timeout=BACKSTOP_S)
    built: dict[str, dict[str, Any]] = {}

    def build(**arguments: Any) -> Any:
        """Does pieces of work."""
        if current_thread().name == "first":
            inside.wait()
            leave.wait()
        assert "pieces" not in agents.third_party_agents(), "a flow does not do its own steps"
        return build_manus_graph(name="pieces", **arguments)

    register_agent("pieces", build)
    first = Thread(name="first", target=lambda: built.update(first=agents.third_party_agents()))
    first.start()
    inside.wait()
    built["second"] = agents.third_party_agents()
    leave.wait()
    first.join()
    assert {name: list(executors) for name, executors in built.items()} == {
        "first": ["pieces"],
        "second": ["pieces"],
    }


async def test_a_registered_flow_does_a_step_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "_registered", {})

    def build(**arguments: Any) -> Any:
        """Does pieces of work by a plan of its own."""
        executors = {"worker": build_manus_graph()}
        return build_planning_graph(executors=executors, name="pieces", **arguments)

    register_agent("pieces", build)
    outer = PlanBrain([plan_call("[PIECES] do the inner work", "then")], one_line)
    inner = PlanBrain(
        [plan_call({"id": "x", "text": "x", "depends_on": []},
                   {"id": "y", "text": "y", "depends_on": []})],
        one_line,
        summary="both pieces",
    )  # fmt: skip
    brain = InnerBrain(outer, inner, step="0")
    graph = build_planning_graph(checkpointer=InMemorySaver())
    ran = await run_graph(graph, model=brain.model(), config=CONFIG, max_steps=4)
    assert ran.values["stop_reason"] == "max_steps", ran.values["answer"]
    again: Command[Any] = Command(goto="schedule")
    ran = await run_graph(graph, model=brain.model(), task=again, config=CONFIG, max_steps=30)
    assert ran.values["status"] == "finished", ran.values["answer"]
    assert sorted(await lines())[:1] == ["1"]
    assert sorted(await lines())[1:] == ["x", "y"]
    assert (len(inner.requests("plan")), len(outer.requests("plan"))) == (1, 1)
    assert "both pieces" in outer.requests("1")[0][-1].text
    total = len(inner.asked) + len(outer.asked)
    assert ran.values["usage"]["model_calls"] == total
    shown = {step["id"] for e in ran.events if e["type"] == "plan" for step in e["steps"]}
    assert shown == {"0", "1"}
    assert "pieces of work" in outer.requests("plan")[0][0].text

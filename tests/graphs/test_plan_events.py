"""What a run tells of its plan: whole at first and at its end, in between what changed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import build_manus_graph
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.tools import planner_tools
from tests.support.graphs import Ran, run_graph
from tests.support.planning import PlanBrain, plan_call, plans_shown, use

pytestmark = pytest.mark.slow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def flow(executor: Any = None) -> Any:
    executors = {"manus": executor or build_manus_graph()}
    return build_planning_graph(executors=executors, checkpointer=InMemorySaver())


async def planned(graph: Any, brain: PlanBrain, task: Any = "the task") -> Ran:
    return await run_graph(graph, model=brain.model(), task=task, config=CONFIG)


def plan_events(ran: Ran) -> list[dict[str, Any]]:
    return [event for event in ran.events if event["type"] in ("plan", "plan_change")]


def last_statuses(ran: Ran) -> dict[str, str]:
    return {one["id"]: one["status"] for one in plans_shown(ran.events)[-1]}


async def bytes_of_events(count: int) -> int:
    brain = PlanBrain([plan_call(*(f"step {number}" for number in range(count)))])
    ran = await planned(flow(), brain)
    reported = plan_events(ran)
    assert reported[0]["type"] == reported[-1]["type"] == "plan"
    assert last_statuses(ran) == {str(number): "completed" for number in range(count)}
    return sum(len(json.dumps(event)) for event in reported)


async def test_the_bytes_of_a_plans_events_grow_with_its_steps() -> None:
    assert await bytes_of_events(48) < 4.5 * await bytes_of_events(12)


async def test_who_follows_a_resumed_run_gets_the_whole_plan_first() -> None:
    graph = flow()
    ask = use("ask_human", inquire="which?")
    brain = PlanBrain(
        [plan_call(*"abcdef")],
        lambda step, messages: ask if step == "2" and messages[-1].type == "human" else "done",
    )
    await planned(graph, brain)
    ran = await planned(graph, brain, Command(resume="this"))
    assert plan_events(ran)[0]["type"] == "plan"
    assert set(last_statuses(ran).values()) == {"completed"}


async def test_the_plan_of_a_steps_own_tool_is_whole_at_each_try() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        done = sum(message.type == "tool" for message in messages)
        if done == 0:
            return use("planning", command="create", plan_id="own", title="Own", steps=[*"xyzv"])
        if done == 1:
            return use("planning", command="mark_step", step_index=0, step_status="completed")
        return "done"

    planner = build_manus_graph(tools=planner_tools())
    never: dict[str, Any] = {"id": "a", "text": "a", "depends_on": [], "done_when": "file: never"}
    brain = PlanBrain([plan_call(never), plan_call("b")], work)
    ran = await planned(flow(planner), brain)
    own = [event for event in plan_events(ran) if event.get("title", "Own") == "Own"]
    reported = [(event["type"], len(event["steps"])) for event in own]
    assert reported == [("plan", 4), ("plan_change", 1)] * 3, (
        "two tries, and the step that replaces it"
    )


async def test_plan_md_is_written_only_where_something_changed() -> None:
    graph = flow()
    brain = PlanBrain([plan_call("a", "b")])
    await planned(graph, brain)
    path = Path("work/plan.md")
    before = await asyncio.to_thread(path.stat)
    ran = await planned(graph, brain, Command(goto="schedule"))
    assert last_statuses(ran) == {"0": "completed", "1": "completed"}
    after = await asyncio.to_thread(path.stat)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

"""The `planning` tool and the planner, which keeps its plan in the thread's state."""

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.graphs.planner import build_planner_graph
from openmanus_graph.tools.planning import planning
from tests.support.graphs import Ran, calls, run_graph

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
THREE = {"plan_id": "p", "title": "Trip", "steps": ["pack", "drive", "unpack"]}


def plan(command: str, **args: Any) -> tuple[str, dict[str, Any]]:
    return "planning", {"command": command, **args}


async def answered(*made: tuple[str, dict[str, Any]], graph: Any = None) -> Ran:
    """Make the calls one after another, then answer."""
    graph = graph or build_planner_graph()
    steps = [calls(call, prefix=f"s{number}-") for number, call in enumerate(made)]
    return await run_graph(graph, *steps, "done", max_steps=40)


async def test_a_plan_is_shown_with_its_progress() -> None:
    ran = await answered(
        plan("create", **THREE),
        plan("mark_step", step_index=0, step_status="completed", step_notes="two bags"),
        plan("mark_step", step_index=1, step_status="in_progress"),
        plan("mark_step", step_index=2, step_status="blocked"),
    )
    assert "Plan created successfully with ID: p" in ran.results()[0]
    shown = ran.results()[-1]
    head = "Plan: Trip (ID: p)"
    assert f"{head}\n{'=' * len(head)}\n" in shown
    assert "Progress: 1/3 steps completed (33.3%)" in shown
    assert "Status: 1 completed, 1 in progress, 1 blocked, 0 not started" in shown
    assert "0. [✓] pack\n   Notes: two bags\n1. [→] drive\n2. [!] unpack" in shown


async def test_an_update_keeps_what_stays_at_its_place() -> None:
    ran = await answered(
        plan("create", **THREE),
        plan("mark_step", step_index=0, step_status="completed", step_notes="n"),
        plan("mark_step", step_index=2, step_status="completed"),
        plan("update", steps=["pack", "fly", "drive", "unpack"], title="Flight"),
    )
    assert "Plan: Flight (ID: p)" in ran.results()[-1]
    assert "0. [✓] pack\n   Notes: n\n1. [ ] fly\n2. [ ] drive\n3. [ ] unpack" in ran.results()[-1]


async def test_several_plans_one_of_them_active() -> None:
    ran = await answered(
        plan("list"),
        plan("create", **THREE),
        plan("create", plan_id="q", title="Other", steps=["x"]),
        plan("set_active", plan_id="p"),
        plan("list"),
        plan("get"),
        plan("delete", plan_id="p"),
        plan("list"),
    )
    results = ran.results()
    assert "No plans available" in results[0]
    assert "p (active): Trip - 0/3 completed" in results[4]
    assert "q: Other - 0/1 completed" in results[4]
    assert "Plan: Trip" in results[5]
    assert "deleted" in results[6]
    assert "(active)" not in results[7]


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (plan("create", title="t", steps=["x"]), "plan_id"),
        (plan("create", plan_id="n", steps=["x"]), "title"),
        (plan("create", plan_id="n", title="t"), "no steps"),
        (plan("create", plan_id="n", title="t", steps=[]), "no steps"),
        (plan("create", **THREE), "already exists"),
        (plan("create", plan_id="n", title="t", steps=[[1]]), "steps"),
        (plan("update", plan_id="zz", title="t"), "zz"),
        (plan("update", plan_id="p"), "title or steps"),
        (plan("get", plan_id="zz"), "zz"),
        (plan("set_active"), "plan_id"),
        (plan("set_active", plan_id="zz"), "zz"),
        (plan("mark_step", step_status="completed"), "step_index"),
        (plan("mark_step", step_index=3, step_status="completed"), "0 to 2"),
        (plan("mark_step", step_index=-1, step_status="completed"), "0 to 2"),
        (plan("mark_step", step_index=0), "step_status"),
        (plan("mark_step", step_index=0, step_status="finished"), "step_status"),
        (plan("delete"), "plan_id"),
        (plan("delete", plan_id="zz"), "Known: p"),
        (plan("mark_step", plan_id="zz", step_index=0, step_status="blocked"), "zz"),
        (plan("mark_step", step_index=0, step_status="completed", steps=["x"]), "no steps"),
        (plan("get", plan_id="p", step_status="completed"), "mark_step"),
        (plan("create", plan_id="n", title="t", steps=["x"], step_notes="n"), "mark_step"),
        (plan("list", title="t"), "no title"),
        (plan("mark_step", step_index="first", step_status="completed"), "step_index"),
        (plan("create", plan_id="n", title="t", steps="x, y"), "steps"),
        (plan("create", plan_id="n", title="t", steps=["x"], colour="red"), "colour"),
        (plan("create", plan_id="n", title="t", steps=["x"] * 200), "200 steps"),
        (plan("fly"), "command"),
    ],
)
async def test_wrong_calls_say_what_is_wrong(
    made: tuple[str, dict[str, Any]], problem: str
) -> None:
    ran = await answered(plan("create", **THREE), made, plan("get", plan_id="p"))
    assert problem in ran.results()[1]
    assert ran.messages[-4].status == "error"  # type: ignore[union-attr]  # a tool message
    assert "Progress: 0/3" in ran.results()[2]


async def test_without_an_active_plan_one_must_be_named() -> None:
    ran = await answered(plan("get"), plan("mark_step", step_index=0, step_status="completed"))
    assert all("no active plan" in text for text in ran.results())


async def test_plans_outlive_the_process_and_belong_to_one_thread() -> None:
    saver = InMemorySaver()
    await run_graph(
        build_planner_graph(checkpointer=saver), calls(plan("create", **THREE)), "a", config=CONFIG
    )
    again = build_planner_graph(checkpointer=saver)
    ran = await run_graph(again, calls(plan("get")), "b", config=CONFIG)
    assert "Plan: Trip" in ran.results()[-1]
    other: RunnableConfig = {"configurable": {"thread_id": "other"}}
    ran = await run_graph(again, calls(plan("list")), "c", config=other)
    assert "No plans available" in ran.results()[-1]


async def test_a_call_is_linked_to_the_step_it_serves() -> None:
    ran = await run_graph(
        build_planner_graph(),
        calls(plan("create", **THREE), prefix="a"),
        calls(plan("mark_step", step_index=1, step_status="in_progress"), prefix="b"),
        calls(("bash", {"command": "true"}), prefix="c"),
        "done",
    )
    served: dict[str, Any] = {
        message.tool_call_id: (message.artifact or {}).get("plan_step")
        for message in ran.messages
        if message.type == "tool"
    }
    assert served == {"a1": None, "b1": None, "c1": "p/1"}


async def test_calls_of_one_reply_see_each_other_in_order() -> None:
    ran = await run_graph(
        build_manus_graph(tools=[planning]),
        calls(
            plan("create", **THREE),
            plan("mark_step", step_index=0, step_status="completed"),
            plan("get"),
        ),
        "done",
    )
    assert "Progress: 1/3" in ran.results()[-1]


async def test_steps_may_be_objects_with_dependencies() -> None:
    steps: list[Any] = [
        {"id": "a", "text": "x", "depends_on": []},
        {"text": "y", "depends_on": ["a"]},
    ]
    ran = await answered(plan("create", plan_id="p", title="t", steps=steps))
    assert "0. [ ] x\n1. [ ] y" in ran.results()[0]
    circle = [{"id": "a", "text": "x", "depends_on": ["b"]},
              {"id": "b", "text": "y", "depends_on": ["a"]}]  # fmt: skip
    ran = await answered(plan("create", plan_id="p", title="t", steps=circle))
    assert "circle" in ran.results()[0]

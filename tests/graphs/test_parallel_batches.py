"""Steps that do not wait for unrelated ones: begun, tried again, planned anew, asking, resumed."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, interrupt
from typing_extensions import override

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.persistence.checkpoints import fork, open_checkpointer, points_of
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.planning.parallel_batch import plan_at
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import Ran, run_graph
from tests.support.limits import BACKSTOP_S
from tests.support.planning import PlanBrain, plan_call, use
from tests.support.team import Team, step

pytestmark = pytest.mark.slow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def flow(team: Team) -> Any:
    return build_planning_graph(executors=team.graph(), checkpointer=InMemorySaver())


async def run(graph: Any, brain: PlanBrain, task: Any = "the task", **context: Any) -> Ran:
    return await run_graph(graph, model=brain.model(), task=task, config=CONFIG, **context)


def statuses(ran: Ran) -> dict[str, str]:
    return {name: one["status"] for name, one in ran.values["steps"].items()}


async def fails() -> str:
    raise RuntimeError("no")


async def test_a_step_begins_when_its_dependencies_end_though_another_still_runs() -> None:
    team = Team(b=lambda: team.until("d"))
    brain = PlanBrain([plan_call(step("a"), step("b"), step("c", "a"), step("d", "c"))])
    ran = await run(flow(team), brain)
    assert sorted(team.begun) == ["a", "b", "c", "d"]
    assert set(statuses(ran).values()) == {"completed"}


async def test_a_step_is_tried_again_and_planned_anew_though_another_still_runs() -> None:
    team = Team(bad=fails, long=lambda: team.until("end"))
    brain = PlanBrain(
        [
            plan_call(step("bad"), step("long"), step("end", "bad")),
            plan_call(step("good"), step("other"), step("end", "good", "other")),
        ]
    )
    ran = await run(flow(team), brain)
    assert sorted(team.begun) == ["bad", "bad", "end", "good", "long", "other"]
    assert statuses(ran) == dict.fromkeys(("good", "other", "end", "long"), "completed")
    assert ran.values["order"] == ["good", "other", "end", "long"]


class Replanner(PlanBrain):
    """Replaces a step that failed, `x` or `y`, and the last one."""

    @override
    def answer(self, messages: list[BaseMessage]) -> Any:
        if " failed:\n" in messages[-1].text:
            failed = "x" if "Step x failed" in messages[-1].text else "y"
            again = len(self.requests("plan"))
            needs = ("x2", "y2") if again > 1 else (f"{failed}2", "y" if failed == "x" else "x")
            self.plans.append(plan_call(step(f"{failed}2"), step(f"end{again}", *needs)))
        return super().answer(messages)


async def test_two_steps_that_break_at_once_are_planned_anew_one_after_the_other() -> None:
    async def meet() -> str:
        for name in ("x", "y"):
            await team.until(name)
        raise RuntimeError("no")

    team = Team(x=meet, y=meet)
    brain = Replanner([plan_call(step("x"), step("y"), step("end", "x", "y"))])
    ran = await run(flow(team), brain)
    _, first, second = brain.requests("plan")
    assert "end1" not in first[-1].text
    assert "end1" in second[-1].text, "the second sees what the first replaced"
    assert statuses(ran) == dict.fromkeys(("x2", "y2", "end2"), "completed")


async def test_a_group_goes_on_while_another_step_asks_and_both_questions_are_answered() -> None:
    async def ask() -> str:
        return f"was told {interrupt({'question': 'which?'})}"

    team = Team(asks=ask, also=ask)
    plan = plan_call(step("asks"), step("also"), step("a"), step("b", "a"), step("c", "b"),
                     step("end", "asks", "also", "c"), step("rest", "c"))  # fmt: skip
    graph, brain = flow(team), PlanBrain([plan])
    await run(graph, brain)
    assert sorted(team.begun) == ["a", "also", "asks", "b", "c", "rest"]
    state = await graph.aget_state(CONFIG)
    assert len(state.interrupts) == 2
    first, second = (one.id for one in state.interrupts)
    await run(graph, brain, Command(resume={first: "red"}))
    (left,) = (await graph.aget_state(CONFIG)).interrupts
    assert left.id == second
    ran = await run(graph, brain, Command(resume={second: "blue"}))
    assert set(statuses(ran).values()) == {"completed"}
    assert [team.begun.count(name) for name in ("a", "b", "c", "end")] == [1, 1, 1, 1]
    reported = brain.requests("summary")[0][-1].text
    assert ("was told red" in reported, "was told blue" in reported) == (True, True)


async def test_a_question_is_shown_while_other_steps_run() -> None:
    shown = asyncio.Event()

    async def ask() -> str:
        return f"was told {interrupt({'question': 'which?'})}"

    async def until_shown() -> None:
        async with asyncio.timeout(BACKSTOP_S):
            await shown.wait()

    team = Team(asks=ask, long=until_shown)
    graph, brain = flow(team), PlanBrain([plan_call(step("asks"), step("long"))])
    questions: list[Any] = []
    async for event in graph.astream(
        {"messages": [HumanMessage("the task")]},
        CONFIG,
        context=Context(model=brain.model(), workspace="work"),
        stream_mode="custom",
    ):
        if event["type"] == "interrupt":
            questions.append((event["plan_step"], event["question"]))
            shown.set()
    assert questions == [("asks", "which?")]
    ran = await run(graph, brain, Command(resume="red"))
    assert set(statuses(ran).values()) == {"completed"}
    assert team.begun.count("long") == 1


async def test_after_a_crash_each_step_goes_on_where_it_was_and_none_runs_again() -> None:
    stop = asyncio.Event()

    async def hang() -> None:
        await team.until("d")
        if not stop.is_set():
            stop.set()
            await asyncio.Event().wait()

    team = Team(b=hang)
    plan = plan_call(step("a"), step("b"), step("c", "a"), step("d", "c"), step("end", "b", "d"))
    graph, brain = flow(team), PlanBrain([plan])
    running = asyncio.create_task(run(graph, brain))
    async with asyncio.timeout(BACKSTOP_S):
        await stop.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    ran = await run(graph, brain, None)
    assert set(statuses(ran).values()) == {"completed"}
    assert [team.begun.count(name) for name in ("a", "b", "c", "end")] == [1, 2, 1, 1]
    assert len(brain.requests("plan")) == 1


@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_caller_may_let_fewer_tasks_run_at_once_than_there_are_places(at_once: int) -> None:
    team = Team()
    plan = plan_call(step("a"), step("b"), step("c", "a"), step("d", "b"), step("e", "c", "d"))
    graph, brain = flow(team), PlanBrain([plan])
    result = await graph.ainvoke(
        {"messages": [HumanMessage("the task")]},
        {**CONFIG, "max_concurrency": at_once},
        context=Context(model=brain.model(), workspace="work"),
    )
    assert (result["status"], len(team.begun)) == ("finished", 5)


async def test_a_drain_ends_what_runs_and_what_waits_and_nothing_is_done_twice() -> None:
    control = RunControl()

    async def drain() -> None:
        await team.until("c")
        control.request_drain("signal")

    team = Team(b=drain)
    plan = plan_call(step("a"), step("b"), step("c", "a"), step("d", "b"), step("end", "c", "d"))
    graph, brain = flow(team), PlanBrain([plan])
    given, context = (
        {"messages": [HumanMessage("the task")]},
        Context(model=brain.model(), workspace="work"),
    )
    async with asyncio.timeout(BACKSTOP_S):
        with pytest.raises(GraphDrained):
            await graph.ainvoke(given, CONFIG, context=context, control=control)
    assert sorted(team.begun) == ["a", "b", "c"]
    ran = await run(graph, brain, None)
    assert set(statuses(ran).values()) == {"completed"}
    assert sorted(team.begun) == ["a", "b", "c", "d", "end"]


async def test_nothing_begins_beside_a_step_that_a_limit_of_the_whole_run_ended() -> None:
    limited = asyncio.Event()

    async def until_limited() -> None:
        async with asyncio.timeout(BACKSTOP_S):
            await limited.wait()

    def work(name: str, messages: list[BaseMessage]) -> Any:
        return use("bash", command="true") if messages[-1].type == "human" else "done"

    team = Team(b=until_limited)
    executors = {"manus": build_manus_graph(), "team": team.graph()}
    graph = build_planning_graph(executors=executors, checkpointer=InMemorySaver())
    steps = [step("a"), {**step("b"), "executor": "team"}, {**step("c", "b"), "executor": "team"}]
    brain = PlanBrain([plan_call(*steps)], work)
    async for event in graph.astream(
        {"messages": [HumanMessage("the task")]},
        CONFIG,
        context=Context(model=brain.model(), workspace="work", max_steps=2),
        stream_mode="custom",
    ):
        if event["type"] == "step_end" and event["id"] == "a":
            limited.set()
    assert team.begun == ["b"]
    ran = await run(graph, brain, Command(goto="schedule"), max_steps=20)
    assert set(statuses(ran).values()) == {"completed"}
    assert team.begun == ["b", "c"]


async def test_a_fork_in_the_middle_of_a_parallel_batch_does_its_steps_for_itself(
    tmp_path: Path,
) -> None:
    async def ask() -> str:
        return f"was told {interrupt({'question': 'which?'})}"

    team = Team(asks=ask)
    plan = plan_call(step("first"), step("asks", "first"), step("a", "first"), step("b", "a"))
    brain = PlanBrain([plan])
    async with open_checkpointer(DatabaseUrl.in_folder(tmp_path)) as saver:
        graph = build_planning_graph(executors=team.graph(), checkpointer=saver)
        await run(graph, brain)
        *_, newest = await points_of(saver, "t")
        await fork(saver, "t", newest.checkpoint, "new")
        place: RunnableConfig = {"configurable": {"thread_id": "new"}}
        await run_graph(graph, model=brain.model(), task=None, config=place)
        assert (await graph.aget_state(place)).interrupts
        for config in (place, CONFIG):
            again: Command[Any] = Command(resume="red")
            ran = await run_graph(graph, model=brain.model(), task=again, config=config)
            assert set(statuses(ran).values()) == {"completed"}
    counts = {name: team.begun.count(name) for name in ("first", "a", "b")}
    assert counts == {"first": 1, "a": 2, "b": 2}
    assert len(brain.requests("plan")) == 1


async def test_a_plan_in_the_middle_of_a_parallel_batch_is_read_from_its_workers() -> None:
    async def ask() -> str:
        return f"was told {interrupt({'question': 'which?'})}"

    team = Team(asks=ask)
    brain = PlanBrain([plan_call(step("asks"), step("a"), step("b", "a"), step("c", "asks"))])
    graph = flow(team)
    await run(graph, brain)
    seen = await plan_at(graph, (await graph.aget_state(CONFIG)).config)
    assert {name: one["status"] for name, one in seen["steps"].items()} == {
        "asks": "in_progress", "a": "completed", "b": "completed", "c": "not_started",
    }  # fmt: skip
    assert seen["steps"]["b"]["result"] == "result of b"


def _beside(name: str) -> str:
    """Return the step of the other chain that may run at the same time."""
    return f"{'b' if name.startswith('a') else 'a'}{name[1:]}"


async def test_more_places_than_a_plan_can_use_cost_nothing() -> None:
    saved: list[int] = []
    for places in (2, 8):
        chains = [step(f"{c}{n}", *([f"{c}{n - 1}"] if n else [])) for n in range(5) for c in "ab"]
        team, saver = Team(), InMemorySaver()
        # The chains go hand in hand: a parallel batch ends when one of them is far behind.
        team.work = {one["id"]: partial(team.until, _beside(one["id"])) for one in chains}
        graph = build_planning_graph(executors=team.graph(), checkpointer=saver)
        ran = await run(graph, PlanBrain([plan_call(*chains)]), max_parallel_steps=places)
        assert set(statuses(ran).values()) == {"completed"}
        saved.append(sum(len(kept) for kept in saver.storage["t"].values()))
    assert saved[0] == saved[1]


async def test_a_hundred_steps_side_by_side_take_a_few_checkpoints_each() -> None:
    brain = PlanBrain([plan_call(*(step(str(number)) for number in range(100)))])
    saver = InMemorySaver()
    graph = build_planning_graph(executors=Team().graph(), checkpointer=saver)
    ran = await run(graph, brain)
    assert set(statuses(ran).values()) == {"completed"}
    saved = sum(len(places) for places in saver.storage["t"].values())
    assert saved < 8 * 100

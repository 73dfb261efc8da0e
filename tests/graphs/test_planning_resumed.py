"""Plans that are cut off while several steps run, and go on elsewhere, or under other terms."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from typing_extensions import override

from openmanus_graph import Context
from openmanus_graph.graphs.planning import build_planning_graph
from tests.support.graphs import Ran, run_graph
from tests.support.limits import BACKSTOP_S
from tests.support.planning import InnerBrain, PlanBrain, plan_call
from tests.support.team import Team, step

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


async def run(
    graph: Any,
    brain: PlanBrain,
    task: Any = "the task",
    config: RunnableConfig | None = None,
    **context: Any,
) -> Ran:
    place: RunnableConfig = {**CONFIG, **(config or {})}
    async with asyncio.timeout(BACKSTOP_S):
        return await run_graph(graph, model=brain.model(), task=task, config=place, **context)


async def cut_off(graph: Any, brain: PlanBrain, reached: asyncio.Event, **context: Any) -> None:
    """Run until something is reached, and end as a process does that is killed."""
    running = asyncio.create_task(run(graph, brain, **context))
    async with asyncio.timeout(BACKSTOP_S):
        await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


class Stopping:
    """Work that hangs until the run is cut off, and ends at once when it is done again."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.waiting = 0

    def work(self, team: Team, *others: str, count: int = 1) -> Any:
        """Make a work that waits for others to begin, and then for the end."""

        async def hang() -> None:
            await team.until(*others)
            if not self.reached.is_set():
                self.waiting += 1
                if self.waiting == count:
                    self.reached.set()
                await asyncio.Event().wait()

        return hang


def as_node(flow: Any) -> Any:
    return flow


def as_call(flow: Any) -> Any:
    async def call(state: MessagesState, runtime: Runtime[Context]) -> dict[str, Any]:
        done = await flow.ainvoke({"messages": state["messages"]}, context=runtime.context)
        return {"messages": done["messages"][-1:]}

    return call


@pytest.mark.parametrize("placed", [as_node, as_call])
async def test_a_plan_in_the_graph_of_an_app_is_cut_off_and_goes_on(placed: Any) -> None:
    stopping = Stopping()
    team = Team()
    team.work = {"b": stopping.work(team, "d")}
    builder = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("team", placed(build_planning_graph(executors=team.graph())))
    builder.add_edge(START, "team")
    builder.add_edge("team", END)
    app = builder.compile(checkpointer=InMemorySaver())
    plan = plan_call(step("a"), step("b"), step("c", "a"), step("d", "c"), step("end", "b", "d"))
    brain = PlanBrain([plan])
    await cut_off(app, brain, stopping.reached)
    ran = await run(app, brain, None)
    assert ran.messages[-1].text == "result of end"
    begun = Counter(team.begun)
    assert begun.pop("d") in (1, 2), "it had begun when the run was cut off"
    assert begun == {"a": 1, "b": 2, "c": 1, "end": 1}
    assert len(brain.requests("plan")) == 1


async def test_a_plan_inside_a_step_is_cut_off_and_goes_on() -> None:
    stopping = Stopping()
    team = Team()
    team.work = {"b": stopping.work(team, "c", "beside")}
    executors = {
        "team": team.graph(),
        "pieces": build_planning_graph(executors=team.graph(), name="pieces"),
    }
    graph = build_planning_graph(executors=executors, checkpointer=InMemorySaver())
    outer = PlanBrain(
        [plan_call({**step("inner"), "executor": "pieces"}, step("beside"), step("end", "inner"))]
    )
    inner = PlanBrain([plan_call(step("a"), step("b"), step("c", "a"))], summary="both")
    brain = InnerBrain(outer, inner, step="inner")
    await cut_off(graph, brain, stopping.reached)
    ran = await run(graph, brain, None)
    assert ran.values["status"] == "finished"
    begun = Counter(team.begun)
    assert begun.pop("c") in (1, 2)
    assert begun.pop("beside") in (1, 2)
    assert begun == {"a": 1, "b": 2, "end": 1}
    assert (len(outer.requests("plan")), len(inner.requests("plan"))) == (1, 1)


@pytest.mark.parametrize("fewer", [1, 2, 3])
@pytest.mark.parametrize("by", ["max_concurrency", "max_parallel_steps"])
async def test_fewer_may_run_at_once_than_when_the_parallel_batch_began(
    by: str, fewer: int
) -> None:
    stopping = Stopping()
    team = Team()
    heads = ("a0", "b0", "c0", "d0")
    team.work = {name: stopping.work(team, count=4) for name in heads}
    chains = [step(name) for name in heads] + [step(f"{name[0]}1", name) for name in heads]
    graph = build_planning_graph(executors=team.graph(), checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call(*chains)])
    await cut_off(graph, brain, stopping.reached, max_parallel_steps=4)
    at_once: list[int] = []
    running = set[str]()

    def counted(name: str) -> Any:
        async def work() -> None:
            running.add(name)
            at_once.append(len(running))
            await asyncio.sleep(0)
            running.discard(name)

        return work

    team.work = {one["id"]: counted(one["id"]) for one in chains}
    of_caller = by == "max_concurrency"
    config: RunnableConfig = {"max_concurrency": fewer} if of_caller else {}
    ran = await run(graph, brain, None, config, max_parallel_steps=4 if of_caller else fewer)
    assert ran.values["status"] == "finished"
    assert max(at_once) <= fewer
    assert Counter(team.begun) == {one["id"]: 2 if one["id"] in heads else 1 for one in chains}


@pytest.mark.parametrize("first", ["x", "y"])
async def test_two_questions_at_once_are_answered_in_either_order(first: str) -> None:
    async def ask() -> str:
        return f"was told {interrupt({'question': 'which?'})}"

    team = Team(x=ask, y=ask)
    graph = build_planning_graph(executors=team.graph(), checkpointer=InMemorySaver())
    brain = PlanBrain([plan_call(step("x"), step("y"), step("end", "x", "y"))])
    asked = await run(graph, brain)
    ids = {e["plan_step"]: e["id"] for e in asked.events if e["type"] == "interrupt"}
    second = "y" if first == "x" else "x"
    with pytest.raises(RuntimeError, match="specify the interrupt id"):
        await run(graph, brain, Command(resume="for whom?"))
    await run(graph, brain, Command(resume={ids[first]: f"for {first}"}))
    (left,) = (await graph.aget_state(CONFIG)).interrupts
    assert left.id == ids[second]
    ran = await run(graph, brain, Command(resume={left.id: f"for {second}"}))
    steps = ran.values["steps"]
    assert {name: steps[name]["result"] for name in "xy"} == {
        name: f"was told for {name}" for name in "xy"
    }
    assert team.begun.count("end") == 1


class Replanner(PlanBrain):
    """Replaces `x` or `later`, whichever failed."""

    @override
    def answer(self, messages: list[BaseMessage]) -> Any:
        if "Replace the part of the plan that broke" in messages[-1].text:
            is_x = "Step x failed:" in messages[-1].text
            new = (step("x2"), step("end", "x2", "y")) if is_x else (step("later2", "y"),)
            self.plans.append(plan_call(*new))
        return super().answer(messages)


async def test_a_step_whose_executor_is_gone_after_a_restart_is_planned_anew() -> None:
    stopping = Stopping()
    team = Team()
    team.work = {"x": stopping.work(team, "y")}
    saver = InMemorySaver()
    before = build_planning_graph(
        executors={"team": team.graph(), "gone": team.graph()}, checkpointer=saver
    )
    x, y, end = step("x"), step("y"), step("end", "x", "y")
    later = {**step("later", "y"), "executor": "gone"}
    brain = Replanner([plan_call({**x, "executor": "gone"}, y, end, later)])
    await cut_off(before, brain, stopping.reached)
    after = build_planning_graph(executors={"team": team.graph()}, checkpointer=saver)
    ran = await run(after, brain, None)
    assert ran.values["status"] == "finished"
    reported = "\n".join(event["text"] for event in ran.events if event["type"] == "notice")
    for name in ("x", "later"):
        assert (
            f"Step {name} failed: There is no executor gone any more. Available: team." in reported
        )
    _, *replanned = brain.requests("plan")
    assert all("There is no executor gone" in asked[-1].text for asked in replanned)
    assert {one["status"] for one in ran.values["steps"].values()} == {"completed"}
    assert Counter(team.begun)["y"] in (1, 2)

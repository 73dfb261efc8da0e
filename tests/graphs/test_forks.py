"""Going back: in a new thread, and by LangGraph's own means in the same one."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph, build_planning_graph, manus_tool
from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import (
    find_point,
    fork,
    open_checkpointer,
    points_of,
)
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.tools.closing import ask_human
from tests.support.graphs import calls, run_graph, scripted
from tests.support.planning import PlanBrain, plan_call, use

pytestmark = pytest.mark.slow

OLD: RunnableConfig = {"configurable": {"thread_id": "old"}}
NEW: RunnableConfig = {"configurable": {"thread_id": "new"}}


class Bank:
    """A tool with effects, and what it did."""

    def __init__(self, approval: bool = False) -> None:
        self.paid: list[int] = []

        @manus_tool(effect="external", approval=approval)
        def pay(amount: int) -> str:
            """Pay.

            Args:
                amount: How much.
            """
            self.paid.append(amount)
            return f"paid {amount}"

        self.tool = pay


@pytest.fixture
async def saver(each_database: DatabaseUrl) -> AsyncIterator[Checkpointer]:
    async with open_checkpointer(each_database) as found:
        yield found


async def fork_after(saver: Checkpointer, what: str) -> None:
    """Fork the old thread where something had happened."""
    points = await points_of(saver, "old")
    point = next(point for point in points if what in point.what)
    assert find_point(points, str(point.number)) is point is find_point(points, point.checkpoint)
    await fork(saver, "old", point.checkpoint, "new")


async def test_calls_after_the_point_run_again_and_those_before_it_do_not(
    saver: Checkpointer,
) -> None:
    bank = Bank()
    graph = build_manus_graph(tools=[bank.tool], checkpointer=saver)
    model = scripted(
        calls(("pay", {"amount": 1})), calls(("pay", {"amount": 2}), prefix="d"), "a", "b"
    )
    await run_graph(graph, model=model, config=OLD)
    await fork_after(saver, 'pay({"amount": 2})')
    ran = await run_graph(graph, model=model, config=NEW, task=None)
    assert bank.paid == [1, 2, 2]
    assert ran.results() == ["paid 1", "paid 2"]
    assert ran.values["answer"] == "b"
    assert (await graph.aget_state(OLD)).values["answer"] == "a"


async def test_a_point_shows_a_calls_arguments_as_they_were_written(saver: Checkpointer) -> None:
    graph = build_manus_graph(tools=[Bank().tool], checkpointer=saver)
    model = scripted(calls(("pay", {"amount": "八"})), "a")
    await run_graph(graph, model=model, config=OLD)
    assert 'pay({"amount": "八"})' in [point.what for point in await points_of(saver, "old")]


async def test_a_point_is_distinguished_from_those_of_other_branches(
    saver: Checkpointer,
) -> None:
    bank = Bank()
    graph = build_manus_graph(tools=[bank.tool], checkpointer=saver)
    model = scripted(calls(("pay", {"amount": 1})), "a", "b")
    await run_graph(graph, model=model, config=OLD)
    back = [state async for state in graph.aget_state_history(OLD)]
    before = next(state for state in back if state.next == ("stuck_check",))
    await run_graph(graph, model=model, config=before.config, task=None)
    reported = [point.what for point in await points_of(saver, "old")]
    assert "agent: b" in reported
    assert "agent: a" not in reported
    await fork_after(saver, "agent: b")
    assert (await graph.aget_state(NEW)).values["messages"][-1].text == "b"


async def test_an_answer_that_came_later_is_asked_for_again(saver: Checkpointer) -> None:
    graph = build_manus_graph(tools=[ask_human], checkpointer=saver)
    model = scripted(calls(("ask_human", {"inquire": "Which?"})), "Blue.", "Red.")
    await run_graph(graph, model=model, config=OLD)
    await run_graph(graph, model=model, config=OLD, task=Command(resume="blue"))
    await fork_after(saver, "ask_human(")
    await run_graph(graph, model=model, config=NEW, task=None)
    assert len((await graph.aget_state(NEW)).interrupts) == 1
    ran = await run_graph(graph, model=model, config=NEW, task=Command(resume="red"))
    assert ran.results() == ["red"]


class Plan:
    """A plan of two steps, of which each pays."""

    def __init__(self, saver: Checkpointer) -> None:
        self.bank = Bank()
        self.graph = build_planning_graph(
            executors=build_manus_graph(tools=[self.bank.tool]), checkpointer=saver
        )
        self.model = PlanBrain([plan_call("a", "b")], self.step).model()

    def step(self, step: str, messages: list[BaseMessage]) -> AIMessage | str:
        done = any(message.type == "tool" for message in messages)
        return f"{step} is done" if done else use("pay", amount=int(step))

    async def run(self, config: RunnableConfig, task: Any = None) -> Any:
        return await run_graph(self.graph, model=self.model, config=config, task=task)


async def test_a_fork_of_a_plan_does_the_steps_after_it_again(saver: Checkpointer) -> None:
    plan = Plan(saver)
    await plan.run(OLD, {"messages": [HumanMessage("pay both")]})
    await fork_after(saver, "step 0: completed")
    ran = await plan.run(NEW)
    assert (plan.bank.paid, ran.values["status"]) == ([0, 1, 1], "finished")


async def test_going_back_in_a_plan_is_a_new_branch(saver: Checkpointer) -> None:
    plan = Plan(saver)
    await plan.run(OLD, {"messages": [HumanMessage("pay both")]})
    point = next(p for p in await points_of(saver, "old") if "step 0: completed" in p.what)
    before: RunnableConfig = {
        "configurable": {"thread_id": "old", "checkpoint_id": point.checkpoint}
    }
    ran = await plan.run(before)
    assert (plan.bank.paid, ran.values["status"]) == ([0, 1, 1], "finished")


async def test_an_edited_state_of_the_past_goes_on_from_there(saver: Checkpointer) -> None:
    bank = Bank()
    graph = build_manus_graph(tools=[bank.tool], checkpointer=saver)
    model = scripted(calls(("pay", {"amount": 1})), "a", calls(("pay", {"amount": 1})), "b")
    await run_graph(graph, model=model, config=OLD)
    first = [state async for state in graph.aget_state_history(OLD)][-2]
    edited = await graph.aupdate_state(
        first.config, {"messages": [HumanMessage("pay less", id=first.values["messages"][0].id)]}
    )
    ran = await run_graph(graph, model=model, config=edited, task=None)
    assert bank.paid == [1, 1]
    assert [ran.messages[0].text, ran.messages[-1].text] == ["pay less", "b"]


class Payer:
    """A graph on a thread, whose model pays twice and answers, however often it is asked."""

    def __init__(self, approval: bool = False) -> None:
        self.bank = Bank(approval)
        self.saver = InMemorySaver()
        self.graph: Any = build_manus_graph(tools=[self.bank.tool], checkpointer=self.saver)

    def say(self, messages: list[BaseMessage]) -> AIMessage | str:
        paid = 0
        for message in messages:
            paid = 0 if message.type == "human" else paid + (message.type == "tool")
        return use("pay", amount=paid + 1) if paid < 2 else "done"

    async def run(self, task: Any, config: RunnableConfig = OLD) -> Any:
        task = {"messages": [HumanMessage(task)]} if isinstance(task, str) else task
        return await self.graph.ainvoke(task, config, context=self.context())

    def context(self) -> Context:
        return Context(model=scripted(*[self.say] * 5), workspace="work")

    async def place(self, *following: str, newest: bool = True) -> RunnableConfig:
        """Return a checkpoint after which these nodes are next."""
        states = [state async for state in self.graph.aget_state_history(OLD)]
        found: list[RunnableConfig] = [one.config for one in states if one.next == following]
        return found[0 if newest else -1]


async def test_a_turn_is_known_after_a_stop_between_it_and_the_next_thought() -> None:
    payer = Payer()
    await payer.run("pay")
    first = await payer.place("stuck_check", newest=False)
    payer.graph.interrupt_before_nodes = ["think"]
    await payer.run(None, first)
    payer.graph.interrupt_before_nodes = []
    ran = await payer.run(None)
    assert (payer.bank.paid, ran["answer"]) == ([1, 2, 2], "done")


async def test_a_message_said_again_in_the_past_begins_a_branch() -> None:
    payer = Payer()
    await payer.run("hello")
    before = await payer.place()
    said = {"messages": [HumanMessage("pay", id="same")]}
    await payer.run(said)
    await payer.run(said, before)
    assert payer.bank.paid == [1, 2] * 3


async def test_going_back_in_a_graph_around_it_is_a_branch() -> None:
    payer = Payer()

    manus = build_manus_graph(tools=[payer.bank.tool])

    def before(state: MessagesState) -> None: ...

    async def ask(state: MessagesState) -> dict[str, Any]:
        given = {"messages": [HumanMessage("pay", id="same")]}
        ran = await manus.ainvoke(given, context=payer.context())  # type: ignore[call-overload]  # the input
        return {"messages": [ran["answer"]]}

    builder = StateGraph(MessagesState)
    builder.add_node("before", before).add_node("ask", ask)
    builder.add_edge(START, "before").add_edge("before", "ask")
    payer.graph = builder.compile(checkpointer=payer.saver)
    await payer.graph.ainvoke({"messages": ["hello"]}, OLD)
    await payer.graph.ainvoke(None, await payer.place("before"))
    assert payer.bank.paid == [1, 2] * 2


async def test_an_answer_of_the_past_approves_nothing_new() -> None:
    payer = Payer(approval=True)
    await payer.run("pay")
    question = await payer.place("act")
    await payer.run(Command(resume="approve"))
    again = await payer.run(Command(resume="reject"), question)
    asked = [interrupt.value["calls"][0]["args"] for interrupt in again["__interrupt__"]]
    assert (payer.bank.paid, asked) == ([1], [{"amount": 1}])


async def test_a_call_that_is_edited_before_it_runs_runs_as_edited() -> None:
    payer = Payer()
    await payer.run("pay")
    state = await payer.graph.aget_state(await payer.place("act"))
    call = {"name": "pay", "args": {"amount": 9}, "id": "z", "type": "tool_call"}
    reply = AIMessage("", id=state.values["messages"][-1].id, tool_calls=[call])
    await payer.graph.aupdate_state(state.config, {"messages": [reply]})
    ran = await payer.run(None)
    assert (payer.bank.paid, ran["answer"]) == ([1, 2, 9], "done")

"""`EffectLedger` among LangChain's own middlewares: wanted payments are made, each once."""

import logging
from typing import Annotated, Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.middleware import EffectLedger
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.testing import ScriptedChatModel

CONFIG: Any = {"configurable": {"thread_id": "t"}}


pytestmark = pytest.mark.usefixtures("each_database")


def pays(*amounts: int, prefix: str = "c") -> AIMessage:
    calls = [
        {"name": "pay", "args": {"amount": amount}, "id": f"{prefix}{place}"}
        for place, amount in enumerate(amounts)
    ]
    return AIMessage("", tool_calls=calls)


class Till:
    """An agent that pays, and what it has paid."""

    def __init__(self, *replies: Any, middleware: Any = (), **options: Any) -> None:
        self.paid: list[int] = []
        self.failing = 0
        self.model = ScriptedChatModel(replies)
        self.ledger = EffectLedger(**options)

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            if amount == 0:
                return f"the person said {interrupt('how much?')}"
            self.paid.append(amount)
            if self.failing:
                self.failing -= 1
                raise ConnectionError("no reply")
            return f"paid {amount}"

        self.graph: Any = create_agent(
            self.model, [pay], middleware=[*middleware, self.ledger], checkpointer=InMemorySaver()
        )

    async def run(self, given: Any = None) -> Any:
        return await self.graph.ainvoke(given or {"messages": [("user", "Pay.")]}, CONFIG)


class ForgetfulSaver(InMemorySaver):
    """Loses what it is given once it is told to, as a crash does with checkpoints on their way."""

    losing = False

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.losing:
            return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}
        return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        if not self.losing:
            await super().aput_writes(config, writes, task_id, task_path)


def results(state: Any) -> list[str]:
    return [one.text for one in state["messages"] if one.type == "tool"]


async def test_equal_payments_are_all_made_although_summaries_shorten_the_state() -> None:
    shorten = SummarizationMiddleware(
        ScriptedChatModel(["in short"] * 9), trigger=("messages", 4), keep=("messages", 2)
    )
    till = Till(*[pays(5, prefix=f"c{n}") for n in range(5)], "done", middleware=[shorten])
    state = await till.run()
    assert state["messages"][-1].text == "done"
    assert till.paid == [5] * 5


async def test_replies_and_results_that_were_lost_one_after_the_other_are_known_again() -> None:
    saver, paid = ForgetfulSaver(), list[int]()

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        saver.losing = True
        paid.append(amount)
        return f"paid {amount}"

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    @tool
    def note(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Pay and note it."""
        paid.append(0)
        return Command(update={"messages": [ToolMessage("noted", tool_call_id=tool_call_id)]})

    pays_five = ("pay", {"amount": 5})
    plan: list[tuple[str, Any]] = [pays_five, ("look", {}), pays_five, ("note", {}), pays_five]
    crashed = False

    def reply(messages: list[BaseMessage]) -> AIMessage | str:
        nonlocal crashed
        turn = sum(isinstance(one, AIMessage) for one in messages)
        if turn < len(plan):
            name, args = plan[turn]
            return AIMessage("", tool_calls=[{"name": name, "args": args, "id": uuid4().hex}])
        if not crashed:
            crashed = True
            raise ConnectionError("as if it were killed")
        return "done"

    ledger = EffectLedger(effects={"look": "read_only"})
    graph: Any = create_agent(
        ScriptedChatModel([reply] * 20), [pay, look, note], middleware=[ledger], checkpointer=saver
    )
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"messages": [("user", "Pay.")]}, CONFIG)
    assert len((await graph.aget_state(CONFIG)).values["messages"]) == 2
    state = await graph.ainvoke(None, CONFIG)
    assert state["messages"][-1].text == "done"
    assert paid == [5, 5, 0, 5]


async def test_calls_that_a_middleware_makes_equal_are_all_made(
    each_database: DatabaseUrl,
) -> None:
    class Five(AgentMiddleware):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            call = {**request.tool_call, "args": {"amount": 5}}
            return await handler(request.override(tool_call=call))

    till = Till(pays(1, 2), "done", middleware=[Five()])
    await till.run()
    assert till.paid == [5, 5]
    assert len(open_database(each_database).run("SELECT * FROM ledger")) == 2


def test_in_a_graph_that_is_invoked_synchronously() -> None:
    till = Till(pays(1, 2, 2), "done")
    state = till.graph.invoke({"messages": [("user", "Pay.")]}, CONFIG)
    assert results(state) == ["paid 1", "paid 2", "paid 2"]
    assert sorted(till.paid) == [1, 2, 2]


def test_with_a_saver_that_knows_no_loop() -> None:
    till = Till(pays(1, 2), "done", "done again")
    with SqliteSaver.from_conn_string("threads.sqlite") as till.graph.checkpointer:
        till.graph.invoke({"messages": [("user", "Pay.")]}, CONFIG)
        points = till.graph.get_state_history(CONFIG)
        before = next(state.config for state in points if "tools" in state.next)
        state = till.graph.invoke(None, before)
    assert results(state) == ["paid 1", "paid 2"]
    assert sorted(till.paid) == [1, 1, 2, 2]


async def test_what_a_fork_repeats_takes_place_again() -> None:
    till = Till(pays(1), "done", "done again")
    await till.run()
    history = [state async for state in till.graph.aget_state_history(CONFIG)]
    before = next(state.config for state in history if state.next == ("tools",))
    await till.graph.ainvoke(None, before)
    assert till.paid == [1, 1]


async def test_a_call_that_raised_is_not_made_again_unless_a_person_says_so() -> None:
    till = Till(pays(1), "done")
    till.failing = 1
    with pytest.raises(ConnectionError):
        await till.run()
    state = await till.graph.ainvoke(None, CONFIG)
    (asked,) = state["__interrupt__"]
    assert asked.value["kind"] == "unknown_outcome"
    assert till.paid == [1]
    state = await till.run(Command(resume={asked.id: {"type": "respond", "message": "it was"}}))
    assert (results(state), till.paid) == (["it was"], [1])


async def test_questions_of_tools_and_of_langchains_middleware_get_their_answers() -> None:
    approve = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    till = Till(pays(0, 3), "done", middleware=[approve])
    state = await till.run()
    decisions = [{"type": "approve"}] * 2
    state = await till.run(Command(resume={"decisions": decisions}))
    assert till.paid == [3]
    (asked,) = state["__interrupt__"]
    state = await till.run(Command(resume={asked.id: "seven"}))
    assert results(state) == ["the person said seven", "paid 3"]
    assert till.paid == [3]


async def test_without_a_checkpointer_it_says_what_it_cannot_promise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    till = Till()
    model = ScriptedChatModel([pays(1), pays(2), "done"])
    graph: Any = create_agent(model, till.graph.nodes["tools"].bound.tools_by_name.values(),
                              middleware=[till.ledger])  # fmt: skip
    with caplog.at_level(logging.WARNING):
        await graph.ainvoke({"messages": [("user", "Pay.")]})
    assert till.paid == [1, 2]
    assert [one.message for one in caplog.records].count(caplog.records[0].message) == 1
    assert "has no checkpointer" in caplog.text


async def test_what_is_declared_harmless_is_not_written_down(
    each_database: DatabaseUrl,
) -> None:
    till = Till(pays(1), "done", effects={"pay": "read_only"})
    await till.run()
    assert till.paid == [1]
    assert not each_database.is_local or not each_database.file.exists()
    assert open_database(each_database).run("SELECT * FROM ledger") == []

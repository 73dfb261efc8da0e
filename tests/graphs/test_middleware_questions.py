"""Questions that others than we ask, LangChain's `HumanInTheLoopMiddleware` above all."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ValidationError
from typing_extensions import TypedDict

from openmanus_graph import build_manus_graph, manus_tool
from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger
from openmanus_graph.state.interrupts import middleware_answer
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.tools.closing import ask_human
from tests.support.graphs import Ran, calls, run_graph, scripted

pytestmark = pytest.mark.slow

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
APPROVE = {"type": "approve"}
REJECT = {"type": "reject", "message": "Never."}
RESPOND = {"type": "respond", "message": "Done by hand."}


def edit(**args: Any) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": "pay", "args": args}}


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Nothing may block the event loop."""
    with blockbuster_ctx("openmanus_graph") as detector:
        yield detector


class Confirmed(BaseModel):
    """What `order` wants to hear."""

    cups: int


class Inner(TypedDict):
    """The state of a graph that a tool runs."""

    said: str


class Shop:
    """An agent with tools that share a till, a person who is asked, and what was done."""

    def __init__(self, *made: tuple[str, dict[str, Any]], effect: Any = "workspace") -> None:
        self.done: list[str] = []

        @manus_tool(effect=effect, resource="till")
        def pay(amount: int, to: str = "anna") -> str:
            """Pay.

            Args:
                amount: How much.
                to: Whom.
            """
            self.done.append(f"{amount} {to}")
            return f"paid {amount} to {to}"

        @manus_tool(effect="workspace", resource="till")
        def ask(question: str) -> str:
            """Ask by itself.

            Args:
                question: What.
            """
            answer = interrupt(question)
            self.done.append(f"{question} {answer}")
            return f"{question} {answer}"

        @manus_tool(effect="workspace")
        def order(what: str) -> str:
            """Order as many as a person wants.

            Args:
                what: What.
            """
            cups = interrupt(what, response_schema=Confirmed).cups
            self.done.append(f"{cups} {what}")
            return f"{cups} {what}"

        self.tools = [pay, ask, order]
        self.saver = InMemorySaver()
        self.replies: list[str | AIMessage] = [calls(*made), "done"]
        self.model: ScriptedChatModel = scripted(*self.replies)

    def serve(self, *middleware: Any) -> "Shop":
        self.graph = build_manus_graph(
            tools=self.tools, checkpointer=self.saver, middleware=middleware
        )
        return self

    def asking(self, mode: Any, allowed: Any = True) -> "Shop":
        """Have LangChain's middleware ask before each payment."""
        return self.serve(HumanInTheLoopMiddleware({"pay": allowed}, interrupt_mode=mode))

    async def go_on(self, task: Any = "the task") -> Ran:
        return await run_graph(self.graph, model=self.model, config=CONFIG, task=task)

    async def results(self) -> list[str]:
        messages = (await self.graph.aget_state(CONFIG)).values["messages"]
        return [one.text for one in messages if one.type == "tool"]

    async def open(self) -> list[Any]:
        return list((await self.graph.aget_state(CONFIG)).interrupts)

    async def answer(self, value: Any, *, by_id: bool = True) -> Ran:
        """Answer the only question."""
        (asked,) = await self.open()
        return await self.go_on(Command(resume={asked.id: value} if by_id else value))


def said_of(ran: Ran) -> dict[str, str]:
    """Return the results, by the calls' ids."""
    return {one.tool_call_id: one.text for one in ran.messages if one.type == "tool"}


TWO = (("pay", {"amount": 1}), ("pay", {"amount": 2}))
THREE = (*TWO, ("pay", {"amount": 3}))


# Which call a decision counts for


async def test_decisions_about_a_group_meet_their_calls_when_they_are_made_together() -> None:
    shop = Shop(*THREE, ("pay", {"amount": 4})).asking("batched")
    await shop.go_on()
    ran = await shop.answer({"decisions": [APPROVE, REJECT, edit(amount=30, to="eve"), RESPOND]})
    assert shop.done == ["1 anna", "30 eve"]
    assert said_of(ran)["c1"] == "paid 1 to anna"
    assert "Never." in said_of(ran)["c2"]
    assert said_of(ran)["c3"].endswith("paid 30 to eve")
    assert said_of(ran)["c4"] == "Done by hand."


async def test_decisions_about_a_group_meet_their_calls_when_they_are_made_one_by_one() -> None:
    shop = Shop(*THREE, ("pay", {"amount": 4})).asking("per_call")
    await shop.go_on()
    for decision, done in [
        (APPROVE, ["1 anna"]),
        (REJECT, ["1 anna"]),
        (edit(amount=30, to="eve"), ["1 anna", "30 eve"]),
    ]:
        await shop.answer(decision)
        assert shop.done == done
    ran = await shop.answer(RESPOND)
    assert shop.done == ["1 anna", "30 eve"]
    assert said_of(ran)["c1"] == "paid 1 to anna"
    assert "Never." in said_of(ran)["c2"]
    assert said_of(ran)["c3"].endswith("paid 30 to eve")
    assert said_of(ran)["c4"] == "Done by hand."


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_rejected_call_does_not_run_although_the_policy_asked_about_others(
    by_id: bool,
) -> None:
    shop = Shop(*THREE, effect="external").asking("per_call")
    await shop.go_on()
    for decision, name in [
        (APPROVE, {"amount": 1}),  # the middleware asks
        ("approve", {"amount": 1}),  # our policy asks
        (edit(amount=20), {"amount": 2}),
        ("approve", {"amount": 20}),
    ]:
        (asked,) = await shop.open()
        assert asked.value["calls"][0]["args"] == name
        await shop.answer(decision, by_id=by_id)
    assert shop.done == ["1 anna", "20 anna"]
    ran = await shop.answer(REJECT, by_id=by_id)
    assert await shop.open() == []
    assert shop.done == ["1 anna", "20 anna"]
    assert "Never." in said_of(ran)["c3"]


async def test_each_tool_that_asks_by_itself_gets_its_own_answer() -> None:
    shop = Shop(*(("ask", {"question": name}) for name in "abc")).serve()
    await shop.go_on()
    for said in ("one", "two", "three"):
        ran = await shop.answer(said)
    assert shop.done == ["a one", "b two", "c three"]
    assert ran.results() == shop.done


@pytest.mark.parametrize("by_id", [True, False])
async def test_questions_before_and_behind_a_call_get_their_own_answers(by_id: bool) -> None:
    class Around(AgentMiddleware):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            before = interrupt("before")
            message = await handler(request)
            text = f"{before} {message.text} {interrupt('behind')}"
            return message.model_copy(update={"content": text})

    shop = Shop(*(("ask", {"question": name}) for name in "ab")).serve(Around())
    await shop.go_on()
    for number, asked in enumerate(("before", "a", "behind", "before", "b", "behind")):
        (waiting,) = await shop.open()
        assert waiting.value == asked
        await shop.answer(str(number), by_id=by_id)
    assert shop.done == ["a 1", "b 4"]
    assert (await shop.results()) == ["0 a 1 2", "3 b 4 5"]


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_graph_in_a_tool_gets_its_answers_beside_the_policys(by_id: bool) -> None:
    async def node(state: Any) -> Any:
        return {"said": interrupt("inside")}

    inner = StateGraph(Inner).add_node("node", node).add_edge("__start__", "node").compile()

    @manus_tool(effect="workspace", resource="till")
    async def consult() -> str:
        """Consult."""
        return str((await inner.ainvoke({"said": ""}))["said"])

    shop = Shop(("consult", {}), *TWO, effect="external")
    shop.tools.append(consult)
    shop.serve()
    await shop.go_on()
    _, second = await shop.open()  # the policy asks before the group begins
    await shop.go_on(Command(resume={second.id: REJECT}))
    await shop.answer(APPROVE, by_id=by_id)
    assert shop.done == []
    ran = await shop.answer("hello", by_id=by_id)
    assert shop.done == ["1 anna"]
    assert ran.results()[:2] == ["hello", "paid 1 to anna"]
    assert "Never." in ran.results()[2]


async def test_an_answer_without_an_id_counts_for_no_question_that_was_not_asked() -> None:
    """LangGraph keeps it, beside those with ids too."""
    shop = Shop(*THREE).asking("per_call")
    await shop.go_on()
    await shop.answer(APPROVE, by_id=False)
    await shop.answer(APPROVE)
    assert shop.done == ["1 anna", "2 anna"]
    await shop.answer(REJECT)
    assert shop.done == ["1 anna", "2 anna"]


async def test_an_answer_counts_for_no_later_question() -> None:
    """LangGraph keeps an answer without an id, and gives it to the next question that comes."""
    asked = [("ask_human", {"inquire": name}) for name in "ab"]
    shop = Shop(("pay", {"amount": 1}), *asked, effect="external")
    shop.tools.append(ask_human)
    shop.serve()
    await shop.go_on()
    ran = await shop.answer(APPROVE, by_id=False)
    for answer in ("one", "two"):
        for _ in range(2):
            assert shop.done == ["1 anna"]
            assert ran.results() == []
            ran = await shop.go_on(None)
        ran = await shop.answer(answer, by_id=False)
    assert ran.results() == ["paid 1 to anna", "one", "two"]


@pytest.mark.parametrize("method", ["begin", "conclude"])
@pytest.mark.parametrize("by_id", [True, False])
async def test_decisions_meet_their_calls_after_a_crash(
    monkeypatch: pytest.MonkeyPatch, method: str, by_id: bool
) -> None:
    shop = Shop(*THREE).asking("per_call")
    await shop.go_on()
    await shop.answer(edit(amount=10), by_id=by_id)

    async def crash(ledger: Ledger, key: EffectKey, *given: Any) -> Any:
        if method == "begin" and (known := await ledger.find(key)) is not None:
            return known  # of the call before
        raise sqlite3.OperationalError("the process is killed here")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, method, crash)
        with pytest.raises(sqlite3.OperationalError):
            await shop.answer(edit(amount=20), by_id=by_id)
    cut_off = ["20 anna"] if method == "conclude" else []
    assert shop.done == ["10 anna", *cut_off]
    await shop.go_on(None)
    done = ["10 anna", "20 anna"]
    assert shop.done == done
    ran = await shop.answer(REJECT, by_id=by_id)
    assert shop.done == done
    assert "paid 10" in said_of(ran)["c1"]
    assert "Never." in said_of(ran)["c3"]


async def test_an_edited_call_is_what_the_ledger_records(tmp_path: Path) -> None:
    shop = Shop(*TWO).asking("batched")
    await shop.go_on()
    await shop.answer({"decisions": [edit(amount=10), APPROVE]})
    with sqlite3.connect(tmp_path / "home" / "openmanus.db") as database:
        rows = database.execute("SELECT tool, args, stage FROM ledger ORDER BY rowid").fetchall()
    assert rows == [("pay", '{"amount":10}', "done"), ("pay", '{"amount":2}', "done")]


async def test_one_edit_does_not_count_for_several_calls() -> None:
    shop = Shop(*TWO).asking("batched")
    await shop.go_on()
    (asked,) = await shop.open()
    await shop.answer(middleware_answer(asked.value, edit(amount=9)))
    (asked,) = await shop.open()
    assert "could not be used" in asked.value["question"]
    await shop.answer(middleware_answer(asked.value, "approve"))
    assert shop.done == ["1 anna", "2 anna"]


async def test_a_question_about_one_call_says_which_answers_fit() -> None:
    shop = Shop(*TWO).asking("per_call", {"allowed_decisions": ["approve", "reject"]})
    await shop.go_on()
    (asked,) = await shop.open()
    assert set(asked.response_schema["discriminator"]["mapping"]) == {"approve", "reject"}


# Answers that are none


MALFORMED: list[Any] = [
    "yes",
    7,
    [],
    {"decision": APPROVE},
    {"decisions": "approve"},
    {"decisions": []},
    {"decisions": [APPROVE]},
    {"decisions": [APPROVE, APPROVE, APPROVE]},
    {"decisions": ["approve", "approve"]},
    {"decisions": [APPROVE, {"type": "maybe"}]},
    {"decisions": [APPROVE, {"type": "edit"}]},
    {"decisions": [APPROVE, {"type": "edit", "edited_action": {"name": "pay", "args": "5"}}]},
    {"decisions": [APPROVE, {"type": "edit", "edited_action": {"name": "lost", "args": {}}}]},
    {"decisions": [APPROVE, edit(amount="much")]},
    {"decisions": [APPROVE, {"type": "respond"}]},  # not allowed
]


@pytest.mark.parametrize("answer", MALFORMED, ids=str)
@pytest.mark.parametrize("by_id", [True, False])
async def test_an_answer_that_fits_no_calls_is_asked_for_again(answer: Any, by_id: bool) -> None:
    shop = Shop(*TWO).asking("batched", {"allowed_decisions": ["approve", "reject", "edit"]})
    await shop.go_on()
    await shop.answer(answer, by_id=by_id)
    (asked,) = await shop.open()
    assert "could not be used" in asked.value["question"]
    assert shop.done == []
    await shop.go_on(None)
    assert shop.done == []
    ran = await shop.answer({"decisions": [APPROVE, REJECT]}, by_id=by_id)
    assert shop.done == ["1 anna"]
    assert "Never." in said_of(ran)["c2"]
    assert ran.values["answer"] == "done"
    assert len(shop.model.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        "yes", 7, {"decisions": [APPROVE]}, {"type": "maybe"}, {"type": "respond", "message": "5"},
        {"type": "edit"}, edit(amount="much"),
        {"type": "edit", "edited_action": {"name": "ask", "args": {"question": "x"}}},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("by_id", [True, False])
async def test_an_answer_that_fits_no_call_is_asked_for_again(answer: Any, by_id: bool) -> None:
    shop = Shop(*TWO).asking("per_call", {"allowed_decisions": ["approve", "reject", "edit"]})
    await shop.go_on()
    await shop.answer(answer, by_id=by_id)
    (asked,) = await shop.open()
    assert "could not be used" in asked.value["question"]
    assert asked.value["calls"][0]["args"] == {"amount": 1}
    assert shop.done == []
    await shop.answer(APPROVE, by_id=by_id)
    ran = await shop.answer(REJECT, by_id=by_id)
    assert shop.done == ["1 anna"]
    assert "Never." in said_of(ran)["c2"]


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_tool_that_says_what_it_wants_to_hear_asks_again(by_id: bool) -> None:
    shop = Shop(("order", {"what": "tea"})).serve()
    await shop.go_on()
    await shop.answer("two", by_id=by_id)
    assert len(await shop.open()) == 1
    ran = await shop.answer({"cups": 2}, by_id=by_id)
    assert (shop.done, ran.results()) == (["2 tea"], ["2 tea"])


async def test_a_later_question_of_a_tool_stays_open_when_its_answer_does_not_fit() -> None:
    @manus_tool(effect="workspace")
    def order_for(what: str) -> str:
        """Order for somebody.

        Args:
            what: What.
        """
        name = interrupt("Who?")
        return f"{interrupt(what, response_schema=Confirmed).cups} {what} for {name}"

    shop = Shop(("order_for", {"what": "tea"}))
    shop.tools.append(order_for)
    shop.serve()
    await shop.go_on()
    await shop.answer("anna")
    with pytest.raises(ValidationError):
        await shop.answer("two")
    await shop.answer({"cups": 2})
    assert await shop.results() == ["2 tea for anna"]

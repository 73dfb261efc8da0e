"""Approvals: who is asked about what, and that each decision counts exactly once."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import ConfigError, build_manus_graph, build_planning_graph, manus_tool
from openmanus_graph.backends.persistence.ledger import Ledger
from openmanus_graph.config.secret_values import KEY_VARIABLE
from openmanus_graph.state.tool_traits import Effects
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.tool_calls.questions import UNBELIEVED, Kind, believed, seal
from tests.support.graphs import Ran, calls, run_graph, scripted
from tests.support.planning import plan_call

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
APPROVE = {"decisions": [{"type": "approve"}]}


class Shop:
    """An agent with tools that have effects, and what they did."""

    def __init__(self, *replies: str | AIMessage, **context: Any) -> None:
        self.done: list[str] = []

        @manus_tool(effect="external", sends_to=())
        def pay(amount: int, to: str = "anna") -> str:
            """Pay.

            Args:
                amount: How much.
                to: Whom.
            """
            self.done.append(f"{amount} {to}")
            return f"paid {amount}"

        @manus_tool(effect="read_only", effects=Effects(shell="command"))
        def look(command: str) -> str:
            """Look.

            Args:
                command: A shell text.
            """
            self.done.append(command)
            return f"seen {command}"

        self.tools = [pay, look]
        self.model = scripted(*replies, "done")
        self.graph = build_manus_graph(tools=self.tools, checkpointer=InMemorySaver())
        self.context = context

    async def go_on(self, task: Any = "the task") -> Ran:
        return await run_graph(
            self.graph, model=self.model, config=CONFIG, task=task, **self.context
        )

    async def open(self) -> dict[str, str]:
        """Return what is asked, by the question's id."""
        state = await self.graph.aget_state(CONFIG)
        return {one.id: one.value["question"] for one in state.interrupts}

    async def answer(self, value: Any) -> Ran:
        """Answer the only question."""
        (asked,) = await self.open()
        return await self.go_on(Command(resume={asked: value}))


def rules(*given: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return given


PAY5 = calls(("pay", {"amount": 5}))


PAY_TWICE = calls(("pay", {"amount": 1}), ("look", {"command": "a"}), ("pay", {"amount": 2}))


async def test_the_approvals_of_a_group_are_answered_one_by_one_before_it_runs() -> None:
    shop = Shop(PAY_TWICE)
    await shop.go_on()
    first, second = await shop.open()
    await shop.go_on(Command(resume={second: APPROVE}))
    assert shop.done == []
    assert list(await shop.open()) == [first]
    ran = await shop.go_on(Command(resume={first: {"type": "reject", "message": "too much"}}))
    assert shop.done == ["a", "2 anna"]
    assert ["too much" in text for text in ran.results()] == [True, False, False]
    assert ran.values["status"] == "finished"


async def test_the_approvals_of_a_group_are_asked_for_in_call_order_and_answered_together() -> None:
    shop = Shop(PAY_TWICE)
    await shop.go_on()
    state = await shop.graph.aget_state(CONFIG)
    asked = [one.value["calls"][0]["args"]["amount"] for one in state.interrupts]
    assert asked == [1, 2]
    ran = await shop.go_on(Command(resume=dict.fromkeys(await shop.open(), APPROVE)))
    assert shop.done == ["1 anna", "a", "2 anna"]
    assert ran.results() == ["paid 1", "seen a", "paid 2"]


async def test_a_wrong_answer_to_one_of_several_leaves_only_that_question_open() -> None:
    shop = Shop(PAY_TWICE)
    await shop.go_on()
    first, second = await shop.open()
    wrong = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": "much"}}}
    await shop.go_on(Command(resume={first: wrong, second: APPROVE}))
    assert shop.done == []
    assert "amount" in next(iter((await shop.open()).values()))
    right = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 9}}}
    await shop.answer({"decisions": [right]})
    assert shop.done == ["9 anna", "a", "2 anna"]


async def test_a_rejection_holds_although_an_approval_stands_for_all_calls_of_the_tool() -> None:
    shop = Shop(PAY_TWICE)
    await shop.go_on()
    first, second = await shop.open()
    await shop.go_on(Command(resume={first: "always", second: "reject"}))
    assert shop.done == ["1 anna", "a"]


async def test_a_rejection_holds_when_the_run_goes_on_without_asking() -> None:
    shop = Shop(PAY_TWICE)
    await shop.go_on()
    _, second = await shop.open()
    await shop.go_on(Command(resume={second: "reject"}))
    shop.context["policy"] = "auto"
    await shop.go_on(None)
    assert shop.done == ["1 anna", "a"]


@pytest.mark.parametrize("method", ["intend", "conclude"])
async def test_the_decisions_of_a_group_meet_their_calls_after_a_crash(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    shop = Shop(calls(*(("pay", {"amount": amount}) for amount in (1, 2, 3))))
    await shop.go_on()
    first, second, third = await shop.open()
    edit = {"type": "edit", "edited_action": {"args": {"amount": 30}}}
    recorded, left = getattr(Ledger, method), [1]

    async def crash_at_the_second(*given: Any) -> None:
        if not left:
            raise sqlite3.OperationalError("the process is killed here")
        await recorded(*given)
        left.pop()

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, method, crash_at_the_second)
        with pytest.raises(sqlite3.OperationalError):
            await shop.go_on(Command(resume={first: APPROVE, second: APPROVE, third: edit}))
    await shop.go_on(None)
    if method == "conclude":  # nobody knows what became of the second
        assert [*(await shop.open()).values()] == [ANY_UNKNOWN]
        await shop.answer("approve")
    assert shop.done == ["1 anna", *["2 anna"] * (1 + (method == "conclude")), "30 anna"]
    assert await shop.open() == {}


async def test_a_call_that_has_run_is_not_asked_about_when_its_checkpoint_was_lost() -> None:
    shop = Shop(PAY_TWICE)
    message = {"messages": [{"role": "user", "content": "pay", "id": "one"}]}
    await shop.go_on(message)
    await shop.go_on(Command(resume=dict.fromkeys(await shop.open(), APPROVE)))
    assert shop.done == ["1 anna", "a", "2 anna"]
    again = Shop(PAY_TWICE)
    ran = await again.go_on(message)
    assert (again.done, ran.results()) == ([], ["paid 1", "seen a", "paid 2"])


ANY_UNKNOWN = (
    "pay was running when the run was cut off, so it is not known whether it took place. "
    "Approve to run it again, reject to leave it, or give its result."
)


async def test_an_answer_that_names_none_of_several_questions_leaves_them_open() -> None:
    shop = Shop(calls(("pay", {"amount": 1}), ("pay", {"amount": 2})))
    await shop.go_on()
    with pytest.raises(RuntimeError, match="must specify the interrupt id"):
        await shop.go_on(Command(resume=APPROVE))
    assert shop.done == []
    await shop.go_on(Command(resume=dict.fromkeys(await shop.open(), APPROVE)))
    assert sorted(shop.done) == ["1 anna", "2 anna"]


async def test_an_answer_that_comes_twice_counts_once() -> None:
    shop = Shop(PAY5)
    await shop.go_on()
    (asked,) = await shop.open()
    await shop.go_on(Command(resume={asked: APPROVE}))
    await shop.go_on(Command(resume={asked: APPROVE}))
    assert shop.done == ["5 anna"]


@contextlib.contextmanager
def killed_before_the_call(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Let the run end where its ledger would note that a call begins."""

    async def crash(*given: Any) -> None:
        raise sqlite3.OperationalError("the process is killed here")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "intend", crash)
        patch.setattr(Ledger, "begin", crash)
        with pytest.raises(sqlite3.OperationalError):
            yield


async def test_a_decision_survives_a_crash_before_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(PAY5)
    await shop.go_on()
    with killed_before_the_call(monkeypatch):
        await shop.answer(APPROVE)
    assert shop.done == []
    ran = await shop.go_on(None)
    assert (shop.done, ran.results()) == (["5 anna"], ["paid 5"])


@pytest.mark.parametrize("reply", [PAY5, PAY_TWICE])
async def test_a_stored_decision_of_somebody_else_is_none(
    monkeypatch: pytest.MonkeyPatch, reply: AIMessage
) -> None:
    """Somebody answered in his database, and no call ran there yet."""
    monkeypatch.setenv(KEY_VARIABLE, "a" * 32)
    shop = Shop(reply)
    await shop.go_on()
    with killed_before_the_call(monkeypatch):
        await shop.go_on(Command(resume=dict.fromkeys(await shop.open(), "approve")))
    monkeypatch.setenv(KEY_VARIABLE, "b" * 32)
    await shop.go_on(None)
    assert shop.done == []
    asked = 0
    while questions := await shop.open():
        asked += len(questions)
        await shop.go_on(Command(resume=dict.fromkeys(questions, "approve")))
    paid = [one for one in shop.done if one != "a"]
    assert paid == (["5 anna"] if reply is PAY5 else ["1 anna", "2 anna"])
    assert asked == len(paid)


async def test_what_a_person_responds_is_the_result_and_nothing_runs() -> None:
    shop = Shop(PAY5)
    await shop.go_on()
    ran = await shop.answer([{"type": "response", "args": "paid by hand"}])
    assert (shop.done, ran.results()) == ([], ["paid by hand"])
    assert ran.messages[2].status == "success"  # type: ignore[union-attr]  # a tool message


@pytest.mark.parametrize(
    ("edited", "problem"),
    [
        ({"name": "pay", "args": {"amount": "much"}}, "amount"),
        ({"name": "pay", "args": {"price": 1}}, "price"),
        ({"name": "look", "args": {"command": "x"}}, "change the tool"),
        ({"name": "pay", "args": {"amount": 1, "to": "eve"}}, "forbids"),
    ],
)
async def test_an_edit_that_cannot_be_carried_out_stays_answerable(
    edited: dict[str, Any], problem: str
) -> None:
    no_eve = rules({"tool": "pay", "args": {"to": "eve"}, "decision": "deny"})
    shop = Shop(PAY5, policy_rules=no_eve)
    await shop.go_on()
    await shop.answer({"decisions": [{"type": "edit", "edited_action": edited}]})
    assert problem in next(iter((await shop.open()).values()))
    again = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 1}}}
    ran = await shop.answer({"decisions": [again]})
    assert (shop.done, ran.results()) == (["1 anna"], ["paid 1"])


async def test_calls_that_a_person_moved_to_one_resource_do_not_run_at_once() -> None:
    at_work: list[str] = []
    most: list[int] = []

    @manus_tool(effect="external", resource=lambda args: f"file:{args['path']}")
    async def edit(path: str) -> str:
        """Edit.

        Args:
            path: What.
        """
        at_work.append(path)
        for _ in range(20):  # others get their turns
            await asyncio.sleep(0)
            most.append(at_work.count(path))
        at_work.remove(path)
        return "edited"

    graph = build_manus_graph(tools=[edit], checkpointer=InMemorySaver())
    model = scripted(calls(("edit", {"path": "a.txt"}), ("edit", {"path": "b.txt"})), "done")
    await run_graph(graph, model=model, config=CONFIG)
    to_one = {"type": "edit", "edited_action": {"name": "edit", "args": {"path": "c.txt"}}}
    state = await graph.aget_state(CONFIG)
    decisions = {one.id: {"decisions": [to_one]} for one in state.interrupts}
    ran = await run_graph(graph, model=model, config=CONFIG, task=Command(resume=decisions))
    assert len(decisions) == 2
    assert (ran.results(), max(most)) == (["edited", "edited"], 1)


@pytest.mark.parametrize("wrong", [{}, {"decisions": []}, {"type": "perhaps"}, 7, [{"type": 3}]])
async def test_a_wrong_value_stays_answerable(wrong: Any) -> None:
    shop = Shop(PAY5)
    await shop.go_on()
    await shop.answer(wrong)
    assert "That is not a decision" in next(iter((await shop.open()).values()))
    assert (await shop.answer("approve")).results() == ["paid 5"]


async def test_a_rule_asks_denies_and_allows_by_arguments() -> None:
    given = rules(
        {"tool": "look", "args": {"command": "rm*"}, "decision": "deny"},
        {"tool": "look", "args": {"command": "git push*"}, "decision": "ask"},
        {"tool": "pay", "args": {"amount": "5"}, "decision": "allow"},
    )
    removing, pushing = {"command": "cd x;  rm -r y"}, {"command": "git  push"}
    made = calls(("pay", {"amount": 5}), ("look", removing), ("look", pushing))
    shop = Shop(made, policy_rules=given)
    ran = await shop.go_on()
    assert shop.done == []
    assert "git push" in next(iter((await shop.open()).values()))
    ran = await shop.answer("approve")
    assert shop.done == ["5 anna", "git  push"]
    assert "forbids it (deny look command='rm*', rule 1 of Context" in ran.results()[1]


async def test_an_argument_that_was_left_out_has_its_default() -> None:
    no_anna = rules({"tool": "pay", "args": {"to": "anna"}, "decision": "deny"})
    shop = Shop(PAY5, policy_rules=no_anna, policy="auto")
    await shop.go_on()
    assert shop.done == []


async def test_an_approval_may_hold_for_the_rest_of_the_thread_and_says_for_what() -> None:
    replies = [calls(("pay", {"amount": n}), prefix=f"{n}.") for n in (1, 2)]
    later = calls(("pay", {"amount": 3}), prefix="3.")
    shop = Shop(*replies, "paid both", later, "paid again")
    await shop.go_on()
    (asked,) = (await shop.graph.aget_state(CONFIG)).interrupts
    assert asked.value["always"] == "pay in this thread"
    ran = await shop.answer("always")
    assert (shop.done, ran.values["status"]) == (["1 anna", "2 anna"], "finished")
    await shop.go_on("once more")
    assert shop.done == ["1 anna", "2 anna", "3 anna"]
    assert await shop.open() == {}


@pytest.mark.parametrize("stored_in", ["ledger", "checkpoint"])
@pytest.mark.parametrize("whose", ["mine", "somebody's"])
async def test_only_my_own_stored_approvals_count(
    monkeypatch: pytest.MonkeyPatch, stored_in: str, whose: str
) -> None:
    """A database that somebody else filled holds approvals that nobody has given here."""
    monkeypatch.setenv(KEY_VARIABLE, "a" * 32)
    replies = [calls(("pay", {"amount": n}), prefix=f"{n}.") for n in (1, 2, 3)]
    shop = Shop(*replies)
    await shop.go_on()
    intend, conclude = Ledger.intend, Ledger.conclude

    async def crash_before_the_second(self: Ledger, *given: Any) -> None:
        if shop.done:
            raise sqlite3.OperationalError("the process is killed here")
        await intend(self, *given)

    async def crash_after_the_first(self: Ledger, *given: Any) -> None:
        await conclude(self, *given)
        raise sqlite3.OperationalError("the process is killed here")

    with monkeypatch.context() as patch:
        if stored_in == "ledger":
            patch.setattr(Ledger, "conclude", crash_after_the_first)
        else:
            patch.setattr(Ledger, "begin", crash_before_the_second)
            patch.setattr(Ledger, "intend", crash_before_the_second)
        with pytest.raises(sqlite3.OperationalError):
            await shop.answer("always")
    assert shop.done == ["1 anna"]
    if whose == "mine":
        await shop.go_on(None)
        assert shop.done == ["1 anna", "2 anna", "3 anna"]
        return
    monkeypatch.setenv(KEY_VARIABLE, "b" * 32)
    ran = await shop.go_on(None)
    assert shop.done == ["1 anna"]
    if stored_in == "checkpoint":
        assert [one["text"] for one in ran.events if one["type"] == "notice"] == [UNBELIEVED]
    await shop.answer("always")
    assert shop.done == ["1 anna", "2 anna", "3 anna"]


async def test_a_seal_holds_for_its_thread_kind_and_value_only() -> None:
    other: RunnableConfig = {"configurable": {"thread_id": "u"}}
    (sealed,) = await seal(CONFIG, "value", ["email:a@b.example"])
    assert await believed(CONFIG, "value", [sealed]) == ["email:a@b.example"]
    cases: list[tuple[RunnableConfig, Kind, str]] = [
        (other, "value", sealed),
        (CONFIG, "call", sealed),
        (CONFIG, "value", sealed.replace("a@b", "c@d")),
        (CONFIG, "value", "email:a@b.example"),
        (CONFIG, "value", ""),
        (CONFIG, "value", "\ud800 x"),
    ]
    for config, kind, stored in cases:
        assert await believed(config, kind, [stored]) == []


async def test_a_rule_about_an_unknown_argument_ends_the_run_by_name() -> None:
    wrong = rules({"tool": "pay", "args": {"amnt": "5"}, "decision": "deny"})
    with pytest.raises(ConfigError, match=r"names amnt.* amount, to"):
        await Shop(PAY5, policy_rules=wrong).go_on()


async def test_a_rule_about_an_unknown_tool_is_a_warning() -> None:
    wrong = rules({"tool": "pya", "decision": "deny"}, {"tool": "browser_use", "decision": "deny"})
    ran = await Shop(policy_rules=wrong).go_on()
    notices = [event["text"] for event in ran.events if event["type"] == "notice"]
    reported = [text for text in notices if "policy" in text]
    assert len(reported) == 1
    assert "Did you mean pay?" in reported[0]


async def test_rules_hold_for_tools_of_other_libraries_by_patterns_of_names() -> None:
    done: list[str] = []

    def post(text: str) -> str:
        done.append(text)
        return "posted"

    tool = StructuredTool.from_function(
        post, name="forum_post", description="Post.",
        args_schema={"type": "object", "properties": {"text": {"type": "string"}}},
    )  # fmt: skip
    given = rules({"tool": "forum_*", "args": {"text": "*secret*"}, "decision": "deny"})
    made = calls(("forum_post", {"text": "a secret"}), ("forum_post", {"text": "hi"}))
    ran = await run_graph(build_manus_graph(tools=[tool]), made, "done", policy_rules=given)
    assert (done, ran.results()[1]) == (["hi"], "posted")
    assert "forbids" in ran.results()[0]


async def test_rules_hold_for_the_steps_of_a_plan(tmp_path: Path) -> None:
    done: list[int] = []

    @manus_tool(effect="external")
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        done.append(amount)
        return "paid"

    made = calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    model = ScriptedChatModel([plan_call("pay"), made, "paid one", "All is paid."])
    graph = build_planning_graph(
        executors=build_manus_graph(tools=[pay]), checkpointer=InMemorySaver()
    )
    context: dict[str, Any] = {
        "policy_rules": rules({"tool": "pay", "args": {"amount": "2"}, "decision": "deny"}),
        "workspace": str(tmp_path / "w"),
    }
    await run_graph(graph, model=model, config=CONFIG, **context)
    (waiting,) = (await graph.aget_state(CONFIG)).interrupts
    again: Any = Command(resume={waiting.id: APPROVE})
    ran = await run_graph(graph, model=model, config=CONFIG, task=again, **context)
    assert (done, ran.values["status"]) == ([1], "finished")


async def test_a_group_in_a_step_of_a_plan_asks_for_each_call_once(tmp_path: Path) -> None:
    shop = Shop()
    model = ScriptedChatModel([plan_call("pay"), PAY_TWICE, "paid both", "All is paid."])
    graph = build_planning_graph(
        executors=build_manus_graph(tools=shop.tools), checkpointer=InMemorySaver()
    )
    context: dict[str, Any] = {"workspace": str(tmp_path / "w")}
    ran = await run_graph(graph, model=model, config=CONFIG, **context)
    for left in (2, 1):
        asked = (await graph.aget_state(CONFIG)).interrupts
        assert (len(asked), shop.done) == (left, [])
        again: Any = Command(resume={asked[0].id: APPROVE})
        ran = await run_graph(graph, model=model, config=CONFIG, task=again, **context)
    assert (shop.done, ran.values["status"]) == (["1 anna", "a", "2 anna"], "finished")

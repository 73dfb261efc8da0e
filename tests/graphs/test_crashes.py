"""The ledger: what a killed run did is neither lost nor done twice."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolArg, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph, manus_tool
from openmanus_graph.backends.models.failures import ModelError, ReplyError
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.ledger import EffectKey, open_ledger
from openmanus_graph.config.resolve import database_url
from openmanus_graph.state.context import Effect
from openmanus_graph.state.manus import ManusInput
from openmanus_graph.state.tool_traits import Reconcile
from openmanus_graph.tools.closing import ask_human
from tests.support.graphs import Ran, calls, run_graph, scripted

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
pytestmark = pytest.mark.usefixtures("each_database")


class Payment:
    """A tool of which some calls have their effect and then never return."""

    def __init__(self, effect: Effect, reconcile: Reconcile | None = None) -> None:
        self.keys: list[str] = []
        self.done: list[int] = []
        self.under_way = asyncio.Event()
        self.hanging = {1}
        """The numbers of the calls that never return."""

        @manus_tool(effect=effect, approval=False, reconcile=reconcile)
        async def pay(amount: int, idempotency_key: str) -> str:
            """Pay.

            Args:
                amount: How much.
                idempotency_key: Of this payment.
            """
            self.keys.append(idempotency_key)
            self.done.append(amount)
            if len(self.done) in self.hanging:
                self.under_way.set()
                await asyncio.Event().wait()
            return f"paid {amount}"

        self.graph = build_manus_graph(tools=[pay], checkpointer=InMemorySaver())
        self.model = scripted(calls(("pay", {"amount": 100})), "done")

    async def cut_off(self, task: Any = "pay", config: RunnableConfig = CONFIG) -> None:
        """Run until the call is under way, and cancel there."""
        run = asyncio.ensure_future(self.go_on(task, config))
        await self.under_way.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    async def go_on(self, task: Any = None, config: RunnableConfig = CONFIG) -> Ran:
        return await run_graph(self.graph, model=self.model, config=config, task=task)

    async def before_act(self) -> RunnableConfig:
        """Return where to go back to for the calls to be made again."""
        history = [state async for state in self.graph.aget_state_history(CONFIG)]
        return next(state.config for state in history if state.next == ("act",))


async def test_a_workspace_call_without_outcome_is_told_to_the_model_and_not_repeated() -> None:
    payment = Payment("workspace")
    await payment.cut_off()
    ran = await payment.go_on()
    assert payment.done == [100]
    assert "may have run in part" in ran.results()[0]
    assert ran.values["status"] == "finished"


async def test_a_read_only_call_without_outcome_runs_again() -> None:
    payment = Payment("read_only")
    await payment.cut_off()
    ran = await payment.go_on()
    assert payment.done == [100, 100]
    assert ran.results() == ["paid 100"]


@pytest.mark.parametrize(
    ("answer", "times", "result"),
    [
        ("approve", 2, "paid 100"),
        ("reject", 1, "decided not to repeat"),
        ("= It was paid at noon.", 1, "It was paid at noon."),
        ("It was paid at noon.", 1, "It was paid at noon."),
    ],
)
@pytest.mark.slow
async def test_an_external_call_without_outcome_is_a_question(
    answer: str, times: int, result: str
) -> None:
    payment = Payment("external")
    await payment.cut_off()
    await payment.go_on()
    state = await payment.graph.aget_state(CONFIG)
    assert state.interrupts[0].value["kind"] == "unknown_outcome"
    ran = await payment.go_on(Command(resume=answer))
    assert payment.done == [100] * times
    assert result in ran.results()[0]


async def test_a_finished_call_is_not_run_again_when_its_checkpoint_is_lost(tmp_path: Path) -> None:
    ran_with: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran_with.append(amount)
        return f"paid {amount}"

    message = {"messages": [{"role": "user", "content": "pay", "id": "one"}]}
    for _ in range(2):  # the second saver knows nothing of the first run; the ledger does
        graph = build_manus_graph(tools=[pay], checkpointer=InMemorySaver())
        ran = await run_graph(
            graph, calls(("pay", {"amount": 1})), "done", config=CONFIG, task=message
        )
        assert ran.results() == ["paid 1"]
    assert ran_with == [1]


async def test_the_same_call_runs_again_when_the_model_repeats_it() -> None:
    ran_with: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran_with.append(amount)
        return f"paid {len(ran_with)}"

    graph = build_manus_graph(tools=[pay], checkpointer=InMemorySaver())
    twice = calls(("pay", {"amount": 1}), ("pay", {"amount": 1}))
    ran = await run_graph(graph, twice, calls(("pay", {"amount": 1})), "done", config=CONFIG)
    assert len(ran_with) == 3
    assert len(ran.results()) == 3


async def test_a_group_that_waits_for_a_person_does_not_repeat_its_earlier_calls() -> None:
    """It waits for a permission before all its calls, and for an answer between them."""
    ran_with: list[int] = []

    @manus_tool(effect="workspace", resource="till")
    def count(number: int) -> str:
        """Count.

        Args:
            number: What.
        """
        ran_with.append(number)
        return "counted"

    @manus_tool(effect="external", resource="till")
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        return f"paid {amount}"

    graph = build_manus_graph(tools=[count, pay, ask_human], checkpointer=InMemorySaver())
    model = scripted(
        calls(
            ("count", {"number": 1}),
            ("ask_human", {"inquire": "Which?"}),
            ("pay", {"amount": 2}),
            ("count", {"number": 3}),
        ),
        "done",
    )
    await run_graph(graph, model=model, config=CONFIG)
    assert ran_with == []
    await run_graph(graph, model=model, config=CONFIG, task=Command(resume="approve"))
    assert ran_with == [1]
    ran = await run_graph(graph, model=model, config=CONFIG, task=Command(resume="this"))
    assert ran_with == [1, 3]
    assert ran.results() == ["counted", "this", "paid 2", "counted"]


async def test_a_new_user_message_is_a_new_branch_where_the_same_call_runs_again() -> None:
    ran_with: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran_with.append(amount)
        return "paid"

    graph = build_manus_graph(tools=[pay], checkpointer=InMemorySaver())
    for _ in range(2):
        await run_graph(graph, calls(("pay", {"amount": 1})), "done", config=CONFIG)
    assert ran_with == [1, 1]


async def test_without_a_checkpointer_there_is_no_ledger(tmp_path: Path) -> None:
    await run_graph(build_manus_graph(tools=[]), "done")
    assert not (tmp_path / "home" / "openmanus.db").exists()
    assert (await open_ledger(database_url()).asked(EffectKey("t", "b", "pay", "{}", 0))) == {}


@manus_tool(effect="external", resource="till")
def charge(amount: int) -> str:
    """Charge.

    Args:
        amount: How much.
    """
    return f"charged {amount}"


async def answer_all(graph: Any, model: Any, *answers: Any) -> Ran:
    """Run, and answer one question after another, each by its id."""
    ran = await run_graph(graph, model=model, config=CONFIG)
    for answer in answers:
        (waiting,) = (await graph.aget_state(CONFIG)).interrupts
        command: Command[Any] = Command(resume={waiting.id: answer})
        ran = await run_graph(graph, model=model, config=CONFIG, task=command)
    return ran


async def test_two_questions_of_one_reply_get_their_own_answers() -> None:
    graph = build_manus_graph(tools=[ask_human], checkpointer=InMemorySaver())
    asked = calls(("ask_human", {"inquire": "Who?"}), ("ask_human", {"inquire": "Where?"}))
    ran = await answer_all(graph, scripted(asked, "done"), "Bob", "Paris")
    assert ran.results() == ["Bob", "Paris"]


async def test_decisions_of_one_group_are_not_mixed_up() -> None:
    graph = build_manus_graph(tools=[charge], checkpointer=InMemorySaver())
    model = scripted(calls(*(("charge", {"amount": n}) for n in (1, 2, 3))), "done")
    ran = await run_graph(graph, model=model, config=CONFIG)
    asked = [waiting.id for waiting in (await graph.aget_state(CONFIG)).interrupts]
    for place, answer in ((2, "approve"), (0, "approve"), (1, "reject")):
        assert ran.results() == []
        command: Command[Any] = Command(resume={asked[place]: answer})
        ran = await run_graph(graph, model=model, config=CONFIG, task=command)
    assert ran.results()[0] == "charged 1"
    assert "did not allow" in ran.results()[1]
    assert ran.results()[2] == "charged 3"


async def test_an_edited_call_does_not_stand_for_another() -> None:
    graph = build_manus_graph(tools=[charge], checkpointer=InMemorySaver())
    model = scripted(
        calls(("charge", {"amount": 100})), calls(("charge", {"amount": 50}), prefix="d"), "done"
    )
    edited = {"decisions": [{"type": "edit", "edited_action": {"args": {"amount": 50}}}]}
    ran = await answer_all(graph, model, edited, "approve")
    assert ran.results() == ["charged 50", "charged 50"]
    entries = open_database(database_url()).run("SELECT count(*) FROM ledger")
    assert entries == [(2,)]


async def test_the_other_side_is_asked_before_a_person_and_knows_the_call_by_its_key() -> None:
    asked: list[tuple[dict[str, Any], str]] = []

    async def known(args: dict[str, Any], key: str) -> dict[str, Any]:
        asked.append((args, key))
        return {"paid": args["amount"]}

    payment = Payment("external", known)
    await payment.cut_off()
    ran = await payment.go_on()
    assert ran.results() == ['{"paid": 100}']
    assert payment.done == [100]
    assert asked == [({"amount": 100}, payment.keys[0])]
    assert payment.keys[0]


@pytest.mark.parametrize("failing", [False, True])
async def test_a_person_is_asked_where_the_other_side_cannot_tell(failing: bool) -> None:
    async def unknown(args: dict[str, Any], key: str) -> None:
        if failing:
            raise ConnectionError("it is down")

    payment = Payment("external", unknown)
    await payment.cut_off()
    await payment.go_on()
    state = await payment.graph.aget_state(CONFIG)
    assert state.interrupts[0].value["kind"] == "unknown_outcome"
    await payment.go_on(Command(resume="approve"))
    assert payment.done == [100, 100]
    assert len(set(payment.keys)) == 1, "made again it has the same key"


async def test_a_langchain_tool_gets_its_key_and_no_model_is_shown_it() -> None:
    keys: list[str] = []

    @tool
    async def order(name: str, idempotency_key: Annotated[str, InjectedToolArg]) -> str:
        """Order something."""
        keys.append(idempotency_key)
        return f"ordered {name}"

    graph = build_manus_graph(tools=[order], checkpointer=InMemorySaver())
    forged = {"name": "tea", "idempotency_key": "forged"}
    model = scripted(calls(("order", {"name": "tea"}), ("order", forged)), "done")
    ran = await run_graph(graph, model=model, config=CONFIG)
    assert ran.results()[0] == "ordered tea"
    assert "There is no argument 'idempotency_key'" in ran.results()[1]
    assert len(keys) == 1
    assert len(keys[0]) == 32
    (offered,) = [one for one in model.options[0]["tools"] if one["function"]["name"] == "order"]
    assert list(offered["function"]["parameters"]["properties"]) == ["name"]


async def test_each_crash_asks_anew() -> None:
    payment = Payment("external")
    payment.hanging = {1, 2}
    await payment.cut_off()
    await payment.go_on()
    (waiting,) = (await payment.graph.aget_state(CONFIG)).interrupts
    payment.under_way.clear()
    await payment.cut_off(Command(resume={waiting.id: "approve"}))
    assert payment.done == [100, 100]
    await payment.go_on()
    state = await payment.graph.aget_state(CONFIG)
    assert state.interrupts[0].value["kind"] == "unknown_outcome"
    assert payment.done == [100, 100]


async def test_what_the_ledger_knows_is_not_asked_about_again() -> None:
    message = {"messages": [{"role": "user", "content": "pay", "id": "one"}]}
    for answer in ("approve", None):
        graph = build_manus_graph(tools=[charge], checkpointer=InMemorySaver())
        model = scripted(calls(("charge", {"amount": 1})), "done")
        ran = await run_graph(graph, model=model, config=CONFIG, task=message)
        if answer is not None:
            command: Command[Any] = Command(resume=answer)
            ran = await run_graph(graph, model=model, config=CONFIG, task=command)
        assert ran.results() == ["charged 1"]


async def test_going_back_is_a_new_branch_where_the_same_call_runs_again() -> None:
    ran_with: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran_with.append(amount)
        return f"run {len(ran_with)}"

    graph = build_manus_graph(tools=[pay], checkpointer=InMemorySaver())
    first = await run_graph(graph, calls(("pay", {"amount": 1})), "done", config=CONFIG)
    history = [state async for state in graph.aget_state_history(CONFIG)]
    before_act = next(state for state in history if state.next == ("act",))
    again = await run_graph(graph, "done again", config=before_act.config, task=None)
    assert (first.results(), again.results()) == (["run 1"], ["run 2"])
    assert again.values["branch"] != first.values["branch"]


async def test_a_call_that_was_cut_off_on_a_branch_is_known_there() -> None:
    payment = Payment("workspace")
    payment.hanging = {2}
    payment.model = scripted(calls(("pay", {"amount": 100})), "done", "done again")
    await payment.go_on("pay")
    await payment.cut_off(None, await payment.before_act())
    assert payment.done == [100, 100]
    ran = await payment.go_on()
    assert payment.done == [100, 100]
    assert "may have run in part" in ran.results()[0]


async def test_a_call_of_an_edited_state_is_known_there() -> None:
    payment = Payment("external")
    payment.hanging = {2}
    pay = calls(("pay", {"amount": 100}))
    payment.model = scripted(pay, "done", pay, "done")
    await payment.go_on("pay")
    edited = {"messages": [HumanMessage("pay again")]}
    await payment.graph.aupdate_state(CONFIG, edited, as_node="__start__")
    await payment.cut_off(None)
    await payment.go_on()
    state = await payment.graph.aget_state(CONFIG)
    assert state.interrupts[0].value["kind"] == "unknown_outcome"
    assert payment.done == [100, 100]


async def test_a_branch_that_was_compacted_is_the_same_after_a_crash() -> None:
    payment = Payment("workspace")
    payment.hanging = {3}
    refused = ModelError("context_length", "The request is too long.")
    first, second = (calls(("pay", {"amount": n}), prefix=f"c{n}-") for n in (100, 200))
    payment.model = scripted(first, "done", refused, "the notes", second, "done again")
    await payment.go_on("pay")
    await payment.cut_off(None, await payment.before_act())
    ran = await payment.go_on()
    assert payment.done == [100, 100, 200]
    assert "may have run in part" in ran.results()[-1]


async def test_a_thread_id_without_a_checkpointer_makes_no_ledger(tmp_path: Path) -> None:
    message = {"messages": [{"role": "user", "content": "pay", "id": "one"}]}
    for _ in range(2):
        graph = build_manus_graph(tools=[charge])
        ran = await run_graph(
            graph, calls(("charge", {"amount": 1})), "done",
            config=CONFIG, task=message, policy="auto",
        )  # fmt: skip
        assert ran.results() == ["charged 1"]
    assert not (tmp_path / "home" / "openmanus.db").exists()


async def test_a_run_that_is_told_to_stop_does_not_wait_to_ask_again() -> None:
    control = RunControl()

    def fail(_: list[BaseMessage]) -> Exception:
        control.request_drain("stop")
        return ReplyError("slow down", status_code=429)

    graph = build_manus_graph(checkpointer=InMemorySaver())
    model = scripted(fail, "done")
    context = Context(model=model)
    given: ManusInput = {"messages": [HumanMessage("go")]}
    with pytest.raises(GraphDrained):
        await graph.ainvoke(given, CONFIG, context=context, control=control)
    assert model.remaining == 1
    assert (await graph.ainvoke(None, CONFIG, context=context))["answer"] == "done"

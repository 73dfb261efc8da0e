"""Steering messages: what a person tells a working agent is read once and begins no run."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import ConfigError, build_manus_graph, build_planning_graph, manus_tool, tell
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence import steering as steering_table
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.steering import open_steering
from openmanus_graph.config.resolve import database_url
from openmanus_graph.model_calls import compaction
from openmanus_graph.model_calls.call_model import ModelCall
from openmanus_graph.runtime.replaying import SteeringMessage
from openmanus_graph.tools.closing import terminate
from tests.support.graphs import Ran, calls, own_text, run_graph, scripted
from tests.support.limits import BACKSTOP_S
from tests.support.planning import PlanBrain, plan_call, use

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
pytestmark = pytest.mark.usefixtures("each_database")


@manus_tool(effect="workspace")
async def hear(text: str, times: int = 1) -> str:
    """Do some work, during which the person says something.

    Args:
        text: What the person says meanwhile.
        times: How often.
    """
    for _ in range(times):
        await tell("t", text)
    return "worked"


def agent(**arguments: Any) -> Any:
    return build_manus_graph(tools=[hear], checkpointer=InMemorySaver(), **arguments)


def roles(messages: list[Any]) -> list[str]:
    return [message.type for message in messages]


def texts(messages: list[Any]) -> list[str]:
    return [own_text(message) for message in messages if message.type == "human"]


async def waiting() -> list[SteeringMessage]:
    return await open_steering(database_url()).of("t")


async def test_it_is_read_at_the_next_step_after_the_results() -> None:
    made = calls(("hear", {"text": "in euros", "times": 2}), ("hear", {"text": "and cents"}))
    ran = await run_graph(agent(), made, "done", config=CONFIG)
    asked = ran.model.requests[1]
    assert roles(asked) == ["system", "human", "ai", "tool", "tool", "human", "human", "human"]
    assert sorted(texts(asked)[1:]) == ["and cents", "in euros", "in euros"]
    assert texts(ran.messages) == texts(asked)
    assert ran.values["status"] == "finished"
    reported = [
        event["text"] for event in ran.events if "Read your message" in event.get("text", "")
    ]
    assert len(reported) == 3
    assert await waiting() == []


async def test_what_comes_after_they_were_fetched_is_read_all_the_same() -> None:
    steering = open_steering(database_url())
    first = await steering.add("t", "first")
    for change in (
        lambda: tell("t", "second"),  # with the same database, and an object of its own
        lambda: steering.mark_read("t", [first]),
        lambda: steering.forget_read("t"),
    ):
        steering.fetch_soon("t")
        await change()
        assert await steering.of("t") == await waiting()
    assert [one.text for one in await waiting()] == ["second"]


async def test_what_was_fetched_is_read_once_and_only_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steering = open_steering(database_url())
    rows = open_database(database_url())
    add = "INSERT INTO steering (id, thread, text) VALUES (?, 't', 'from another process')"

    async def fetch() -> None:
        steering.fetch_soon("t")
        await rows.arun("SELECT 1")

    await fetch()
    rows.run(add, ("1",))
    assert await steering.of("t") == [], "as when they were fetched"
    assert len(await steering.of("t")) == 1
    await fetch()
    rows.run(add, ("2",))
    monkeypatch.setattr(steering_table, "FRESH_S", 0.0)
    assert len(await steering.of("t")) == 2


async def test_it_begins_no_run() -> None:
    same = [calls(("hear", {"text": "go on"}), prefix=f"{n}.") for n in (1, 2)]
    graph = agent()
    ran = await run_graph(graph, *same, "done", config=CONFIG)
    state = (await graph.aget_state(CONFIG)).values
    assert state["step_count"] == 3
    assert state["usage"]["model_calls"] == 3
    assert state["run_message"] == ran.messages[0].id == state["branch"]
    # The same call runs again: it is the second of its kind in this run, not a first one.
    assert ran.results() == ["worked", "worked"]


async def test_it_is_read_although_the_answer_is_being_written() -> None:
    def answer(messages: list[BaseMessage]) -> str:
        with ThreadPoolExecutor() as pool:  # this thread has a loop that waits for the model
            pool.submit(asyncio.run, tell("t", "no, in euros")).result()
        return "5 dollars"

    ran = await run_graph(agent(), answer, "4 euros", config=CONFIG)
    assert ran.values["answer"] == "4 euros"
    new = [message.text for message in ran.messages[1:]]
    assert new == ["5 dollars", "no, in euros", "4 euros"]
    assert [own_text(message) for message in ran.model.requests[1][1:]] == ["the task", *new[:2]]
    assert ran.nodes == ["think", "stuck_check", "think", "terminate"]


async def test_a_terminating_tool_does_not_end_the_run_before_it_is_read() -> None:
    graph = build_manus_graph(tools=[hear, terminate], checkpointer=InMemorySaver())
    made = calls(("hear", {"text": "one more thing"}), ("terminate", {"status": "success"}))
    ran = await run_graph(graph, made, "all done", config=CONFIG)
    assert ran.values["answer"] == "all done"
    assert texts(ran.messages)[-1] == "one more thing"


async def test_a_failed_model_call_leaves_it_unread_until_the_run_goes_on() -> None:
    graph = agent()
    refused = ModelError("auth", "The key was refused.")
    model = scripted(calls(("hear", {"text": "in euros"})), refused, "done")
    ran = await run_graph(graph, model=model, config=CONFIG)
    assert ran.values["status"] == "failed"
    assert "in euros" not in texts(ran.messages)
    notices = [event["text"] for event in ran.events if event["type"] == "notice"]
    assert "came too late" in notices[-1]
    ran = await run_graph(graph, model=model, config=CONFIG, task=Command(goto="think"))
    assert texts(ran.messages)[-1] == "in euros"
    assert await waiting() == []


async def test_a_crash_before_the_step_is_saved_has_it_read_again_but_kept_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver = InMemorySaver()
    graph = build_manus_graph(tools=[hear], checkpointer=saver)
    made = [calls(("hear", {"text": "in euros"})), calls(("hear", {"text": "x", "times": 0}))]
    model = scripted(made[0], made[1], made[1], "done")
    failing = {"left": 1}
    put = saver.aput

    async def crash(config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
        if len(model.requests) == 2 and failing["left"]:
            failing["left"] = 0
            raise sqlite3.OperationalError("killed")
        return await put(config, checkpoint, metadata, versions)

    async def crash_writes(*given: Any) -> None:
        if len(model.requests) == 2 and failing["left"]:
            failing["left"] = 0
            raise sqlite3.OperationalError("killed")
        await writes(*given)

    writes = saver.aput_writes
    monkeypatch.setattr(saver, "aput", crash)
    monkeypatch.setattr(saver, "aput_writes", crash_writes)
    with pytest.raises(sqlite3.OperationalError):
        await run_graph(graph, model=model, config=CONFIG)
    assert [remark.read for remark in await waiting()] == [False]
    ran = await run_graph(graph, model=model, config=CONFIG, task=None)
    assert texts(ran.messages).count("in euros") == 1
    assert texts(model.requests[-1]).count("in euros") == 1
    assert ran.values["status"] == "finished"


async def test_compaction_keeps_it_word_for_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(call: ModelCall, window: int) -> bool:
        return len(call.history) > 4

    monkeypatch.setattr(compaction, "is_full", is_full)
    monkeypatch.setattr(compaction, "KEPT_SHARE", 0.0)
    made = calls(("hear", {"text": "in euros"}))
    ran = await run_graph(agent(), made, "notes", use("hear", text="x", times=0), "more notes", "4",
                          config=CONFIG)  # fmt: skip
    assert texts(ran.messages)[1:] == ["in euros"]
    assert ran.values["status"] == "finished"


async def test_going_back_does_not_read_it_again() -> None:
    graph = agent()
    model = scripted(calls(("hear", {"text": "in euros"})), "in euros", "once more")
    await run_graph(graph, model=model, config=CONFIG)
    history = [state async for state in graph.aget_state_history(CONFIG)]
    before = next(state for state in history if state.next == ("stuck_check",))
    ran = await run_graph(graph, model=model, config=before.config, task=None)
    assert ran.values["answer"] == "once more"
    assert texts(ran.messages) == ["the task"]


async def test_each_step_of_a_plan_reads_it_once() -> None:
    def steps(step: str, messages: list[BaseMessage]) -> AIMessage | str:
        said = [message for message in messages if message.type == "tool"]
        if step == "0" and not said:
            return use("hear", text="in euros")
        return f"result of {step}"

    brain = PlanBrain([plan_call("first", {"text": "second", "depends_on": ["0"]})], steps)
    graph = build_planning_graph(
        executors=build_manus_graph(tools=[hear]), checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(), config=CONFIG)
    assert ran.values["status"] == "finished", ran.values
    assert texts(brain.requests("0")[-1])[1:] == ["in euros"]
    assert texts(brain.requests("1")[-1])[1:] == ["in euros"]
    assert await waiting() == []


async def test_what_replaces_a_failed_step_is_planned_with_it() -> None:
    def steps(step: str, messages: list[BaseMessage]) -> AIMessage | str:
        if step == "new":
            return "result of new"
        if any(message.type == "tool" for message in messages):
            return use("terminate", status="failure")
        return use("hear", text="in euros")

    new: Any = {"id": "new", "text": "another way", "depends_on": []}
    brain = PlanBrain([plan_call("first", "second"), plan_call(new)], steps)
    graph = build_planning_graph(
        executors=build_manus_graph(tools=[hear, terminate]), checkpointer=InMemorySaver()
    )
    await run_graph(graph, model=brain.model(), config=CONFIG)
    assert texts(brain.requests("plan")[0])[1:] == []
    assert "in euros" in texts(brain.requests("plan")[1])


async def test_steps_side_by_side_each_read_what_is_said_meanwhile_once() -> None:
    said = asyncio.Event()

    @tool
    async def wait_until_said() -> str:
        """Wait until the person has said something."""
        async with asyncio.timeout(BACKSTOP_S):
            await said.wait()
        return "waited"

    def steps(step: str, messages: list[BaseMessage]) -> AIMessage | str:
        worked = any(message.type == "tool" for message in messages)
        if worked and step == "says":
            said.set()
        if worked or step == "later":
            return f"result of {step}"
        return use("hear", text="in euros") if step == "says" else use("wait_until_said")

    beside: list[Any] = [{"id": name, "text": name, "depends_on": []} for name in ("says", "waits")]
    later = {"id": "later", "text": "later", "depends_on": ["says", "waits"]}
    brain = PlanBrain([plan_call(*beside, later)], steps)
    graph = build_planning_graph(
        executors=build_manus_graph(tools=[hear, wait_until_said]), checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(), config=CONFIG)
    assert ran.values["status"] == "finished", ran.values
    for name in ("says", "waits", "later"):
        assert texts(brain.requests(name)[-1])[1:] == ["in euros"], name
    assert await waiting() == []


async def test_without_a_checkpointer_nothing_is_read() -> None:
    graph = build_manus_graph(tools=[hear])
    ran: Ran = await run_graph(graph, calls(("hear", {"text": "x"})), "done", config=CONFIG)
    assert texts(ran.messages) == ["the task"]


@pytest.mark.parametrize(("thread", "text"), [("", "x"), ("t", " \n")])
async def test_an_empty_remark_is_refused(thread: str, text: str) -> None:
    with pytest.raises(ConfigError, match="neither can be empty"):
        await tell(thread, text)


async def test_what_a_person_says_during_the_final_summary_is_read_when_the_run_goes_on() -> None:
    graph = agent()

    def closing(messages: list[BaseMessage]) -> str:
        with ThreadPoolExecutor() as pool:  # this thread has a loop that waits for the model
            pool.submit(asyncio.run, tell("t", "in euros")).result()
        return "One is done."

    model = scripted(calls(("hear", {"text": "x", "times": 0})), closing, "It is in euros.")
    stopped = await run_graph(graph, model=model, config=CONFIG, max_steps=1)
    assert stopped.values["answer"] == "One is done."
    assert any("came too late" in str(event.get("text")) for event in stopped.events)
    again: Command[Any] = Command(goto="think")
    ran = await run_graph(graph, model=model, config=CONFIG, task=again, max_steps=9)
    assert "in euros" in [message.text for message in model.requests[-1]]
    assert ran.values["answer"] == "It is in euros."


async def test_who_speaks_while_the_run_fails_is_heard() -> None:
    def announcing(messages: list[BaseMessage]) -> str:
        with ThreadPoolExecutor() as pool:  # this thread has a loop that waits for the model
            pool.submit(asyncio.run, tell("t", "just say hello")).result()
        return "Now I will list the files."

    ran = await run_graph(agent(), "I will list the files.", announcing, "Hello.", config=CONFIG)
    assert ran.values["answer"] == "Hello."
    assert "just say hello" in texts(ran.model.requests[-1])

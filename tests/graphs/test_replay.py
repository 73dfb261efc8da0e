"""Replays: the run again from its record, without a model, and without an effect."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph, manus_tool
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.steering import tell
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs import catalog
from openmanus_graph.interfaces.service.options import WORKSPACE_URL_VARIABLE
from openmanus_graph.interfaces.service.replay import Replayed, replay_thread
from openmanus_graph.model_calls.projection import CUT_OFF
from openmanus_graph.nodes import think, think_request
from openmanus_graph.nodes.think_request import AgentStep
from openmanus_graph.runtime.session_registry import close_session
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.context import MCPServer, PolicyRule
from openmanus_graph.tool_calls.agent import ResolvedTools
from tests.support.graphs import Ran, calls, run_graph, scripted

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
made: list[int] = []
"""What the tool has done."""


@manus_tool(effect="workspace")
def put(number: int) -> str:
    """Put a number down."""
    made.append(number)
    return f"put {number} down as number {len(made)}"


@manus_tool(effect="read_only")
async def ask(question: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Ask the model."""
    ask_model = call_runtime(runtime).ask_model
    assert ask_model is not None
    return await ask_model("You answer.", question)


def build(**arguments: Any) -> Any:
    """Build the agent of these tests."""
    return build_manus_graph(tools=[put, ask], **arguments)


@pytest.fixture(autouse=True)
def _agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_registered", {"putting": build})
    made.clear()


async def run(*replies: Any, tasks: tuple[str, ...] = ("the task",), **context: Any) -> Ran:
    """Run tasks on the thread with a model that gives these replies."""
    model = scripted(*replies)
    async with open_checkpointer(database_url()) as saver:
        graph = build(checkpointer=saver)
        ran = [
            await run_graph(graph, model=model, task=task, config=CONFIG, **context)
            for task in tasks
        ]
    Threads(open_database(database_url())).begin("t", "putting", "the task", {}, None)
    close_session("t")
    made.clear()
    return ran[-1]


async def replayed(agent: str = "putting", **context: Any) -> Replayed:
    """Replay the thread, with a model that has nothing to say."""
    found = Threads(open_database(database_url())).find("t")
    assert isinstance(found, Thread)
    given = Context(model=scripted(), workspace="work", **context)
    before = rows()
    result = await replay_thread(replace(found, agent=agent), given)
    assert made == [], "no call is run again"
    assert rows() == before, "nothing is written"
    return result


def rows() -> list[list[tuple[Any, ...]]]:
    tables = [
        *("model_calls", "recorded_facts", "ledger", "steering"),
        *("questions", "threads", "first_sights", "file_locations"),
    ]
    return [open_database(database_url()).run(f"SELECT * FROM {table}") for table in tables]


def putting(number: int) -> AIMessage:
    return calls(("put", {"number": number}), prefix=f"c{number}-")


async def test_a_run_is_the_same_without_a_model_and_without_an_effect() -> None:
    await run(putting(1), putting(1), calls(("put", {"number": "x"})), "done")
    result = await replayed()
    assert (result.model_calls, result.differences, result.ended) == (4, [], "")
    assert result.is_equal


async def test_all_runs_of_a_thread_are_replayed_on_another_day() -> None:
    def leap_day() -> str:
        return "2020-02-29"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(think, "today", leap_day)
        ran = await run(putting(1), "one", putting(2), "two", tasks=("first", "second"))
    assert "2020-02-29" in ran.model.requests[0][1].text
    assert (await replayed()).is_equal


async def test_a_limit_and_its_final_summary_are_replayed() -> None:
    await run(putting(1), putting(2), "That is done.", max_steps=2)
    assert (await replayed(max_steps=2)).is_equal
    longer = await replayed(max_steps=3)
    assert longer.differences[0].position == 1, "the prompt names the limit"


async def test_the_model_call_of_a_tool_is_not_missed_as_the_tool_does_not_run() -> None:
    await run(calls(("ask", {"question": "Why?"})), "because", "done")
    result = await replayed()
    assert (result.model_calls, result.ended, result.is_equal) == (3, "", True)


async def test_no_server_is_started_in_a_replay(tmp_path: Path) -> None:
    await run("done")
    started = tmp_path / "started"
    server = MCPServer("files", command="touch", args=(str(started),))
    assert (await replayed(mcp_servers=(server,))).is_equal
    assert not started.exists()


async def test_what_the_person_said_meanwhile_is_read_again_where_it_was() -> None:
    await tell("t", "Stop at one.")
    await run(putting(1), "done")
    assert (await replayed()).is_equal


async def test_a_changed_prompt_is_shown_as_the_difference_of_the_request() -> None:
    await run(putting(1), "done")
    result = await replayed(prompts={"next_step": "Think twice."})
    assert [one.position for one in result.differences] == [1, 2]
    shown = result.differences[0].diff().splitlines()
    assert [line for line in shown[2:] if line[:1] in "+-"] == [
        "+--- 4 human ---",
        "+Think twice.",
    ]
    assert not result.is_equal


async def test_a_tool_that_is_gone_is_shown() -> None:
    await run(putting(1), "done")
    result = await replayed(agent="manus")
    assert '-   "name": "put",' in result.differences[0].diff()


async def test_what_is_not_in_the_record_ends_the_replay() -> None:
    await run(putting(1), "done")
    database = open_database(database_url())
    database.run("DELETE FROM model_calls WHERE number = 2")
    result = await replayed()
    assert result.ended.startswith("The run makes a model call that is not in the record (think)")
    database.run("DELETE FROM ledger")
    result = await replayed()
    assert result.ended == 'The record ends before this call did: put {"number":1}'
    assert not result.is_equal


async def test_a_run_that_ends_before_its_record_does_is_told() -> None:
    await run(putting(1), putting(2), "done")
    result = await replayed(max_total_tokens=1)
    assert result.ended == "The runs ended before model call 1 of the record."


async def test_a_thread_without_a_record_is_refused() -> None:
    await run("done")
    open_database(database_url()).run("DELETE FROM model_calls")
    with pytest.raises(ConfigError, match="has no record of its model calls"):
        await replayed()


async def test_files_that_go_with_their_thread_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(WORKSPACE_URL_VARIABLE, str(tmp_path / "shared"))
    await run(putting(1), "done", workspace="work")
    shared = sorted((tmp_path / "shared").rglob("*"))
    assert shared
    (tmp_path / "work" / "later").write_text("x")
    assert (await replayed()).is_equal
    assert sorted((tmp_path / "shared").rglob("*")) == shared


async def test_a_thread_that_was_edited_is_refused() -> None:
    await run("done")
    async with open_checkpointer(database_url()) as saver:
        await build(checkpointer=saver).aupdate_state(CONFIG, {"hint": "x"}, as_node="think")
    with pytest.raises(ConfigError, match="was edited or went back"):
        await replayed()


@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_what_a_person_decided_on_a_call_is_not_asked_again(decision: str) -> None:
    rules = (PolicyRule(tool="put", decision="ask"),)
    model = scripted(putting(1), "done")
    async with open_checkpointer(database_url()) as saver:
        graph = build(checkpointer=saver)
        await run_graph(graph, model=model, config=CONFIG, policy_rules=rules)
        answer: Command[Any] = Command(resume={"decisions": [{"type": decision, "message": "no"}]})
        ran = await run_graph(graph, model=model, task=answer, config=CONFIG, policy_rules=rules)
    assert ran.values["answer"] == "done"
    assert made == ([1] if decision == "approve" else [])
    Threads(open_database(database_url())).begin("t", "putting", "the task", {}, None)
    close_session("t")
    made.clear()
    assert (await replayed(policy_rules=rules)).is_equal


async def test_a_question_that_a_new_message_left_is_left_again() -> None:
    rules = (PolicyRule(tool="put", decision="ask"),)
    model = scripted(putting(1), putting(2), "done")
    async with open_checkpointer(database_url()) as saver:
        graph = build(checkpointer=saver)
        for task in ("the task", "no, the other one", "never mind"):
            await run_graph(graph, model=model, task=task, config=CONFIG, policy_rules=rules)
    assert made == []
    results = [one.text for one in model.requests[-1] if one.type == "tool"]
    assert results == [CUT_OFF] * 2
    Threads(open_database(database_url())).begin("t", "putting", "the task", {}, None)
    close_session("t")
    again = await replayed(policy_rules=rules)
    assert again.is_equal
    assert again.model_calls == 3


@pytest.mark.parametrize("changed", range(20))
async def test_a_seeded_change_of_a_prompt_is_found_at_the_right_step(
    changed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt that all requests have, or a suffix that those from some step on have."""
    random = Random(changed)
    count = random.randint(3, 8)
    at = random.randint(1, count)
    await run(*(putting(n) for n in range(1, count)), "done")

    def suffix(step: AgentStep, tools: ResolvedTools) -> str:
        said = reminder(step, tools)
        return f"{said}\n\nHurry, now." if step.progress.steps + 1 >= at else said

    reminder = think_request.reminder
    monkeypatch.setattr(think_request, "reminder", suffix)
    result = await replayed()
    assert result.differences[0].position == at
    assert len(result.differences) == count - at + 1
    assert "+Hurry, now." in result.first_difference()


@pytest.mark.exhaustive
async def test_a_run_of_300_steps_is_replayed_from_its_record() -> None:
    await run(*(putting(n) for n in range(299)), "done", max_steps=300)
    result = await replayed(max_steps=300)
    assert (result.model_calls, result.is_equal) == (300, True)
    assert len(result.tool_calls) == 299

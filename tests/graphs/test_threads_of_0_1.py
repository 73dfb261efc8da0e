"""Threads that version 0.1 wrote, when state keys had other names, are taken up as they stand.

`home_0_1.zip` is a home folder of that version with three threads: `waiting` asks about two calls
and had a variable in its kernel, `limit` was stopped and had been told something, and the step of
`plan` was stopped half done.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Overwrite

from openmanus_graph import Context, build_manus_graph, build_planning_graph, manus_tool
from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.config.resolve import database_url, openmanus_home
from openmanus_graph.state.renamed import CURRENT_NAMES, moved, with_current_names
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.tools.python_execute import python_execute

ARCHIVE = Path(__file__).parent.parent / "support" / "home_0_1.zip"
PAID: list[int] = []


@manus_tool(effect="external")
def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    PAID.append(amount)
    return f"paid {amount}"


@manus_tool(effect="workspace", resource="note")
def note(text: str) -> str:
    """Note.

    Args:
        text: What.
    """
    return f"noted {text}"


@pytest.fixture
async def saver() -> AsyncIterator[Checkpointer]:
    PAID.clear()
    shutil.unpack_archive(ARCHIVE, openmanus_home())
    async with open_checkpointer(database_url()) as saver:
        yield saver


def thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


def seen_by(model: ScriptedChatModel) -> list[str]:
    return [message.text for message in model.requests[0]]


async def test_an_approval_that_was_asked_for_is_taken_and_lost_variables_are_told(
    saver: Checkpointer,
) -> None:
    graph = build_manus_graph(tools=[pay, note, python_execute], checkpointer=saver)
    model = ScriptedChatModel(["Done."])
    context = Context(model=model, workspace="work")
    asked = (await graph.aget_state(thread("waiting"))).interrupts
    answers: dict[str, Any] = {one.id: "approve" for one in asked}
    result = await graph.ainvoke(Command(resume=answers), thread("waiting"), context=context)
    assert (result["status"], result["answer"], PAID) == ("finished", "Done.", [2])
    assert "Python: variables answer." in seen_by(model)[-1]
    values = (await graph.aget_state(thread("waiting"))).values
    assert values["handle_state"] == {}, "what is lost is told once"


async def test_a_run_that_was_stopped_goes_on_and_reads_nothing_twice(
    saver: Checkpointer,
) -> None:
    graph = build_manus_graph(tools=[pay, note], checkpointer=saver)
    model = ScriptedChatModel(["Noted."])
    context = Context(model=model, workspace="work", max_steps=5)
    result = await graph.ainvoke(Command(goto="think"), thread("limit"), context=context)
    assert (result["status"], result["answer"]) == ("finished", "Noted.")
    assert seen_by(model).count("Be quick.") == 1


async def test_a_step_that_was_stopped_goes_on_where_it_was(saver: Checkpointer) -> None:
    worker = build_manus_graph(tools=[note], name="worker")
    flow = build_planning_graph(executors={"worker": worker}, checkpointer=saver)
    model = ScriptedChatModel(["Second is done.", "Both are done."])
    context = Context(model=model, workspace="work", max_steps=20, max_parallel_steps=1)
    result = await flow.ainvoke(Command(goto="schedule"), thread("plan"), context=context)
    assert (result["status"], result["answer"]) == ("finished", "Both are done.")
    assert "noted half" in seen_by(model), "its conversation goes on"
    steps = (await flow.aget_state(thread("plan"))).values["steps"]
    assert [step["status"] for step in steps.values()] == ["completed", "completed"]


def test_what_stands_under_both_names_counts_as_it_stands_under_todays() -> None:
    step = {"id": "a", "lane": 1, "worker": 2, "wrote": ["x"]}
    state = {"held": {"old": 1}, "handle_state": {"new": 1}, "steps": {"a": step}}
    assert with_current_names(state) == {
        "handle_state": {"new": 1},
        "steps": {"a": {"id": "a", "worker": 2, "written_files": ["x"]}},
    }
    assert not CURRENT_NAMES.keys() & set(CURRENT_NAMES.values())


def test_what_was_kept_under_old_names_is_moved_once() -> None:
    saved = {"messages": [], "held": {"k": 1}, "granted": [], "mending": ["a"]}
    update = moved(saved, {"hint": ""})
    assert update == {
        "handle_state": Overwrite({"k": 1}),
        "held": Overwrite({}),
        "replanning": ["a"],
        "mending": [],
        "hint": "",
    }
    assert moved(saved, {"replanning": []})["replanning"] == [], "what the node says counts"
    command = moved(saved, Command(update={"hint": "x"}, goto="think"))
    assert (command.goto, command.update["mending"], command.update["hint"]) == ("think", [], "x")
    assert moved({"messages": []}, {"hint": ""}) == {"hint": ""}


def test_arguments_of_calls_are_nobodys_state() -> None:
    call = {"id": "1", "args": {"held": "a word"}, "unvouched": ["http://a.test"]}
    renamed = with_current_names({"calls": [call]})["calls"]
    assert renamed == [{"id": "1", "args": {"held": "a word"}, "unverified": ["http://a.test"]}]

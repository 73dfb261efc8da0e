"""Plans that were under way when all steps of a superstep waited for each other go on.

`home_lockstep.zip` is a home folder of that version with four threads of plans, each left at
another place: `asks` waits for a person in one step, beside a finished one; `middle` was cut off
inside a step, beside a finished one; `review` at the check of a step; `replan` while the planner
was to replace a step that had failed.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph, build_planning_graph, manus_tool
from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.config.resolve import database_url, openmanus_home
from openmanus_graph.tools.ask_human import ask_human
from tests.support.planning import PlanBrain, plan_call, use

ARCHIVE = Path(__file__).parent.parent / "support" / "home_lockstep.zip"
NOTED: list[str] = []


@manus_tool(effect="workspace", resource="note")
def note(text: str) -> str:
    """Note.

    Args:
        text: What.
    """
    NOTED.append(text)
    return f"noted {text}"


@pytest.fixture
async def saver() -> AsyncIterator[Checkpointer]:
    NOTED.clear()
    shutil.unpack_archive(ARCHIVE, openmanus_home())
    async with open_checkpointer(database_url()) as saver:
        yield saver


def work(name: str, messages: list[BaseMessage]) -> Any:
    if messages[-1].type == "tool":
        return f"result of {name}"
    return use("note", text=name)


async def resume(
    saver: Checkpointer, name: str, given: Any, brain: PlanBrain
) -> tuple[dict[str, Any], dict[str, str]]:
    """Resume a thread to its end; return the final state and the steps' statuses."""
    thread: RunnableConfig = {"configurable": {"thread_id": name}}
    worker = build_manus_graph(tools=[note, ask_human], name="worker")
    flow = build_planning_graph(executors={"worker": worker}, checkpointer=saver)
    context = Context(model=brain.model(), workspace="work")
    result = await flow.ainvoke(given, thread, context=context)
    steps = (await flow.aget_state(thread)).values["steps"]
    return result, {step["id"]: step["status"] for step in steps.values()}


async def test_a_question_is_answered_and_the_finished_step_not_asked_again(
    saver: Checkpointer,
) -> None:
    brain = PlanBrain([], work)
    result, statuses = await resume(saver, "asks", Command(resume="red"), brain)
    assert (result["status"], set(statuses.values())) == ("finished", {"completed"})
    assert not brain.requests("a")
    assert "red" in brain.requests("b")[0][-1].text
    assert "result of a" in brain.requests("c")[0][-1].text
    assert NOTED == ["c"]


async def test_a_step_that_was_cut_off_goes_on_where_it_was(saver: Checkpointer) -> None:
    brain = PlanBrain([], work)
    result, statuses = await resume(saver, "middle", None, brain)
    assert (result["status"], set(statuses.values())) == ("finished", {"completed"})
    assert [len(brain.requests(name)) for name in ("a", "b", "c")] == [0, 1, 2]
    assert NOTED == ["c"]
    assert result["usage"]["model_calls"] == 1 + 2 + 2 + 2 + 1


async def test_a_step_that_was_to_be_checked_is_checked_and_not_run_again(
    saver: Checkpointer,
) -> None:
    brain = PlanBrain([], work, verdicts=[use("verdict", done=True, reason="it is")])
    result, statuses = await resume(saver, "review", None, brain)
    assert (result["status"], set(statuses.values())) == ("finished", {"completed"})
    assert [len(brain.requests(name)) for name in ("a", "check", "c")] == [0, 1, 2]


async def test_what_was_to_be_planned_anew_is(saver: Checkpointer) -> None:
    steps = [{"id": "b", "text": "another way"}, {"id": "c", "text": "do c"}]
    brain = PlanBrain([plan_call(*steps)], work)
    result, statuses = await resume(saver, "replan", None, brain)
    assert (result["status"], statuses) == ("finished", {"b": "completed", "c": "completed"})
    assert "Step a failed" in brain.requests("plan")[0][-1].text

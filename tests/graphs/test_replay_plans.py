"""Replays of plans: the planner, the steps side by side, their checks, the summary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from openmanus_graph import Context, build_planning_graph
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.config.resolve import database_url
from openmanus_graph.graphs.catalog import FLOW
from openmanus_graph.interfaces.service.replay import Replayed, replay_thread
from openmanus_graph.nodes import think_request
from openmanus_graph.runtime.session_registry import close_session
from openmanus_graph.state.settings import Settings
from tests.support.graphs import run_graph
from tests.support.planning import PlanBrain, plan_call, use

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def save(name: str, text: str = "x") -> Any:
    return use("str_replace_editor", command="create", path=name, file_text=text)


async def plan_and_replay(
    brain: PlanBrain, meanwhile: Callable[[], object] = lambda: None, **context: Any
) -> Replayed:
    """Run a plan, and replay it with a model that has nothing to say."""
    async with open_checkpointer(database_url()) as saver:
        graph = build_planning_graph(checkpointer=saver)
        model = brain.model()
        ran = await run_graph(graph, model=model, config=CONFIG, workspace="work", **context)
    assert ran.values["status"] == "finished"
    Threads(open_database(database_url())).begin("t", FLOW, "the task", {}, None)
    close_session("t")
    meanwhile()
    found = Threads(open_database(database_url())).find("t")
    assert isinstance(found, Thread)
    asked = len(model.requests)
    result = await replay_thread(found, Context(model=model, workspace="work", **context))
    assert len(model.requests) == asked
    assert result.model_calls == asked
    return result


async def test_steps_side_by_side_are_replayed(tmp_path: Path) -> None:
    steps = [
        {"id": "a", "text": "make a", "done_when": "file: a.txt"},
        {"id": "b", "text": "make b", "done_when": "command: test -s b.txt"},
        {
            "id": "c",
            "text": "look at both",
            "depends_on": ["a", "b"],
            "done_when": "both are there",
        },
    ]
    brain = PlanBrain(
        [plan_call(*steps)],
        {
            "a": [save("a.txt"), "a is made"],
            "b": [save("b.txt"), "b is made"],
            "c": ["both are fine"],
        },
        verdicts=[use("verdict", done=True, reason="")],
    )

    def remove() -> None:
        (tmp_path / "work" / "a.txt").unlink()
        (tmp_path / "work" / "b.txt").unlink()

    result = await plan_and_replay(brain, remove)
    assert (result.differences, result.ended) == ([], "")
    assert not (tmp_path / "work" / "a.txt").exists(), "nothing is made again"


async def test_a_failed_check_and_a_second_attempt_are_replayed() -> None:
    step = {"id": "a", "text": "make a", "done_when": "command: cat a.txt"}
    brain = PlanBrain([plan_call(step)], {"a": ["it is made", save("a.txt"), "now it is"]})
    result = await plan_and_replay(brain)
    assert (result.differences, result.ended) == ([], "")


async def test_what_the_planner_saw_of_the_workspace_is_shown_to_it_again(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    file = tmp_path / "work" / "data.csv"
    file.write_text("a,b\n1,2\n")
    brain = PlanBrain([plan_call("look at it")], {"0": ["I saw it"]})
    result = await plan_and_replay(brain, lambda: file.write_text("other\n"))
    assert (result.differences, result.ended) == ([], "")


async def test_a_changed_prompt_is_found_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    brain = PlanBrain([plan_call("one", "two")], {})

    def no_limits(settings: Settings) -> list[str]:
        return ["no limit"]

    def change() -> None:
        monkeypatch.setattr(think_request, "_limits", no_limits)

    result = await plan_and_replay(brain, change)
    assert [one.call.facts["place"].split()[-1] for one in result.differences] == ["0", "1"]
    assert "no limit" in result.differences[0].diff()

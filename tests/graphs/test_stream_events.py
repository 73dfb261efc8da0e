"""`stream_events`: the events of a run in an app that embeds a graph."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import ConfigError, Context, build_manus_graph, stream_events
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.runtime.events import event_schema
from tests.support.graphs import calls, scripted
from tests.support.planning import PlanBrain, Reply, plan_call, use

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
TASK = {"messages": [HumanMessage("the task")]}


async def events_of(graph: Any, given: Any, config: Any = None, **context: Any) -> list[Any]:
    check = jsonschema.Draft202012Validator(event_schema())
    events: list[Any] = []
    async for event in stream_events(graph, given, config, context=Context(**context)):
        check.validate(event)
        events.append(event)
    assert (events[0]["type"], events[-1]["type"]) == ("run_start", "final")
    return events


@pytest.mark.parametrize("config", [None, CONFIG])
async def test_a_run_begins_and_ends_with_its_events(config: Any, tmp_path: Path) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver() if config else None)
    model = scripted(calls(("bash", {"command": "echo 1 > a.txt"})), "done")
    events = await events_of(graph, TASK, config, model=model, workspace=str(tmp_path))
    begun, final = events[0], events[-1]
    assert (begun["task"], begun["agent"], begun["workspace"]) == (
        "the task", "manus", str(tmp_path),
    )  # fmt: skip
    assert (final["status"], final["answer"], final["usage"]["model_calls"]) == (
        "finished", "done", 2,
    )  # fmt: skip
    assert [one["path"] for one in final["artifacts"]] == ["a.txt"]
    assert [e["tool"] for e in events if e["type"] in ("tool_start", "tool_end")] == ["bash"] * 2
    assert {event["thread"] for event in events} == {"t" if config else ""}


async def test_a_question_is_an_event_and_its_answer_goes_on(tmp_path: Path) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    given: dict[str, Any] = {"model": scripted(calls(("ask_human", {"inquire": "Which?"})), "red")}
    given["workspace"] = str(tmp_path)
    first = await events_of(graph, TASK, CONFIG, **given)
    (asked,) = [event for event in first if event["type"] == "interrupt"]
    assert (asked["question"], first[-1]["status"]) == ("Which?", "waiting")
    again = await events_of(graph, Command(resume={asked["id"]: "red"}), CONFIG, **given)
    assert (again[0]["task"], again[-1]["answer"]) == ("the task", "red")
    assert not [event for event in again if event["type"] == "interrupt"]


async def test_events_of_a_plan_name_their_step_and_each_question_comes_once(
    tmp_path: Path,
) -> None:
    steps: dict[str, list[Reply]] = {
        "0": [use("ask_human", inquire="Which?"), "a"],
        "1": [use("bash", command="true"), "b"],
    }
    brain = PlanBrain(plans=[plan_call("first", "second")], steps=steps)
    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    events = await events_of(graph, TASK, CONFIG, model=brain.model(), workspace=str(tmp_path))
    (asked,) = [event for event in events if event["type"] == "interrupt"]
    assert (asked["plan_step"], events[-1]["status"]) == ("0", "waiting")
    assert {e["plan_step"] for e in events if e["type"] == "tool_start"} == {"0"}


async def test_a_wrong_setting_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        await events_of(build_manus_graph(), TASK, model="nosuch:model", workspace=str(tmp_path))

"""A thread shown from its stored state: all that was said, as it was sent while the run went on."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.persistence.checkpoints import fork, open_checkpointer, points_of
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import database_url
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.interfaces.service.thread_view import (
    read_conversations,
    stored_events,
    transcript,
)
from tests.graphs.test_compaction import answering, note
from tests.support.graphs import Ran, run_graph, scripted
from tests.support.planning import PlanBrain, Reply, plan_call, plans_shown, use

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def known(agent: str = "manus", thread: str = "t") -> Thread:
    return Thread(thread, agent, "Count.", {}, "finished", "2030-01-01", "2030-01-01")


def told(events: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What a person sees of the replies and calls, by plan step."""
    seen: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        place = str(event.get("plan_step", ""))
        if event["type"] == "think_end":
            calls = [(call["tool"], call["args"]) for call in event["tool_calls"]]
            seen[place].append((event["step"], event["text"], calls))
        elif event["type"] == "tool_end":
            seen[place].append((event["tool"], event["ok"], event["output"]))
    return seen


async def long_run(graph: Any, task: str, steps: int = 40) -> Ran:
    model = scripted(*[answering(steps)] * 100)
    model.usage = None  # estimated from the texts
    model.profile = {"max_input_tokens": 4000}
    return await run_graph(graph, model=model, task=task, config=CONFIG, max_steps=200)


async def test_compaction_loses_nothing_of_what_is_shown(tmp_path: Path) -> None:
    async with open_checkpointer(database_url()) as saver:
        graph = build_manus_graph(tools=[note], checkpointer=saver)
        ran = [await long_run(graph, "Count."), await long_run(graph, "Count\n on.")]
        state = await graph.aget_state(CONFIG)
        values, runs = await read_conversations(graph, saver, "t", state.values)
        newest = (await points_of(saver, "t"))[-1].checkpoint
        await fork(saver, "t", newest, "copy")
        copied, _ = await read_conversations(graph, saver, "copy", state.values)
        await saver.adelete_thread("t")
        rest, _ = await read_conversations(graph, saver, "t", state.values)
    assert sum("compacted" in str(event.get("text")) for one in ran for event in one.events) > 3
    assert len(state.values["messages"]) < 60
    said: list[AnyMessage] = values["messages"]
    assert [m.text for m in said if m.type == "human"] == ["Count.", "Count\n on."]
    sent = [event for one in ran for event in one.events]
    assert told(stored_events(known(), values, runs)) == told(sent)
    assert [m.text for m in copied["messages"]] == [m.text for m in said]
    text = "".join(transcript(known(), values, runs, cut=False))
    assert text.count("## User") == 2
    assert "out.csv" not in text, "no summary of ours is in it"
    # Without its checkpoints, what is left of the thread still has the person's own words.
    assert [m.text for m in rest["messages"] if isinstance(m, HumanMessage)] == [
        "Count.", "Count\n on.",
    ]  # fmt: skip


def test_headings_of_an_answer_are_below_those_of_the_transcript() -> None:
    answer = "# Report\n\n```sh\n# no heading\n```\n###### Last"
    said = {"messages": [HumanMessage("# Task"), AIMessage(answer)]}
    text = "\n".join(transcript(known(), said, {}, cut=False))
    assert re.findall("^#+ .*", text, re.MULTILINE)[1:] == [
        "## User", "### Task", "## Agent", "### Report", "# no heading", "###### Last",
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["echo made", "false"])
async def test_a_plan_is_shown_as_it_was_sent(tmp_path: Path, command: str) -> None:
    replies: dict[str, list[Reply]] = {
        name: [use("bash", command=f"{command} # {name}"), f"{name} done"] for name in "01"
    }
    brain = PlanBrain(plans=[plan_call("first", "second", title="Both")], steps=replies)
    async with open_checkpointer(database_url()) as saver:
        graph = build_planning_graph(executors={"manus": build_manus_graph()}, checkpointer=saver)
        ran = await run_graph(
            graph, model=brain.model(), config=CONFIG, workspace=str(tmp_path / "work")
        )
        state = await graph.aget_state(CONFIG)
        values, runs = await read_conversations(graph, saver, "t", state.values)
    events = [*stored_events(known("planning"), values, runs)]
    assert plans_shown(events)[-1] == plans_shown(ran.events)[-1]
    sent, shown = told(ran.events), told(events)
    for name in "01":
        (thought, call, answer) = shown[name]
        assert call[0] == "bash"
        assert all(one in sent[""] for one in (thought, call, answer))
    assert shown[""][-1][1] == ran.values["answer"]
    steps = [(one["type"], one["id"]) for one in events if one["type"].startswith("step_")]
    assert steps == [(kind, name) for name in "01" for kind in ("step_start", "step_end")]

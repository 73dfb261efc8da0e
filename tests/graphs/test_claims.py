"""Where the figures of an answer come from: results at full length, and reports of the run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.conversation.announcements import NamedFiles
from openmanus_graph.conversation.answer_sources import judged_claims
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.runtime.observations import observations_of
from openmanus_graph.runtime.output import shorten
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.tool_calls.declaration import manus_tool
from tests.support.answers import SALES, show, write
from tests.support.graphs import Ran, calls, run_graph
from tests.support.planning import PlanBrain, plan_call, use

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_blocking")]
TASK = "How many units were sold in sales.csv?"
SHOW = calls(("show", {"path": "sales.csv"}))


@manus_tool(effect="workspace")
def compute(path: str) -> str:
    """Write a file with a computed number."""
    Path("work", path).write_text("units\n98765\n")
    return "(no output)"


@manus_tool(effect="workspace")
def make_data(path: str) -> str:
    """Write a table of many rows."""
    Path("work", path).write_text("n,units\n" + "".join(f"{n},{n * 977}\n" for n in range(40)))
    return "(no output)"


def put_file() -> None:
    Path("work").mkdir(exist_ok=True)
    Path("work/sales.csv").write_text(SALES)


async def ask(*replies: AIMessage | str, task: str = TASK) -> Ran:
    put_file()
    graph = build_manus_graph(tools=[show, write, compute, make_data])
    return await run_graph(graph, model=ScriptedChatModel([*replies]), task=task)


def kinds(ran: Ran) -> list[tuple[str, str, str]]:
    return [(one["text"], one["kind"], one["file"]) for one in ran.values["sources"]]


async def test_each_figure_names_its_call_and_place() -> None:
    answer = "West sold 310 of 555 units, 55.9 %."
    ran = await ask(SHOW, answer)
    assert kinds(ran) == [("310", "quoted", ""), ("555", "derived", ""), ("55.9 %", "derived", "")]
    first = ran.values["sources"][0]
    assert answer[first["start"] : first["end"]] == "310"
    assert SALES[first["source_start"] : first["source_end"]] == "310"
    assert (first["call_id"], first["source"]) == ("c1", "sales.csv")
    assert first["excerpt"] == "west,310,1.75"
    assert ran.values["claims"] == {"found": 3, "not_found": 0, "checked": 3}


async def test_a_report_that_the_model_wrote_is_checked() -> None:
    made = calls(
        ("write", {"path": "r.md", "text": "North sold 120 units, south 4711."}), prefix="w"
    )
    ran = await ask(SHOW, made, "The report is done.", task="Report on sales.csv in r.md.")
    assert kinds(ran) == [("120", "quoted", "r.md"), ("4711", "not_found", "r.md")]
    assert ran.values["claims"] == {"found": 1, "not_found": 1, "checked": 2}


async def test_what_a_program_wrote_into_a_file_is_computed() -> None:
    made = calls(("compute", {"path": "out.csv"}), prefix="w")
    ran = await ask(SHOW, made, "The table is done.", task="Compute sales.csv into out.csv.")
    assert kinds(ran) == [("98765", "computed", "out.csv")]


async def test_a_plans_answer_is_checked_against_the_evidence_of_its_steps() -> None:
    put_file()
    said = {"a": "West sold 310 units, and south 4711.", "b": "310 and 4711 units."}

    def work(step: str, messages: list[BaseMessage]) -> AIMessage | str:
        shown = messages[-1].type == "tool" or step == "b"
        return said[step] if shown else use("show", path="sales.csv")

    steps: list[Any] = [
        {"id": "a", "text": "look at sales.csv", "done_when": "both are known"},
        {"id": "b", "text": "write about it", "depends_on": ["a"]},
    ]
    brain = PlanBrain(
        [plan_call(*steps)], work,
        verdicts=[use("verdict", done=True, reason="they are")],
    )  # fmt: skip
    graph = build_planning_graph(executors={"manus": build_manus_graph(tools=[show])})
    ran = await run_graph(graph, model=brain.model(), task=TASK)
    assert "None of its sources has these claims of the report: 4711" in str(
        brain.requests("check")
    )
    found = [(one["text"], one["kind"], one["source"]) for one in ran.values["sources"]]
    assert found[:2] == [("310", "quoted", "sales.csv"), ("4711", "not_found", "")]
    assert ran.values["claims"]["not_found"] >= 1
    assert ran.values["claims"]["checked"] == len(found)


async def test_a_subagents_words_are_no_evidence_but_what_it_found_is() -> None:
    put_file()
    answers = {
        "main": [calls(("delegate", {"agent": "manus", "task": "count"}), prefix="d"),
                 "West sold 310 units, south 4711."],
        "sub": [calls(("bash", {"command": "cat sales.csv"})), "West sold 310, south 4711."],
    }  # fmt: skip

    def answer(messages: list[BaseMessage]) -> Any:
        said = "".join(str(one.content) for one in messages if one.type == "human")
        return answers["sub" if "You are a subagent" in said else "main"].pop(0)

    model = ScriptedChatModel([answer] * 9)
    ran = await run_graph(
        build_manus_graph(), model=model, task=TASK, tools=("+delegate",), policy="auto",
        sandbox="none",
    )  # fmt: skip
    assert "None of its sources has these claims of the report: 4711" in ran.results()[0]
    assert kinds(ran) == [("310", "quoted", ""), ("4711", "not_found", "")]


async def test_a_long_table_is_data_and_no_report() -> None:
    made = calls(("make_data", {"path": "out.csv"}), prefix="w")
    ran = await ask(SHOW, made, "The table is done.", task="Compute sales.csv into out.csv.")
    assert ran.values.get("sources", []) == []


def results(text: str) -> list[AnyMessage]:
    call = calls(("show", {"path": "sales.csv"}))
    shown = ToolMessage(text, name="show", tool_call_id="c1")
    return [HumanMessage(TASK, id="h"), call, shown]


def judge(answer: str, messages: list[AnyMessage], workspace: Workspace) -> list[Any]:
    seen = asyncio.run(observations_of(messages, workspace, {}))
    files = NamedFiles(given=["sales.csv"])
    found = judged_claims(answer, TASK, messages, files, observations=seen)
    return [(one.claim.text, one.kind) for one in found]


LONG = "north 1\n" * 4000 + "east 48213\n" + "south 2\n" * 4000


def test_what_the_model_saw_only_in_part_counts(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w", tmp_path / "private")
    (tmp_path / "w").mkdir()
    cut = shorten(LONG, workspace)
    assert "48213" not in cut
    messages = results(cut)
    assert judge("East sold 48,213 and 77,777.", messages, workspace) == [
        ("48,213", "same_value"),
        ("77,777", "not_found"),
    ]
    for stored in workspace.outputs.iterdir():
        stored.unlink()
    assert judge("East sold 48,213 and 77,777.", messages, workspace) == []


@pytest.mark.parametrize("saved", [True, False])
async def test_what_a_compaction_replaced_counts(saved: bool) -> None:
    put_file()
    Path("work/deep.csv").write_text("south,2\n" * 60 + "west,48213\n")  # noqa: ASYNC240
    for n in range(9):
        Path(f"work/{n}.txt").write_text(f"south {n}\n" * 300)  # noqa: ASYNC240
    paths = ["deep.csv", *(f"{n}.txt" for n in range(9))]
    parts = iter([calls(("show", {"path": one}), prefix=f"{one}.") for one in paths])

    def answer(messages: list[BaseMessage]) -> AIMessage | str:
        if "Write the notes now" in messages[-1].text:
            return "- deep.csv was read"
        return next(parts, "West sold 48213, south 4711.")

    model = ScriptedChatModel([answer] * 20, usage=None, profile={"max_input_tokens": 4000})
    saver, config = InMemorySaver(), RunnableConfig(configurable={"thread_id": "t"})
    graph = build_manus_graph(tools=[show], checkpointer=saver if saved else None)
    ran = await run_graph(graph, model=model, task=TASK, config=config)
    assert "48213" not in str([one.content for one in ran.values["messages"][:-1]])
    # Without checkpoints they cannot be read, and nothing is known to be false.
    expected = [("48213", "quoted", ""), ("4711", "not_found", "")]
    assert (kinds(ran) if saved else ran.values["sources"]) == (expected if saved else [])


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("All tests pass.", "not_found"),
        ("The result is in missing.md.", "not_found"),
        ("According to other.csv, all is well.", "not_found"),
        ("The tests should pass.", None),
        ("You could store it in missing.md.", None),
    ],
)
def test_a_claim_to_have_done_something_needs_a_call(
    answer: str, kind: str | None, tmp_path: Path
) -> None:
    found = judge(answer, results("north,120"), Workspace(tmp_path, tmp_path / "private"))
    assert [one for _, one in found] == ([kind] if kind else [])

"""Where the figures of an answer come from: results at full length, and reports of the run."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph import build_manus_graph
from openmanus_graph.conversation.announcements import NamedFiles
from openmanus_graph.conversation.evidence import judged_claims
from openmanus_graph.runtime.observations import keep_replaced, observations_of
from openmanus_graph.runtime.output import shorten
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.tool_calls.declaration import manus_tool
from tests.support.answers import SALES
from tests.support.graphs import Ran, calls, run_graph

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_blocking")]
TASK = "How many units were sold in sales.csv?"
SHOW = calls(("show", {"path": "sales.csv"}))


@manus_tool(effect="read_only")
def show(path: str) -> str:
    """Show a file."""
    return Path("work", path).read_text()


@manus_tool(effect="workspace")
def write(path: str, text: str) -> str:
    """Write a file."""
    Path("work", path).write_text(text)
    return "written"


@manus_tool(effect="workspace")
def compute(path: str) -> str:
    """Write a file with a computed number."""
    Path("work", path).write_text("units\n98765\n")
    return "(no output)"


def put_file() -> None:
    Path("work").mkdir(exist_ok=True)
    Path("work/sales.csv").write_text(SALES)


async def ask(*replies: AIMessage | str, task: str = TASK) -> Ran:
    put_file()
    graph = build_manus_graph(tools=[show, write, compute])
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


def results(text: str) -> list[AnyMessage]:
    call = calls(("show", {"path": "sales.csv"}))
    shown = ToolMessage(text, name="show", tool_call_id="c1")
    return [HumanMessage(TASK, id="h"), call, shown]


def judge(answer: str, messages: list[AnyMessage], workspace: Workspace) -> list[Any]:
    seen = observations_of(messages, workspace)
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


def test_what_a_compaction_replaced_counts(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "w", tmp_path / "private")
    (tmp_path / "w").mkdir()
    before = results("east 48213 units")
    notes = HumanMessage("Notes.", id="h", additional_kwargs={"openmanus_notes": "East was read."})
    after = keep_replaced(before, [notes], workspace)
    assert judge("East sold 48,213 and 77,777.", after, workspace) == [
        ("48,213", "same_value"),
        ("77,777", "not_found"),
    ]
    again = keep_replaced([*after, *results("west 65536")[1:]], [after[0].model_copy()], workspace)
    assert ("48,213", "same_value") in judge("It is 48,213, and 65,536.", again, workspace)


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

"""Skills in a run: what the model is told, and both shipped ones from end to end."""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import build_manus_graph, open_session
from openmanus_graph.interfaces.cli.skills import add_skill
from tests.support.graphs import Ran, calls, run_graph, scripted
from tests.unit.test_skills import own

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def place_of(messages: list[BaseMessage]) -> str:
    """Return the folder that the user message names."""
    found = re.search(r"The skills are in (\S+)\.", messages[1].text)
    assert found is not None
    return found[1]


async def test_without_skills_the_request_says_nothing_of_them() -> None:
    ran = await run_graph(build_manus_graph(), "done")
    assert "Skills" not in ran.model.requests[0][0].text


@pytest.fixture
def added_skills() -> None:
    own("mine", "Makes tea. Use when someone is thirsty.")


@pytest.fixture
def shipped_skills() -> None:
    add_skill("spreadsheet-report")
    add_skill("slide-deck")


@pytest.mark.usefixtures("added_skills")
async def test_names_and_descriptions_stand_in_the_prompt_and_texts_are_read_when_needed() -> None:
    def read(messages: list[BaseMessage]) -> Any:
        return calls(("read_file", {"path": f"{place_of(messages)}/mine/SKILL.md"}))

    ran = await run_graph(build_manus_graph(), read, "done")
    text = ran.model.requests[0][0].text
    assert "- mine: Makes tea. Use when someone is thirsty." in text
    assert "# Do it" not in text
    assert "# Do it" in ran.results()[0]
    assert ran.model.requests[1][0] == ran.model.requests[0][0], "the prefix stays as it is"


@pytest.mark.usefixtures("added_skills")
async def test_an_agent_that_cannot_read_files_is_not_told() -> None:
    ran = await run_graph(build_manus_graph(tools=[]), "done")
    assert "Skills" not in ran.model.requests[0][0].text


@pytest.mark.usefixtures("added_skills")
async def test_a_path_that_leads_out_of_a_skill_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")

    def read(messages: list[BaseMessage]) -> Any:
        out = os.path.relpath(secret, f"{place_of(messages)}/mine")
        assert out.startswith("..")
        return calls(("read_file", {"path": f"{place_of(messages)}/mine/{out}"}))

    ran = await run_graph(build_manus_graph(), read, "done")
    assert "outside" in ran.results()[0]
    assert "the secret" not in ran.results()[0]


@pytest.mark.usefixtures("added_skills")
async def test_scripts_run_in_the_sandbox_and_cannot_change_the_skill() -> None:
    def spoil(messages: list[BaseMessage]) -> Any:
        return calls(("bash", {"command": f"echo spoilt >> {place_of(messages)}/mine/SKILL.md"}))

    async with open_session("t"):
        ran = await run_graph(
            build_manus_graph(checkpointer=InMemorySaver()), spoil, "done", config=THREAD
        )
    assert "Read-only file system" in ran.results()[0]


@pytest.mark.usefixtures("added_skills")
async def test_a_skill_that_changed_while_the_run_waited_is_read_as_it_is_now() -> None:
    def read(messages: list[BaseMessage]) -> Any:
        return calls(("read_file", {"path": f"{place_of(messages)}/mine/SKILL.md"}))

    graph = build_manus_graph(checkpointer=InMemorySaver())
    async with open_session("t"):
        await run_graph(graph, calls(("ask_human", {"inquire": "Which?"})), config=THREAD)
        await asyncio.to_thread(own, "mine", "Makes coffee.")
        ran = await run_graph(graph, read, "done", task=Command(resume="This."), config=THREAD)
    assert "- mine: Makes coffee." in ran.model.requests[0][0].text
    assert "Makes coffee." in ran.results()[-1]


ROWS = "city,month,sales\\n" + "\\n".join(f"City {n},2026-0{n},{n * 10}" for n in range(1, 6))
WORKBOOK = """
import csv
import openpyxl
from openpyxl.chart import BarChart, Reference
from openpyxl.styles import Font
rows = list(csv.reader(open("sales.csv")))
book = openpyxl.Workbook()
summary, chart, data = book.active, book.create_sheet("Chart"), book.create_sheet("Data")
summary.title = "Summary"
for row in rows[:1] + [[c, m, int(s)] for c, m, s in rows[1:]]:
    data.append(row)
data.freeze_panes = "A2"
for cell in data[1]:
    cell.font = Font(bold=True)
for column in "ABC":
    data.column_dimensions[column].width = 14
summary["A1"] = "Sales, from sales.csv"
summary["A2"], summary["B2"] = "All sales", {total}
bars = BarChart()
bars.add_data(Reference(data, min_col=3, min_row=1, max_row=6), titles_from_data=True)
chart.add_chart(bars, "A1")
book.save("report.xlsx")
"""


@pytest.mark.usefixtures("shipped_skills")
async def test_the_spreadsheet_skill_from_end_to_end() -> None:
    def read(messages: list[BaseMessage]) -> Any:
        path = f"{place_of(messages)}/spreadsheet-report/SKILL.md"
        return calls(("read_file", {"path": path}), prefix="a")

    def check(prefix: str) -> Any:
        def made(messages: list[BaseMessage]) -> Any:
            script = f"{place_of(messages)}/spreadsheet-report/scripts/check_workbook.py"
            return calls(("bash", {"command": f"python {script} report.xlsx"}), prefix=prefix)

        return made

    data = f"open('sales.csv', 'w').write('''{ROWS}''')"
    typed, formula = WORKBOOK.format(total=150), WORKBOOK.format(total="'=SUM(Data!C2:C6)'")
    ran = await in_session(
        read,
        calls(("python_execute", {"code": f"{data}\n{typed}"}), prefix="b"),
        check("c"),
        calls(("python_execute", {"code": formula}), prefix="d"),
        check("e"),
        "report.xlsx: all sales are 150.",
    )
    skill, _, first, _, second = ran.results()
    assert "check_workbook.py" in skill
    assert "totals are typed numbers" in first
    assert "Nothing is wrong." in second
    assert [artifact["path"] for artifact in ran.values["artifacts"]] == [
        "report.xlsx",
        "sales.csv",
    ]


DECK = """
from pptx import Presentation
from pptx.util import Inches, Pt
deck = Presentation()
deck.slide_width, deck.slide_height = Inches(13.333), Inches(7.5)
for title, lines in {slides}:
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    head, body = slide.placeholders[0], slide.placeholders[1]
    for shape, top, height in ((head, 0.4, 1.2), (body, 2, 5)):
        shape.left, shape.width = Inches(0.5), Inches(12.3)
        shape.top, shape.height = Inches(top), Inches(height)
    head.text, body.text = title, "\\n".join(lines)
    for paragraph in body.text_frame.paragraphs:
        paragraph.font.size = Pt(24)
deck.save("deck.pptx")
"""


@pytest.mark.usefixtures("shipped_skills")
async def test_the_slides_skill_from_end_to_end() -> None:
    def render(prefix: str) -> Any:
        def made(messages: list[BaseMessage]) -> Any:
            script = f"{place_of(messages)}/slide-deck/scripts/render_slides.py"
            return calls(
                ("bash", {"command": f"python {script} deck.pptx pictures"}), prefix=prefix
            )

        return made

    crowded = json.dumps([["Tea sells", ["A line about tea."] * 30], ["More tea", [""]]])
    good = json.dumps([["Tea sells", ["Up by a third."]], ["More tea", ["Two new sorts."]]])
    ran = await in_session(
        calls(("python_execute", {"code": DECK.format(slides=crowded)}), prefix="a"),
        render("b"),
        calls(("python_execute", {"code": DECK.format(slides=good)}), prefix="c"),
        render("d"),
        calls(
            ("str_replace_editor", {"command": "view", "path": "pictures/slide-01.png"}),
            ("str_replace_editor", {"command": "view", "path": "pictures/slide-02.png"}),
            prefix="e",
        ),
        "deck.pptx: Tea sells; More tea.",
        sees=True,
    )
    _, first, _, second, one, two = ran.results()
    assert "slide 1: the text 'A line about tea." in first
    assert "slide 2: the placeholder" in first
    assert "2 slides are drawn in pictures" in second
    assert "Everything fits." in second
    assert "image/png, 1280 x 720 pixels" in one
    assert "image/png" in two
    shown = [block for block in ran.model.requests[-1][-1].content if isinstance(block, dict)]
    assert [block["type"] for block in shown] == ["text", "image_url", "image_url"]


async def in_session(*answers: Any, sees: bool = False) -> Ran:
    model = scripted(*answers)
    if sees:
        model.profile = {"image_inputs": True}
    async with open_session("t"):
        return await run_graph(
            build_manus_graph(checkpointer=InMemorySaver()), model=model, config=THREAD
        )

"""Charts of tables: drawn, described, with insights that are computed, and reports."""

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from openmanus_graph import Observation, ToolError
from openmanus_graph.backends.charts.report import draw_table
from openmanus_graph.runtime.session import Session
from openmanus_graph.testing import tool_runtime, tool_session
from openmanus_graph.tools.data_visualization import data_visualization, visualization_preparation


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = tool_session(tmp_path / "ws")
    yield session
    session.close()


def write(session: Session, name: str, content: str | bytes | Any) -> None:
    path = session.workspace.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")


async def use(tool: Any, session: Session, **args: Any) -> Observation:
    assert tool.coroutine is not None
    _, observation = await tool.coroutine(runtime=tool_runtime(session), **args)
    assert isinstance(observation, Observation)
    return observation


async def draw(session: Session, *entries: dict[str, Any], **args: Any) -> Observation:
    write(session, "charts.json", list(entries))
    args.setdefault("output_type", "png")
    return await use(data_visualization, session, json_path="charts.json", **args)


def colours(session: Session, name: str) -> int:
    with Image.open(session.workspace.root / name) as picture:
        assert picture.width > 600
        found = picture.convert("RGB").getcolors(1 << 24)
    assert found is not None
    return len(found)


MONTHS = "month,sales\n" + "".join(f"2024-{m:02},{100 + 10 * m}\n" for m in range(1, 13))


@pytest.mark.slow
async def test_a_table_becomes_a_picture_and_a_page_that_needs_no_network(
    session: Session,
) -> None:
    write(session, "sales.csv", MONTHS)
    seen = await draw(
        session,
        {"csvFilePath": "sales.csv", "chartTitle": "Sales grow", "unit": "EUR"},
        output_type="html",
    )
    assert seen.images == ("visualization/Sales_grow.png",)
    assert colours(session, seen.images[0]) > 10
    page = (session.workspace.root / "visualization/Sales_grow.html").read_text("utf-8")
    assert "Sales grow" in page
    assert "sales (EUR)" in page
    assert 'src="http' not in page
    assert "rises by 10 per step along month (R² 1)" in seen.text, "the trend is computed"


def test_an_outlier_a_change_and_the_largest_are_found_and_noise_says_nothing() -> None:
    def insights(table: str) -> str:
        entry = {"csvFilePath": "t.csv", "chartTitle": "t"}
        request = {"entry": entry, "name": "t.csv", "language": "en"}
        return str(draw_table(io.BytesIO(table.encode()), request)["insights"])

    noise = [math.sin(7.3 * n) for n in range(30)]
    rows = "n,v\n" + "".join(f"{n},{value:.3f}\n" for n, value in enumerate(noise))
    assert insights(rows) == "[]"
    spike = rows.replace(f"12,{noise[12]:.3f}", "12,40")
    assert "v = 40 at n 12 stands out" in insights(spike)
    step = "".join(f"{n},{value + (9 if n > 14 else 0):.3f}\n" for n, value in enumerate(noise))
    assert "The level of v changes at n 15" in insights("n,v\n" + step)
    towns = insights("town,people\nA,50\nB,30\nC,15\nD,5\n")
    assert "A (50), B (30), C (15), together 95%" in towns


@pytest.mark.slow
async def test_insights_are_written_into_the_chart(session: Session) -> None:
    write(session, "sales.csv", MONTHS)
    drawn = await draw(session, {"csvFilePath": "sales.csv", "chartTitle": "t"}, language="zh")
    assert "上升" in drawn.text
    before = (session.workspace.root / drawn.images[0]).read_bytes()
    seen = await draw(session, {"chartPath": drawn.images[0], "insights_id": [1]},
                      tool_type="insight")  # fmt: skip
    assert (session.workspace.root / drawn.images[0]).read_bytes() != before
    assert "上升" in (session.workspace.root / "visualization/t.md").read_text("utf-8")
    assert "上升" in seen.text
    with pytest.raises(ToolError, match="has no insight"):
        await draw(session, {"chartPath": drawn.images[0], "insights_id": [9]},
                   tool_type="insight")  # fmt: skip


@pytest.mark.slow
async def test_a_bad_table_is_reported_and_the_others_are_drawn(session: Session) -> None:
    write(session, "empty.csv", b"")
    write(session, "noise.csv", bytes(range(256)) * 9)
    write(session, "good.csv", MONTHS)
    names = ("empty.csv", "noise.csv", "gone.csv", "good.csv")
    seen = await draw(session, *({"csvFilePath": name, "chartTitle": name} for name in names))
    for problem in ("is empty", "noise_csv", "no file gone.csv"):
        assert problem in seen.text.replace("noise.csv: not drawn", "noise_csv")
    assert "visualization/good_csv.png" in seen.images
    assert not seen.failed


async def test_a_table_of_1_gb_is_refused_at_once(session: Session) -> None:
    path = session.workspace.root / "huge.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n1,2\n")
        file.truncate(1024**3)
    seen = await draw(session, {"csvFilePath": "huge.csv", "chartTitle": "t"})
    assert "Aggregate it" in seen.text
    assert seen.failed


@pytest.mark.slow
async def test_other_encodings_and_mixed_types_are_read_and_said(session: Session) -> None:
    rows = "城市,人口\n" + "".join(f"城{n},{n * 100}\n" for n in range(1, 20)) + "未知,n/a?\n"
    write(session, "gbk.csv", rows.encode("gb18030"))
    seen = await draw(session, {"csvFilePath": "gbk.csv", "chartTitle": "人口"})
    assert "is not UTF-8" in seen.text
    assert "1 value(s) are not numbers" in seen.text
    assert seen.images == ("visualization/人口.png",)


@pytest.mark.slow
async def test_what_is_wrong_in_an_entry_is_named(session: Session) -> None:
    write(session, "sales.csv", MONTHS)
    for entry, problem in (({"chartType": "donut"}, "chartType"), ({"colour": "red"}, "colour")):
        with pytest.raises(ToolError, match=problem):
            await draw(session, {"csvFilePath": "sales.csv", "chartTitle": "t", **entry})
    wrong: list[dict[str, Any]] = [
        {"x": "nope"}, {"spec": {"mark": "bar", "encoding": {"x": {"feild": "a"}}}},
    ]  # fmt: skip
    entries = [{"csvFilePath": "sales.csv", "chartTitle": "t", **entry} for entry in wrong]
    seen = await draw(session, *entries)
    assert "no column 'nope'" in seen.text
    assert "no field 'feild' at encoding.x; did you mean 'field'" in seen.text
    assert not (session.workspace.root / "visualization").exists()


@pytest.mark.slow
async def test_a_chart_never_overwrites_another(session: Session) -> None:
    write(session, "sales.csv", MONTHS)
    entry = {"csvFilePath": "sales.csv", "chartTitle": "same/../title"}
    seen = await draw(session, entry, entry)
    assert seen.images == ("visualization/same_title.png", "visualization/same_title_new.png")


@pytest.mark.slow
async def test_a_report_stands_by_itself(session: Session) -> None:
    write(session, "sales.csv", MONTHS)
    drawn = await draw(session, {"csvFilePath": "sales.csv", "chartTitle": "t"})
    text = (
        f"# Report\n\n<script>alert(1)</script>\n\n![t]({drawn.images[0]})\n\n|a|b|\n|-|-|\n|1|2|"
    )
    write(session, "report.md", text)
    await use(data_visualization, session, json_path="report.md", tool_type="report")
    page = (session.workspace.root / "report.html").read_text("utf-8")
    assert "<title>Report</title>" in page
    assert "<script>" not in page
    assert 'src="data:image/png;base64,' in page
    assert "<td>1</td>" in page
    write(session, "report.md", "![x](../../etc/passwd)")
    with pytest.raises(ToolError):
        await use(data_visualization, session, json_path="report.md", tool_type="report")


async def test_preparation_checks_what_the_code_promised(session: Session) -> None:
    code = (
        "import json, pandas as pd\n"
        "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}).to_csv('t.csv', index=False)\n"
        "json.dump([{'csvFilePath': 't.csv', 'chartTitle': 'T'}], open('list.json', 'w'))\n"
        "print('list.json')"
    )
    seen = await use(visualization_preparation, session, code=code, code_type="visualization")
    assert "list.json is ready: 1 entries" in seen.text
    for wrong, problem in (
        ("print('nothing')", "no path"),
        ("print('gone.json')", "no such file"),
        ("import os; os.remove('t.csv'); print('list.json')", "do not exist"),
    ):
        with pytest.raises(ToolError, match=problem):
            await use(visualization_preparation, session, code=wrong, code_type="visualization")
    failed = await use(visualization_preparation, session, code="1/0", code_type="insight")
    assert "ZeroDivisionError" in failed.text
    assert failed.failed

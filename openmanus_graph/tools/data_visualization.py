"""`data_visualization`: charts of tables, what their figures say, and reports."""

import asyncio
import base64
import json
import re
import tempfile
from pathlib import Path
from typing import Any, Literal

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.charts.entries import ChartEntry, InsightEntry, Language, read_entries
from openmanus_graph.errors import ToolError
from openmanus_graph.files.child import run_in_child
from openmanus_graph.files.contained import put_file, told_as
from openmanus_graph.sessions import session_of
from openmanus_graph.tools.declaration import Observation, manus_tool
from openmanus_graph.workspace import Workspace

FOLDER = "visualization"
_SIDE = ".chart.json"
"""Beside each chart: its specification, data and insights, for insights to be added."""

Json = dict[str, Any]


@manus_tool(effect="workspace", resource="charts", timeout_s=600)
async def data_visualization(  # noqa: D417  # the model never sees `runtime`
    json_path: str,
    runtime: ToolRuntime[Any, Any],
    output_type: Literal["png", "html"] = "html",
    tool_type: Literal["visualization", "insight", "report"] = "visualization",
    language: Language = "en",
) -> Observation:
    """Draw charts from tables, add insights to them, or turn a Markdown report into HTML.

    Args:
        json_path: For visualization a JSON list of {csvFilePath, chartTitle} and, if wished,
            chartType (bar, line, area, scatter, pie, histogram, boxplot, heatmap), x, y, color,
            xTitle, yTitle, unit, or a whole Vega-Lite `spec`. For insight a JSON list of
            {chartPath, insights_id}. For report the Markdown file.
        output_type: html also makes an interactive page of each chart.
        tool_type: visualization draws and lists what the figures say, with ids; insight writes
            the chosen ones into a chart; report makes one HTML page with the pictures in it.
        language: Of insights.
    """
    workspace = session_of(runtime).workspace
    work = {"visualization": _draw_all, "insight": _add_insights, "report": _report}[tool_type]
    return await asyncio.to_thread(work, workspace, json_path, output_type == "html", language)


def _draw_all(workspace: Workspace, listed: str, html: bool, language: Language) -> Observation:
    done: list[str] = []
    pictures: list[str] = []
    failed = 0
    for entry in read_entries(_existing(workspace, listed), ChartEntry):
        try:
            text, picture = _draw(workspace, entry, html, language)
            pictures.append(picture)
        except ToolError as error:  # one bad chart must not stop the others
            failed += 1
            text = f"{entry.chartTitle}: not drawn. {error}"
        done.append(text)
    return Observation("\n\n".join(done), images=tuple(pictures), failed=failed == len(done))


def _draw(
    workspace: Workspace, entry: ChartEntry, html: bool, language: Language
) -> tuple[str, str]:
    path = _existing(workspace, entry.csvFilePath)
    request = {
        "entry": entry.model_dump(), "name": path.name, "language": language, "html": html,
    }  # fmt: skip
    with path.open("rb") as file:
        drawn: Json = run_in_child(
            "openmanus_graph.charts.draw:draw_table", file, request, what="The chart", reserves=True
        )
    base = _free_name(workspace.root / FOLDER, entry.chartTitle)
    names = _write(base, drawn, workspace)
    side = {"spec": drawn["spec"], "insights": drawn["insights"], "title": entry.chartTitle}
    _put(workspace, base.with_name(base.name + _SIDE), json.dumps(side, ensure_ascii=False))
    lines = [f"{entry.chartTitle}: {', '.join(names)}", *drawn["notes"]]
    lines += [f"  insight {found['id']}: {found['text']}" for found in drawn["insights"]]
    return "\n".join(lines), names[0]


def _add_insights(workspace: Workspace, listed: str, html: bool, language: Language) -> Observation:
    done: list[str] = []
    pictures: list[str] = []
    for entry in read_entries(_existing(workspace, listed), InsightEntry):
        picture = _existing(workspace, entry.chartPath)
        base = picture.with_suffix("")
        side = base.with_name(base.name + _SIDE)
        if not side.exists():
            raise ToolError(f"{entry.chartPath} is no chart that this tool drew.")
        kept: Json = json.loads(side.read_text("utf-8"))
        chosen = _chosen(kept["insights"], entry)
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(kept["spec"]).encode())
            request = {"lines": chosen, "html": html or base.with_suffix(".html").exists()}
            drawn: Json = run_in_child(
                "openmanus_graph.charts.draw:redraw", file, request, what="The chart", reserves=True
            )
        names = _write(base, drawn, workspace)
        notes = base.with_suffix(".md")
        text = "\n".join([f"# {kept['title']}", "", *(f"- {line}" for line in chosen), ""])
        _put(workspace, notes, text)
        names.append(workspace.relative(notes))
        done.append("\n".join([f"{kept['title']}: {', '.join(names)}", *chosen]))
        pictures.append(names[0])
    return Observation("\n\n".join(done), images=tuple(pictures))


def _chosen(insights: list[Json], entry: InsightEntry) -> list[str]:
    texts: dict[int, str] = {found["id"]: found["text"] for found in insights}
    unknown = [number for number in entry.insights_id if number not in texts]
    if unknown:
        known = ", ".join(map(str, texts)) or "none"
        raise ToolError(f"{entry.chartPath} has no insight {unknown}. It has: {known}.")
    return [texts[number] for number in entry.insights_id]


def _report(workspace: Workspace, listed: str, html: bool, language: Language) -> Observation:
    from openmanus_graph.charts.report import report_page

    source = _existing(workspace, listed)
    beside = workspace.relative(source.parent)

    def find(address: str) -> Path:
        below = workspace.resolve(f"{beside}/{address}")
        return below if below.exists() else workspace.resolve(address)

    page = report_page(source.read_text("utf-8", errors="replace"), find, language)
    target = source.with_suffix(".html")
    _put(workspace, target, page)
    return Observation(f"{workspace.relative(target)} holds the report with its pictures.")


def _write(base: Path, drawn: Json, workspace: Workspace) -> list[str]:
    """Write what was drawn and return the names, the picture first."""
    picture = base.with_suffix(".png")
    _put(workspace, picture, base64.b64decode(drawn["png"]))
    names = [workspace.relative(picture)]
    if drawn["html"] is not None:
        page = base.with_suffix(".html")
        _put(workspace, page, drawn["html"])
        names.append(workspace.relative(page))
    return names


def _put(workspace: Workspace, path: Path, content: str | bytes) -> None:
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    name = workspace.relative(path)
    with told_as("write", name):
        put_file(workspace, path, data)


def _free_name(folder: Path, title: str) -> Path:
    """Return a path without suffix that no chart has yet."""
    name = re.sub(r"[^\w-]+", "_", title).strip("_")[:80] or "chart"
    tries = [name, *(f"{name}_new{number or ''}" for number in range(1000))]
    return next(folder / each for each in tries if not (folder / f"{each}.png").exists())


def _existing(workspace: Workspace, name: str) -> Path:
    path = workspace.resolve(name)
    if not path.is_file():
        raise ToolError(f"There is no file {name} in the workspace.")
    return path

"""`data_visualization`: charts of tables, what their figures say, and reports."""

import asyncio
import base64
import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.charts.entries import ChartEntry, InsightEntry, Language, read_entries
from openmanus_graph.backends.charts.report import chart_page
from openmanus_graph.backends.files.child import run_in_child
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.tool_runtime import running_call, time_limit_of
from openmanus_graph.runtime.workspace import Workspace, os_errors_as_tool_errors, put_file
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool, traits_of
from openmanus_graph.tools.python_execute import run_code

_NAME = re.compile(r"(?<![^\s'\"])[^\s'\"]+\.json")


@manus_tool(effect="workspace", resource="python", timeout_s=300, stops_itself=True)
async def visualization_preparation(  # noqa: D417  # the model never sees `runtime`
    code: str,
    code_type: Literal["visualization", "insight"],
    runtime: ToolRuntime[Any, Any],
) -> Observation:
    """Run Python that writes what data_visualization needs, and check that it is all there.

    The code (same kernel as python_execute) cleans and aggregates data, saves one CSV per chart
    (few columns, in the order of the axes) and a JSON list, and prints the path of that list.

    Args:
        code: The code.
        code_type: visualization writes a list of {csvFilePath, chartTitle, ...}; insight writes
            a list of {chartPath, insights_id}.
    """
    limit = time_limit_of(runtime, traits_of(visualization_preparation))
    observation = await run_code(code, runtime, limit)
    if observation.failed:
        return observation
    workspace = running_call(runtime).session.workspace
    kind = ChartEntry if code_type == "visualization" else InsightEntry
    text = await asyncio.to_thread(_checked, workspace, observation.text, kind)
    return Observation(f"{observation.text}\n{text}", images=observation.images)


def _checked(workspace: Workspace, output: str, kind: type[ChartEntry] | type[InsightEntry]) -> str:
    """Say what the printed list holds. ToolError, with the output, if it is no good."""
    names = _NAME.findall(output)
    if not names:
        raise ToolError(f"The code ran, but printed no path of a .json file. It printed: {output}")
    path = workspace.resolve(names[-1])
    if not path.is_file():
        raise ToolError(f"The code printed {names[-1]}, but there is no such file.")
    entries = read_entries(path, kind)
    named = [
        entry.csvFilePath if isinstance(entry, ChartEntry) else entry.chartPath for entry in entries
    ]
    missing = [name for name in named if not workspace.resolve(name).is_file()]
    if missing:
        raise ToolError(f"{names[-1]} names files that do not exist: {', '.join(missing)}.")
    return f"[{names[-1]} is ready: {len(entries)} entries. Next: data_visualization.]"


FOLDER = "visualization"
AT_ONCE = 2
"""Charts that are drawn at the same time."""
CHART_TIMEOUT_S = 240.0
"""Of one chart: on a machine that does much else, loading what draws it takes its time."""
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
    workspace = running_call(runtime).session.workspace
    work = {"visualization": _draw_all, "insight": _add_insights, "report": _report}[tool_type]
    return await asyncio.to_thread(work, workspace, json_path, output_type == "html", language)


def _draw_all(workspace: Workspace, listed: str, html: bool, language: Language) -> Observation:
    done: list[str] = []
    pictures: list[str] = []
    failed = 0
    entries: list[ChartEntry] = read_entries(_existing(workspace, listed), ChartEntry)
    with ThreadPoolExecutor(AT_ONCE) as pool:  # each draws in a process of its own
        drawing = [pool.submit(_drawn, workspace, entry, language) for entry in entries]
    for entry, chart in zip(entries, drawing, strict=True):
        try:
            text, picture = _kept(workspace, entry, chart.result(), html, language)
            pictures.append(picture)
        except ToolError as error:  # one bad chart must not stop the others
            failed += 1
            text = f"{entry.chartTitle}: not drawn. {error}"
        done.append(text)
    return Observation("\n\n".join(done), images=tuple(pictures), failed=failed == len(done))


def _drawn(workspace: Workspace, entry: ChartEntry, language: Language) -> Json:
    path = _existing(workspace, entry.csvFilePath)
    request = {"entry": entry.model_dump(), "name": path.name, "language": language}
    with path.open("rb") as file:
        drawn: Json = _in_child("draw:draw_table", file, request)
    return drawn


def _kept(
    workspace: Workspace, entry: ChartEntry, drawn: Json, html: bool, language: Language
) -> tuple[str, str]:
    """Write a chart's files; return what there is to say of it, and the picture's name."""
    base = _free_name(workspace.root / FOLDER, entry.chartTitle)
    names = _write(base, drawn, workspace, entry.chartTitle if html else None, language)
    side = {"spec": drawn["spec"], "insights": drawn["insights"], "title": entry.chartTitle}
    _put(workspace, base.with_name(base.name + _SIDE), json.dumps(side, ensure_ascii=False))
    lines = [f"{entry.chartTitle}: {', '.join(names)}", *drawn["notes"]]
    lines += [f"  insight {found['id']}: {found['text']}" for found in drawn["insights"]]
    return "\n".join(lines), names[0]


def _in_child(entry: str, file: BinaryIO, request: Json) -> Any:
    """Call a function of `charts` where it can do no harm."""
    name = f"openmanus_graph.backends.charts.{entry}"
    return run_in_child(
        name, file, request, what="The chart", reserves=True, timeout_s=CHART_TIMEOUT_S
    )


@cache
def _library() -> str:
    """Return what interactive pages are drawn by; packing it takes longer than a chart."""
    with tempfile.TemporaryFile() as nothing:
        return str(_in_child("report:vega_script", nothing, {}))


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
            drawn: Json = _in_child("draw:redraw", file, {"lines": chosen})
        page = html or base.with_suffix(".html").exists()
        names = _write(base, drawn, workspace, kept["title"] if page else None, language)
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
    from openmanus_graph.backends.charts.report import report_page

    source = _existing(workspace, listed)
    beside = workspace.relative(source.parent)

    def find(address: str) -> Path:
        below = workspace.resolve(f"{beside}/{address}")
        return below if below.exists() else workspace.resolve(address)

    page = report_page(source.read_text("utf-8", errors="replace"), find, language)
    target = source.with_suffix(".html")
    _put(workspace, target, page)
    return Observation(f"{workspace.relative(target)} holds the report with its pictures.")


def _write(
    base: Path, drawn: Json, workspace: Workspace, title: str | None, language: Language
) -> list[str]:
    """Write what was drawn, with a page if there is a title for it; the picture's name is first."""
    picture = base.with_suffix(".png")
    _put(workspace, picture, base64.b64decode(drawn["png"]))
    names = [workspace.relative(picture)]
    if title is not None:
        page = base.with_suffix(".html")
        _put(workspace, page, chart_page(drawn["spec"], title, _library(), language))
        names.append(workspace.relative(page))
    return names


def _put(workspace: Workspace, path: Path, content: str | bytes) -> None:
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    name = workspace.relative(path)
    with os_errors_as_tool_errors("write", name):
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

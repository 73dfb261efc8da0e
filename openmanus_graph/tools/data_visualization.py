"""`data_visualization`: charts of tables, what their figures say, and reports."""

import asyncio
import base64
import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

from langgraph.prebuilt import ToolRuntime
from pydantic import ValidationError

from openmanus_graph.backends.charts import report, specs
from openmanus_graph.backends.files.child import run_in_child
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.tool_runtime import call_runtime, time_limit_of
from openmanus_graph.runtime.workspace import (
    Workspace,
    as_tool_error,
    find,
    opened_file,
    put_file,
    read_file,
)
from openmanus_graph.state.tool_traits import Effects, Limits, Observation
from openmanus_graph.tool_calls.declaration import manus_tool, traits_of
from openmanus_graph.tools.execution import run_code

FOLDER = "visualization"
AT_ONCE = 2
"""Charts that are drawn at the same time."""
CHART_TIMEOUT_S = 240.0
"""For one chart: loading the drawing library is slow on a busy machine."""
_JSON_FILE = re.compile(r"(?<![^\s'\"])[^\s'\"]+\.json")
_CHART_DATA_SUFFIX = ".chart.json"
"""Of the file with a chart's specification, data and insights; adding insights needs it."""
MAX_TEXT_BYTES = 50 * 1024**2
"""Of a list of charts, of a chart's data and of a report."""

Json = dict[str, Any]


@manus_tool(
    effect="workspace",
    resource="python",
    timeout_s=300,
    effects=Effects(sandboxed=True),
    limits=Limits(stops_itself=True),
)
async def visualization_preparation(  # the model never sees `runtime`
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
    workspace = call_runtime(runtime).session.workspace
    kind = specs.ChartEntry if code_type == "visualization" else specs.InsightEntry
    text = await asyncio.to_thread(_check_entries, workspace, observation.text, kind)
    return Observation(f"{observation.text}\n{text}", images=observation.images)


def _check_entries(
    workspace: Workspace, output: str, kind: type[specs.ChartEntry] | type[specs.InsightEntry]
) -> str:
    """Check the JSON list whose path the code printed; ToolError if it is wrong."""
    names = _JSON_FILE.findall(output)
    if not names:
        raise ToolError(f"The code ran, but printed no path of a .json file. It printed: {output}")
    if find(workspace, names[-1]) is None:
        raise ToolError(f"The code printed {names[-1]}, but there is no such file.")
    entries = _entries(workspace, names[-1], kind)
    named = [
        entry.csvFilePath if isinstance(entry, specs.ChartEntry) else entry.chartPath
        for entry in entries
    ]
    missing = [name for name in named if not ((found := find(workspace, name)) and found.is_file)]
    if missing:
        raise ToolError(f"{names[-1]} names files that do not exist: {', '.join(missing)}.")
    return f"[{names[-1]} is ready: {len(entries)} entries. Next: data_visualization.]"


@manus_tool(effect="workspace", resource="charts", timeout_s=600)
async def data_visualization(  # the model never sees `runtime`
    json_path: str,
    runtime: ToolRuntime[Any, Any],
    output_type: Literal["png", "html"] = "html",
    tool_type: Literal["visualization", "insight", "report"] = "visualization",
    language: specs.Language = "en",
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
    drawing = _Drawing(call_runtime(runtime).session.workspace, output_type == "html", language)
    work = {
        "visualization": drawing.draw_charts,
        "insight": drawing.add_insights,
        "report": drawing.write_report,
    }[tool_type]
    return await asyncio.to_thread(work, json_path)


@dataclass(frozen=True)
class _Drawing:
    """One call of `data_visualization`. Its methods block."""

    workspace: Workspace
    html: bool
    """Whether to make an interactive page of each chart."""
    language: specs.Language

    def draw_charts(self, listed: str) -> Observation:
        done: list[str] = []
        pictures: list[str] = []
        entries: list[specs.ChartEntry] = _entries(self.workspace, listed, specs.ChartEntry)
        with ThreadPoolExecutor(AT_ONCE) as pool:  # each is drawn in a separate process
            charts = [pool.submit(self._draw, entry) for entry in entries]
        for entry, chart in zip(entries, charts, strict=True):
            try:
                text, picture = self._save_chart(entry, chart.result())
                pictures.append(picture)
            except ToolError as error:  # one bad chart must not stop the others
                text = f"{entry.chartTitle}: not drawn. {error}"
            done.append(text)
        return Observation("\n\n".join(done), images=tuple(pictures), failed=not pictures)

    def _draw(self, entry: specs.ChartEntry) -> Json:
        path = _existing(self.workspace, entry.csvFilePath)
        request = {"entry": entry.model_dump(), "name": path.name, "language": self.language}
        with opened_file(self.workspace, entry.csvFilePath) as file:
            drawn: Json = _in_child("report:draw_table", file, request)
        return drawn

    def _save_chart(self, entry: specs.ChartEntry, drawn: Json) -> tuple[str, str]:
        """Write the files of a new chart; return a text about them, and the picture's name."""
        workspace, title = self.workspace, entry.chartTitle
        name = re.sub(r"[^\w-]+", "_", title).strip("_")[:80] or "chart"
        tries = [name, *(f"{name}_new{number or ''}" for number in range(1000))]
        free = next(each for each in tries if not find(workspace, f"{FOLDER}/{each}.png"))
        base = workspace.root / FOLDER / free
        names = self._write_chart(base, drawn, title if self.html else None)
        data = {"spec": drawn["spec"], "insights": drawn["insights"], "title": title}
        data_path = base.with_name(base.name + _CHART_DATA_SUFFIX)
        _write_file(workspace, data_path, json.dumps(data, ensure_ascii=False))
        lines = [f"{title}: {', '.join(names)}", *drawn["notes"]]
        lines += [f"  insight {found['id']}: {found['text']}" for found in drawn["insights"]]
        return "\n".join(lines), names[0]

    def add_insights(self, listed: str) -> Observation:
        workspace, done, pictures = self.workspace, list[str](), list[str]()
        for entry in _entries(workspace, listed, specs.InsightEntry):
            base = _existing(workspace, entry.chartPath).with_suffix("")
            data = _chart_data(workspace, base, entry.chartPath)
            texts = {found.id: found.text for found in data.insights}
            if unknown := [number for number in entry.insights_id if number not in texts]:
                known = ", ".join(map(str, texts)) or "none"
                raise ToolError(f"{entry.chartPath} has no insight {unknown}. It has: {known}.")
            chosen = [texts[number] for number in entry.insights_id]
            with tempfile.TemporaryFile() as file:
                file.write(json.dumps(data.spec).encode())
                drawn: Json = _in_child("report:redraw", file, {"lines": chosen})
            old_page = find(workspace, workspace.relative(base.with_suffix(".html")))
            page = self.html or old_page is not None
            names = self._write_chart(base, drawn, data.title if page else None)
            notes = base.with_suffix(".md")
            text = "\n".join([f"# {data.title}", "", *(f"- {line}" for line in chosen), ""])
            _write_file(workspace, notes, text)
            names.append(workspace.relative(notes))
            done.append("\n".join([f"{data.title}: {', '.join(names)}", *chosen]))
            pictures.append(names[0])
        return Observation("\n\n".join(done), images=tuple(pictures))

    def _write_chart(self, base: Path, drawn: Json, title: str | None) -> list[str]:
        """Write a picture, and a page if a title is given; return their names, picture first."""
        workspace, picture = self.workspace, base.with_suffix(".png")
        _write_file(workspace, picture, base64.b64decode(drawn["png"]))
        names = [workspace.relative(picture)]
        if title is not None:
            page = base.with_suffix(".html")
            html = report.chart_page(drawn["spec"], title, _chart_library(), self.language).encode()
            with as_tool_error("write", workspace.relative(page)):
                report.note_own_page(workspace, html)
            _write_file(workspace, page, html)
            names.append(workspace.relative(page))
        return names

    def write_report(self, listed: str) -> Observation:
        workspace, source = self.workspace, _existing(self.workspace, listed)

        def picture(address: str) -> bytes:
            below = f"{workspace.relative(source.parent)}/{address}"
            name = below if find(workspace, below) else address
            if find(workspace, name) is None:
                raise ToolError(f"The report shows {address}, which does not exist.")
            return read_file(workspace, name, report.MAX_PICTURE_BYTES)

        text = read_file(workspace, listed, MAX_TEXT_BYTES).decode("utf-8", "replace")
        target = source.with_suffix(".html")
        _write_file(workspace, target, report.report_page(text, picture, self.language))
        return Observation(f"{workspace.relative(target)} holds the report with its pictures.")


def _in_child(entry: str, file: BinaryIO, request: Json) -> Any:
    """Call a function of `backends.charts` in a confined process."""
    name = f"openmanus_graph.backends.charts.{entry}"
    return run_in_child(
        name, file, request, what="The chart", reserves=True, timeout_s=CHART_TIMEOUT_S
    )


@cache
def _chart_library() -> str:
    """Return the script that draws interactive pages; packing it takes longer than a chart."""
    with tempfile.TemporaryFile() as nothing:
        return str(_in_child("report:vega_script", nothing, {}))


def _chart_data(workspace: Workspace, base: Path, picture: str) -> specs.ChartData:
    """Return the stored data of a chart; ToolError if there are none or they were changed."""
    name = workspace.relative(base.with_name(base.name + _CHART_DATA_SUFFIX))
    if find(workspace, name) is None:
        raise ToolError(f"{picture} is not a chart that this tool drew.")
    try:
        return specs.ChartData.model_validate_json(read_file(workspace, name, MAX_TEXT_BYTES))
    except ValidationError as error:
        raise ToolError(f"{name} is not as this tool wrote it. Draw the chart again.") from error


def _write_file(workspace: Workspace, path: Path, content: str | bytes) -> None:
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    with as_tool_error("write", workspace.relative(path)):
        put_file(workspace, path, data)


def _entries(
    workspace: Workspace, name: str, kind: type[specs.ChartEntry] | type[specs.InsightEntry]
) -> list[Any]:
    path = _existing(workspace, name)
    return specs.read_entries(read_file(workspace, name, MAX_TEXT_BYTES), path.name, kind)


def _existing(workspace: Workspace, name: str) -> Path:
    """Return the path of a file. ToolError if there is none."""
    found = find(workspace, name)
    if found is None or not found.is_file:
        raise ToolError(f"There is no file {name} in the workspace.")
    return workspace.root / found.path

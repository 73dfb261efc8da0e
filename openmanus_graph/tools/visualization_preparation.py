"""`visualization_preparation`: Python that prepares what `data_visualization` draws."""

import asyncio
import re
from typing import Any, Literal

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.charts.entries import ChartEntry, InsightEntry, read_entries
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.tool_runtime import running_call, time_limit_of
from openmanus_graph.runtime.workspace import Workspace
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

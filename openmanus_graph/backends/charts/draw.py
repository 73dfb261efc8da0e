"""Draw one chart, in a child process with limits: V8 runs the specification."""

import base64
import importlib.util
import re
from pathlib import Path
from typing import Any, BinaryIO, cast

from openmanus_graph.backends.charts.entries import ChartEntry
from openmanus_graph.backends.charts.insights import find_insights
from openmanus_graph.backends.charts.specs import check_spec, make_spec, with_data
from openmanus_graph.backends.charts.tables import read_table
from openmanus_graph.errors import ToolError

SCALE = 2
_FONT_PACKAGE = "notojp_matplotlib"


def draw_table(file: BinaryIO, request: dict[str, Any]) -> dict[str, Any]:
    """Read a table and draw it.

    Args:
        file: The table.
        request: `entry` (of a `ChartEntry`), `name` of the file, `language`.

    Returns:
        `png` (base64), `spec` with its data, `insights`, `notes`.

    Raises:
        ToolError: The table or the specification is no good.
    """
    entry = ChartEntry(**request["entry"])
    table, notes = read_table(file, request["name"])
    spec = make_spec(table, entry)
    insights = find_insights(table, *plotted_columns(spec), request["language"])
    drawn = with_data(spec, table)
    return {**render(drawn), "insights": insights, "notes": notes}


def redraw(file: BinaryIO, request: dict[str, Any]) -> dict[str, Any]:
    """Draw a specification with its data again, with lines of text beneath its title."""
    import json

    spec: dict[str, Any] = json.loads(file.read())
    title: Any = spec.get("title")  # a text, or an object with one
    text: Any = cast("dict[str, Any]", title).get("text") if isinstance(title, dict) else title
    subtitle = {"text": text or "", "subtitle": request["lines"], "anchor": "start"}
    return render({**spec, "title": subtitle})


def render(spec: dict[str, Any]) -> dict[str, Any]:
    """Check a specification, whoever wrote it; return `png` in base64, and the `spec`."""
    import vl_convert

    check_spec(spec)

    fonts = importlib.util.find_spec(_FONT_PACKAGE)
    if fonts is not None and fonts.origin is not None:
        vl_convert.register_font_directory(str(Path(fonts.origin).parent / "fonts"))
    try:
        png = vl_convert.vegalite_to_png(spec, scale=SCALE, allowed_base_urls=[])
    except ValueError as error:
        why = str(error).partition("\n    at ")[0]  # where in Vega's own code is of no use
        raise ToolError(f"The chart cannot be drawn: {why[:300]}.") from error
    return {"png": base64.b64encode(png).decode(), "spec": spec}


def plotted_columns(spec: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the columns that a chart plots: of its x axis or categories, and of its values."""
    layers: list[Any] = [spec, *(spec.get("layer") or ())]
    encodings: list[dict[str, Any]] = [layer.get("encoding") or {} for layer in layers]
    encoding = next(filter(None, encodings), encodings[0])
    columns: list[str | None] = []
    for name in ("color", "theta") if "theta" in encoding else ("x", "y"):
        channel: Any = encoding.get(name)
        field = cast("dict[str, Any]", channel).get("field") if isinstance(channel, dict) else None
        columns.append(re.sub(r"\\(.)", r"\1", field) if isinstance(field, str) else None)
    return columns[0], columns[1]

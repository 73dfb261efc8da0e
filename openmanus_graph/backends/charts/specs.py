"""Builds a valid Vega-Lite specification from a table and a request."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from openmanus_graph.errors import ToolError
from openmanus_graph.state.validation import validation_problems

if TYPE_CHECKING:
    import pandas as pd


ChartType = Literal["bar", "line", "area", "scatter", "pie", "histogram", "boxplot", "heatmap"]
Language = Literal["zh", "en"]


class ChartEntry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    csvFilePath: str = Field(description="CSV, TSV, JSON or Excel file.")  # OpenManus's key
    chartTitle: str
    chartType: ChartType | None = None
    x: str | None = None
    y: str | None = None
    color: str | None = None
    xTitle: str | None = None
    yTitle: str | None = None
    unit: str | None = None  # of the values, shown at their axis
    spec: dict[str, Any] | None = None  # a whole Vega-Lite specification, without its data


class InsightEntry(BaseModel):
    """Which of a drawn chart's insights to write next to it."""

    model_config = ConfigDict(extra="forbid")

    chartPath: str
    insights_id: list[int]


class Insight(BaseModel):
    id: int
    text: str


class ChartData(BaseModel):
    """What is kept with a drawn chart."""

    spec: dict[str, Any]
    insights: list[Insight]
    title: str


def read_entries(data: bytes, name: str, kind: type[BaseModel]) -> list[Any]:
    """Read the list of entries in a file. ToolError says what is wrong, and in which entry."""
    try:
        given: Any = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{name} is not JSON: {error}. Write a list of entries.") from error
    items = cast("list[Any]", given) if isinstance(given, list) else [given]
    if not items:
        raise ToolError(f"{name} is an empty list. Write one entry per chart.")
    try:
        return TypeAdapter(list[kind]).validate_python(items)  # type: ignore[valid-type]  # known at run time
    except ValidationError as error:
        problems = "; ".join(validation_problems(error)[:5])
        raise ToolError(
            f"{name}: {problems}. An entry has: {', '.join(kind.model_fields)}."
        ) from error


MAX_CATEGORIES = 40
WIDTH, HEIGHT = 640, 400
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_FONT = "DejaVu Sans, Noto Sans CJK JP, sans-serif"
_MARKS = {
    "bar": "bar", "line": "line", "area": "area", "scatter": "point", "pie": "arc",
    "histogram": "bar", "boxplot": "boxplot", "heatmap": "rect",
}  # fmt: skip
_LOADING = frozenset({"url", "href", "usermeta"})
"""Fields by which the drawing library, or a page with the chart, loads or opens something."""
Spec = dict[str, Any]


def is_numeric(table: "pd.DataFrame", column: str) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_numeric_dtype(table[column]))


def is_time(table: "pd.DataFrame", column: str) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_datetime64_any_dtype(table[column]))


def make_spec(table: "pd.DataFrame", entry: ChartEntry) -> Spec:
    """Describe a chart, by the caller's own specification or by what the columns suggest."""
    named = (entry.x, entry.y, entry.color)
    _require_columns(table, (column for column in named if column is not None))
    given = entry.spec if entry.spec is not None else _suggest_spec(table, entry)
    size = {"width": WIDTH, "height": HEIGHT}
    spec: Spec = {"$schema": SCHEMA, "title": entry.chartTitle, **size, **given}
    spec["config"] = {"font": _FONT, "background": "white", **spec.get("config", {})}
    fields = (part.get("field") for part in _parts(spec, without="transform"))
    # An unknown field would leave the chart blank.
    _require_columns(table, (field.replace("\\", "") for field in fields if isinstance(field, str)))
    return spec


def _suggest_spec(table: "pd.DataFrame", entry: ChartEntry) -> Spec:
    x, y, color = _choose_columns(table, entry)
    kind = entry.chartType or _chart_type(table, x, y)
    encoding: dict[str, Any] = {}
    if kind == "histogram":
        encoding["x"] = {**_channel(table, y or x, entry.xTitle, entry.unit), "bin": True}
        encoding["y"] = {"aggregate": "count", "title": entry.yTitle or "count"}
    elif kind == "pie":
        encoding["theta"] = _channel(table, y, entry.yTitle, entry.unit)
        encoding["color"] = _channel(table, x, entry.xTitle, None)
    else:
        encoding["x"] = _channel(table, x, entry.xTitle, None if y else entry.unit)
        encoding["y"] = (
            _channel(table, y, entry.yTitle, entry.unit)
            if y
            else {"aggregate": "count", "title": entry.yTitle or "count"}
        )
    if kind == "bar":
        encoding["x"] |= _places_of_bars(table, x, encoding["x"])
    if color and kind != "pie":
        encoding["color"] = _channel(table, color, None, None)
    if kind == "boxplot":  # its tooltips are of the box, not of a row
        return {"mark": _MARKS[kind], "encoding": encoding}
    encoding["tooltip"] = [
        {key: channel[key] for key in ("field", "type", "title", "timeUnit") if key in channel}
        for channel in (_channel(table, name, None, None) for name in (x, y, color) if name)
    ]
    mark: Any = {"type": _MARKS[kind], "tooltip": True}
    if kind == "line":
        mark["point"] = len(table) <= 60
    return {"mark": mark, "encoding": encoding}


def _choose_columns(
    table: "pd.DataFrame", entry: ChartEntry
) -> tuple[str | None, str | None, str | None]:
    """Choose the axes: time or category on x, the first number on y."""
    taken = {entry.x, entry.y, entry.color}
    free = [column for column in table.columns if column not in taken]
    numbers = [column for column in free if is_numeric(table, column)]
    others = [column for column in free if column not in numbers]
    x = entry.x or next((c for c in others if is_time(table, c)), None)
    x = x or next((c for c in others if table[c].nunique() <= MAX_CATEGORIES), None)
    x = x or (numbers.pop(0) if len(numbers) > 1 else None)
    y = entry.y or next((column for column in numbers if column != x), None)
    if x is None and y is None:
        x = table.columns[0]
    return x, y, entry.color


def _chart_type(table: "pd.DataFrame", x: str | None, y: str | None) -> ChartType:
    if x is None:
        return "histogram"
    if is_time(table, x):
        return "line"
    return "scatter" if y is not None and is_numeric(table, x) else "bar"


def _channel(
    table: "pd.DataFrame", column: str | None, title: str | None, unit: str | None
) -> dict[str, Any]:
    if column is None:
        return {"aggregate": "count", "type": "quantitative", "title": title or "count"}
    kind = "temporal" if is_time(table, column) else "nominal"
    kind = "quantitative" if is_numeric(table, column) else kind
    shown = title or column
    time = _time_unit(table[column]) if kind == "temporal" else {}
    field = re.sub(r"([\\.\[\]'\"])", r"\\\1", column)  # in a field's name they mean a path to Vega
    title = f"{shown} ({unit})" if unit else shown
    return {"field": field, "type": kind, "title": title, **time}


def _places_of_bars(
    table: "pd.DataFrame", column: str | None, axis: dict[str, Any]
) -> dict[str, Any]:
    """Return what changes an axis so that bars are as wide as their place."""
    if axis["type"] == "nominal":
        return {"sort": "-y", "axis": {"labelAngle": -35, "labelLimit": 160}}
    if axis["type"] == "temporal" and table[column].nunique() <= MAX_CATEGORIES:
        unit = axis.get("timeUnit", "yearmonthdatehoursminutesseconds")
        return {"type": "ordinal", "timeUnit": unit, "axis": {"labelAngle": -35}}
    return {}


def _time_unit(values: "pd.Series[Any]") -> dict[str, str]:
    """Return the unit of a column of months, years or days; nothing for times of day."""
    moments = values.dropna()
    if (moments.dt.normalize() != moments).any():
        return {}
    if (moments.dt.day != 1).any():
        return {"timeUnit": "yearmonthdate"}
    years = moments.nunique() > 1 and (moments.dt.month == 1).all()
    return {"timeUnit": "year" if years else "yearmonth"}


def with_data(spec: Spec, table: "pd.DataFrame") -> Spec:
    rows: Any = json.loads(table.to_json(orient="records", date_format="iso", force_ascii=False))
    return {**spec, "data": {"values": rows}}


def _parts(value: Any, without: str = "") -> Iterator[dict[str, Any]]:
    """Yield the objects in a specification, except rows, and those that have a field `without`."""
    if isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _parts(inner, without)
    elif isinstance(value, dict) and without not in value:
        part = cast("dict[str, Any]", value)
        yield part
        for name, inner in part.items():
            rows = name == "data" and isinstance(inner, dict)  # they may have any names
            if name != "datasets":
                yield from _parts({**inner, "values": None} if rows else inner, without)


def _require_columns(table: "pd.DataFrame", names: Iterable[str]) -> None:
    for name in names:
        if name not in table.columns:
            close = difflib.get_close_matches(name, list(table.columns), 1, 0.5)
            meant = f"Did you mean {close[0]!r}? " if close else ""
            known = ", ".join(table.columns)
            raise ToolError(f"There is no column {name!r}. {meant}Available: {known}.")


def check_spec(spec: Spec) -> None:
    """Validate a specification. ToolError names the field that is wrong, and the right one."""
    import altair
    from jsonschema import Draft7Validator

    if loads := _loads(spec):
        raise ToolError(
            f"The specification has {loads!r}, which loads something or opens it. A chart shows "
            "nothing but its table: remove it, and use csvFilePath for data."
        )
    if "values" in spec.get("data", ()):  # rows are not checked one by one
        spec = {**spec, "data": {**spec["data"], "values": []}}
    schema: Any = altair.VegaLiteSchema
    checker: Any = Draft7Validator(schema._rootschema)  # there is no public name
    for error in checker.iter_errors({"data": {"values": []}, **spec}):
        problems = "; ".join(fault.problem for fault in _faults(error)[:5])
        raise ToolError(f"The chart's specification is not valid: {problems}")


def _loads(spec: Spec) -> str | None:
    """Return a part of a specification that loads something."""
    for part in _parts(spec):
        if found := _LOADING & part.keys():
            return min(found)
        if "image" in (part.get("mark"), part.get("type")):
            return "image"
    return None


class _Fault(NamedTuple):
    problem: str
    distance: float  # how far what is written is from what is right


def _faults(error: Any) -> list[_Fault]:  # jsonschema has no full types
    """Return what is wrong; of several choices, by the one that is nearest to what is written."""
    choices: dict[Any, list[_Fault]] = {}
    for inner in error.context or ():
        choices.setdefault(inner.schema_path[0], []).extend(_faults(inner))
    if choices:
        return min(choices.values(), key=lambda faults: sum(each.distance for each in faults))
    where = error.json_path.removeprefix("$").removeprefix(".")
    value = error.instance
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", ()))
        return [
            _fault(f"there is no field {name!r} at {where or 'the top'}", name, known)
            for name in value
            if name not in known
        ]
    if error.validator in ("enum", "const") and isinstance(value, str):
        words = error.schema.get("enum", [error.schema.get("const")])
        return [_fault(f"{where} cannot be {value!r}", value, list(map(str, words)))]
    return [_Fault(f"the value is not valid at {where or 'the top'}: {error.message[:300]}", 2)]


def _fault(problem: str, name: str, known: list[str]) -> _Fault:
    close = difflib.get_close_matches(name, known, 1, 0.5)
    if close:
        distance = 1 - difflib.SequenceMatcher(None, close[0], name).ratio()
        return _Fault(f"{problem}; did you mean {close[0]!r}?", distance)
    more = " ..." if len(known) > 30 else ""
    shown = f"{problem}; known: {', '.join(sorted(known)[:30])}{more}"
    return _Fault(shown, 1 + 1 / len(known) if known else 2)  # the longest list says most

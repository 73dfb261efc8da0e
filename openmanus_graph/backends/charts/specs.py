"""Builds a valid Vega-Lite specification from a table and a request."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from openmanus_graph.backends.charts.tables import is_numeric, is_time
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
Fragment = Mapping[str, Any]
Spec = dict[str, Any]


def make_spec(table: "pd.DataFrame", entry: ChartEntry) -> Spec:
    """Describe a chart, by the caller's own specification or by what the columns suggest."""
    named = (entry.x, entry.y, entry.color)
    _require_columns(table, (column for column in named if column is not None))
    spec = dict(entry.spec) if entry.spec is not None else _suggest_spec(table, entry)
    spec.setdefault("$schema", SCHEMA)
    spec.setdefault("title", entry.chartTitle)
    spec.setdefault("width", WIDTH)
    spec.setdefault("height", HEIGHT)
    spec["config"] = {"font": _FONT, "background": "white", **spec.get("config", {})}
    # An unknown field would leave the chart blank.
    _require_columns(table, (field.replace("\\", "") for field in _fields(spec)))
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
    if kind == "bar" and y and encoding["x"]["type"] == "nominal":
        encoding["x"] |= {"sort": "-y", "axis": {"labelAngle": -35, "labelLimit": 160}}
    if color and kind != "pie":
        encoding["color"] = _channel(table, color, None, None)
    if kind == "boxplot":  # its tooltips are of the box, not of a row
        return {"mark": _MARKS[kind], "encoding": encoding}
    encoding["tooltip"] = [
        {key: channel[key] for key in ("field", "type", "title")}
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
    field = re.sub(r"([\\.\[\]'\"])", r"\\\1", column)  # in a field's name they mean a path to Vega
    return {"field": field, "type": kind, "title": f"{shown} ({unit})" if unit else shown}


def with_data(spec: Spec, table: "pd.DataFrame") -> Spec:
    rows: Any = json.loads(table.to_json(orient="records", date_format="iso", force_ascii=False))
    return {**spec, "data": {"values": rows}}


def _fields(value: Any) -> Iterator[str]:
    """Yield the columns that a specification shows, without parts that have transforms."""
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value)
        if "transform" in inside:
            return
        for name, inner in inside.items():
            if name == "field" and isinstance(inner, str):
                yield inner
            elif name != "data":
                yield from _fields(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _fields(inner)


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
    from altair.utils.schemapi import SchemaValidationError
    from jsonschema import ValidationError

    if loads := _loads(spec):
        raise ToolError(
            f"The specification has {loads!r}, which loads something or opens it. A chart shows "
            "nothing but its table: remove it, and use csvFilePath for data."
        )
    if "values" in spec.get("data", ()):  # rows are not checked one by one
        spec = {**spec, "data": {**spec["data"], "values": []}}
    schema: Any = altair.VegaLiteSchema
    root: Fragment = schema._rootschema  # there is no public name
    if faults := list(_unknown_names(spec, [root], root["definitions"], "")):
        raise ToolError(f"The chart's specification is not valid: {'; '.join(faults[:5])}")
    try:
        altair.Chart.from_dict({"data": {"values": []}, **spec})
    except (SchemaValidationError, ValidationError) as error:
        where = ".".join(str(part) for part in getattr(error, "absolute_path", ()))
        words = str(getattr(error, "message", error)).partition("\n")[0]
        raise ToolError(
            f"The chart's specification is not valid at {where or 'the top'}: {words}."
        ) from error


def _loads(value: Any) -> str | None:
    """Return a part of a specification that loads something; its rows may have any names."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if found := _LOADING & fields.keys():
            return min(found)
        if "image" in (fields.get("mark"), fields.get("type")):
            return "image"
        parts: Any = [
            {each: part for each, part in cast("dict[str, Any]", inner).items() if each != "values"}
            if name == "data" and isinstance(inner, dict)
            else inner
            for name, inner in fields.items()
            if name != "datasets"
        ]
    else:
        parts = cast("list[Any]", value) if isinstance(value, list) else ()
    return next(filter(None, map(_loads, parts)), None)


def _unknown_names(
    value: Any, fragments: Sequence[Fragment], definitions: Fragment, where: str
) -> Iterator[str]:
    """Yield each unknown field or word, with where it is and the nearest right one."""
    allowed = list(_alternatives(fragments, definitions))
    telling = {"type", "enum", "const", "properties"}
    if not allowed or any(not telling & fragment.keys() for fragment in allowed):
        return  # anything is allowed here
    if isinstance(value, Mapping):
        yield from _unknown_fields(cast("Fragment", value), allowed, definitions, where)
    elif isinstance(value, list):
        items = [inner["items"] for inner in allowed if isinstance(inner.get("items"), dict)]
        for number, item in enumerate(cast("list[Any]", value) if items else ()):
            yield from _unknown_names(item, items, definitions, f"{where}[{number}]")
    elif isinstance(value, str):
        yield from _unknown_word(value, allowed, where)


def _unknown_fields(
    value: Fragment, allowed: Sequence[Fragment], definitions: Fragment, where: str
) -> Iterator[str]:
    objects = [fragment for fragment in allowed if fragment.get("type") == "object"]
    if any(fragment.get("additionalProperties", True) is not False for fragment in objects):
        return
    known: dict[str, list[Fragment]] = {}
    for fragment in objects:
        for name, inner in fragment.get("properties", {}).items():
            known.setdefault(name, []).append(inner)
    for name, inner in value.items():
        place = f"{where}.{name}" if where else name
        if name in known:
            yield from _unknown_names(inner, known[name], definitions, place)
        elif known:
            yield f"there is no field {name!r} at {where or 'the top'}{_nearest(name, known)}"


def _unknown_word(value: str, allowed: Sequence[Fragment], where: str) -> Iterator[str]:
    words: list[str] = []
    for fragment in allowed:
        if "enum" in fragment or "const" in fragment:
            given = fragment.get("enum", [fragment.get("const")])
            words += [word for word in given if isinstance(word, str)]
        elif "string" in (kind := fragment.get("type", ())) or kind == "string":
            return  # free text
    if words and value not in words:
        yield f"{where} cannot be {value!r}{_nearest(value, words)}"


def _alternatives(fragments: Sequence[Fragment], definitions: Fragment) -> Iterator[Fragment]:
    """Yield what a place may hold, references and choices followed."""
    for fragment in fragments:
        if "$ref" in fragment:
            name = str(fragment["$ref"]).removeprefix("#/definitions/")
            yield from _alternatives([definitions[name]], definitions)
        elif choices := fragment.get("anyOf") or fragment.get("oneOf") or fragment.get("allOf"):
            yield from _alternatives(choices, definitions)
        else:
            yield fragment


def _nearest(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1, 0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = sorted(set(known))
    return f"; known: {', '.join(shown[:30])}{' ...' if len(shown) > 30 else ''}"

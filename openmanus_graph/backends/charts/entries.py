"""The request for a chart: one entry of the JSON list that `data_visualization` reads."""

import json
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from openmanus_graph.errors import ToolError
from openmanus_graph.state.validation import validation_problems

ChartType = Literal["bar", "line", "area", "scatter", "pie", "histogram", "boxplot", "heatmap"]
Language = Literal["zh", "en"]


class ChartEntry(BaseModel):
    """One chart of a table."""

    model_config = ConfigDict(extra="forbid")

    csvFilePath: str = Field(description="CSV, TSV, JSON or Excel file.")  # OpenManus's key
    chartTitle: str
    chartType: ChartType | None = None
    x: str | None = None
    y: str | None = None
    color: str | None = None
    xTitle: str | None = None
    yTitle: str | None = None
    unit: str | None = None
    """Of the values, shown at their axis."""
    spec: dict[str, Any] | None = None
    """A whole Vega-Lite specification, without its data."""


class InsightEntry(BaseModel):
    """Which of a drawn chart's insights to write beside it."""

    model_config = ConfigDict(extra="forbid")

    chartPath: str
    insights_id: list[int]


class Insight(BaseModel):
    """What a chart's figures say."""

    id: int
    text: str


class ChartData(BaseModel):
    """What is kept beside a drawn chart."""

    spec: dict[str, Any]
    insights: list[Insight]
    title: str


def read_entries(data: bytes, name: str, kind: type[BaseModel]) -> list[Any]:
    """Read the list. ToolError says what is wrong, and in which entry.

    Args:
        data: Content of its file.
        name: Of the file.
        kind: Of the entries.
    """
    try:
        given: Any = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{name} is no JSON: {error}. Write a list of entries.") from error
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

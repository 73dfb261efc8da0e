"""Reads a table that may be empty, huge, wrongly encoded or full of mixed types.

For the child only: pandas takes long to load, and may not be installed.
"""

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd

from openmanus_graph.backends.charts.specs import is_numeric, is_time
from openmanus_graph.backends.files.text_file import encoding_of, opened_text
from openmanus_graph.errors import ToolError

MAX_BYTES = 200 * 1024**2
MAX_ROWS = 20_000  # of a chart: more only make a picture that cannot be read
MIN_SHARE = 0.8
"""Share of a column's values that must be of a kind for the rest to count as missing."""
_DATE = re.compile(
    r"\d{4}[-/.年]\d{1,2}([-/.月]\d{1,2}日?)?"  # the year first
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"  # ... or last
    r"|\d{1,2}\.?\s+[A-Za-z]{3,9}\.?,?\s+\d{4}"  # a month's name
    r"|[A-Za-z]{3,9}\.?\s+(\d{1,2},?\s+)?\d{4}"
)
_DECIMAL_COMMA = r"[+-]?(\d{1,3}(\.\d{3})+|\d+),(\d{1,2}|\d{4,})|[+-]?\d{1,3}(\.\d{3})+,\d+"
"""Here the comma must be a decimal one: a group of thousands has three digits."""
_THOUSANDS = r"[+-]?\d{1,3}(,\d{2,3})*,\d{3}(\.\d*)?"
_SIGNS = r"\s*[%$€£¥]\s*|[\u00a0\u202f]"
"""Of currencies and shares, and the spaces that separate thousands."""
_DAY_FIRST = re.compile(r"^(\d{1,2})([/.-])(\d{1,2})\2\d{2,4}")


def read_table(file: BinaryIO, name: str) -> tuple[pd.DataFrame, list[str]]:
    """Read a table, with warnings about it. Columns of dates become dates."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if size > MAX_BYTES:
        raise ToolError(
            f"{name} has {size / 1024**2:,.0f} MB; charts are made of tables up to "
            f"{MAX_BYTES // 1024**2} MB. Aggregate it with python_execute first."
        )
    try:
        table, notes = _parse(file, name.lower())
    except RecursionError as error:
        raise ToolError(f"{name} is nested too deeply to be a table.") from error
    except (ValueError, KeyError, TypeError, AttributeError, NotImplementedError) as error:
        why = str(error)[:300].rstrip(".")
        raise ToolError(f"{name} is not a table that can be read: {why}.") from error
    if table.empty:
        raise ToolError(f"{name} has no rows.")
    if len(table) > MAX_ROWS:
        raise ToolError(
            f"{name} has more than {MAX_ROWS:,} rows, which no chart can show. "
            "Aggregate or sample it with python_execute first."
        )
    table.columns = [str(column) for column in table.columns]
    if table.columns.has_duplicates:
        raise ToolError(f"{name} has two columns of one name. Rename one.")
    notes += [*_renamed(table), *_convert(table, "numbers", _numbers), *_remove_infinite(table)]
    return table, [*notes, *_convert(table, "dates", _dates)]


def _parse(file: BinaryIO, name: str) -> tuple[pd.DataFrame, list[str]]:
    if name.endswith((".xlsx", ".xls")):
        return pd.read_excel(file, nrows=MAX_ROWS + 1), []
    found = encoding_of(file)
    if found is None:
        raise ToolError(f"{name} is not text, so it is not a table.")
    notes = [f"{name}: {found.damage}."] if found.broken else []
    if found.name != "utf-8":
        notes = [f"{name} is not UTF-8; read as {found.name}."]
    with opened_text(file, found) as text:
        start = text.tell()
        if not text.read(4096).strip():
            raise ToolError(f"{name} is empty.")
        text.seek(start)
        if name.endswith((".json", ".jsonl", ".ndjson")):
            return _from_json(_json_in(text.read())), notes
        table, more = _from_rows(text, name)
        return table, [*notes, *more]


def _from_rows(text: io.TextIOWrapper, name: str) -> tuple[pd.DataFrame, list[str]]:
    """Read row by row: of a table of millions only those that a chart could show."""
    separator, start = "\t", text.tell()
    if not name.endswith(".tsv"):  # by the header: all rows mislead in a table of one column
        header = re.sub(r'"[^"]*"', "", text.readline())
        separator = max(",;\t|", key=header.count)
    text.seek(start)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        table = pd.read_csv(
            text, sep=separator, engine="python", nrows=MAX_ROWS + 1, index_col=False
        )
    if any("Length of header" in str(warning.message) for warning in seen):
        return table, [f"{name} has rows longer than its header; what is beyond is left out."]
    return table, []


def _json_in(text: str) -> Any:
    """Read JSON, or lines of JSON, a row each."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            raise error from None


def _from_json(value: Any) -> pd.DataFrame:
    """Make a table of rows, of columns, or of the only list in an object."""

    def as_text_if_nested(cell: Any) -> Any:  # nothing can be grouped by a list
        return json.dumps(cell, ensure_ascii=False) if isinstance(cell, list | dict) else cell

    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        lists: list[Any] = [inner for inner in fields.values() if isinstance(inner, list)]
        if len(lists) == len(fields) > 1 and len({len(column) for column in lists}) == 1:
            return pd.DataFrame(fields)
        value = lists[0] if len(lists) == 1 else cast("Any", fields)
    if not isinstance(value, list | dict):
        raise ValueError("it holds a single value, not a list of rows")
    if isinstance(value, list) and not any(isinstance(r, dict) for r in cast("list[Any]", value)):
        return pd.DataFrame(cast("list[Any]", value))
    return pd.json_normalize(cast("Any", value)).map(as_text_if_nested)


def _renamed(table: pd.DataFrame) -> list[str]:
    """Return a note on columns that share a name: the reader numbers the later ones."""
    names = list(table.columns)
    matches = (re.fullmatch(r"(.+)\.(\d+)", name) for name in names)
    twice = [match[0] for match in matches if match and match[1] in names]
    return [f"Columns of one name were numbered: {', '.join(twice)}."] if twice else []


def _convert(
    table: pd.DataFrame, kind: str, read: "Callable[[pd.Series[Any]], pd.Series[Any]]"
) -> list[str]:
    """Convert columns of texts of a kind, in place; return notes on what is left out."""
    notes: list[str] = []
    for column in table.columns:
        values = table[column]
        if not _is_text(values):
            continue
        found = read(values.astype("string").str.strip())
        if found.notna().sum() < max(1, MIN_SHARE * values.notna().sum()):
            continue
        table[column] = found
        if wrong := list(values[found.isna() & values.notna()]):
            examples = ", ".join(repr(str(value)[:30]) for value in wrong[:3])
            left_out = f"{len(wrong)} value(s) are not {kind} and left out, such as {examples}"
            notes.append(f"{column}: {left_out}.")
    return notes


def _numbers(text: "pd.Series[Any]") -> "pd.Series[Any]":
    text = text.str.replace(_SIGNS, "", regex=True)
    # Write numbers as Python does: 1,200.5, and 1.200,5 if the comma is a decimal one.
    if text.str.fullmatch(_DECIMAL_COMMA).fillna(False).any():
        text = text.str.replace(".", "").str.replace(",", ".")
    grouped = text.str.fullmatch(_THOUSANDS).fillna(False)
    plain = text.where(~grouped, text.str.replace(",", ""))
    return pd.to_numeric(plain, errors="coerce").astype("float64")


def _remove_infinite(table: pd.DataFrame) -> list[str]:
    notes: list[str] = []
    for column in table.columns:
        values = table[column]
        if pd.api.types.is_float_dtype(values) and np.isinf(values).any():
            table[column] = values.replace([np.inf, -np.inf], np.nan)
            notes.append(f"{column}: {int(np.isinf(values).sum())} infinite value(s) are left out.")
    return notes


def _dates(text: "pd.Series[Any]") -> "pd.Series[Any]":
    """Read dates; days come first if one first number is above 12, or is followed by a dot."""
    text = text.where(text.str.match(_DATE).fillna(False).astype(bool))
    text = text.str.replace(r"[年月]", "-", regex=True).str.replace(r"-?日?$", "", regex=True)
    parts = text.str.extract(_DAY_FIRST)
    day_first = bool((pd.to_numeric(parts[0]) > 12).any() or (parts[1] == ".").any())
    read: dict[str, Any] = {"errors": "coerce", "format": "mixed", "utc": True}
    found = pd.to_datetime(text.mask(parts[0].notna()), **read)
    year_last = pd.to_datetime(text.where(parts[0].notna()), dayfirst=day_first, **read)
    return found.fillna(year_last).dt.tz_localize(None)


def _is_text(values: "pd.Series[Any]") -> bool:
    return bool(values.dtype == object or pd.api.types.is_string_dtype(values))


Numbers = np.ndarray[Any, np.dtype[np.float64]]

MAX_INSIGHTS = 6
TOP_CATEGORIES = 3
MAX_P_VALUE = 0.01  # largest probability of chance at which something is said at all

_WORDS = {
    "en": {
        "rises": "{y} rises by {slope} per {per} along {x} (R² {r2}).",
        "falls": "{y} falls by {slope} per {per} along {x} (R² {r2}).",
        "outlier": "{y} = {value} at {x} {at} stands out; the middle value is {median}.",
        "correlation": "{a} and {b} move {way} (r = {r}, n = {n}).",
        "step": "step", "together": "together", "apart": "against each other",
        "top": "The largest {x} by {y}: {names}, together {share} of the total.",
        "order": "By {y}: {names}.",
        "change": "The level of {y} changes at {x} {at}: on average {before}, then {after}.",
    },
    "zh": {
        "rises": "{y}沿{x}每{per}上升{slope}（R² {r2}）。",
        "falls": "{y}沿{x}每{per}下降{slope}（R² {r2}）。",
        "outlier": "{x}为{at}时{y} = {value}，明显异常；中位数为{median}。",
        "correlation": "{a}与{b}{way}（r = {r}，n = {n}）。",
        "step": "步", "together": "正相关", "apart": "负相关",
        "top": "按{y}最大的{x}：{names}，合计占总量的{share}。",
        "order": "按{y}排序：{names}。",
        "change": "{y}的水平在{x} {at}处改变：之前平均{before}，之后平均{after}。",
    },
}  # fmt: skip


def find_insights(
    table: pd.DataFrame, x: str | None, y: str | None, language: str
) -> list[dict[str, Any]]:
    """Return what a table shows: each with id (from 1), kind, text, and the figures."""
    found = [
        *_axis_insights(table, x, y),
        *_largest_insights(table, x, y),
        *_correlation_insights(table),
    ]
    words, insights = _WORDS[language], list[dict[str, Any]]()
    for number, (kind, facts) in enumerate(found[:MAX_INSIGHTS], 1):
        shown = {
            name: f"{value:,.3g}" if isinstance(value, float) else str(value)
            for name, value in facts.items()
        }
        if facts.get("per") == "step":
            shown["per"] = words["step"]
        if kind == "correlation":
            shown["way"] = words["together" if facts["r"] > 0 else "apart"]
        text = words[kind].format(**shown)
        insights.append({"id": number, "kind": kind, "text": text, "facts": facts})
    return insights


def _axis_insights(
    table: pd.DataFrame, x: str | None, y: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Look along an axis: a trend, a change of level, outliers."""
    if x is None or y is None or x == y or not is_numeric(table, y):
        return
    rows: Any = table[[x, y]].dropna()
    parts = [rows]
    if _ordered(table, x) and rows[x].nunique() >= 5:
        means: Any = rows.groupby(x)[y].mean()  # sorted; several lines may have a value each
        named = {"x": x, "y": y if len(means) == len(rows) else f"⌀ {y}"}
        trend = _trend(means, by_value=is_numeric(rows, x))
        if trend is not None:
            kind = "rises" if trend["slope"] > 0 else "falls"
            yield kind, {**named, **trend, "slope": abs(trend["slope"])}
        change = _change(means.to_numpy(dtype=np.float64))
        if change is not None and (trend is None or trend["r2"] < 0.9):
            place = means.index[change[0]]
            levels = {"before": change[1], "after": change[2]}
            yield "change", {**named, "at": _axis_label(place), **levels}
            parts = [rows[rows[x] < place], rows[rows[x] >= place]]
    for part in parts:
        values = part[y].to_numpy(dtype=np.float64)
        for index, median in _outliers(values):
            at = {"at": _axis_label(part[x].iloc[index]), "value": float(values[index])}
            yield "outlier", {"x": x, "y": y, **at, "median": median}


def _axis_label(value: Any) -> str:
    return str(value).removesuffix(" 00:00:00")


def _trend(means: Any, *, by_value: bool) -> dict[str, Any] | None:
    """Fit a line: by the values along the axis if they are numbers, else step by step."""
    from scipy import stats  # takes a second to load

    at = means.index.to_numpy(dtype=np.float64) if by_value else np.arange(len(means))
    fit: Any = stats.linregress(at, means.to_numpy(dtype=np.float64))
    if not fit.pvalue < MAX_P_VALUE or fit.rvalue**2 < 0.3:
        return None
    per = 1 if by_value else "step"
    return {"slope": float(fit.slope), "per": per, "r2": float(fit.rvalue**2)}


def _change(values: Numbers) -> tuple[int, float, float] | None:
    """Find where the mean shifts most. The chance is multiplied by the number of places tested."""
    from scipy import stats

    least = 4
    if len(values) < 2 * least or values.std() == 0:
        return None
    tests: list[tuple[float, int]] = []
    for at in range(least, len(values) - least + 1):
        result: Any = stats.ttest_ind(values[:at], values[at:], equal_var=False)
        tests.append((float(result.pvalue), at))
    chance, at = min(tests)
    if not chance * len(tests) < MAX_P_VALUE:
        return None
    return at, float(values[:at].mean()), float(values[at:].mean())


def _outliers(values: Numbers) -> Iterator[tuple[int, float]]:
    """Yield up to two values far from the median, in units of the median deviation."""
    if len(values) < 8:
        return
    median = float(np.median(values))
    deviation = float(np.median(np.abs(values - median)))
    if deviation == 0:
        return
    scores = 0.6745 * np.abs(values - median) / deviation
    for index in np.argsort(scores)[::-1][:2]:
        if scores[index] > 3.5:
            yield int(index), median


def _largest_insights(
    table: pd.DataFrame, x: str | None, y: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    if x is None or y is None or not is_numeric(table, y) or is_numeric(table, x):
        return
    if _ordered(table, x):
        return
    totals = table.dropna(subset=[x, y]).groupby(x)[y].sum().sort_values(ascending=False)
    total = float(totals.sum())
    if len(totals) < 2 or totals.min() < 0 or total <= 0:
        return
    top = totals.head(TOP_CATEGORIES)
    names = ", ".join(f"{name} ({value:,.6g})" for name, value in top.items())
    if len(totals) <= TOP_CATEGORIES:  # together they are everything
        yield "order", {"y": y, "names": names}
        return
    yield "top", {"x": x, "y": y, "names": names, "share": f"{float(top.sum()) / total:.0%}"}


def _correlation_insights(table: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    from scipy import stats

    numbers = [column for column in table.columns if is_numeric(table, column)][:8]
    found: list[dict[str, Any]] = []
    for a, b in combinations(numbers, 2):
        rows = table[[a, b]].dropna()
        if len(rows) < 5 or rows[a].nunique() < 3 or rows[b].nunique() < 3:
            continue
        result: Any = stats.pearsonr(rows[a], rows[b])
        if result.pvalue < MAX_P_VALUE and abs(result.statistic) > 0.5:
            found.append({"a": a, "b": b, "r": float(result.statistic), "n": len(rows)})
    for facts in sorted(found, key=lambda f: -abs(f["r"]))[:2]:
        yield "correlation", facts


def _ordered(table: pd.DataFrame, column: str) -> bool:
    """Return True if the rows follow one another along a column: dates, or rising numbers."""
    if is_time(table, column):
        return True
    return is_numeric(table, column) and bool(table[column].is_monotonic_increasing)

"""What figures say, computed: trend, outliers, correlation, the largest, a change of level."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from openmanus_graph.backends.charts.tables import is_numeric, is_time

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Numbers = np.ndarray[Any, np.dtype[np.float64]]

MAX_INSIGHTS = 6
TOP_CATEGORIES = 3
MAX_P_VALUE = 0.01
"""Largest probability of chance at which something is said at all."""

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
    table: "pd.DataFrame", x: str | None, y: str | None, language: str
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
    table: "pd.DataFrame", x: str | None, y: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Look along an axis: a trend, a change of level, values that stand out."""
    import numpy as np

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
    import numpy as np
    from scipy import stats

    at = means.index.to_numpy(dtype=np.float64) if by_value else np.arange(len(means))
    fit: Any = stats.linregress(at, means.to_numpy(dtype=np.float64))
    if not fit.pvalue < MAX_P_VALUE or fit.rvalue**2 < 0.3:
        return None
    per = 1 if by_value else "step"
    return {"slope": float(fit.slope), "per": per, "r2": float(fit.rvalue**2)}


def _change(values: "Numbers") -> tuple[int, float, float] | None:
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


def _outliers(values: "Numbers") -> Iterator[tuple[int, float]]:
    """Yield up to two values far from the median, in units of the median deviation."""
    import numpy as np

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
    table: "pd.DataFrame", x: str | None, y: str | None
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


def _correlation_insights(table: "pd.DataFrame") -> Iterator[tuple[str, dict[str, Any]]]:
    from itertools import combinations

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


def _ordered(table: "pd.DataFrame", column: str) -> bool:
    """Return True if the rows follow one another along a column: dates, or rising numbers."""
    if is_time(table, column):
        return True
    return is_numeric(table, column) and bool(table[column].is_monotonic_increasing)

"""Tables read, specifications checked, figures understood: without any process."""

import base64
import io
import json
import math
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import vl_convert

from openmanus_graph import ToolError
from openmanus_graph.backends.charts.report import chart_page, plotted_columns, redraw, render
from openmanus_graph.backends.charts.specs import (
    ChartEntry,
    ChartType,
    check_spec,
    make_spec,
    with_data,
)
from openmanus_graph.backends.charts.tables import MAX_ROWS, find_insights, read_table
from tests.support.charts import ink, spec_in

pytestmark = pytest.mark.slow


def read(content: str | bytes, name: str = "t.csv") -> tuple[pd.DataFrame, list[str]]:
    return read_table(io.BytesIO(content if isinstance(content, bytes) else content.encode()), name)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", " \n\n", "is empty"),
        ("t.csv", "a,b\n", "no rows"),
        ("t.csv", b"\x00\x01" * 500, "is not text"),
        ("t.csv", 'a,b\n"open,1\n', "is not a table"),
        ("t.csv", b"a,b\nx\0y,1\n", "is not text"),
        ("t.json", "", "is empty"),
        ("t.json", "{", "is not a table"),
        ("t.json", "5", "single value"),
        ("t.json", "[]", "no rows"),
        ("t.json", "[" * 50_000, "nested too deeply"),
    ],
)
def test_what_is_no_table_is_said(name: str, content: str | bytes, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        read(content, name)


def test_a_table_of_millions_is_read_only_as_far_as_needed(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 30_000_000)
    with path.open("rb") as file:
        with pytest.raises(ToolError, match=f"more than {MAX_ROWS:,} rows"):
            read_table(file, "long.csv")
        assert file.tell() < 2 * 1024**2


def test_odd_values_are_left_out_and_said() -> None:
    table, notes = read("a,v\nx,1\ny,NaN\nz,inf\nw,4\nu,\n")
    assert table["v"].tolist()[::3] == [1, 4]
    assert notes == ["v: 1 infinite value(s) are left out."]
    table, notes = read("a,a,b\n1,2,3,9\n4,5,6\n")
    assert list(table.columns) == ["a", "a.1", "b"]
    assert "longer than its header" in notes[0]
    assert "Columns of one name were numbered: a.1" in notes[1]
    money, notes = read('v\n"1,200 €"\n$300\n12%\n7\n8\nlots\n')
    assert money["v"].tolist()[:3] == [1200, 300, 12]
    assert "1 value(s) are not numbers and left out, such as 'lots'" in notes[0]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["1,5", "2,25", "3"], [1.5, 2.25, 3]),
        (["1.200,50", "-2.300,75", "1.250"], [1200.5, -2300.75, 1250]),
        (["€ 1.234,56", "12,5 %"], [1234.56, 12.5]),
        (["1,200", "2,500.5", "-300"], [1200, 2500.5, -300]),
        (["12,34,567", "1,00,000"], [1234567, 100000]),
    ],
)
def test_a_comma_parts_decimals_or_thousands(written: list[str], meant: list[float]) -> None:
    table, _ = read("v;w\n" + "".join(f"{value};x\n" for value in written))
    assert table["v"].tolist() == meant


@pytest.mark.parametrize("encoding", ["gbk", "utf-16", "utf-16-be", "utf-32", "cp1252"])
def test_a_table_in_another_encoding_is_read_and_said(encoding: str) -> None:
    header = "région, Köln" if encoding == "cp1252" else "月份"
    for rows in (3, 16_000):  # the second is longer than what tells the encoding
        content = f'"{header}",v\n' + f'"{header}",{"9" * 60}\n' * rows
        table, notes = read(content.encode(encoding))
        assert list(table.columns) == [header, "v"]
        assert "is not UTF-8; read as" in notes[0]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_read_off_the_header(separator: str) -> None:
    table, _ = read(f'city{separator}people\n"Rio, BR"{separator}7\n')
    assert table.to_dict("records") == [{"city": "Rio, BR", "people": 7}]


def test_dates_of_several_forms_are_dates_and_what_looks_like_them_is_not() -> None:
    forms = ["2024-01-05", "06/02/2024", "March 3 2024", "2024年4月5日", "25/05/2024", "1.6.2024"]
    table, _ = read("d,v\n" + "".join(f"{form},1\n" for form in forms))
    assert [f"{d:%m-%d}" for d in table["d"]] == [
        "01-05", "02-06", "03-03", "04-05", "05-25", "06-01",
    ]  # fmt: skip
    american, _ = read("d,v\n01/31/2024,1\n02/01/2024,2\n")
    assert [f"{d:%m-%d}" for d in american["d"]] == ["01-31", "02-01"]
    zones, _ = read("d,v\n2024-01-01T01:00:00+02:00,1\n2024-01-01T00:00:00Z,2\n")
    assert [f"{d:%d %H}" for d in zones["d"]] == ["31 23", "01 00"]
    for values in (["18-25", "26-35"], ["10.0.10.12", "10.0.10.13"], ["Q1 24", "Q2 24"]):
        plain, _ = read("d,v\n" + "".join(f"{value},1\n" for value in values))
        assert plain["d"].tolist() == values


def test_json_of_rows_columns_and_nested_objects_is_a_table() -> None:
    rows = '{"rows": [{"a": {"b": 1, "c": "x"}, "l": [1]}, {"a": {"b": 2, "c": "y"}, "l": []}]}'
    table, _ = read(rows, "t.json")
    assert list(table.columns) == ["l", "a.b", "a.c"]
    assert table["l"].tolist() == ["[1]", "[]"]
    spec = make_spec(table, ChartEntry(csvFilePath="t.json", chartTitle="T", x="a.c", y="a.b"))
    assert spec["encoding"]["x"]["field"] == "a\\.c"
    quoted = pd.DataFrame({"women's": ["x"], "b": [1]})
    spec = make_spec(quoted, ChartEntry(csvFilePath="t.csv", chartTitle="T"))
    assert spec["encoding"]["x"]["field"] == "women\\'s"
    lines, _ = read('{"a": 1}\n\n{"a": 2}\n', "t.jsonl")
    assert lines["a"].tolist() == [1, 2]
    columns, _ = read('{"a": [1, 2], "b": [3, 4]}', "t.json")
    assert columns["b"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"mark": "barr"}, "mark cannot be 'barr'; did you mean 'bar'"),
        ({"marks": "bar"}, "no field 'marks' at the top; did you mean 'mark'"),
        ({"mark": {"type": "bar", "colour": "red"}}, "'colour' at mark; did you mean 'color'"),
        ({"mark": "bar", "encoding": {"x": {"feild": "a"}}}, "encoding.x; did you mean 'field'"),
        (
            {"layer": [{"mark": "line", "encoding": {"y": {"aggregat": "sum"}}}]},
            r"layer\[0\].encoding.y; did you mean 'aggregate'",
        ),
        (
            {"mark": "bar", "encoding": {"x": {"field": "a", "type": "quantitativ"}}},
            "did you mean 'quantitative'",
        ),
        ({"mark": "bar", "width": [1]}, "not valid at width"),
        ({"mark": "bar", "data": {"url": "http://x/y.csv"}}, "url"),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest_right_one(
    spec: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ToolError, match=problem):
        check_spec(spec)


ROWS: dict[str, Any] = {"values": [{"a": "http://127.0.0.1:1/x", "b": 1}]}
BAR: dict[str, Any] = {"mark": "bar", "encoding": {"x": {"field": "a", "type": "nominal"}}}


@pytest.mark.parametrize(
    "spec",
    [
        BAR | {"data": {"url": "http://127.0.0.1:1/x"}},
        BAR | {"data": {"url": "file:///etc/passwd", "format": {"type": "csv"}}},
        {"data": ROWS, "mark": "image", "encoding": {"x": {"field": "a", "type": "nominal"}}},
        {"data": ROWS, "mark": {"type": "image"}, "encoding": {"url": {"field": "a"}}},
        {"data": ROWS, "layer": [BAR, {"mark": {"type": "bar", "href": "http://127.0.0.1:1"}}]},
        {"data": ROWS, "layer": [{"data": {"url": "x.csv"}, **BAR}]},
        {"data": ROWS, "hconcat": [{"vconcat": [BAR | {"data": {"url": "x.csv"}}]}]},
        {"data": ROWS, "facet": {"field": "a"}, "spec": BAR | {"data": {"url": "x.csv"}}},
        {"data": ROWS, **BAR, "config": {"image": {"url": "file:///x.png"}}},
        {"data": ROWS, **BAR, "config": {"style": {"s": {"url": "file:///x.png"}}}},
        {"data": ROWS, **BAR, "usermeta": {"embedOptions": {"patch": "http://127.0.0.1:1"}}},
        {"data": {"lookup": "a", "from": {"data": {"url": "x.csv"}}}, **BAR},
        BAR
        | {
            "data": ROWS,
            "transform": [
                {"lookup": "a", "from": {"data": {"url": "x.csv"}, "key": "a", "fields": ["b"]}}
            ],
        },
    ],
)
def test_a_specification_that_loads_something_is_never_drawn(spec: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="loads something"):
        render(spec)
    kept = io.BytesIO(json.dumps(spec).encode())
    with pytest.raises(ToolError, match="loads something"):
        redraw(kept, {"lines": ["x"]})


def test_rows_may_have_columns_of_any_name() -> None:
    rows = [{"a": "x", "url": "http://127.0.0.1:1", "href": "y", "type": "image"}]
    assert render(BAR | {"data": {"values": rows}})["png"]


def test_a_column_that_the_table_has_not_is_refused_unless_it_is_made() -> None:
    table, _ = read("sales,n\n1,2\n")
    spec: dict[str, Any] = {"mark": "bar", "encoding": {"x": {"field": "slaes"}}}
    entry = ChartEntry(csvFilePath="t.csv", chartTitle="T", spec=spec)
    with pytest.raises(ToolError, match="no column 'slaes'. Did you mean 'sales'"):
        make_spec(table, entry)
    made = spec | {"transform": [{"calculate": "datum.n * 2", "as": "slaes"}]}
    make_spec(table, ChartEntry(csvFilePath="t.csv", chartTitle="T", spec=made))


def found(table: pd.DataFrame, x: str, y: str) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each["facts"] for each in find_insights(table, x, y, "en")}


def test_insights_are_what_the_figures_are() -> None:
    from scipy import stats  # only here: every worker of a test run imports this file

    random = np.random.default_rng(7)
    noise = random.normal(0, 1, 40)
    line = pd.DataFrame({"n": range(40), "v": 3.5 * np.arange(40) + noise})
    fit = stats.linregress(line["n"], line["v"])
    trend = found(line, "n", "v")["rises"]
    assert (trend["slope"], trend["r2"]) == pytest.approx((fit.slope, fit.rvalue**2))
    assert found(line.assign(v=-line["v"]), "n", "v")["falls"]["slope"] == pytest.approx(fit.slope)

    tens = line.assign(n=line["n"] * 10)  # not by row, but by what stands along the axis
    assert found(tens, "n", "v")["rises"]["slope"] == pytest.approx(fit.slope / 10)
    days = pd.DataFrame({"d": pd.date_range("2024-01-01", periods=40), "v": line["v"]})
    lines = pd.concat([days, days.assign(v=days["v"] + 100)]).sample(frac=1, random_state=1)
    mean = found(lines, "d", "v")["rises"]
    assert (mean["y"], mean["slope"]) == ("⌀ v", pytest.approx(fit.slope))

    spiked = pd.DataFrame({"n": range(40), "v": noise})
    spiked.loc[17, "v"] = 30
    outlier = found(spiked, "n", "v")["outlier"]
    assert (outlier["at"], outlier["value"]) == ("17", 30)
    assert outlier["median"] == pytest.approx(float(np.median(spiked["v"])))

    shifted = pd.DataFrame({"n": range(40), "v": noise + np.where(np.arange(40) < 25, 0, 8)})
    change = found(shifted, "n", "v")["change"]
    assert change["at"] == "25"
    assert change["before"] == pytest.approx(shifted["v"][:25].mean())
    assert change["after"] == pytest.approx(shifted["v"][25:].mean())
    assert "outlier" not in found(shifted, "n", "v"), "what is usual since the change"

    both = pd.DataFrame({"a": noise, "b": -2 * noise + random.normal(0, 0.3, 40)})
    assert found(both, "a", "b")["correlation"]["r"] == pytest.approx(
        float(np.corrcoef(both["a"], both["b"])[0, 1])
    )

    towns = pd.DataFrame({"town": list("ABCDAB"), "people": [50, 30, 15, 5, 20, 10]})
    assert found(towns, "town", "people")["top"] == {
        "x": "town", "y": "people", "names": "A (70), B (40), C (15)", "share": "96%",
    }  # fmt: skip
    assert found(pd.DataFrame({"n": range(40), "v": noise}), "n", "v") == {}


@pytest.mark.parametrize("kind", get_args(ChartType))
def test_every_kind_of_chart_is_described_and_understood(kind: ChartType) -> None:
    table = pd.DataFrame({"town": list("ABCDA"), "women's": [5, 3, 2, 1, 4]})
    entry = ChartEntry(csvFilePath="t.csv", chartTitle="T", chartType=kind, x="town", y="women's")
    spec = make_spec(table, entry)
    assert plotted_columns(spec) == {"histogram": ("women's", None)}.get(kind, ("town", "women's"))
    layered = {"layer": [{"mark": spec["mark"], "encoding": spec["encoding"]}]}
    assert plotted_columns(layered) == plotted_columns(spec)


@pytest.mark.parametrize(
    ("moments", "unit"),
    [
        (["2026-01", "2026-02", "2026-04"], "yearmonth"),
        (["2024-01-01", "2025-01-01"], "year"),
        (["2026-01-05", "2026-01-12"], "yearmonthdate"),
        (["2026-01-05 12:30", "2026-01-05 12:31"], "yearmonthdatehoursminutesseconds"),
    ],
)
def test_a_bar_is_as_wide_as_its_month_year_or_day(moments: list[str], unit: str) -> None:
    table, _ = read("when,sales\n" + "".join(f"{one},3\n" for one in moments))
    entry = ChartEntry(csvFilePath="t.csv", chartTitle="T", chartType="bar")
    spec = make_spec(table, entry)
    assert (spec["encoding"]["x"]["type"], spec["encoding"]["x"]["timeUnit"]) == ("ordinal", unit)
    svg = vl_convert.vegalite_to_svg(with_data(spec, table))
    widths = [int(width) for width in re.findall(r'role-mark marks.*?d="M[^h]*h(\d+)', svg)]
    assert min(widths, default=0) > 100
    line = make_spec(table, entry.model_copy(update={"chartType": "line"}))
    assert line["encoding"]["x"]["type"] == "temporal"


@pytest.mark.parametrize("kind", get_args(ChartType))
def test_every_kind_of_chart_takes_months(kind: ChartType) -> None:
    table, _ = read("when,sales\n2026-01,3\n2026-02,5\n")
    entry = ChartEntry(csvFilePath="t.csv", chartTitle="T", chartType=kind, x="when", y="sales")
    assert render(with_data(make_spec(table, entry), table))["png"]


def test_nothing_is_said_of_parts_of_a_total_that_are_none() -> None:
    scatter = pd.DataFrame({"x": [3.0, 1.0, 2.0, 2.0], "y": [1.0, 2.0, 3.0, 4.0]})
    assert "top" not in found(scatter, "x", "y")
    three = pd.DataFrame({"k": ["a", "b", "c"], "v": [3, 2, 1]})
    assert found(three, "k", "v") == {"order": {"y": "v", "names": "a (3), b (2), c (1)"}}
    assert found(pd.DataFrame({"k": ["a", "b"], "v": [math.nan, math.nan]}), "k", "v") == {}


EVIL = "</script><script>alert(1)</script><!--&\u2028"


def test_the_page_of_a_chart_reads_nothing_of_the_data_as_a_script(tmp_path: Path) -> None:
    rows = [{"k": EVIL, "v": 1}]
    spec = {"title": EVIL, "data": {"values": rows}}
    page = chart_page(spec, EVIL, "window.packed = 1;", "zh")
    (tmp_path / "p.html").write_text(page, "utf-8")
    assert "<script>alert" not in page
    assert page.count("<script") == 3
    assert "default-src 'none'" in page
    assert spec_in(tmp_path / "p.html") == spec


def test_chinese_is_drawn_and_not_as_boxes(tmp_path: Path) -> None:
    inks: list[float] = []
    table, _ = read("城市,人口\n北京,2\n上海,3\n")
    for title in ("一一一一", "鬱鬱鬱鬱"):
        entry = ChartEntry(csvFilePath="t.csv", chartTitle=title)
        drawn = render(with_data(make_spec(table, entry), table))
        path = tmp_path / "c.png"
        path.write_bytes(base64.b64decode(drawn["png"]))
        inks.append(ink(path, (0, 0, 1, 0.06)))
    assert inks[1] > 1.5 * inks[0] > 0, "boxes of missing glyphs have the same ink"
    svg = vl_convert.vegalite_to_svg(with_data(make_spec(table, entry), table))
    assert all(label in svg for label in ("鬱鬱鬱鬱", "城市", "人口", "北京", "上海"))

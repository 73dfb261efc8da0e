"""Tables of pages, and what a model finds on them, become CSV and JSON files."""

import contextlib
import csv
import json
from collections.abc import Iterator
from typing import Any

import pytest

from openmanus_graph.errors import ToolError
from tests.support.browsing import Browsing
from tests.support.pages import PageServer

pytestmark = pytest.mark.slow
PRICES = """<!doctype html><title>Prices</title><table id=layout><tr><td>
<table><caption>Prices <b>2026</b></caption><thead><tr><th>Name<th>Price, €<th>Left</thead>
<tbody><tr><td rowspan=2>Bolt "M8"<td>1,20<td><a href=/b>12</a><tr><td>1,40<td><input value=7>
<tr><td colspan=2>Nut<td><select><option>no<option selected>yes</select>
<tr style="display:none"><td>Hidden<td>9<td>9<tr><td>Zoë 中<td>0,80<td><img alt="none left"></table>
<td>menu</table><table><tr><td>single</table>
<table><tr><th>A<th>B</table><table><tr><td>1<td>2<tr><td>3<td>4</table>
<div id=host></div>
<iframe title=f srcdoc="<table><tr><th>In<th>Frame<tr><td>x<td>y</table>"></iframe>
<div role=grid aria-rowcount=500 aria-label=Grid style="width:300px">
<div role=row aria-rowindex=3><span role=gridcell aria-colindex=1>r3</span></div>
<div role=row aria-rowindex=1><span role=columnheader aria-colindex=1>Id</span></div>
<div role=row aria-rowindex=1><span role=columnheader aria-colindex=2>State</span></div>
<div role=row aria-rowindex=3><span role=gridcell aria-colindex=2>open</span></div></div>
<script>host.attachShadow({mode: 'closed'}).innerHTML =
 '<table><tr><th>S<th>T<tr><td>in<td>shadow</table>'</script>"""
LIST = "<title>Shop</title><h2>Blue mug</h2><p>5.00 EUR</p><h2>Red mug</h2><p>6.50 EUR</p>"


@pytest.fixture
def use(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    browsing = Browsing(tmp_path_factory.mktemp("used") / "work")
    with contextlib.closing(browsing.session):
        yield browsing


@pytest.fixture(scope="module")
def site() -> Iterator[PageServer]:
    with PageServer() as server:
        server.add("/prices", PRICES)
        server.add("/list", LIST)
        yield server


def saved(use: Browsing, name: str) -> str:
    return (use.session.workspace.root / "downloads" / name).read_text("utf-8")


def rows(use: Browsing, name: str) -> list[list[str]]:
    return list(csv.reader(saved(use, name).splitlines()))


async def test_the_tables_of_a_page_are_saved_without_a_model(
    use: Browsing, site: PageServer
) -> None:
    await use("go_to_url", url=site.url("/prices"))
    seen = await use("extract_content", text="prices.csv")
    assert rows(use, "prices.csv") == [
        ["Name", "Price, €", "Left"], ['Bolt "M8"', "1,20", "12"], ['Bolt "M8"', "1,40", "7"],
        ["Nut", "Nut", "yes"], ["Zoë 中", "0,80", "none left"],
    ]  # fmt: skip
    assert 'Saved "Prices 2026" as downloads/prices.csv: 4 rows' in seen
    others = [rows(use, f"prices-{number}.csv") for number in (2, 3, 4, 5)]
    assert [["A", "B"], ["1", "2"], ["3", "4"]] in others
    assert [["Id", "State"], ["r3", "open"]] in others
    assert [["In", "Frame"], ["x", "y"]] in others
    assert [["S", "T"], ["in", "shadow"]] in others
    assert "The page says it has 500 rows" in seen
    assert seen.count("Saved") == 5
    again = await use("extract_content", text="../up/prices.csv")
    assert "downloads/prices (2).csv" in again


async def test_rows_that_are_longer_than_the_first_are_whole_in_json(
    use: Browsing, site: PageServer
) -> None:
    odd = "<table><tr><th>A<th>A<tr><td>1<td>2<td>3<tr><td>4</table>"
    await use("go_to_url", url=site.add("/odd", odd))
    await use("extract_content", text="odd.json")
    first = {"A": "1", "A 2": "2", "3": "3"}
    assert json.loads(saved(use, "odd.json")) == [first, {"A": "4"}]


async def test_tables_are_saved_as_json(use: Browsing, site: PageServer) -> None:
    await use("go_to_url", url=site.url("/prices"))
    await use("extract_content", text="prices.JSON")
    assert json.loads(saved(use, "prices.json"))[-1] == {
        "Name": "Zoë 中", "Price, €": "0,80", "Left": "none left",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "found", "said"),
    [
        ('[{"name": "Blue mug", "price": "5.00"}, {"name": "Red mug", "price": "6.50 EUR"}]',
         [["name", "price"], ["Blue mug", "5.00"], ["Red mug", "6.50 EUR"]], "2 rows"),
        ('Here:\n```json\n{"items": [{"name": "Blue mug"}, {"price": 7}]}\n```',
         [["name", "price"], ["Blue mug", ""], ["", "7"]], '1 of 2 values are not on the page'),
        ('["Blue mug", "Red mug"]', [["value"], ["Blue mug"], ["Red mug"]], "2 rows"),
        ('{"name": "Blue mug", "more": ["Red", "mug"], "none": null}',
         [["name", "more", "none"], ["Blue mug", '["Red", "mug"]', ""]], "1 of 2 values"),
    ],
)  # fmt: skip
async def test_a_model_finds_rows_where_the_page_has_no_table(
    use: Browsing, site: PageServer, reply: str, found: list[list[str]], said: str
) -> None:
    asked: list[str] = []

    async def model(system: str, question: str) -> str:
        asked.append(question)
        assert "JSON" in system
        return reply

    use.model = model
    await use("go_to_url", url=site.url("/list"))
    seen = await use("extract_content", goal="all mugs with prices", text="mugs.csv")
    assert said in seen
    assert rows(use, "mugs.csv") == found
    assert "all mugs with prices" in asked[0]
    assert "Blue mug" in asked[0]


@pytest.mark.parametrize(
    ("args", "reply", "why"),
    [
        ({"text": "mugs.csv"}, "", "the page has no table. Give a goal"),
        ({"text": "mugs.xlsx"}, "", "ends in .csv or .json"),
        ({"text": "mugs.csv", "goal": "cars"}, "[]", "no such entry"),
        ({"text": "mugs.csv", "goal": "cars"}, "I cannot.", "no such entry"),
        ({"text": "mugs.csv", "goal": "cars"}, '[{"a": ', "was no JSON"),
        ({"text": "mugs.csv", "goal": "cars"}, ToolError("The model is away."), "is away"),
    ],
)
async def test_what_cannot_be_saved_is_said(
    use: Browsing, site: PageServer, args: dict[str, Any], reply: str | ToolError, why: str
) -> None:
    async def model(system: str, question: str) -> str:
        if isinstance(reply, ToolError):
            raise reply
        return reply

    use.model = model
    await use("go_to_url", url=site.url("/list"))
    seen = await use.observe("extract_content", **args)
    assert seen.failed
    assert why in seen.text
    assert not (use.session.workspace.root / "downloads").exists()


async def test_a_huge_table_is_cut_and_says_so(use: Browsing, site: PageServer) -> None:
    huge = "<table id=t></table><script>t.innerHTML = ('<tr>' + '<td>1'.repeat(50)).repeat(5000)"
    await use("go_to_url", url=site.add("/huge", f"{huge}</script>"))
    seen = await use("extract_content", text="huge.csv")
    assert "too large: the rest was left out" in seen
    assert sum(map(len, rows(use, "huge.csv"))) == 200_000

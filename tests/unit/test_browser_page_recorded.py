"""Elements of recorded steps are found again by role, name, text and place, or the step stops."""

import re
from dataclasses import asdict

import pytest

from openmanus_graph.backends.browser.recorded_steps import (
    TARGET,
    Around,
    RecordedTarget,
    find_target,
    match_target,
    record_target,
)
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")


def kept(
    text: str, alike: int = 1, place: int = 0, same: int = 1, *, row: bool = True
) -> RecordedTarget:
    return RecordedTarget("button", "Delete", Around(text, row), alike, place, same)


@pytest.mark.parametrize(
    ("now", "then", "found"),
    [
        (["Red", "Green"], kept("Green", alike=2), 1),
        (["Green", "Blue", "Red"], kept("Green", alike=2), 0),
        (["Red", "Blue"], kept("Green", alike=2), None),
        (["Red"], kept("Green", alike=2), None),
        (["Green"], kept("Green", alike=2), 0),
        (["Red 2"], kept("Green 2"), None),
        (["Green mug, new"], kept("Green mug"), 0),
        (["Elsewhere"], kept("Here", row=False), 0),
        (["", "", ""], kept("", alike=3, place=1, same=3), 1),
        (["", ""], kept("", alike=3, place=1, same=3), None),
        (["Green", "Green"], kept("Green"), None),
        ([], kept("Green"), None),
    ],
    ids=[
        "its row", "its row moved", "its row gone", "another row alone", "its row alone",
        "a lone row is another", "a lone row says more", "moved on the page", "its place",
        "place not certain", "twice now", "gone",
    ],
)  # fmt: skip
async def test_the_element_is_taken_only_if_it_is_certain(
    now: list[str], then: RecordedTarget, found: int | None
) -> None:
    assert match_target([Around(text, in_row=True) for text in now], then) == found


BUY = r'\[(\d+)\] button "Buy"'
PAGE = "data:text/html;charset=utf-8,"
CARD = """<div><div>{} mug</div><div>9 €</div>
<p><a href=http://a/>More</a><button>Buy</button></p></div>"""
FRAME = """<iframe srcdoc="<p>Terms<button>Agree</button>"></iframe>"""


def cards(*names: str) -> str:
    return f"<section>{''.join(map(CARD.format, names))}</section>{FRAME}"


async def test_elements_are_found_on_the_page_loaded_again(tab: Tab) -> None:
    await tab.open(PAGE + cards("Red", "Blue"))
    shown = await tab.see()
    _, second = re.findall(BUY, shown)
    buy = await record_target(tab.view, int(second), str)
    agree = await record_target(tab.view, tab.index('"Agree"'), str)
    assert buy
    assert agree
    assert TARGET.validate_python(asdict(buy)) == buy
    assert buy.around.text == "Blue mug 9 € More Buy"

    await tab.open(PAGE + "<h1>New</h1>" + cards("Blue", "Red"))
    shown = await tab.see()
    first, _ = re.findall(BUY, shown)
    assert await find_target(tab.view, buy, str) == int(first)
    assert await find_target(tab.view, agree, str) == tab.index('"Agree"')

    await tab.open(PAGE + cards("Black", "Red"))
    with pytest.raises(
        ToolError, match='Expected: button "Buy" with "Blue mug 9 € More Buy"'
    ) as no:
        await find_target(tab.view, buy, str)
    assert '"Black mug 9 € More Buy", "Red mug 9 € More Buy"' in str(no.value)

"""Elements of recorded steps are found again by role, name, text and place, or the step stops."""

import pytest

from openmanus_graph.backends.browser.page.recorded_target import (
    RecordedTarget,
    find_target,
    match_target,
    record_target,
)
from openmanus_graph.backends.browser.page.snapshot import Element, Line, Snapshot
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")


def shown(*rows: tuple[str, str, int], above_px: int = 0) -> Snapshot:
    """Return a page with a button in each row: the text before it, its name, its top."""
    elements = {
        index: Element(index, "", index, "button", name, (10, top, 60, 20))
        for index, (_, name, top) in enumerate(rows, 7)
    }
    lines = tuple(Line((text, index)) for index, (text, _, _) in enumerate(rows, 7))
    return Snapshot("http://a/", "A", "1", above_px, 0, (1000, 700), lines, elements)


DELETES = shown(("Red", "Delete", 10), ("Green", "Delete", 40), ("Green", "Delete", 400))


@pytest.mark.parametrize(
    ("recorded", "now", "found"),
    [
        (7, DELETES, [7]),
        (8, DELETES, [8]),
        (9, DELETES, [9]),
        (8, shown(("Blue", "Delete", 40), ("Green", "Delete", 90)), [8]),
        (8, shown(("Green", "Delete", 420), ("Green", "Delete", 460)), [7, 8]),
        (9, shown(("Green", "Delete", 40), ("Green", "Delete", 100), above_px=300), [8]),
        (7, shown(("Redder", "Delete", 900)), [7]),
        (7, shown(("Red", "Remove", 10)), []),
    ],
    ids=[
        "by its text", "by its place", "by its place too", "moved", "alike", "scrolled",
        "alone of its name", "gone",
    ],
)  # fmt: skip
async def test_an_element_is_found_again(recorded: int, now: Snapshot, found: list[int]) -> None:
    assert match_target(now, record_target(DELETES, recorded)) == found


async def test_a_recorded_element_is_found_on_the_page_loaded_again(tab: Tab) -> None:
    await tab.open("widgets.html")
    assert tab.shot
    zoom = tab.index('"Zoom"')
    target = record_target(tab.shot, zoom)
    await tab.open("widgets.html")
    found = await find_target(tab.view, target)
    assert found != zoom
    assert found == tab.index('"Zoom"')


@pytest.mark.parametrize(
    ("name", "why"), [("Vanished", "shows no button"), ("Save", "are alike, each a button")]
)
async def test_a_step_that_does_not_fit_says_why(tab: Tab, name: str, why: str) -> None:
    await tab.page.goto("data:text/html,<p><button>Save</button></p><p><button>Save</button></p>")
    with pytest.raises(ToolError, match=f"The recorded step does not fit: .*{why}"):
        await find_target(tab.view, RecordedTarget("button", name, "", (999, 999)))

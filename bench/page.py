"""What the page costs: an event's way to the eye, scrolling and memory of a very long run."""

import statistics
import tempfile
from pathlib import Path

from tests.support.openai_script import Call, Reply
from tests.support.page import SCROLLED, Desk, desk
from tests.support.past import LONG, MANY_EVENTS, write_past

STEPS = 18
SEEN = """() => {
    window.ways = [];
    new MutationObserver((changes) => {
        for (const { addedNodes } of changes) {
            for (const { dataset } of addedNodes) {
                window.ways.push(Date.now() - Date.parse(dataset.ts));
            }
        }
    }).observe(document.querySelector('.timeline .rows'), { childList: true });
}"""
"""Notes for each row, as it is drawn, how long ago its event was emitted, in ms."""


def measure_page(*, quick: bool) -> list[list[str]]:
    """Return the rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_past(root / ".openmanus")
        with desk(root) as at:
            way_ms = _way_ms(at, 2 if quick else STEPS)
            tab = at.tab(LONG)
            tab.until("Finished")
            frame_s = tab.busiest_s(lambda: tab.page.evaluate(SCROLLED))
            memory = tab.memory_bytes()
            tab.close()
    return [
        ["event to the screen, ms, 95th percentile", f"{way_ms:.0f}", "100"],
        [f"scrolling {MANY_EVENTS:,} events, ms of the longest frame", f"{1000 * frame_s:.0f}",
         "50"],
        [f"the tab's memory with {MANY_EVENTS:,} events, MB", f"{memory / 1e6:.0f}", "200"],
    ]  # fmt: skip


def _way_ms(at: Desk, steps: int) -> float:
    """Return ms from an event to the row that shows it."""
    for step in range(steps):
        args = {"command": "create", "path": f"{step}", "file_text": f"{step}"}
        at.model.add(Reply(calls=(Call("str_replace_editor", args),)))
    at.model.add(Reply(text="Done."))
    tab = at.tab()
    tab.page.evaluate(SEEN)
    tab.start("Go.")
    tab.until("Finished")
    ways: list[float] = tab.page.evaluate("() => window.ways")
    tab.close()
    return statistics.quantiles(ways, n=20)[-1]

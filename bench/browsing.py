"""What the browser costs: tokens of a step, time of a click, memory of a thread."""

import asyncio
import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from playwright.async_api import Page, async_playwright

from openmanus_graph.backends.browser.browsers import find_browser
from openmanus_graph.backends.browser.page.dropdown import select_dropdown_option as select
from openmanus_graph.backends.browser.page.fields import input_text
from openmanus_graph.backends.browser.page.frames import prepare_context
from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.backends.browser.page.text import tokens
from tests.support.browsing import Browsing
from tests.support.shop import shop
from tests.support.tabs import Tab, Text

THREADS = 10
ROWS, LOOKS = 1000, 5
ORDER = (
    (click, '"lamp"'),
    (select, "Sort by", Text("Price, low to high")),
    (click, '"Star lamp"'),
    (click, "Back to the list"),
    (input_text, "Search", Text("moon")),
    (click, "Add to cart"),
    (click, "🛒"),
    (click, "Check out"),
    (input_text, 'textbox "Name"', Text("Ada")),
    (input_text, 'textbox "Street"', Text("Main 1")),
    (select, '"Delivery"', Text("Courier")),
    (click, "accept the terms"),
)
"""An order in the shop of the tests."""


def measure_browser(*, clicks: int) -> list[list[str]]:
    """Return the rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measured(Path(folder), clicks))


async def _measured(folder: Path, clicks: int) -> list[list[str]]:
    with shop() as opened:
        async with async_playwright() as playwright:
            place = str(find_browser(None))
            browser = await playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
            context = await browser.new_context()
            await prepare_context(context)
            spent, naive = await _tokens(Tab(await context.new_page(), ""), opened.url)
            look_ms = await _first_look(Tab(await context.new_page(), ""))
            ours, bare = await _clicks(Tab(await context.new_page(), ""), opened.url, clicks)
            await browser.close()
        first, further = await _memory(folder, opened.url)
    return [
        ["tokens of a step, mean", f"{naive:.0f} (whole snapshot)", f"{spent:.0f}",
         f"{spent / naive:.2f}", "0.25"],
        ["click to observation, ms, median", f"{bare:.0f} (bare Playwright)", f"{ours:.0f}",
         f"{ours / bare:.2f}", "1.3"],
        [f"first look at a page of {5 * ROWS} elements, ms, best of {LOOKS}", "", f"{look_ms:.0f}",
         "", "500"],
        [f"MB of each further of {THREADS} threads", f"{first:.0f} (the first)", f"{further:.0f}",
         "", "150"],
    ]  # fmt: skip


async def _tokens(tab: Tab, url: str) -> tuple[float, float]:
    """Return tokens per step: of what changed, and of the whole snapshot after each action."""
    await tab.open(url)
    spent: list[int] = []
    naive: list[int] = []
    for action, *args in ORDER:
        spent.append(tokens(await tab.do(action, *args)))
        naive.append(tokens(await tab.page.aria_snapshot(mode="ai")))
    return statistics.mean(spent), statistics.mean(naive)


async def _first_look(tab: Tab) -> float:
    """Return ms of a look at a long page that was never looked at before."""
    spent: list[float] = []
    for _ in range(LOOKS):
        await tab.page.goto("about:blank")
        await tab.page.set_content(
            "<p><a href=#>Link</a> <i>text</i> <b>more</b> <button>Do</button></p>" * ROWS
        )
        begun = time.perf_counter()
        await tab.view.look()
        spent.append(1000 * (time.perf_counter() - begun))
    return min(spent)


async def _clicks(tab: Tab, url: str, count: int) -> tuple[float, float]:
    """Return ms from a click to what is seen of it, ours and bare, taken in turn."""
    await tab.open(url)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(count):
        started = time.monotonic()
        await tab.do(click, "›")
        ours.append(time.monotonic() - started)
        bare.append(await _bare_click(tab.page, "‹"))
        await tab.see()
    return 1000 * statistics.median(ours), 1000 * statistics.median(bare)


async def _bare_click(page: Page, name: str) -> float:
    started = time.monotonic()
    await page.get_by_text(name, exact=True).click()
    await page.aria_snapshot(mode="ai")
    return time.monotonic() - started


async def _memory(folder: Path, url: str) -> tuple[float, float]:
    """Return MB of Chromium with one thread, and of each further one."""
    threads = [Browsing(folder / str(number)) for number in range(THREADS)]
    with contextlib.ExitStack() as stack:
        for thread in threads:
            stack.callback(thread.session.close)
        await threads[0]("go_to_url", url=url)
        one = _chromium_mb()
        await asyncio.gather(*(thread("go_to_url", url=url) for thread in threads[1:]))
        return one, (_chromium_mb() - one) / (THREADS - 1)


def _chromium_mb() -> float:
    """Add up what Chromium's processes hold, shared pages in parts."""
    family = psutil.Process().children(recursive=True)
    chromium = [process for process in family if "chrom" in process.name()]
    return sum(process.memory_full_info().pss for process in chromium) / 2**20

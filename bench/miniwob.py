"""Solve episodes of MiniWoB++ by what the browser tool says alone.

uv run --with miniwob python -m bench.miniwob [TASK ...] [--episodes N]

Its pages come from the package `miniwob`. A policy knows the task's sentence and the tool's texts;
whether an episode is solved the page says, by a reward above 0.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

from bench.tables import Table
from openmanus_graph.backends.browser.browsers import find_browser
from openmanus_graph.backends.browser.page.dropdown import select_dropdown_option
from openmanus_graph.backends.browser.page.fields import input_text, send_keys
from openmanus_graph.backends.browser.page.frames import prepare_context
from openmanus_graph.backends.browser.page.pointer import click, hover
from openmanus_graph.errors import ToolError
from tests.support.static_site import SiteHandler, serving
from tests.support.tabs import Tab, Text

EPISODES = 5
_START = """(seed) => { core.EPISODE_MAX_TIME = 1e8; Math.seedrandom(seed);
  core.startEpisodeReal(); return core.getUtterance().utterance || core.getUtterance() }"""
_REWARD = "() => WOB_DONE_GLOBAL ? WOB_RAW_REWARD_GLOBAL : 0"


class Reader:
    """What a policy knows and can do."""

    def __init__(self, tab: Tab, sentence: str) -> None:
        self.tab, self.sentence, self.text = tab, sentence, ""

    async def see(self) -> str:
        """Look, and return all that the tool shows."""
        self.text = await self.tab.see()
        return self.text

    def quoted(self, place: int = 0) -> str:
        """Return a quoted part of the sentence."""
        return str(re.findall(r'"(.*?)"', self.sentence)[place])

    def all(self, pattern: str) -> list[int]:
        """Return the indices of the elements whose text in the list matches a pattern."""
        return [int(found) for found in re.findall(rf"\[(\d+)\] (?:{pattern})", self.text)]

    def one(self, pattern: str, place: int = 0) -> int:
        """Return one of them."""
        found = self.all(pattern)
        if not found:
            raise LookupError(pattern)
        return found[place]

    async def click(self, pattern: str, place: int = 0) -> None:
        """Click an element."""
        await self.tab.do(click, self.one(pattern, place))
        await self.see()

    async def enter(self, pattern: str, text: str, place: int = 0) -> None:
        """Type into an element."""
        await self.tab.do(input_text, self.one(pattern, place), Text(text))
        await self.see()

    async def submit(self) -> None:
        """Press the button that ends most tasks."""
        await self.click('button "(?i:submit|login|ok)"')


Policy = Callable[[Reader], Awaitable[None]]


def _named(name: str) -> str:
    return f'[a-z -]+"{re.escape(name)}"'


def _clicking(pattern: Callable[[Reader], str]) -> Policy:
    async def policy(on: Reader) -> None:
        await on.click(pattern(on))

    return policy


async def _checkboxes(on: Reader) -> None:
    wanted = re.sub(r"^Select | and click Submit\.?$", "", on.sentence)
    for name in [] if wanted == "nothing" else wanted.split(", "):
        await on.click(f'checkbox "{re.escape(name)}"')
    await on.submit()


async def _option(on: Reader) -> None:
    wanted = re.sub(r"^Select | and click Submit\.?$", "", on.sentence)
    await on.click(f'radio "{re.escape(wanted)}"')
    await on.submit()


async def _list(on: Reader) -> None:
    wanted = re.sub(r"^Select | from the list and click Submit\.?$", "", on.sentence)
    await on.tab.do(select_dropdown_option, on.one("combobox"), Text(wanted))
    await on.see()
    await on.submit()


async def _enter(on: Reader) -> None:
    await on.enter("textbox", on.quoted())
    await on.submit()


async def _password(on: Reader) -> None:
    for place in range(len(on.all("textbox"))):
        await on.enter("textbox", on.quoted(), place)
    await on.submit()


async def _login(on: Reader) -> None:
    for place in (0, 1):
        await on.enter("textbox", on.quoted(place), place)
    await on.submit()


async def _focus(on: Reader) -> None:
    number = re.search(r"(\d)(?:st|nd|rd)", on.sentence)
    await on.click("textbox", int(number[1]) - 1 if number else 0)


async def _sequence(on: Reader) -> None:
    for name in ("ONE", "TWO"):
        await on.click(f'button "{name}"')


async def _tabs(on: Reader) -> None:
    wanted = re.search(r"Tab #\d", on.sentence)
    await on.click(_named(wanted[0] if wanted else ""))


async def _link_in(on: Reader, places: str) -> None:
    """Open one place after the other until it shows the link."""
    wanted = f'[a-z -]+"{re.escape(on.quoted())}\\W?"'
    for place in range(len(on.all(places))):
        if on.all(wanted):
            break
        await on.click(places, place)
    await on.click(wanted)


async def _tab_with_link(on: Reader) -> None:
    await _link_in(on, '[a-z -]+"Tab #\\d"')


async def _section_with_link(on: Reader) -> None:
    await _link_in(on, '[a-z -]+"Section #\\d"')


async def _section(on: Reader) -> None:
    await on.click('[a-z -]+"Section')
    await on.submit()


async def _date(on: Reader) -> None:
    month, day, year = re.findall(r"\d+", on.sentence)
    await on.enter("date input|textbox", f"{year}-{month}-{day}")
    await on.submit()


async def _time(on: Reader) -> None:
    found = re.search(r"(\d+):(\d+) ([AP])M", on.sentence)
    hour = int(found[1]) % 12 + (12 if found[3] == "P" else 0) if found else 0
    await on.enter("time input|textbox", f"{hour:02}:{found[2] if found else ''}")
    await on.submit()


async def _menu(on: Reader) -> None:
    *menus, item = re.sub(r"^Select ", "", on.sentence).rstrip(".").split(">")
    for name in menus:  # a click there fails
        await on.tab.do(hover, on.one(_named(name)))
        await on.see()
    await on.click(_named(item))


async def _copy(on: Reader) -> None:
    place = next((at for at, word in enumerate(("1st", "2nd", "3rd")) if word in on.sentence), 0)
    filled = on.all(r'textbox[^\[\n]* value="')
    await on.tab.do(click, filled[place])
    await on.tab.do(send_keys, Text("Control+A Control+C"))
    await on.tab.do(click, next(one for one in on.all("textbox") if one not in filled))
    await on.tab.do(send_keys, Text("Control+V"))
    await on.see()
    await on.submit()


async def _arithmetic(on: Reader) -> None:
    found = re.search(r"(-?\d+)\s*([+x×*-])\s*(-?\d+)\s*=", on.text)
    if found is None:
        raise LookupError("a sum")
    left, right = int(found[1]), int(found[3])
    value = {"+": left + right, "-": left - right}.get(found[2], left * right)
    await on.enter("textbox", str(value))
    await on.submit()


async def _table(on: Reader) -> None:
    wanted = re.search(r"value of (.+?) into", on.sentence)
    name = re.escape(wanted[1] if wanted else "")
    value = re.search(rf"(?:^|· ){name} \| (.+?)(?: ·|$)", on.text, re.MULTILINE)
    await on.enter("textbox", value[1] if value else "")
    await on.submit()


async def _odd_or_even(on: Reader) -> None:
    marks = re.findall(r'\[(\d+)\] button "Odd" · (-?\d+) · \[(\d+)\] button "Even"', on.text)
    for odd, number, even in marks:
        await on.tab.do(click, int(odd if int(number) % 2 else even))
    await on.see()
    await on.submit()


POLICIES: dict[str, Policy] = {
    "click-test": _clicking(lambda _: 'button "Click Me!"'),
    "click-test-2": _clicking(lambda _: 'button "ONE"'),
    "click-button": _clicking(lambda on: f'button "{re.escape(on.quoted())}"'),
    "click-button-sequence": _sequence,
    "click-link": _clicking(lambda on: _named(on.quoted())),
    "click-dialog": _clicking(lambda _: 'button "Close"'),
    "click-dialog-2": _clicking(
        lambda on: f'button "{"Close" if on.quoted() == "x" else re.escape(on.quoted())}"'
    ),
    "click-tab": _tabs,
    "click-tab-2": _tab_with_link,
    "click-collapsible": _section,
    "click-collapsible-2": _section_with_link,
    "click-checkboxes": _checkboxes,
    "click-checkboxes-transfer": _checkboxes,
    "click-checkboxes-large": _checkboxes,
    "click-option": _option,
    "click-menu": _menu,
    "choose-list": _list,
    "enter-text": _enter,
    "enter-text-dynamic": _enter,
    "enter-password": _password,
    "enter-date": _date,
    "enter-time": _time,
    "login-user": _login,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "copy-paste": _copy,
    "copy-paste-2": _copy,
    "simple-arithmetic": _arithmetic,
    "read-table": _table,
    "odd-or-even": _odd_or_even,
}


async def measure(tasks: list[str], episodes: int) -> list[list[str]]:
    """Return a row for each task: its name, solved episodes, and why others were not."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "There is no package miniwob: uv run --with miniwob python -m bench.miniwob"
        )
    rows: list[list[str]] = []
    with serving(SiteHandler, Path(spec.origin).parent / "html") as site:
        async with async_playwright() as playwright:
            place = str(find_browser(None))
            browser = await playwright.chromium.launch(executable_path=place, args=["--no-sandbox"])
            context = await browser.new_context()
            await prepare_context(context)
            for task in tasks:
                page = await context.new_page()
                failed = [await _episode(Tab(page, site), task, seed) for seed in range(episodes)]
                await page.close()
                solved = failed.count("")
                rows.append(
                    [task, f"{solved} of {episodes}", "; ".join(sorted(set(failed) - {""}))]
                )
                sys.stderr.write(f"{rows[-1]}\n")
            await browser.close()
    return rows


async def _episode(tab: Tab, task: str, seed: int) -> str:
    """Return why an episode was not solved; empty if it was."""
    await tab.open(f"miniwob/{task}.html")
    sentence: Any = await tab.page.evaluate(_START, f"seed {seed}")
    on = Reader(tab, str(sentence))
    await on.see()
    try:
        await POLICIES[task](on)
    except (ToolError, LookupError) as error:
        return f"{sentence!r}: {type(error).__name__} {str(error).splitlines()[0][:100]}"
    return "" if await tab.page.evaluate(_REWARD) > 0 else f"{sentence!r}: no reward"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="*", default=list(POLICIES))
    parser.add_argument("--episodes", type=int, default=EPISODES)
    given = parser.parse_args()
    rows = asyncio.run(measure(given.tasks, given.episodes))
    solved = sum(int(row[1].split()[0]) for row in rows)
    rows.append(["all", f"{solved} of {len(rows) * given.episodes}", ""])
    sys.stdout.write(f"{Table(['task', 'solved', 'why not'], rows)}\n")


if __name__ == "__main__":
    main()

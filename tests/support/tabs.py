"""A tab of a real Chromium that tests look at and act on as the browser tool does."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Page

from openmanus_graph.backends.browser.page.snapshot import Snapshot
from openmanus_graph.backends.browser.page.text import (
    ActionReport,
    change_text,
    element_text,
    full_text,
)
from openmanus_graph.backends.browser.page.view import PageView
from tests.support.limits import BACKSTOP_S

BUDGET = 20_000


class Tab:
    """One tab and what was last seen in it."""

    def __init__(self, page: Page, site: str) -> None:
        self.page = page
        self.site = site
        self.view = PageView(page)
        self.shot: Snapshot | None = None

    async def open(self, address: str) -> str:
        """Load a page of the site, or any other, and return all it shows."""
        url = address if "://" in address else f"{self.site}/{address}"
        await self.page.goto(url, wait_until="commit", timeout=BACKSTOP_S * 1000)
        await self.view.settle(BACKSTOP_S)
        return await self.see()

    async def see(self, budget_tokens: int = BUDGET) -> str:
        """Look, and return all that the page shows."""
        self.shot = await self.view.look()
        return full_text(self.shot, budget_tokens)

    async def do(
        self, action: Callable[..., Awaitable[ActionReport]], *args: Any, **more: Any
    ) -> str:
        """Act, wait and look, as the tool does; return what was done and what changed.

        Elements are named by their index or by a part of their text in the list.
        """
        given = [self.index(arg) if _is_name(arg) else arg for arg in args]
        plain = [arg.text if isinstance(arg, Text) else arg for arg in given]
        said = (await action(self.view, *plain, **more)).text
        note = await self.view.settle(BACKSTOP_S)
        before, self.shot = self.shot, await self.view.look()
        return "\n".join([said, note, change_text(before, self.shot, BUDGET)])

    def index(self, words: str) -> int:
        """Return the index of the only element whose text in the list matches a pattern."""
        assert self.shot is not None
        found = [
            index
            for index, element in self.shot.elements.items()
            if re.search(words, element_text(element))
        ]
        assert len(found) == 1, (words, found, full_text(self.shot, BUDGET))
        return found[0]

    def has(self, words: str) -> bool:
        """Tell whether an element's text in the list matches a pattern."""
        assert self.shot is not None
        return any(re.search(words, element_text(one)) for one in self.shot.elements.values())


class Text:
    """A text given to an action, as opposed to an element's name."""

    def __init__(self, text: str) -> None:
        self.text = text


def _is_name(arg: object) -> bool:
    return isinstance(arg, str)

"""A scripted reader: it acts on pages as a model does, knowing only what the tool has said."""

import re
from dataclasses import dataclass, field
from typing import Any

from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.page.text import tokens
from tests.support.browsing import Browsing

WAITS, WAIT_S = 15, 3


class Lost(AssertionError):
    """What the reader looks for was not said."""


@dataclass
class Reader:
    """Uses `browser_use` by its texts alone: indices are found in them, never in the page.

    Only whether a step that it believes done was done is asked of the page, for the record.
    """

    use: Browsing
    said: list[str] = field(default_factory=list[str])
    """What the tool has said, the newest last."""
    tokens: int = 0
    false_successes: list[str] = field(default_factory=list[str])
    """Steps that the tool called done and the page knows nothing of."""

    @property
    def calls(self) -> int:
        """How often the tool was called."""
        return len(self.said)

    async def __call__(
        self,
        action: str,
        on: str = "",
        *,
        near: str = "",
        onto: str = "",
        says: str = "",
        true: str = "",
        **args: Any,
    ) -> str:
        """Call the tool.

        Args:
            action: What to do.
            on: A pattern of the element's text: its index is that which the tool gave newest.
            near: A pattern of the line it stands in.
            onto: The same of the element to drag it onto.
            says: A pattern of what the reader takes for a sign that it was done; Lost without it.
            true: A script that returns whether it was done.
            **args: Further arguments.
        """
        if on:
            args["index"] = self.index(on, near)
        if onto:
            args["target_index"] = self.index(onto)
        observation = await self.use.observe(action, **args)
        seen = observation.text
        self.said.append(seen)
        self.tokens += tokens(seen)
        if observation.failed or not re.search(says, seen):
            raise Lost(f"{action} {on!r} {args}: /{says}/ is not in\n{seen}")
        if true and not await self._is_true(true):
            self.false_successes.append(f"{action} {on!r} {args}: {true}\n{seen}")
        return seen

    async def until(self, words: str) -> None:
        """Wait until this is said, as one does who knows what a page will show."""
        for _ in range(WAITS):
            if re.search(words, self.said[-1]):
                return
            await self("wait", seconds=WAIT_S)
        raise Lost(f"{words!r} never came: {self.said[-1]}")

    def index(self, words: str, near: str = "") -> int:
        """Return the index of the only element that was named so when it was last named."""
        for text in reversed(self.said):
            lines = [line for line in text.splitlines() if not line.startswith("Gone")]
            found = {
                int(entry[1])
                for line in lines
                if re.search(near, line)
                for entry in re.finditer(r"\[(\d+)\] ([^\[]*)", line)
                if re.search(words, entry[2])
            }
            if len(found) == 1:
                return found.pop()
            if found:
                raise Lost(f"{words!r} names {sorted(found)} in\n{text}")
        raise Lost(f"nothing is called {words!r}:\n" + "\n---\n".join(self.said[-2:]))

    async def _is_true(self, script: str) -> bool:
        page = self.use.browser.current.page
        return bool(await browser_loop.run(lambda: page.evaluate(script)))

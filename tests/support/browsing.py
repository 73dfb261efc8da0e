"""Calling `browser_use` as a model does, without a graph."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.tools import StructuredTool

from openmanus_graph.backends.browser.action_specs import HANDLE
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.settings import BrowserSettings
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.browser_use import browser_use
from tests.support.limits import BACKSTOP_S


class Browsing:
    """One thread with a browser that may reach this machine."""

    def __init__(
        self, folder: Path, settings: BrowserSettings | None = None, *, allow: str = "127.0.0.1"
    ) -> None:
        self.session: Session = tool_session(folder)
        self.configure(browser=settings or BrowserSettings(), allow_hosts=(allow,))
        self.model: Any = None
        """Answers `extract_content`'s questions, if set."""

    def configure(self, **settings: Any) -> None:
        """Change settings, as the next run may."""
        self.session.configure(replace(self.session.settings, **settings))

    async def observe(self, action: str, **args: Any) -> Observation:
        """Make a call; a ToolError becomes a failed observation, as in a run."""
        assert isinstance(browser_use, StructuredTool)
        assert browser_use.coroutine is not None
        runtime = tool_runtime(self.session, ask_model=self.model)
        try:
            _, seen = await browser_use.coroutine(action=action, runtime=runtime, **args)
        except ToolError as error:
            trusted_text = isinstance(error, TrustedToolError)
            return Observation(str(error), failed=True, trusted_text=trusted_text)
        assert isinstance(seen, Observation)
        return seen

    async def __call__(self, action: str, **args: Any) -> str:
        """Make a call and return what the model reads."""
        return (await self.observe(action, **args)).text

    async def until(self, words: str, seen: str) -> str:
        """Look until what is seen holds these words."""
        ends = time.monotonic() + BACKSTOP_S
        while words not in seen:
            assert time.monotonic() < ends, seen
            seen = await self("get_state")
        return seen

    @property
    def browser(self) -> BrowserSession:
        """The thread's browser session."""
        browser = self.session.find(HANDLE)
        assert isinstance(browser, BrowserSession)
        return browser

    def index(self, words: str) -> int:
        """Return the index of the only element that matches a pattern."""
        snapshot = self.browser.current.view.snapshot
        assert snapshot is not None
        labels = {index: element.label for index, element in snapshot.elements.items()}
        found = [index for index, label in labels.items() if re.search(words, label)]
        assert len(found) == 1, (words, labels)
        return found[0]

    async def click(self, words: str) -> str:
        """Click the element that matches a pattern."""
        return await self("click_element", index=self.index(words))

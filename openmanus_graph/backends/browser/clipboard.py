"""The clipboard of a browser session. The machine's own is never read or written.

A text is pasted only on the site that it was copied on: what a page holds must not reach another
one without being typed, which the information-flow rules judge.
"""

import json
from collections.abc import Callable
from typing import Any

from playwright.async_api import BrowserContext, Frame

from openmanus_graph.backends.browser.page.frames import EVENTS, script
from openmanus_graph.backends.browser.page.view import PageView
from openmanus_graph.errors import ToolError, TrustedToolError

MAX_CHARS = 1_000_000
_PASTES = ("+v", "+V", "Shift+Insert")


class Clipboard:
    def __init__(self, on_copied: Callable[[str], None]) -> None:
        self._on_copied = on_copied
        self._site = self._text = ""

    async def attach(self, context: BrowserContext) -> None:
        """Replace the clipboard in the pages that a context will open."""
        await context.expose_binding(f"{EVENTS}clipboard", self._on_call)
        await context.add_init_script(script("clipboard"))

    def _on_call(self, source: Any, kind: str, text: str) -> str:
        """Answer clipboard.js; `source` is a dict of Playwright's."""
        site = _site_of(source["frame"])
        if kind == "write":
            self._site, self._text = site, text[:MAX_CHARS]
            self._on_copied(self._text)
        return self._text if site and site == self._site else ""

    async def before_press(self, view: PageView, press: str) -> None:
        """If a key pastes, give the text to the page. ToolError if there is none for its site."""
        if not press.endswith(_PASTES):
            return
        await view.act(view.page.evaluate("0"))  # until now, a copy may not have been reported
        if not self._text:
            raise TrustedToolError("Nothing was pasted: nothing was copied in this browser.")
        offered = False
        for world in await view.frames.worlds():
            origin = (await view.frames.evaluate(world, "self.origin")).get("value")
            text = self._text if self._site == origin else None
            event = f"new CustomEvent('{EVENTS}paste', {{ detail: {json.dumps(text)} }})"
            await view.frames.evaluate(world, f"window.dispatchEvent({event})")
            offered |= text is not None
        if not offered:
            raise ToolError(
                f"Nothing was pasted: the text is of {self._site or 'another page'} and is "
                "pasted only there. Write it here with input_text."
            )


def _site_of(frame: Frame | None) -> str:
    """Return the origin of a frame, or of the one around it that wrote it; empty if it has none."""
    while frame is not None and frame.url.startswith("about:"):
        frame = frame.parent_frame
    scheme, _, rest = frame.url.partition("://") if frame else ("", "", "")
    return f"{scheme}://{rest.partition('/')[0]}" if scheme in ("http", "https") else ""

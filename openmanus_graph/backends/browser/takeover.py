"""A person at the agent's browser: pictures of its page as it changes, and a pointer and keys.

Everything runs on the browser's event loop, by CDP sessions of the thread's own guarded context.
What the person types is kept in memory only and must not be shown to the model: it is redacted
like a secret, and the model gets no screenshot of a page that shows it.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from playwright.async_api import CDPSession, Error, Page

from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.tab import Tab
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.process import BackgroundTasks

BUSY_S = 15.0  # how long to wait for the agent's action to end
LOOK_S = 0.25  # between two looks at which tab is the current one
END_S = 2.0  # how long ending waits for a page that does not answer
TITLE_S = 2.0  # how long to wait for a page's title; one that is busy keeps the last one
FRAME_S = 0.04  # between two pictures at least: an animation must not keep a line busy
MOST_KEYS = 100  # characters that are typed key by key; a longer text is put in at once
LEAST_CHARS = 3  # fewer characters are in every text, and reveal nothing
_SCREENCAST = {"format": "jpeg", "quality": 70, "maxWidth": 1280, "maxHeight": 1280}
_PHOTO = {"format": "jpeg", "quality": 70}
_KEYS = (
    "Enter", "Tab", "Backspace", "Delete", "Escape", "ArrowLeft", "ArrowRight", "ArrowUp",
    "ArrowDown", "Home", "End", "PageUp", "PageDown",
)  # fmt: skip
_MODIFIERS = ("Shift", "Control", "Alt", "Meta")
_FIELDS = """() => [...document.querySelectorAll('input, textarea')]
    .filter((one) => !['hidden', 'submit', 'button'].includes(one.type))
    .map((one) => one.value).filter(Boolean)"""


@dataclass(frozen=True)
class Input:
    """Something that the person does. What was typed is in no `repr`."""

    kind: Literal["move", "down", "up", "wheel", "text", "key", "back", "reload", "dialog"]
    x: float = 0
    y: float = 0  # in CSS pixels of the window, as in the picture's measures
    dx: float = 0
    dy: float = 0
    button: Literal["left", "middle", "right"] = "left"
    count: int = 1
    text: str = field(default="", repr=False)
    """What is typed, a key's name, or the answer to a dialog."""
    modifiers: tuple[str, ...] = ()
    accept: bool = True


@dataclass(frozen=True)
class Frame:
    number: int
    image: str  # JPEG in base64; empty when a dialog kept it from being taken
    width: float
    height: float
    url: str
    title: str
    dialog_type: str = ""
    """`prompt`, `confirm` or `beforeunload`: the page continues once that is answered."""
    dialog: str = ""


class Takeover:
    """One person's time at a browser. The agent's actions are refused meanwhile."""

    def __init__(self, browser: BrowserSession) -> None:
        self.id = secrets.token_urlsafe(12)
        self.ended = False
        self._browser = browser
        self._frame: Frame | None = None
        self._changed = asyncio.Condition()
        self._background = BackgroundTasks()
        self._tab: Tab | None = None
        self._title = ""
        self._unseen = False  # a dialog kept the current tab from being photographed
        self._cdp: CDPSession | None = None
        self._word = ""  # what was typed since the last click, Tab or Enter

    async def begin(self) -> None:
        """Take the browser over. ToolError if it does not open, or an action does not end."""
        try:
            async with asyncio.timeout(BUSY_S):
                await self._browser.lock.acquire()  # a tab that opens becomes the current one
        except TimeoutError as error:
            raise TrustedToolError("The agent is using the browser. Try again soon.") from error
        self._browser.takeover = self.on_closed
        try:
            await self._browser.ensure()
        except BaseException:
            self._release()
            raise
        self._background.spawn(self._follow_tabs())

    async def next_frame(self, after: int, wait_s: float) -> Frame | None:
        """Return the newest picture if its number is higher; else wait, then return None."""

        def is_newer() -> bool:
            return self._frame is not None and self._frame.number > after

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self.ended or is_newer())
        return self._frame if is_newer() and not self.ended else None

    async def act(self, inputs: Sequence[Input]) -> None:
        """Do what the person did, in order. Never raises for what a page does with it."""
        for one in inputs:
            if self.ended or not self._browser.tabs:
                return
            with contextlib.suppress(Error, TimeoutError):  # the page may be closing
                await self._browser.dialogs.until(self._do(self._browser.current.page, one))

    async def end(self) -> None:
        """Give the browser back; what was typed stays unknown to the agent."""
        if self.ended:
            return
        with contextlib.suppress(Exception):  # a page that does not answer must not keep it
            async with asyncio.timeout(END_S):
                await self._hide_fields()
                await self._stop_pictures()
        self._hide(self._word)
        with contextlib.suppress(Exception):
            await self._browser.remember()
        self._release()
        await self._notify_waiting()

    def on_closed(self) -> None:
        self._end_word()
        self._release()
        self._background.spawn(self._notify_waiting())

    def _release(self) -> None:
        self.ended = True
        self._background.cancel()
        if self._browser.takeover == self.on_closed:
            self._browser.takeover = None
            self._browser.lock.release()

    async def _notify_waiting(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _follow_tabs(self) -> None:
        """Show the current tab, whichever it is: logins open windows of their own."""
        while not self.ended:
            if not self._browser.connection.alive:
                self.on_closed()
                return
            try:
                if not self._browser.tabs:
                    await self._browser.new_tab()
                answers = not self._browser.dialogs.question[0]
                if self._browser.current is not self._tab or (self._unseen and answers):
                    await self._show(self._browser.current)
                await self._report_changes(self._browser.current)
            except Error:  # a tab that closes itself
                self._tab = None
            await asyncio.sleep(LOOK_S)

    async def _report_changes(self, tab: Tab) -> None:
        """Report another address, title or dialog of the page, which no picture may show."""
        dialog = self._browser.dialogs.question
        if not dialog[0]:  # a page with a dialog answers nothing
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(TITLE_S):
                    self._title = await tab.page.title()
        last, now = self._frame, (tab.current_url, self._title, *dialog)
        if last and (last.url, last.title, last.dialog_type, last.dialog) != now:
            await self._take_frame(last.image, last.width, last.height)

    async def _show(self, tab: Tab) -> None:
        await self._stop_pictures()
        self._tab, self._title = tab, ""
        page = tab.page
        await page.bring_to_front()
        self._cdp = cdp = await page.context.new_cdp_session(page)

        def on_frame(event: dict[str, Any]) -> None:
            self._background.spawn(self._on_frame(cdp, event))

        cdp.on("Page.screencastFrame", on_frame)
        await cdp.send("Page.startScreencast", _SCREENCAST)
        # A page that was behind another one, and changes nothing, sends no picture by itself.
        # One that opens a dialog just now may answer neither: its dialog is shown alone.
        send, until = cast("Any", cdp).send, self._browser.dialogs.until
        photo: dict[str, Any] | None = await until(send("Page.captureScreenshot", _PHOTO))
        metrics: dict[str, Any] | None = await until(send("Page.getLayoutMetrics"))
        self._unseen = photo is None or metrics is None
        if photo is None or metrics is None:
            await self._take_frame("", 0, 0)
            return
        window = metrics["cssLayoutViewport"]
        await self._take_frame(photo["data"], window["clientWidth"], window["clientHeight"])

    async def _stop_pictures(self) -> None:
        cdp, self._cdp = self._cdp, None
        if cdp is not None:
            with contextlib.suppress(Error):  # gone with its tab
                await self._browser.dialogs.until(cdp.detach())

    async def _on_frame(self, cdp: CDPSession, event: dict[str, Any]) -> None:
        if cdp is self._cdp:
            measures = event["metadata"]
            await self._take_frame(event["data"], measures["deviceWidth"], measures["deviceHeight"])
        await asyncio.sleep(FRAME_S)
        with contextlib.suppress(Error):
            await cdp.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    async def _take_frame(self, image: str, width: float, height: float) -> None:
        if self._tab is None:
            return
        number = self._frame.number + 1 if self._frame else 1
        url, dialog = self._tab.current_url, self._browser.dialogs.question
        self._frame = Frame(number, image, width, height, url, self._title, *dialog)
        await self._notify_waiting()

    async def _do(self, page: Page, one: Input) -> None:
        match one.kind:
            case "move" | "down" | "up" | "wheel":
                await self._point(page, one)
            case "text":
                self._word += one.text
                self._hide(one.text)
                short = len(one.text) <= MOST_KEYS  # pages may listen to the keys
                await (page.keyboard.type if short else page.keyboard.insert_text)(one.text)
            case "key":
                await self._press(page, one)
            case "dialog":
                self._hide(one.text)
                await self._browser.dialogs.answer(accept=one.accept, text=one.text or None)
            case _:
                go = page.go_back if one.kind == "back" else page.reload
                await go(wait_until="commit")

    async def _point(self, page: Page, one: Input) -> None:
        mouse = page.mouse
        await mouse.move(one.x, one.y)
        if one.kind == "down":
            self._end_word()
            await mouse.down(button=one.button, click_count=one.count)
        elif one.kind == "up":
            await mouse.up(button=one.button, click_count=one.count)
        elif one.kind == "wheel":
            await mouse.wheel(one.dx, one.dy)

    async def _press(self, page: Page, one: Input) -> None:
        modifiers = [name for name in _MODIFIERS if name in one.modifiers]
        if one.text not in _KEYS and not (modifiers and len(one.text) == 1):
            return
        if one.text == "Backspace" and not modifiers:
            self._hide(self._word)
            self._word = self._word[:-1]
        else:
            self._end_word()
        press = "+".join([*modifiers, one.text])
        with contextlib.suppress(ToolError):
            await self._browser.clipboard.before_press(self._browser.view, press)
        await page.keyboard.press(press)

    def _end_word(self) -> None:
        self._hide(self._word)
        self._word = ""

    def _hide(self, text: str) -> None:
        if len(text.strip()) >= LEAST_CHARS:
            self._browser.hidden_texts.add(text.strip())

    async def _hide_fields(self) -> None:
        """Hide the values of fields that contain something typed: cursors jump."""
        self._end_word()
        known = list(self._browser.hidden_texts)
        for tab in list(self._browser.tabs.values()):
            for frame in tab.page.frames:
                with contextlib.suppress(Error):
                    values: list[str] = await frame.evaluate(_FIELDS)
                    for value in values:
                        if any(text in value for text in known):
                            self._hide(value)

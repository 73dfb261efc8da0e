"""Who has taken a thread's browser over: one person for a thread, as long as somebody watches."""

import asyncio
import contextlib
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.server.admission import Refused
from openmanus_graph.interfaces.server.store import store
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import borrow_session

if TYPE_CHECKING:
    from openmanus_graph.backends.browser.browser_session import BrowserSession
    from openmanus_graph.backends.browser.takeover import Takeover


LEFT_S = 20.0
"""How long a takeover lasts that nobody watches: a tab that was closed, or a lost connection."""


@dataclass
class Visit:
    """A takeover, and what keeps its thread's session open."""

    thread: str
    worker: str
    """Of a plan, whose browser it is; empty for the thread's own."""
    takeover: "Takeover"
    stack: contextlib.AsyncExitStack
    watchers: int = 0
    _leaving: asyncio.TimerHandle | None = None
    _ending: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @contextlib.contextmanager
    def watched(self) -> Generator[None]:
        """Keep the takeover for as long as somebody watches, and a little longer."""
        self.watchers += 1
        self.stop_leaving()
        try:
            yield
        finally:
            self.watchers -= 1
            self.end_unless_watched()

    def end_unless_watched(self) -> None:
        """End the takeover after a while, unless somebody comes to watch."""
        if not self.watchers:
            self._leaving = asyncio.get_running_loop().call_later(LEFT_S, self._leave)

    def stop_leaving(self) -> None:
        """Do not end it by itself."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def _leave(self) -> None:
        if not self.watchers:
            self._ending.add(asyncio.get_running_loop().create_task(end_takeover(self)))


visits: dict[str, Visit] = {}
"""By the takeover's id."""
_beginning = asyncio.Lock()


def find_visit(thread: str, takeover: str) -> Visit:
    """Return a takeover that goes on. Refused: it is over."""
    visit = visits.get(takeover)
    if visit is None or visit.thread != thread or visit.takeover.ended:
        raise Refused(410, "This takeover is over.")
    return visit


async def begin_takeover(thread: str, worker: str, *, force: bool) -> Visit:
    """Take a thread's browser over, which is opened if it is not open.

    Args:
        thread: Its id.
        worker: Of a plan, whose browser it is; empty for the thread's own.
        force: Take it from whoever has it.

    Raises:
        Refused: Somebody has it, the agent is using it, or it cannot be opened.
    """
    from openmanus_graph.backends.browser.browsers import browser_loop

    async with _beginning:
        known = [one for one in visits.values() if (one.thread, one.worker) == (thread, worker)]
        if not force and any(not one.takeover.ended for one in known):
            raise Refused(409, "Somebody has taken this browser over in another tab.")
        for one in known:
            await end_takeover(one)
        async with contextlib.AsyncExitStack() as stack:
            settings = await store().settings(thread)
            session = await stack.enter_async_context(borrow_session(thread, settings, worker))
            browser = await asyncio.to_thread(_browser_of, session)
            try:
                takeover = await browser_loop.run(lambda: _begun(browser))
            except ToolError as error:
                raise Refused(409, str(error)) from error
            visit = visits[takeover.id] = Visit(thread, worker, takeover, stack.pop_all())
    visit.end_unless_watched()
    return visit


async def end_takeovers(thread: str) -> None:
    """Give all browsers of a thread back."""
    for visit in [one for one in visits.values() if one.thread == thread]:
        await end_takeover(visit)


async def end_takeover(visit: Visit) -> None:
    """Give a browser back to the agent, unless that is done already."""
    from openmanus_graph.backends.browser.browsers import browser_loop

    if visits.pop(visit.takeover.id, None) is not None:
        visit.stop_leaving()
        await browser_loop.run(visit.takeover.end)
        await visit.stack.aclose()


async def _begun(browser: "BrowserSession") -> "Takeover":
    """Begin a takeover on the browser's event loop, to which its locks belong."""
    from openmanus_graph.backends.browser.takeover import Takeover

    takeover = Takeover(browser)
    await takeover.begin()
    return takeover


def _browser_of(session: Session) -> "BrowserSession":
    """Return a session's browser, a new one if there is none. Blocks."""
    from openmanus_graph.backends.browser.action_specs import HANDLE
    from openmanus_graph.backends.browser.browser_session import BrowserSession

    return session.handle(HANDLE, lambda: BrowserSession(session))


_page: list[str] = []


def remember_page(address: str) -> None:
    """Keep the page's address with its token, as `openmanus serve` prints it."""
    _page[:] = [address]


def announce_takeover(thread: str, worker: str) -> None:
    """Print where a person finds a browser of a thread; nothing under another server."""
    for known in _page:
        page, _, token = known.partition("#")
        link = f"{page}/t/{thread}?browser={quote(worker, safe='')}#{token}"
        sys.stdout.write(f"The agent asks you to take its browser over: {link}\n")
        sys.stdout.flush()

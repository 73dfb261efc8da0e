"""One Chromium and one tab for all tests of pages, and a session with an empty workspace."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from openmanus_graph.backends.browser.browsers import find_browser
from openmanus_graph.backends.browser.page.frames import prepare_context
from openmanus_graph.runtime.session import Session
from openmanus_graph.testing.replays import tool_session
from tests.support.browsing import Browsing
from tests.support.chromium import is_drawn
from tests.support.shop import Shop, shop
from tests.support.static_site import serving
from tests.support.tabs import Tab


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """Serve the pages written for the tests."""
    with serving() as url:
        yield url


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Open a session whose workspace is empty."""
    session = tool_session(tmp_path / "work")
    yield session
    session.close()


@pytest.fixture
def corner_shop() -> Iterator[Shop]:
    """Open the shop with 48 articles."""
    with shop() as opened:
        yield opened


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    """One thread for the tests of a module that stay in its only tab and change no setting."""
    browsing = Browsing(tmp_path_factory.mktemp("used") / "work")
    with contextlib.closing(browsing.session):
        yield browsing


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(_whole_chromium_path: str, _headless_shell: None) -> AsyncIterator[Browser]:
    """Start the browser all tests share."""
    with pytest.MonkeyPatch.context() as patch:
        if is_drawn("pages"):
            patch.setenv("PATH", _whole_chromium_path)
        path = await asyncio.to_thread(find_browser, None)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def context(chromium: Browser) -> AsyncIterator[BrowserContext]:
    """Open the window that tests of pages share."""
    opened = await chromium.new_context(viewport={"width": 1000, "height": 700})
    await prepare_context(opened)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pages(context: BrowserContext) -> AsyncIterator[list[Page]]:
    """Keep the page of the test before: a new one costs as much as the test itself."""
    kept: list[Page] = []
    yield kept
    for page in kept:
        await page.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def still_pages(pages: list[Page]) -> AsyncIterator[list[Page]]:
    """Leave no page of a module that moves or changes: it would cost all tests that follow."""
    yield pages
    for page in pages:
        await page.goto("about:blank")


@pytest_asyncio.fixture(loop_scope="session")
async def tab(context: BrowserContext, still_pages: list[Page], site: str) -> AsyncIterator[Tab]:
    """Look at a tab as if it were new; one that was closed or shows a dialog is not used again."""
    opened = Tab(still_pages.pop() if still_pages else await context.new_page(), site)
    yield opened
    if opened.view.frames.dialog_open:
        await opened.page.close()
    opened.view.close()
    if not opened.page.is_closed():
        still_pages.append(opened.page)

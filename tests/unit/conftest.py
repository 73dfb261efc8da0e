"""One Chromium for all tests of pages, a tab of its own for each."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright

from openmanus_graph.browser.find import find_browser
from openmanus_graph.browser.page import prepare_context
from tests.support.shop import Shop, shop
from tests.support.static_site import serving
from tests.support.tabs import Tab


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """Serve the pages written for the tests."""
    with serving() as url:
        yield url


@pytest.fixture
def corner_shop() -> Iterator[Shop]:
    """Open the shop with 48 articles."""
    with shop() as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """Start the browser all tests share."""
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


@pytest_asyncio.fixture(loop_scope="session")
async def tab(context: BrowserContext, site: str) -> AsyncIterator[Tab]:
    """Open a tab."""
    opened = Tab(await context.new_page(), site)
    yield opened
    await opened.page.close()

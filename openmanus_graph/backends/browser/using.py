"""A call of `browser_use`, from its arguments to what the model reads."""

import asyncio
from dataclasses import replace

from openmanus_graph.backends.browser.answering import extract
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.declared import HANDLE, Arguments
from openmanus_graph.backends.browser.observing import ActionResult, perform
from openmanus_graph.backends.search.searching import search_for
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import AskModel


async def use(session: Session, action: str, args: Arguments, ask: AskModel | None) -> ActionResult:
    """Run an action in the thread's browser session, which opens a browser on first use.

    Raises:
        ToolError: It was not done, and why. No secret is in it, nor in what is returned.
    """
    browser = await asyncio.to_thread(session.handle, HANDLE, lambda: BrowserSession(session))
    try:
        if action == "extract_content":
            result = ActionResult(await extract(browser, args.goal, ask))
        elif action == "web_search":
            result = await _search(browser, args)
        else:
            result = await browser_loop.run(lambda: perform(browser, action, args))
    except ToolError as error:
        raise type(error)(browser.secrets.redacted(str(error))) from None
    return replace(result, text=browser.secrets.redacted(result.text))


async def _search(browser: BrowserSession, args: Arguments) -> ActionResult:
    """Search the web and open the first result."""
    report = await search_for(browser.session, args.query or "")
    if not report.hits:
        raise TrustedToolError(f"Nothing was found for {args.query!r}. Use fewer or other words.")
    listed = [f"{number}. {hit.title}\n   {hit.url}" for number, hit in enumerate(report.hits, 1)]
    first = replace(args, url=report.hits[0].url)
    try:
        opened = (await browser_loop.run(lambda: perform(browser, "go_to_url", first))).text
    except ToolError as error:
        opened = f"The first result was not opened. {error}"
    return ActionResult("\n".join([f"Results for {args.query!r}:", *listed, "", opened]))

"""A call of `browser_use`, from its arguments to what the model reads."""

import asyncio
from dataclasses import replace

from openmanus_graph.browser.answering import AskModel, extract
from openmanus_graph.browser.declared import HANDLE, Arguments
from openmanus_graph.browser.engine import engine
from openmanus_graph.browser.observing import Seen, perform
from openmanus_graph.browser.window import Window
from openmanus_graph.errors import OwnWordsError, ToolError
from openmanus_graph.search.searching import search_for
from openmanus_graph.sessions import Session


async def use(session: Session, action: str, given: Arguments, ask: AskModel | None) -> Seen:
    """Do an action in the thread's window, which opens a browser when it is first used.

    Raises:
        ToolError: It was not done, and why. No secret is in it, nor in what is returned.
    """
    window = await asyncio.to_thread(session.handle, HANDLE, lambda: Window(session))
    try:
        if action == "extract_content":
            seen = Seen(await extract(window, given.goal, ask))
        elif action == "web_search":
            seen = await _searched(window, given)
        else:
            seen = await engine.run(lambda: perform(window, action, given))
    except ToolError as error:
        raise type(error)(window.secrets.redacted(str(error))) from None
    return replace(seen, text=window.secrets.redacted(seen.text))


async def _searched(window: Window, given: Arguments) -> Seen:
    """Search the web and open the first result."""
    report = await search_for(window.session, given.query or "")
    if not report.hits:
        raise OwnWordsError(f"Nothing was found for {given.query!r}. Use fewer or other words.")
    listed = [f"{number}. {hit.title}\n   {hit.url}" for number, hit in enumerate(report.hits, 1)]
    first = replace(given, url=report.hits[0].url)
    try:
        opened = (await engine.run(lambda: perform(window, "go_to_url", first))).text
    except ToolError as error:
        opened = f"The first result was not opened. {error}"
    return Seen("\n".join([f"Results for {given.query!r}:", *listed, "", opened]))

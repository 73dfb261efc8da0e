"""`fetch_page`: one page by plain HTTP, as Markdown."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import running_call
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool


def _addresses(args: Mapping[str, Any]) -> list[str]:
    return [str(args.get("url", ""))]


@manus_tool(effect="pure", timeout_s=90, untrusted=True, addresses=_addresses)
async def fetch_page(  # noqa: D417  # the model is not shown `runtime`
    url: str, runtime: ToolRuntime[Any, Any]
) -> Observation:
    """Read a web page, PDF, Office document or data file, as Markdown or text, without a browser.

    Quick; JavaScript does not run. Other files are kept in the workspace.

    Args:
        url: The whole address.
    """
    fetched = await asyncio.to_thread(_fetched)  # imports much
    return await fetched(running_call(runtime).session, url)


def _fetched() -> "Callable[[Session, str], Awaitable[Observation]]":
    from openmanus_graph.backends.web.reading import fetched

    return fetched

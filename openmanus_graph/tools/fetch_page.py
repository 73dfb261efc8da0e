"""`fetch_page`: one page by plain HTTP, as Markdown."""

import asyncio
from importlib import import_module
from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool


@manus_tool(
    effect="pure",
    timeout_s=90,
    untrusted=True,
    addresses=lambda args: [str(args.get("url", ""))],
)
async def fetch_page(  # the model is not shown `runtime`
    url: str, runtime: ToolRuntime[Any, Any]
) -> Observation:
    """Read a web page or document or keep another file, quickly, no JavaScript."""
    await asyncio.to_thread(import_module, "openmanus_graph.backends.web.reading")  # slow
    from openmanus_graph.backends.web.reading import fetched

    return await fetched(call_runtime(runtime).session, url)

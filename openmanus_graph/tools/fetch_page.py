"""`fetch_page`: one page by plain HTTP, as Markdown."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, cast

from langgraph.prebuilt import ToolRuntime
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.tool_traits import InformationFlow, Observation
from openmanus_graph.tool_calls.declaration import manus_tool


@manus_tool(
    effect="read_only",
    timeout_s=90,
    untrusted=True,
    flow=InformationFlow(addresses=lambda args: [str(args.get("url", ""))]),
)
async def fetch_page(  # the model is not shown `runtime`
    url: str, runtime: ToolRuntime[Any, Any]
) -> Observation:
    """Read a web page or document or keep another file, quickly, no JavaScript."""
    await asyncio.to_thread(import_module, "openmanus_graph.backends.web.reading")  # slow
    from openmanus_graph.backends.web.reading import fetched

    return await fetched(call_runtime(runtime).session, url)


MAX_URLS = 20


def _as_list(value: Any) -> Any:  # whatever the model wrote
    """Split a string of addresses into a list."""
    return value.split() if isinstance(value, str) else value


def _addresses(args: Mapping[str, Any]) -> Sequence[str]:
    urls = _as_list(args.get("urls", ()))
    return [str(url) for url in cast("list[Any]", urls)] if isinstance(urls, list) else []


@manus_tool(
    effect="read_only", timeout_s=480, untrusted=True, flow=InformationFlow(addresses=_addresses)
)
async def crawl4ai(  # the model is not shown `runtime`
    urls: Annotated[
        list[str],
        BeforeValidator(_as_list),
        Field(min_length=1, max_length=MAX_URLS),
        WithJsonSchema({"type": "array", "items": {"type": "string"}}),
    ],
    runtime: ToolRuntime[Any, Any],
    timeout: SkipJsonSchema[Annotated[int, Field(ge=5, le=120)]] = 30,  # noqa: ASYNC109  # the model's parameter
    bypass_cache: SkipJsonSchema[bool] = False,
    word_count_threshold: SkipJsonSchema[Annotated[int, Field(ge=0)]] = 10,
) -> Observation:
    """Read up to 20 web pages at once, scripts run."""
    await asyncio.to_thread(import_module, "openmanus_graph.backends.browser.reading")  # slow
    from openmanus_graph.backends.browser.reading import crawl_pages

    session = call_runtime(runtime).session
    return await crawl_pages(session, urls, timeout, word_count_threshold, fresh=bypass_cache)

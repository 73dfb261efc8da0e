"""`web_search`, `fetch_page` and `crawl4ai`: the web, without an open browser."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, cast

from langchain_core.messages import AnyMessage
from langgraph.prebuilt import ToolRuntime
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from openmanus_graph.model_calls.budget import shared_budget
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.safety.information_flow import UnaskedOpenings
from openmanus_graph.state.search_engines import MAX_RESULTS
from openmanus_graph.state.tool_traits import InformationFlow, Observation
from openmanus_graph.tool_calls.declaration import INTEGER, MaybeText, manus_tool
from openmanus_graph.tools import web_traits

MAX_URLS = 20


def unasked_openings(runtime: ToolRuntime[Any, Any]) -> UnaskedOpenings:
    """Return the openings that the calls of the newest reply share."""
    call, state = call_runtime(runtime), cast("dict[str, Any]", runtime.state or {})
    messages: list[AnyMessage] = state.get("messages", [])
    budget = shared_budget()
    shared = None if budget is None else budget.openings
    return call.session.cached(
        (UnaskedOpenings, messages[-1].id if messages else ""),
        lambda: UnaskedOpenings(
            messages, web_traits(), tainted=call.untrusted_prompt, shared=shared
        ),
    )


def note_named(runtime: ToolRuntime[Any, Any]) -> None:
    """Note the domains that the person named, for pages that the agent made."""
    from openmanus_graph.backends.web.own_pages import OwnPages

    OwnPages.of(call_runtime(runtime).session).named = unasked_openings(runtime).named


@manus_tool(
    effect="read_only",
    timeout_s=150,
    untrusted=True,
    # The addresses are those of search engines, which no argument names.
    flow=InformationFlow(addresses=lambda args: ()),
)
async def web_search(  # the model is not shown `runtime`
    query: str,
    runtime: ToolRuntime[Any, Any],
    num_results: Annotated[int, Field(ge=1, le=MAX_RESULTS), WithJsonSchema(INTEGER)] = 5,
    lang: MaybeText = None,
    country: MaybeText = None,
    fetch_content: bool = False,
) -> Observation:
    """Search the web.

    Args:
        query: Words.
        num_results: Up to 50.
        lang: Such as de.
        country: Such as us.
        fetch_content: Read the pages.
    """
    await asyncio.to_thread(import_module, "openmanus_graph.backends.search.searching")  # slow
    from openmanus_graph.backends.search.searching import search_and_report

    session, emit = call_runtime(runtime).session, runtime.stream_writer
    openings = unasked_openings(runtime) if fetch_content else None
    return await search_and_report(
        session, emit, query, num_results, lang, country, openings=openings
    )


@manus_tool(
    effect="read_only",
    timeout_s=90,
    untrusted=True,
    flow=InformationFlow(addresses=lambda args: [str(args.get("url", ""))], guarded=True),
)
async def fetch_page(  # the model is not shown `runtime`
    url: str, runtime: ToolRuntime[Any, Any]
) -> Observation:
    """Read a web page or file, no JavaScript.

    Args:
        url: Address.
    """
    await asyncio.to_thread(import_module, "openmanus_graph.backends.web.reading")  # slow
    from openmanus_graph.backends.web.reading import fetched

    note_named(runtime)
    return await fetched(call_runtime(runtime).session, url)


def _as_list(value: Any) -> Any:
    """Split a string of addresses, which models write too, into a list."""
    return value.split() if isinstance(value, str) else value


def _addresses(args: Mapping[str, Any]) -> Sequence[str]:
    urls = _as_list(args.get("urls", ()))
    return [str(url) for url in cast("list[Any]", urls)] if isinstance(urls, list) else []


@manus_tool(
    effect="read_only",
    timeout_s=480,
    untrusted=True,
    flow=InformationFlow(addresses=_addresses, guarded=True),
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
    """Read web pages at once, scripts run.

    Args:
        urls: Up to 20.
        timeout: Seconds for each page.
        bypass_cache: Read again what was read before.
        word_count_threshold: Leave out lines of menus with fewer words.
    """
    await asyncio.to_thread(import_module, "openmanus_graph.backends.browser.reading")  # slow
    from openmanus_graph.backends.browser.reading import crawl_pages

    note_named(runtime)
    session = call_runtime(runtime).session
    return await crawl_pages(session, urls, timeout, word_count_threshold, fresh=bypass_cache)

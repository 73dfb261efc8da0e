"""`web_search`: the web through one search engine, or the next."""

import asyncio
from importlib import import_module
from typing import Annotated, Any, cast

from langchain_core.messages import AnyMessage
from langgraph.prebuilt import ToolRuntime
from pydantic import Field, WithJsonSchema

from openmanus_graph.model_calls.budget import shared_budget
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.safety.information_flow import UnaskedOpenings
from openmanus_graph.state.search_engines import MAX_RESULTS
from openmanus_graph.state.tool_traits import InformationFlow, Observation
from openmanus_graph.tool_calls.declaration import INTEGER, MaybeText, manus_tool
from openmanus_graph.tools import web_traits


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
        fetch_content: Also read the pages.
    """
    await asyncio.to_thread(import_module, "openmanus_graph.backends.search.searching")  # slow
    from openmanus_graph.backends.search.searching import search_and_report

    session, emit = call_runtime(runtime).session, runtime.stream_writer
    openings = unasked_openings(runtime) if fetch_content else None
    return await search_and_report(
        session, emit, query, num_results, lang, country, openings=openings
    )

"""`search_library`: the documents that the user has added to libraries."""

import asyncio
from typing import Annotated, Any

from langgraph.prebuilt import ToolRuntime
from pydantic import Field, WithJsonSchema

from openmanus_graph.backends.library.store import libraries, search
from openmanus_graph.backends.persistence.accounts import Accounts
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.config import homes
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import INTEGER, manus_tool


@manus_tool(effect="read_only", timeout_s=60, untrusted=True, reads_files=True)
async def search_library(  # the model is not shown `runtime`
    query: str,
    runtime: ToolRuntime[Any, Any],
    limit: Annotated[int, Field(ge=1, le=20), WithJsonSchema(INTEGER)] = 5,
) -> Observation:
    """Find passages in the user's documents. Try other words if these find nothing.

    Args:
        query: Words; or FILE, PLACE of a result, to read on there.
        limit: Up to 20.
    """
    return await asyncio.to_thread(_run, call_runtime(runtime).session, query.strip(), limit)


def _run(session: Session, query: str, limit: int) -> Observation:
    settings = session.settings
    owner = Accounts(open_database(settings.database)).owner_of(session.thread) or ""
    home = settings.workspace / homes.HOME  # counts only if it is the user's own
    urls = [settings.database, *([DatabaseUrl.in_folder(home)] if homes.is_own(home) else ())]
    names = settings.library
    found = [one for url in dict.fromkeys(urls) for one in libraries(url, owner, names)]
    if not found:
        named = ", ".join(names) or "of documents"
        raise TrustedToolError(
            f"There is no library {named}. The user makes one with: openmanus library add PATH"
        )
    reading = [hit for one in found for hit in one.read(query)]
    hits = reading or search(found, query, limit)
    if not hits:
        none = "No passage has any of these words. Try other ones, in the documents' language."
        return Observation(none, trusted_text=True)
    rows, room = list[str](), session.max_observation_chars
    for number, hit in enumerate(hits, 1):
        also = f"; also in {'; '.join(hit.also[:5])}" if hit.also else ""
        rows.append(f"{number}. {hit.label} ({hit.about}){also}\n{hit.text}")
        room -= len(rows[-1])
        if room < 0 and number < len(hits):
            rows.append(f"[{len(hits) - number} more; continue with: {hits[number].label}]")
            break
    trusted = all(hit.mine for hit in hits)
    return Observation("\n\n".join(rows), bounded=True, trusted_text=trusted)

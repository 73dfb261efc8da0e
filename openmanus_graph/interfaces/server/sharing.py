"""Links by which anyone can read one thread, until they are revoked."""

import asyncio
from contextlib import aclosing

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.secret_values import known_secrets
from openmanus_graph.interfaces.server import recorder, store
from openmanus_graph.interfaces.server.player import player_page
from openmanus_graph.interfaces.service import accounts
from openmanus_graph.runtime.workspace import Workspace

SHARED = "/app/shared/"
_HEADERS = {
    # The file's own policy lets only our script run.
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex",
}
_GONE = "<!doctype html><title>OpenManus</title><h1>This link does not work any more.</h1>"
router = APIRouter()


@router.post("/app/api/threads/{thread}/shares", status_code=201)
async def share_thread(thread: str) -> dict[str, str]:
    """Make a link, which needs no token. It shows the thread as it is when the link is opened."""
    await store.require_thread(thread)
    secret = await asyncio.to_thread(lambda: accounts.accounts().share(thread))
    return {"url": f"{SHARED}{secret}"}


@router.get("/app/api/threads/{thread}/shares")
async def count_shares(thread: str) -> dict[str, int]:
    await store.require_thread(thread)
    return {"count": await asyncio.to_thread(lambda: accounts.accounts().shares(thread))}


@router.delete("/app/api/threads/{thread}/shares", status_code=204)
async def unshare_thread(thread: str) -> Response:
    await store.require_thread(thread)
    await asyncio.to_thread(lambda: accounts.accounts().unshare(thread))
    return Response(status_code=204)


@router.get(SHARED + "{secret}", include_in_schema=False)
async def show_shared(secret: str) -> HTMLResponse:
    """Send a page that plays the thread. It has what was said and done, without the files."""
    thread = await asyncio.to_thread(lambda: accounts.accounts().shared_thread(secret))
    known = None if thread is None else await store.current().find(thread)
    if known is None:
        return HTMLResponse(_GONE, 404, headers=_HEADERS)
    return HTMLResponse(await played(known), headers=_HEADERS)


async def played(known: Thread, workspace: Workspace | None = None) -> str:
    """Return a page that plays a thread, with the files that it made if a workspace is given."""
    events = await recorder.replay_events(known.id)
    journal = store.current().journal
    async with aclosing(journal.follow(known.id, 0, recorder.PING_S)) as batches:
        async for batch in batches:
            if not batch:  # the past is read
                break
            events += batch
    texts = [event for _, event in events]
    return await asyncio.to_thread(
        lambda: player_page(known.title, texts, known_secrets().remove_from, workspace)
    )

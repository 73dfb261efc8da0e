"""LangGraph's own check of each request to its API, beside the guard that stands before it."""

import contextlib
from collections.abc import Generator
from typing import Any

from langgraph_sdk import Auth

from openmanus_graph.server.admission import Refused, admit, admit_deletion
from openmanus_graph.server.token import is_token
from openmanus_graph.serving.guard import tokens_in

auth = Auth()
PERSON: Auth.types.MinimalUserDict = {"identity": "owner", "is_authenticated": True}
"""There is one person: whoever has the token."""


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes]) -> Auth.types.MinimalUserDict:
    """Ask for the token."""
    if any(map(is_token, tokens_in(headers.items()))):
        return PERSON
    raise Auth.exceptions.HTTPException(status_code=401, detail="The token is missing or wrong.")


@auth.on
async def allow(ctx: Auth.types.AuthContext, value: Any) -> bool:
    """Let the person do everything."""
    return True


@auth.on.threads.create_run
async def check_run(ctx: Auth.types.AuthContext, value: Auth.types.RunsCreate) -> bool:
    """Refuse runs that cannot be right, and give the others what a thread remembers."""
    thread = value.get("thread_id")
    with _refusals_told():
        await admit(None if thread is None else str(thread), value.get("kwargs", {}))
    return True


@auth.on.threads.delete
async def check_deletion(ctx: Auth.types.AuthContext, value: Auth.types.ThreadsDelete) -> bool:
    """Refuse to delete a thread, or a run of it, that is at work."""
    with _refusals_told():
        await admit_deletion(str(value.get("thread_id")))
    return True


@contextlib.contextmanager
def _refusals_told() -> Generator[None]:
    try:
        yield
    except Refused as refusal:
        raise Auth.exceptions.HTTPException(
            status_code=refusal.status, detail=str(refusal)
        ) from refusal

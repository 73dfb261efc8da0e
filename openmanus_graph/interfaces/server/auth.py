"""Authentication and authorization handlers of LangGraph's API, in addition to the guard."""

import contextlib
from collections.abc import Generator
from typing import Any

from langgraph_sdk import Auth

from openmanus_graph.interfaces.server.admission import Refused, admit, admit_deletion
from openmanus_graph.interfaces.server.token import is_token
from openmanus_graph.interfaces.service.guard import tokens_in

auth = Auth()
PERSON: Auth.types.MinimalUserDict = {"identity": "owner", "is_authenticated": True}
"""There is one user: whoever has the token."""


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes]) -> Auth.types.MinimalUserDict:
    """Check the token."""
    if any(map(is_token, tokens_in(headers.items()))):
        return PERSON
    raise Auth.exceptions.HTTPException(status_code=401, detail="The token is missing or wrong.")


@auth.on
async def allow(ctx: Auth.types.AuthContext, value: Any) -> bool:
    """Allow the user everything."""
    return True


@auth.on.threads.create_run
async def check_run(ctx: Auth.types.AuthContext, value: Auth.types.RunsCreate) -> bool:
    """Refuse runs that cannot work, and complete the others with their thread's options."""
    thread = value.get("thread_id")
    with _refusals_as_http_errors():
        await admit(None if thread is None else str(thread), value.get("kwargs", {}))
    return True


@auth.on.threads.delete
async def check_deletion(ctx: Auth.types.AuthContext, value: Auth.types.ThreadsDelete) -> bool:
    """Refuse to delete a thread with a running run, or that run."""
    with _refusals_as_http_errors():
        await admit_deletion(str(value.get("thread_id")))
    return True


@contextlib.contextmanager
def _refusals_as_http_errors() -> Generator[None]:
    try:
        yield
    except Refused as refusal:
        raise Auth.exceptions.HTTPException(
            status_code=refusal.status, detail=str(refusal)
        ) from refusal

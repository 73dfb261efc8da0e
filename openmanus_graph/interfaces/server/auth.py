"""Authentication and authorization handlers of LangGraph's API, in addition to the guard."""

import contextlib
from collections.abc import Generator, Mapping
from typing import Any, cast

from langgraph_sdk import Auth
from langgraph_sdk.errors import NotFoundError

from openmanus_graph.interfaces.server.admission import Refused, admit, admit_deletion
from openmanus_graph.interfaces.server.own_api import own_api
from openmanus_graph.interfaces.server.token import is_token
from openmanus_graph.interfaces.service.http import tokens_in

auth = Auth()
PERSON: Auth.types.MinimalUserDict = {"identity": "owner", "is_authenticated": True}
"""There is one user: whoever has the token."""


@auth.authenticate
async def authenticate(
    headers: dict[bytes, bytes] | dict[str, str],
) -> Auth.types.MinimalUserDict:
    """Check the token. LangGraph's server hands over headers as bytes, others as text."""
    given = [(_as_bytes(name), _as_bytes(value)) for name, value in headers.items()]
    if any(map(is_token, tokens_in(given))):
        return PERSON
    raise Auth.exceptions.HTTPException(status_code=401, detail="The token is missing or wrong.")


@auth.on
async def allow(ctx: Auth.types.AuthContext, value: Any) -> bool:
    """Allow the user everything."""
    return True


@auth.on.threads.create_run
async def check_run(ctx: Auth.types.AuthContext, value: Auth.types.RunsCreate) -> bool:
    """Refuse runs that cannot work, and complete the others with their thread's options.

    LangGraph's server hands over a run's arguments as `kwargs`, others the request itself.
    """
    thread, run = value.get("thread_id"), cast("dict[str, Any]", value.get("kwargs", value))
    with _refusals_as_http_errors():
        assistant = await _assistant(str(value.get("assistant_id")))
        await admit(None if thread is None else str(thread), run, assistant)
    return True


async def _assistant(name: str) -> Mapping[str, Any]:
    """Return an assistant, which may bring a context of its own; nothing if there is none."""
    try:
        return await own_api().assistants.get(name)
    except NotFoundError:  # as the server will say
        return {}


@auth.on.threads.delete
async def check_deletion(ctx: Auth.types.AuthContext, value: Auth.types.ThreadsDelete) -> bool:
    """Refuse to delete a thread with a running run, or that run."""
    with _refusals_as_http_errors():
        await admit_deletion(str(value.get("thread_id")))
    return True


def _as_bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


@contextlib.contextmanager
def _refusals_as_http_errors() -> Generator[None]:
    try:
        yield
    except Refused as refusal:
        raise Auth.exceptions.HTTPException(
            status_code=refusal.status, detail=str(refusal)
        ) from refusal

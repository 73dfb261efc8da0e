"""Adds a screenshot to browser results: a client gets it with `get_state` only."""

import asyncio
import base64
from typing import Any

from langchain_core.messages import ToolMessage

from openmanus_graph.runtime.session import Session
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.tools.browser_use import browser_use


def shows_window(call: PlannedCall) -> bool:
    """Say whether a call asks for all that the window shows."""
    return call["name"] == browser_use.name and call["args"].get("action") == "get_state"


async def with_window(message: ToolMessage, session: Session) -> ToolMessage:
    """Return a result together with the window, unless there is none that may be shown."""
    from openmanus_graph.backends.browser.request_state import (
        state_for_request,  # the call has loaded it
    )

    _, picture = await state_for_request(session, picture=True)
    if picture is None or message.status == "error":
        return message
    data = base64.b64decode(picture.partition(",")[2])
    kept = await asyncio.to_thread(session.workspace.keep, data, ".jpg")
    extra: dict[str, Any] = message.artifact or {}
    images = [*extra.get("images", ()), session.workspace.relative(kept)]
    return message.model_copy(update={"artifact": {**extra, "images": images}})

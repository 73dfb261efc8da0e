"""Loads the pictures of a conversation, each once per run, as every server takes them."""

import asyncio
import base64
from collections.abc import Sequence
from functools import partial

from langchain_core.messages import AnyMessage

from openmanus_graph.backends.files.file_content import read_picture
from openmanus_graph.conversation.history import run_messages
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.flight_recorder import fact_of_run, without_data
from openmanus_graph.model_calls.projection import Pictures, inline_data, picture_paths
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import read_file

MAX_PICTURE_BYTES = 100 * 1024**2
"""Of a file; what is sent of it is smaller."""


def in_this_run(shown: Sequence[AnyMessage], history: Sequence[AnyMessage]) -> bool:
    """Say whether a picture belongs to the newest user message or came after it.

    Args:
        shown: The conversation's messages with pictures.
        history: The conversation.
    """
    if not shown:
        return False
    run = history[-len(run_messages(history)) - 1 :]
    return any(message is shown[-1] for message in run)


async def load_pictures(shown: Sequence[AnyMessage], session: Session) -> Pictures:
    """Return the pictures of messages as they are sent, or why one is not shown."""
    paths = dict.fromkeys(path for message in shown for path in picture_paths(message))
    found: dict[str, str | None] = {
        path: await fact_of_run(
            session, f"picture {path}", partial(_data_url, session, path), kept=without_data
        )
        for path in paths
    }
    for data in (data for message in shown for data in inline_data(message)):
        known = load_pictures, data
        if session.find_cached(known) is None:
            sent = await asyncio.to_thread(_of_data, data)
            session.cached(known, partial(str, sent))
        sent = session.find_cached(known)
        found[data] = None if sent.endswith(data) else sent  # the block stays as it is
    # None of a path: a record of an older version, in which the picture was gone.
    return {path: url for path, url in found.items() if url is not None}


def _data_url(session: Session, path: str) -> str:
    try:
        return read_picture(read_file(session.workspace, path, MAX_PICTURE_BYTES)).url
    except ToolError as error:
        return f"[{path} is not shown: {str(error).rstrip('.')}.]"


def _of_data(data: str) -> str:
    """Return the picture of a data URL, or of base64 alone."""
    try:
        return read_picture(base64.b64decode(data.rpartition(",")[2])).url
    except ToolError as error:
        return f"[A picture is not shown: {error}.]"
    except ValueError:
        return "[A picture is not shown: its data is no base64.]"

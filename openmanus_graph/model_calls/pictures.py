"""Loads the pictures of a conversation from the workspace, each once per run."""

from collections.abc import Sequence
from functools import partial

from langchain_core.messages import AnyMessage

from openmanus_graph.backends.files.file_kinds import data_url, read_image
from openmanus_graph.conversation.history import run_messages
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.flight_recorder import fact_of_run, without_data
from openmanus_graph.model_calls.projection import Pictures, picture_paths
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import read_file

MAX_PICTURE_BYTES = 20 * 1024**2


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
    """Return the pictures of messages, as data URLs."""
    paths = dict.fromkeys(path for message in shown for path in picture_paths(message))
    found = {
        path: await fact_of_run(
            session, f"picture {path}", partial(_data_url, session, path), kept=without_data
        )
        for path in paths
    }
    return {path: url for path, url in found.items() if url is not None}


def _data_url(session: Session, path: str) -> str | None:
    try:
        content = read_file(session.workspace, path, MAX_PICTURE_BYTES)
    except ToolError:
        content = b""
    image = read_image(content)
    if image is None:
        return None  # removed or spoilt since; the message's text still says what it was
    return data_url(content, image.media_type)

"""Loads the pictures, sounds and videos of a conversation as they are sent to a model."""

import asyncio
import base64
from collections.abc import Sequence, Set
from functools import partial
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage

from openmanus_graph.backends.files.file_content import read_picture
from openmanus_graph.backends.files.file_kinds import media_type_of
from openmanus_graph.conversation.history import run_messages
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.projection import Pictures, inline_data, media_paths, picture_paths
from openmanus_graph.model_calls.recorder import fact_of_run, without_data
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import read_file

MAX_MEDIA_BYTES = 14 * 1024 * 1024
"""Of one file: as base64, with the rest of a request, more than services take in one."""


async def add_media(
    request: Sequence[BaseMessage],
    given: Sequence[AnyMessage],
    session: Session,
    *,
    taken: Set[str],
    provider: str,
) -> list[BaseMessage]:
    """Return a request with the sound and video of its messages, or a note for each.

    Args:
        request: Its messages have the ids of the conversation's.
        given: The conversation's messages with sound or video.
        taken: What the model accepts: `audio`, `video`.
        provider: Whose protocol is used, as `wire_provider` names it.
    """
    blocks: dict[str | None, list[dict[str, Any]]] = {}
    for message in given:
        blocks[message.id] = [
            await fact_of_run(
                session,
                f"media {path} {provider} {' '.join(sorted(taken))}",
                partial(_block, path, session, taken, provider),
                kept=without_data,
            )
            for path in media_paths(message)
        ]
    messages = list(request)
    for position, one in enumerate(request):
        if one.id in blocks:
            content = one.content
            first = [{"type": "text", "text": content}] if isinstance(content, str) else content
            messages[position] = HumanMessage([*first, *blocks[one.id]], id=one.id)
    return messages


def _block(path: str, session: Session, taken: Set[str], provider: str) -> dict[str, Any]:
    media_type = media_type_of(path) or ""
    kind = media_type.partition("/")[0]
    if kind not in taken:
        return _note(path, f"this model takes no {kind}; work with the file by tools")
    try:
        content = read_file(session.workspace, path, MAX_MEDIA_BYTES)
    except ToolError as error:
        return _note(path, str(error).rstrip("."))
    data = base64.b64encode(content).decode()
    if kind == "video" and provider == "openai":  # LangChain has no form of it for this protocol
        return {"type": "video_url", "video_url": {"url": f"data:{media_type};base64,{data}"}}
    return {"type": kind, "base64": data, "mime_type": media_type}


def _note(path: str, why: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{path} is not sent: {why}.]"}


MAX_PICTURE_BYTES = 100 * 1024**2
"""Of a file; what is sent of it is smaller."""


def in_this_run(shown: Sequence[AnyMessage], history: Sequence[AnyMessage]) -> bool:
    """Return True if one of the messages with pictures is the newest user message or later."""
    run = history[-len(run_messages(history)) - 1 :] if shown else ()
    return any(message is shown[-1] for message in run)


async def load_pictures(shown: Sequence[AnyMessage], session: Session) -> Pictures:
    """Return the pictures of messages as they are sent, or why one is not shown."""
    paths = dict.fromkeys(path for message in shown for path in picture_paths(message))
    found: dict[str, str] = {
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
        if not sent.endswith(data):  # else the block is not changed
            found[data] = sent
    return found


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

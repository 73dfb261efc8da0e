"""Converts between A2A's messages and artifacts and our own."""

import json
from collections.abc import Mapping
from typing import Any, cast

from a2a.helpers import new_data_part, new_raw_part, new_text_part
from a2a.types import Message, Part
from google.protobuf.json_format import MessageToDict

from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.service.runs import Final, Upload
from openmanus_graph.interfaces.service.runs import Message as RunMessage
from openmanus_graph.runtime.workspace import Workspace, opened_file

MAX_FILE_BYTES = 10_000_000
MAX_FILES = 100
MAX_ALL_BYTES = 30_000_000
_ANY = "application/octet-stream"


class BadMessageError(Exception):
    """A message that cannot be used; the text says why."""


def read_message(message: Message) -> RunMessage:
    """Understand a message: texts, data as JSON, files. The first text is the caller's words.

    Raises:
        BadMessageError: It is empty, or holds what is not taken.
    """
    texts: list[str] = []
    words: list[str] = []
    files: list[Upload] = []
    for number, part in enumerate(message.parts, 1):
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
                words.append(part.text)
            case "data":
                texts.append(
                    json.dumps(_with_integers(MessageToDict(part.data)), ensure_ascii=False)
                )
            case "raw":
                name = part.filename or f"file-{number}"
                files.append(Upload(name, part.raw, part.media_type or _ANY))
            case "url":
                raise BadMessageError(
                    f"Part {number} is an address; this agent does not fetch it by itself. Send "
                    "the file's bytes, or name the address in the text."
                )
            case _:
                raise BadMessageError(f"Part {number} is empty.")
    text = "\n\n".join(text for text in texts if text.strip())
    if not text and not files:
        raise BadMessageError("The message is empty. Say in a text part what to do.")
    return RunMessage(text or "See the files.", tuple(files), "".join(words[:1]))


def answer_parts(final: Final) -> list[Part]:
    """Return the answer, and the validated object if there is one."""
    parts = [new_text_part(_sendable(str(final["answer"])), media_type="text/plain")]
    if final["structured"] is not None:
        parts.append(new_data_part(final["structured"], media_type="application/json"))
    return parts


def file_parts(final: Final, workspace: Workspace) -> tuple[list[tuple[str, Part]], list[str]]:
    """Return the files of a run with their paths, and notes on those left out. Blocks."""
    sent: list[tuple[str, Part]] = []
    left_out: list[str] = []
    room = MAX_ALL_BYTES
    for artifact in final["artifacts"]:
        path, size = artifact["path"], artifact["size"]
        if size > min(MAX_FILE_BYTES, room) or len(sent) == MAX_FILES:
            left_out.append(f"{path} ({size:,} bytes) is too much to send; it is in the workspace.")
            continue
        try:
            with opened_file(workspace, path) as file:
                data = file.read(MAX_FILE_BYTES)
        except ToolError as error:
            left_out.append(str(error))
            continue
        room -= len(data)
        name = _sendable(path)
        part = new_raw_part(data, filename=name, media_type=artifact["media_type"])
        sent.append((name, part))
    return sent, left_out


def final_metadata(final: Final) -> Mapping[str, Any]:
    """Return a run's status and usage as metadata for the client."""
    return {
        "status": final["status"],
        "stop_reason": final["stop_reason"] or "",
        "usage": dict(final["usage"]),
    }


def _sendable(text: str) -> str:
    """Replace what is no valid Unicode, which the protocol cannot carry."""
    return text.encode("utf-8", "replace").decode()


def _with_integers(value: Any) -> Any:  # any JSON
    """Turn whole numbers back into integers: protobuf knows only doubles."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in cast("list[Any]", value)]
    return value

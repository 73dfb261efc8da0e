"""Reads the content blocks of an editor's prompt: texts, mentioned files, pictures."""

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import RequestError
from acp.schema import TextResourceContents

from openmanus_graph.interfaces.service.runs import Message, Upload


def read_blocks(blocks: Sequence[Any], folder: Path) -> Message:
    """Understand a prompt: its texts are the user's words, what it encloses or names is not.

    Args:
        blocks: Of the SDK's types.
        folder: The session's; files below it are named as the agent's tools name them.

    Raises:
        RequestError: It is empty, or data are no base64.
    """
    texts, words, files = list[str](), list[str](), list[Upload]()
    for number, block in enumerate(blocks, 1):
        match block.type:
            case "text":
                texts.append(block.text)
                words.append(block.text)
            case "resource_link":
                texts.append(_name_of(block.uri, folder))
            case "resource" if isinstance(block.resource, TextResourceContents):
                name = _name_of(block.resource.uri, folder)
                texts.append(f"{name} holds:\n\n{block.resource.text}")
            case "resource":
                name = Path(_name_of(block.resource.uri, folder)).name or f"file-{number}"
                kind = block.resource.mime_type or "application/octet-stream"
                files.append(Upload(name, _decoded(block.resource.blob), kind))
            case _:  # image and audio
                suffix = block.mime_type.partition("/")[2].partition("+")[0] or "bin"
                name = f"{block.type}-{number}.{suffix}"
                files.append(Upload(name, _decoded(block.data), block.mime_type))
    text = " ".join(text for text in texts if text.strip())
    words = [text for text in words if text.strip()]
    if not text and not files:
        raise RequestError(-32602, "The prompt is empty. Say what to do.")
    return Message(text or "See the files.", tuple(files), " ".join(words))


def _name_of(uri: str, folder: Path) -> str:
    """Return a file's path, relative where it lies in the folder; another address as it is."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(-32602, f"The data is no base64: {error}.") from error

"""Tool results and files as MCP's content."""

import base64
import contextlib
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, unquote, urlsplit

import anyio
import mcp_types as types
from langchain_core.messages import ToolMessage
from mcp.server.session import ServerSession

from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.service.runs import Outbox
from openmanus_graph.runtime.workspace import Workspace, opened_file
from openmanus_graph.state.manus import Artifact

MAX_IMAGE_BYTES = 5_000_000
MAX_FILE_BYTES = 20_000_000
_TEXTUAL = ("application/json", "application/xml", "application/javascript", "image/svg+xml")
SCHEME = "openmanus"


def call_result(message: ToolMessage, workspace: Workspace) -> types.CallToolResult:
    """Return a tool message as a result, with its pictures from the workspace. Blocks."""
    extra: dict[str, Any] = message.artifact or {}
    content = [text(message.text), *images(extra.get("images", ()), workspace)]
    structured = extra.get("structured")
    return types.CallToolResult(
        content=content,
        structured_content=structured if isinstance(structured, dict) else None,
        is_error=message.status == "error",
    )


def failure(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[text(words)], is_error=True)


def text(words: str) -> types.TextContent:
    """Return a text block, with invalid Unicode replaced."""
    return types.TextContent(type="text", text=words.encode("utf-8", "replace").decode())


def images(paths: Sequence[str], workspace: Workspace) -> list[types.ContentBlock]:
    blocks: list[types.ContentBlock] = []
    for path in paths:
        try:
            data = read_bytes(workspace, path, MAX_IMAGE_BYTES)
        except ToolError as error:
            blocks.append(text(str(error)))
            continue
        media_type = mimetypes.guess_type(path)[0] or "image/png"
        encoded = base64.b64encode(data).decode()
        blocks.append(types.ImageContent(type="image", data=encoded, mime_type=media_type))
    return blocks


LINKS = f"{SCHEME}://{{thread}}/{{+path}}"
"""The form of all links."""


def link(thread: str, artifact: Artifact) -> types.ResourceLink:
    return types.ResourceLink(
        type="resource_link",
        uri=f"{SCHEME}://{quote(thread, safe='')}/{quote(artifact['path'])}",
        name=artifact["path"],
        mime_type=artifact["media_type"],
        size=artifact["size"],
    )


def read_link(uri: str) -> tuple[str, str]:
    parts = urlsplit(uri)
    return unquote(parts.netloc), unquote(parts.path.lstrip("/"))


def contents(
    uri: str, path: str, workspace: Workspace
) -> types.TextResourceContents | types.BlobResourceContents:
    data = read_bytes(workspace, path, MAX_FILE_BYTES)
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if media_type.startswith("text/") or media_type in _TEXTUAL:
        words = data.decode("utf-8", "replace")
        return types.TextResourceContents(uri=uri, mime_type=media_type, text=words)
    blob = base64.b64encode(data).decode()
    return types.BlobResourceContents(uri=uri, mime_type=media_type, blob=blob)


def read_bytes(workspace: Workspace, path: str, limit: int) -> bytes:
    """Read a file of the workspace. Blocks. ToolError if there is none, or it is too large."""
    with opened_file(workspace, path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ToolError(
            f"{Path(path).name} is larger than {limit:,} bytes and was not sent. "
            f"It is {path} in the workspace: read it in pieces."
        )
    return data


LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""From the least important to the most important."""


class LogMessages:
    """Sends the notices of one request's run with at least this level; None for no notices."""

    def __init__(
        self, session: ServerSession, request: types.RequestId, level: types.LoggingLevel | None
    ) -> None:
        self._session, self._request = session, request
        self._wanted = () if level is None else LEVELS[LEVELS.index(level) :]
        self.outbox = Outbox[Mapping[str, Any]](self._send)

    def show(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "notice" and event["level"] in self._wanted:
            self.outbox.put(event)

    async def _send(self, notice: Mapping[str, Any]) -> None:
        params = types.LoggingMessageNotificationParams(
            level=notice["level"], logger="openmanus", data=notice["text"]
        )
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.send_notification(
                types.LoggingMessageNotification(params=params), self._request
            )

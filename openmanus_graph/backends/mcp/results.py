"""Results of MCP tools as observations: text, and files for other content."""

import base64
import binascii
import hashlib
import json
import mimetypes
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError

from openmanus_graph.backends.mcp.listed_tools import SCHEMA_KEY, pages
from openmanus_graph.runtime.workspace import Workspace, put_file
from openmanus_graph.state.tool_traits import Observation

if TYPE_CHECKING:
    from mcp_types import CallToolResult


FOLDER = "mcp"
"""In the workspace, for files that servers send."""
SHORT_TEXT_CHARS = 100_000
_SUFFIX = re.compile(r"\.\w{1,10}")


def to_observation(
    result: "CallToolResult", linked: Iterable[Any], tool: str, workspace: Workspace
) -> Observation:
    """Turn a result and the contents of its linked resources into an observation.

    `tool` is the name that models see. Blocks: writes files to the workspace.
    """
    renderer = _BlockRenderer(tool, workspace)
    parts = [renderer.render(block) for block in [*result.content, *linked]]
    parts.append(_structured_text(result, parts))
    failed = bool(result.is_error)
    text = "\n".join(part for part in parts if part)
    nothing = f"{tool} failed and did not say why." if failed else "(no output)"
    return Observation(text or nothing, images=tuple(renderer.images), failed=failed)


def is_short_text(result: "CallToolResult") -> bool:
    """Return True if a result is only a short text, so that no file is written."""
    if result.structured_content is not None or any(one.type != "text" for one in result.content):
        return False
    texts = (one.text for one in result.content if one.type == "text")
    return sum(map(len, texts)) < SHORT_TEXT_CHARS


def _structured_text(result: "CallToolResult", parts: Sequence[str]) -> str:
    """Return the structured result as JSON, or nothing if a text block has the same content."""
    value: Any = result.structured_content
    if value is None:
        return ""
    alike: list[Any] = [value]
    if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
        alike += cast("dict[str, Any]", value).values()  # plain values are wrapped: {"result": 3}
    parsed = [_json_or_text(part) for part in parts]
    # A list has one block for each item.
    if any(one in alike for one in (*parts, *parsed)) or (parsed and parsed in alike):
        return ""
    whole = json.dumps(value, ensure_ascii=False, indent=1)
    return whole if not any(parts) else f"Structured result:\n{whole}"


def _json_or_text(text: str) -> Any:  # any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class _BlockRenderer:
    """Renders the blocks of one result. Blocks without text become files."""

    def __init__(self, tool: str, workspace: Workspace) -> None:
        self._tool, self._workspace = tool, workspace
        self.images: list[str] = []

    def render(self, block: Any) -> str:  # one of the SDK's block types, or resource contents
        kind = getattr(block, "type", "contents")
        if kind == "text":
            return str(block.text)
        if kind in ("image", "audio"):
            return self._file(block.data, block.mime_type, kind)
        if kind == "resource_link":
            return _link_text(block)
        return self._contents(block.resource if kind == "resource" else block)

    def _contents(self, contents: Any) -> str:  # text or blob contents
        head = f"Resource {contents.uri}"
        if getattr(contents, "text", None) is not None:
            return f"{head}:\n{contents.text}"
        media_type = contents.mime_type or mimetypes.guess_type(str(contents.uri))[0] or ""
        kind = "image" if media_type.startswith("image/") else "file"
        return f"{head}: {self._file(contents.blob, media_type, kind, str(contents.uri))}"

    def _file(self, encoded: str, media_type: str, kind: str, uri: str = "") -> str:
        try:
            data = base64.b64decode(encoded, validate=False)
        except (binascii.Error, ValueError):
            return f"({kind} with invalid base64)"
        digest = hashlib.sha256(data).hexdigest()[:8]
        name = f"{FOLDER}/{self._tool.removeprefix('mcp_')}-{digest}{_suffix(media_type, uri)}"
        try:
            put_file(self._workspace, self._workspace.root / name, data)
        except OSError as error:
            return f"({kind}, {len(data)} bytes, that could not be saved: {error.strerror})"
        if kind == "image":
            self.images.append(name)
        return f"{kind} ({media_type or 'unknown type'}, {len(data)} bytes) saved as {name}"


def _link_text(block: Any) -> str:  # the SDK's ResourceLink
    facts = ", ".join(filter(None, (block.mime_type, f"{block.size} bytes" if block.size else "")))
    text = f"Resource link: {block.name} <{block.uri}>" + (f" ({facts})" if facts else "")
    return f"{text}\n{block.description}" if block.description else text


def _suffix(media_type: str, uri: str) -> str:
    found = PurePosixPath(urlsplit(uri).path).suffix if uri else ""
    if _SUFFIX.fullmatch(found):
        return found.lower()
    plain = media_type.partition(";")[0].strip().lower()
    named = f".{plain.partition('/')[2]}"
    return mimetypes.guess_extension(plain) or (named if _SUFFIX.fullmatch(named) else ".bin")


READ_RESOURCE = "read_resource"
_DESCRIPTION = (
    "Reads a resource of this server: a file, a record, a page of documentation. Without `uri` it "
    "lists them, and templates such as file:///{path} whose names in braces you fill in."
)
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"uri": {"type": "string", "description": "Its address; leave out to list."}},
}


async def resource_tools(session: ClientSession, own: list[types.Tool]) -> list[types.Tool]:
    """Return the tool that reads resources, if there are any and `own` has no such name."""
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.resources is None:
        return []
    if any(tool.name == READ_RESOURCE for tool in own) or not await _described(session):
        return []
    return [
        types.Tool(
            name=READ_RESOURCE,
            description=_DESCRIPTION,
            input_schema=_SCHEMA,
            annotations=types.ToolAnnotations(read_only_hint=True),
            _meta={SCHEMA_KEY: _SCHEMA},
        )
    ]


async def read_or_list(session: ClientSession, uri: str | None) -> types.CallToolResult:
    """Read a resource, or list them all. MCPError: there is no such resource."""
    if not uri:
        text = "\n".join(await _described(session)) or "There are none."
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])
    found = await session.read_resource(uri)
    blocks = [types.EmbeddedResource(type="resource", resource=one) for one in found.contents]
    return types.CallToolResult(content=[*blocks])


async def _described(session: ClientSession) -> list[str]:
    """Return one line for each resource and template."""
    lines: list[str] = []
    try:
        async for page in pages(session.list_resources):
            lines += [_line(one.uri, one) for one in page.resources]
        async for templates in pages(session.list_resource_templates):
            lines += [_line(one.uri_template, one) for one in templates.resource_templates]
    except MCPError as error:
        if error.code != types.METHOD_NOT_FOUND:
            raise
    return lines


def _line(uri: str, one: types.Resource | types.ResourceTemplate) -> str:
    about = ": ".join(filter(None, (one.title or one.name, one.description)))
    kind = f" ({one.mime_type})" if one.mime_type else ""
    return f"{uri} - {about}{kind}".replace("\n", " ")

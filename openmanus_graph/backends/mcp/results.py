"""What servers send: messages with errors repaired, results as observations, and resources."""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import json
import mimetypes
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from openmanus_graph.backends.files.file_content import CUT_OFF, image_type, read_picture
from openmanus_graph.backends.mcp.listed_tools import SCHEMA_KEY, TASK_KEY
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.workspace import Workspace, put_file
from openmanus_graph.state.json_values import as_list, as_object, json_or
from openmanus_graph.state.tool_traits import Observation

P = TypeVar("P", bound=types.PaginatedResult)
FOLDER = "mcp"
"""In the workspace, for files that servers send."""
SHORT_TEXT_CHARS = 100_000
_SUFFIX = re.compile(r"\.\w{1,10}")
PAGES = 100
"""Limit of the pages that are read of one list."""
_REQUIRED_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": dict},
}
"""By the type of a content block."""
_TASK_SUPPORT = ("forbidden", "optional", "required")
_UNUSED_FIELDS = frozenset({"annotations", "_meta", "icons"})


def repair_message(message: Any) -> Any:  # whatever a transport delivers
    """Repair a list of tools or a result of a call.

    The SDK would reject the whole message because of one invalid field.
    """
    response = message.message if isinstance(message, SessionMessage) else None
    if not isinstance(response, types.JSONRPCResponse):
        return message
    result: Mapping[str, Any] = response.result
    repaired: dict[str, Any] = {}
    if isinstance(result.get("tools"), list):
        described = map(as_object, as_list(result["tools"]))
        repaired["tools"] = [
            _repair_tool(tool) for tool in described if isinstance(tool.get("name"), str)
        ]
    if "content" in result:
        content: Any = result["content"]
        blocks = as_list(content) if isinstance(content, list) else [content]
        repaired["content"] = list(map(_repair_block, blocks))
    structured: Any = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        repaired["structuredContent"] = {"result": structured}  # as servers wrap plain values
    if isinstance(result.get("task"), dict) and "content" not in result:
        repaired = {"content": [], "_meta": {TASK_KEY: result["task"]}}  # the SDK requires a result
    if not repaired:
        return message
    response = response.model_copy(update={"result": {**result, **repaired}})
    return SessionMessage(response, message.metadata)


def _repair_tool(tool: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: value for key in ("name", "title", "description")
            if isinstance(value := tool.get(key), str)}  # fmt: skip
    if isinstance(annotations := tool.get("annotations"), dict):
        hints = as_object(annotations)
        kinds = {"title": str, "readOnlyHint": bool, "destructiveHint": bool}
        kept["annotations"] = {
            key: hints[key] for key, kind in kinds.items() if isinstance(hints.get(key), kind)
        }
    if isinstance(execution := tool.get("execution"), dict):
        support = as_object(execution).get("taskSupport")
        kept["execution"] = {"taskSupport": support} if support in _TASK_SUPPORT else {}
    # The schema can be anything. It is checked later.
    kept["_meta"] = {**as_object(tool.get("_meta")), SCHEMA_KEY: tool.get("inputSchema")}
    return {**kept, "inputSchema": {"type": "object"}}


def _repair_block(block: Any) -> dict[str, Any]:
    """Return a content block. One that the protocol does not know becomes its JSON as text."""
    found = as_object(block)
    if found.get("type") in ("image", "audio") and found.get("mimeType") is None:
        found = {**found, "mimeType": ""}
    needed = _REQUIRED_FIELDS.get(str(found.get("type")), {})
    if needed and all(isinstance(found.get(name), kind) for name, kind in needed.items()):
        return {key: value for key, value in found.items() if key not in _UNUSED_FIELDS}
    text = block if isinstance(block, str) else json.dumps(block, ensure_ascii=False)
    return {"type": "text", "text": text}


def to_observation(
    result: types.CallToolResult, linked: Iterable[Any], tool: str, workspace: Workspace
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


def is_short_text(result: types.CallToolResult) -> bool:
    """Return True if a result is only a short text, so that no file is written."""
    if result.structured_content is not None or any(one.type != "text" for one in result.content):
        return False
    texts = (one.text for one in result.content if one.type == "text")
    return sum(map(len, texts)) < SHORT_TEXT_CHARS


def _structured_text(result: types.CallToolResult, parts: Sequence[str]) -> str:
    """Return the structured result as JSON, or nothing if a text block has the same content."""
    value: Any = result.structured_content
    if value is None:
        return ""
    alike: list[Any] = [value]
    if len(wrapped := as_object(value)) == 1:
        alike += wrapped.values()  # plain values are wrapped: {"result": 3}
    parsed = [json_or(part, part) for part in parts]
    # A list has one block for each item.
    if any(one in alike for one in (*parts, *parsed)) or (parsed and parsed in alike):
        return ""
    whole = json.dumps(value, ensure_ascii=False, indent=1)
    return whole if not any(parts) else f"Structured result:\n{whole}"


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
            facts = (block.mime_type, f"{block.size} bytes" if block.size else "")
            about = f" ({', '.join(filter(None, facts))})" if any(facts) else ""
            text = f"Resource link: {block.name} <{block.uri}>{about}"
            return f"{text}\n{block.description}" if block.description else text
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
            data, media_type = _decoded(encoded, media_type)
        except ValueError as error:
            return f"({kind} that was not saved: {error})"
        if kind == "image" and (problem := _picture_problem(data)):
            return f"({kind} that was not saved: {problem})"
        if kind == "image":
            media_type = image_type(data) or media_type  # servers say another one, or none
        digest = hashlib.sha256(data).hexdigest()[:8]
        name = f"{FOLDER}/{self._tool.removeprefix('mcp_')}-{digest}{_suffix(media_type, uri)}"
        try:
            put_file(self._workspace, self._workspace.root / name, data)
        except OSError as error:
            return f"({kind}, {len(data)} bytes, that could not be saved: {error.strerror})"
        if kind == "image":
            self.images.append(name)
        return f"{kind} ({media_type or 'unknown type'}, {len(data)} bytes) saved as {name}"


def _decoded(encoded: str, media_type: str) -> tuple[bytes, str]:
    """Return the bytes of base64 in either alphabet, or of a data URL, and their media type."""
    head, comma, body = encoded.strip().partition(",")
    if comma and head.lower().startswith("data:"):
        parameters = head[len("data:") :].split(";")
        media_type = parameters[0] or media_type
        if "base64" not in parameters:
            return unquote_to_bytes(body), media_type
    else:
        body = encoded
    plain = re.sub(r"\s+", "", unquote(body)).rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True), media_type
    except binascii.Error as error:
        raise ValueError(f"it is not base64 ({error})") from error


def _picture_problem(data: bytes) -> str:
    """Return why bytes are no whole picture. One that models cannot see may be whole."""
    if b"<svg" in data[:1000]:
        return ""
    if image_type(data) is None:
        return f"its {len(data)} bytes are no picture"
    try:
        read_picture(data)
    except ToolError as error:
        return CUT_OFF if str(error) == CUT_OFF else ""
    return ""


def _suffix(media_type: str, uri: str) -> str:
    found = PurePosixPath(urlsplit(uri).path).suffix if uri else ""
    if _SUFFIX.fullmatch(found):
        return found.lower()
    plain = media_type.partition(";")[0].strip().lower()
    named = f".{plain.partition('/')[2]}"
    return mimetypes.guess_extension(plain) or (named if _SUFFIX.fullmatch(named) else ".bin")


async def pages(list_page: Callable[..., Awaitable[P]]) -> AsyncIterator[P]:
    """Yield the pages of one of a server's lists, which `list_page(params=...)` requests."""
    params = types.PaginatedRequestParams()
    for _ in range(PAGES):
        page = await list_page(params=params)
        yield page
        if page.next_cursor is None:
            return
        params = types.PaginatedRequestParams(cursor=page.next_cursor)


LINK_TIMEOUT_S = 10.0
LINKS = 3
"""Most linked resources that are fetched with a result."""
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


async def linked_contents(session: ClientSession, result: types.CallToolResult) -> list[Any]:
    """Fetch the first resources that a result links to; leave out those that fail."""
    linked: list[Any] = []
    uris = [str(block.uri) for block in result.content if block.type == "resource_link"]
    for uri in uris[:LINKS]:
        with contextlib.suppress(MCPError, TimeoutError, ValueError):
            async with asyncio.timeout(LINK_TIMEOUT_S):
                linked += (await session.read_resource(uri)).contents
    return linked


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

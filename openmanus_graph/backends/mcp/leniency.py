"""Lists of tools and results as the SDK takes them: it refuses the whole for one part."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

SCHEMA_KEY = "openmanus/schema"
"""Where a tool keeps the schema that its server sent."""
_BLOCKS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": dict},
}
"""What the parts of a result must have."""
_NOT_USED = frozenset({"annotations", "_meta", "icons"})


def lenient(message: Any) -> Any:  # whatever a transport delivers
    """Return a message; a list of tools or a call's result in it is made acceptable."""
    if not isinstance(message, SessionMessage) or not isinstance(message.message, JSONRPCResponse):
        return message
    result: Mapping[str, Any] = message.message.result
    made: dict[str, Any] = {}
    if isinstance(result.get("tools"), list):
        made["tools"] = list(_tools(result["tools"]))
    if "content" in result:
        content: Any = result["content"]
        blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
        made["content"] = list(map(_block, blocks))
    if not made:
        return message
    response = message.message.model_copy(update={"result": {**result, **made}})
    return SessionMessage(response, message.metadata)


def _block(block: Any) -> dict[str, Any]:
    """Return a part of a result; one that the protocol does not know, as the text that it is."""
    if isinstance(block, dict):
        found = cast("dict[str, Any]", block)
        needed = _BLOCKS.get(str(found.get("type")), {})
        if needed and all(isinstance(found.get(name), kind) for name, kind in needed.items()):
            return {key: value for key, value in found.items() if key not in _NOT_USED}
    text = block if isinstance(block, str) else json.dumps(block, ensure_ascii=False)
    return {"type": "text", "text": text}


def _tools(tools: list[Any]) -> Iterator[dict[str, Any]]:
    for tool in tools:
        if isinstance(tool, dict) and isinstance(cast("dict[str, Any]", tool).get("name"), str):
            yield _tool(cast("dict[str, Any]", tool))


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: value for key in ("name", "title", "description")
            if isinstance(value := tool.get(key), str)}  # fmt: skip
    if isinstance(hints := tool.get("annotations"), dict):
        kept["annotations"] = _hints(cast("dict[str, Any]", hints))
    # The schema itself may be anything, and is looked at later.
    meta: Any = tool.get("_meta")
    own = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
    kept["_meta"] = {**own, SCHEMA_KEY: tool.get("inputSchema")}
    return {**kept, "inputSchema": {"type": "object"}}


def _hints(hints: dict[str, Any]) -> dict[str, Any]:
    wanted = {"title": str, "readOnlyHint": bool, "destructiveHint": bool}
    return {key: hints[key] for key, kind in wanted.items() if isinstance(hints.get(key), kind)}

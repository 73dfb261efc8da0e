"""Lists of tools as the SDK takes them: it refuses a whole list for one schema that is wrong."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

SCHEMA_KEY = "openmanus/schema"
"""Where a tool keeps the schema that its server sent."""


def lenient(message: Any) -> Any:  # whatever a transport delivers
    """Return a message; a list of tools in it is made acceptable."""
    if not isinstance(message, SessionMessage) or not isinstance(message.message, JSONRPCResponse):
        return message
    result: Mapping[str, Any] = message.message.result
    if not isinstance(result.get("tools"), list):
        return message
    response = message.message.model_copy(
        update={"result": {**result, "tools": list(_tools(result["tools"]))}}
    )
    return SessionMessage(response, message.metadata)


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

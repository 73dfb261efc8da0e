"""A server's list of tools: repaired, filtered by the configuration, compared with before."""

import hashlib
import json
import logging
import re
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar, cast

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, PaginatedRequestParams, PaginatedResult

from openmanus_graph.backends.mcp.schemas import ANYTHING, for_models, is_schema
from openmanus_graph.config.files import changed_object, config_home, read_object
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.context import Effect, MCPServer
from openmanus_graph.state.tool_traits import Traits

_Declared = TypeVar("_Declared")
P = TypeVar("P", bound=PaginatedResult)
PAGES = 100
"""Limit of the pages that are read of one list."""
SCHEMA_KEY = "openmanus/schema"
"""Key in a tool's metadata of the schema that its server sent."""
TASK_KEY = "openmanus/task"
"""Key in a result's metadata of the task that the server began instead."""
MAX_DESCRIPTION_CHARS = 2000
READ_ONLY = "read-only "
"""Prefix of the digest of a tool that its server declares as read-only."""
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


@dataclass(frozen=True)
class ListedTool:
    """One tool of a server, as it is offered to models."""

    name: str
    """The server's name for it."""
    description: str
    model_schema: Mapping[str, Any]
    """The schema of its arguments that models see."""
    argument_schema: Mapping[str, Any] | None
    """The schema that arguments are checked against; None if the server gave no valid one."""
    effect: Effect
    destructive: bool = False
    """As the server declares it."""
    digest: str = ""
    """Of the server's description of the tool, prefixed with the effect that it declares."""


async def pages(list_page: Callable[..., Awaitable[P]]) -> AsyncIterator[P]:
    """Yield the pages of one of a server's lists, which `list_page(params=...)` requests."""
    params = PaginatedRequestParams()
    for _ in range(PAGES):
        page = await list_page(params=params)
        yield page
        if page.next_cursor is None:
            return
        params = PaginatedRequestParams(cursor=page.next_cursor)


def offered_tools(server: MCPServer, tools: Iterable[Any]) -> tuple[ListedTool, ...]:
    """Return the tools that `allow` and `deny` permit, without duplicate names."""
    found: dict[str, ListedTool] = {}
    for tool in tools:
        name: str = tool.name
        allowed = server.allow is None or any(fnmatchcase(name, entry) for entry in server.allow)
        denied = any(fnmatchcase(name, entry) for entry in server.deny)
        if name not in found and allowed and not denied:
            found[name] = _listed_tool(server, tool)
    return tuple(found.values())


def _listed_tool(server: MCPServer, tool: Any) -> ListedTool:  # the SDK's Tool
    schema: Any = tool.meta[SCHEMA_KEY]
    usable = is_schema(schema)
    title = tool.title or (tool.annotations.title if tool.annotations else None) or tool.name
    description = sanitize_text(tool.description or title)
    if not usable:
        description += "\n(The server describes its arguments wrongly; they are not checked.)"
    return ListedTool(
        name=tool.name,
        description=description,
        model_schema=for_models(cast("dict[str, Any]", schema)) if usable else ANYTHING,
        argument_schema=cast("dict[str, Any]", schema) if usable else None,
        effect=_effect(server, tool),
        destructive=bool(tool.annotations and tool.annotations.destructive_hint),
        digest=_digest(tool),
    )


def _digest(tool: Any) -> str:  # the SDK's Tool
    hints = tool.annotations
    kind = [hints.read_only_hint, hints.destructive_hint] if hints else [None, None]
    said = [tool.title, tool.description, hints and hints.title, tool.meta[SCHEMA_KEY], kind]
    text = json.dumps(said, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{READ_ONLY if kind[0] else 'external '}{digest}"


def _effect(server: MCPServer, tool: Any) -> Effect:  # the SDK's Tool
    """Return a tool's effect from our configuration, or from the server's annotations.

    Approval keeps the model from misusing an honest server. A dishonest server gains nothing by a
    wrong annotation, because it can do anything in any call.
    """
    for pattern, effect in server.effects.items():
        if fnmatchcase(tool.name, pattern):
            return effect
    return "read_only" if tool.annotations and tool.annotations.read_only_hint else "external"


def sanitize_text(text: str, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    """Sanitize text from a server: remove control characters and truncate."""
    kept = "".join(
        char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf")
    )
    kept = re.sub(r"\n{3,}", "\n\n", kept).strip()
    return kept if len(kept) <= limit else f"{kept[:limit]} [...]"


def in_previous_order(
    new: Sequence[ListedTool], previous: Sequence[ListedTool]
) -> tuple[ListedTool, ...]:
    """Sort a new list like the previous one, so that the prompt prefix stays cacheable."""
    places = {tool.name: place for place, tool in enumerate(previous)}
    return tuple(sorted(new, key=lambda tool: places.get(tool.name, len(places))))


def difference(old: Sequence[ListedTool], new: Sequence[ListedTool]) -> dict[str, list[str]]:
    """Return the names of the tools that are `new`, `gone` and `changed`."""
    before, after = ({tool.name: tool for tool in tools} for tools in (old, new))
    return {
        "new": [name for name in after if name not in before],
        "gone": [name for name in before if name not in after],
        "changed": [name for name in after if name in before and after[name] != before[name]],
    }


def traits_for(
    server: MCPServer, tool: ListedTool, *, side_by_side: bool, known_as: str | None = None
) -> Traits:
    """Return the traits of a tool for the graph.

    Args:
        side_by_side: Whether calls to this server may run in parallel.
        known_as: The digest before the tool changed; empty if it is new, None if it is unchanged.
            A tool that had effects keeps them, unless the configuration declares its effect.
    """
    effect = tool.effect
    ours = any(fnmatchcase(tool.name, pattern) for pattern in server.effects)
    if known_as and not (known_as.startswith(READ_ONLY) or ours):
        effect = "external"
    external = effect == "external"
    return Traits(
        effect=effect,
        changed="" if known_as is None else "changed" if known_as else "new",
        resource=None if side_by_side else f"MCP server {server.name}",
        timeout_s=server.timeout_s,
        untrusted=True,
        approval=external if server.approval is None else server.approval,
        sends_to=_named(tool, server.sends_to),
        trusted=_named(tool, server.trusted) or False,
        private=_named(tool, server.private) or False,
        destructive=external and tool.destructive,
    )


def _named(tool: ListedTool, table: Mapping[str, _Declared]) -> _Declared | None:
    """Return the value that the table declares for a tool, by its name or a pattern."""
    return next((it for name, it in table.items() if fnmatchcase(tool.name, name)), None)


def repair_message(message: Any) -> Any:  # whatever a transport delivers
    """Repair a list of tools or a result of a call.

    The SDK would reject the whole message because of one invalid field.
    """
    if not isinstance(message, SessionMessage) or not isinstance(message.message, JSONRPCResponse):
        return message
    result: Mapping[str, Any] = message.message.result
    repaired: dict[str, Any] = {}
    if isinstance(result.get("tools"), list):
        tools = cast("list[Any]", result["tools"])
        described = [cast("dict[str, Any]", tool) for tool in tools if isinstance(tool, dict)]
        repaired["tools"] = [
            _repair_tool(tool) for tool in described if isinstance(tool.get("name"), str)
        ]
    if "content" in result:
        content: Any = result["content"]
        blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
        repaired["content"] = list(map(_repair_block, blocks))
    if isinstance(result.get("task"), dict) and "content" not in result:
        repaired = {"content": [], "_meta": {TASK_KEY: result["task"]}}  # the SDK requires a result
    if not repaired:
        return message
    response = message.message.model_copy(update={"result": {**result, **repaired}})
    return SessionMessage(response, message.metadata)


def _repair_tool(tool: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: value for key in ("name", "title", "description")
            if isinstance(value := tool.get(key), str)}  # fmt: skip
    if isinstance(annotations := tool.get("annotations"), dict):
        hints = cast("dict[str, Any]", annotations)
        kinds = {"title": str, "readOnlyHint": bool, "destructiveHint": bool}
        kept["annotations"] = {
            key: hints[key] for key, kind in kinds.items() if isinstance(hints.get(key), kind)
        }
    if isinstance(execution := tool.get("execution"), dict):
        support = cast("dict[str, Any]", execution).get("taskSupport")
        kept["execution"] = {"taskSupport": support} if support in _TASK_SUPPORT else {}
    # The schema can be anything. It is checked later.
    meta: Any = tool.get("_meta")
    own = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
    kept["_meta"] = {**own, SCHEMA_KEY: tool.get("inputSchema")}
    return {**kept, "inputSchema": {"type": "object"}}


def _repair_block(block: Any) -> dict[str, Any]:
    """Return a content block. One that the protocol does not know becomes its JSON as text."""
    if isinstance(block, dict):
        found = cast("dict[str, Any]", block)
        needed = _REQUIRED_FIELDS.get(str(found.get("type")), {})
        if needed and all(isinstance(found.get(name), kind) for name, kind in needed.items()):
            return {key: value for key, value in found.items() if key not in _UNUSED_FIELDS}
    text = block if isinstance(block, str) else json.dumps(block, ensure_ascii=False)
    return {"type": "text", "text": text}


log = logging.getLogger(__name__)


def changed_tools(server: MCPServer, tools: Iterable[ListedTool]) -> dict[str, str]:
    """Return the earlier digests of changed tools by name; empty for new tools. Blocks.

    The tools of a server that is seen for the first time are saved as unchanged.
    """
    listed = {tool.name: tool.digest for tool in tools}
    known: dict[str, str] | None = read_object(_file()).get(_key(server))
    if known is None:
        if listed:
            _save(server, listed)
        return {}
    return {
        name: known.get(name, "") for name, digest in listed.items() if known.get(name) != digest
    }


def accept_tool(server: MCPServer, tool: ListedTool) -> None:
    """Save a tool's digest, because the user allowed a call of it. Blocks."""
    _save(server, {tool.name: tool.digest})


def _save(server: MCPServer, digests: dict[str, str]) -> None:
    try:
        with changed_object(_file(), mode=0o600) as known:
            known[_key(server)] = {**known.get(_key(server), {}), **digests}
    except ConfigError as error:
        log.warning("The tools of %s could not be saved: %s", server.name, error)


def _key(server: MCPServer) -> str:
    """Return a key of a server's name, command and url: another url is another server."""
    reached = json.dumps([server.command, server.args, server.url])
    digest = hashlib.sha256(reached.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{server.name} {digest[:16]}"


def _file() -> Path:
    return config_home() / "mcp-tools.json"

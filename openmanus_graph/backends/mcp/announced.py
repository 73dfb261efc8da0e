"""The tools that a server lists, filtered by its configuration."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from openmanus_graph.backends.mcp.leniency import SCHEMA_KEY
from openmanus_graph.backends.mcp.schemas import ANYTHING, for_checking, for_models, is_schema
from openmanus_graph.state.mcp_server import MCPServer
from openmanus_graph.state.tool_traits import Effect, Traits

DESCRIPTION_CHARS = 2000


@dataclass(frozen=True)
class Announced:
    """One tool of a server."""

    name: str
    """The server's name for it."""
    description: str
    shown: Mapping[str, Any]
    """The schema of its arguments, for models."""
    checked: Mapping[str, Any] | None
    """The schema that arguments are checked against; None if the server gave no valid one."""
    effect: Effect


def announced(server: MCPServer, tools: Iterable[Any]) -> tuple[Announced, ...]:
    """Return the tools to offer from the SDK's; duplicate names are dropped."""
    found: dict[str, Announced] = {}
    for tool in tools:
        if tool.name not in found and is_offered(server, tool.name):
            found[tool.name] = _announced(server, tool)
    return tuple(found.values())


def is_offered(server: MCPServer, name: str) -> bool:
    """Return whether the server's `allow` and `deny` let a tool through."""
    allowed = server.allow is None or any(fnmatchcase(name, entry) for entry in server.allow)
    return allowed and not any(fnmatchcase(name, entry) for entry in server.deny)


def in_previous_order(
    new: Sequence[Announced], previous: Sequence[Announced]
) -> tuple[Announced, ...]:
    """Sort a new list like the previous one, so that the prompt prefix stays cacheable."""
    places = {tool.name: place for place, tool in enumerate(previous)}
    return tuple(sorted(new, key=lambda tool: places.get(tool.name, len(places))))


def difference(old: Sequence[Announced], new: Sequence[Announced]) -> dict[str, list[str]]:
    """Return the names of the tools that are `new`, `gone` and `changed`."""
    before, after = ({tool.name: tool for tool in tools} for tools in (old, new))
    return {
        "new": [name for name in after if name not in before],
        "gone": [name for name in before if name not in after],
        "changed": [name for name in after if name in before and after[name] != before[name]],
    }


def traits_for(server: MCPServer, tool: Announced, *, side_by_side: bool) -> Traits:
    """Return the traits of a tool for the graph.

    Args:
        server: Whose tool it is.
        tool: The tool.
        side_by_side: Whether calls to this server may run in parallel.
    """
    external = tool.effect == "external"
    return Traits(
        effect=tool.effect,
        resource=None if side_by_side else f"MCP server {server.name}",
        timeout_s=server.timeout_s,
        untrusted=True,
        approval=external if server.approval is None else server.approval,
    )


def plain_line(text: str, limit: int = DESCRIPTION_CHARS) -> str:
    """Sanitize text from a server: remove control characters and truncate."""
    kept = "".join(
        char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf")
    )
    kept = re.sub(r"\n{3,}", "\n\n", kept).strip()
    return kept if len(kept) <= limit else f"{kept[:limit]} [...]"


def _announced(server: MCPServer, tool: Any) -> Announced:  # the SDK's Tool
    schema: Any = tool.meta[SCHEMA_KEY]
    usable = is_schema(schema)
    title = tool.title or (tool.annotations.title if tool.annotations else None) or tool.name
    description = plain_line(tool.description or title)
    if not usable:
        description += "\n(The server describes its arguments wrongly; they are not checked.)"
    return Announced(
        name=tool.name,
        description=description,
        shown=for_models(cast("dict[str, Any]", schema)) if usable else ANYTHING,
        checked=for_checking(cast("dict[str, Any]", schema)) if usable else None,
        effect=_effect(server, tool),
    )


def _effect(server: MCPServer, tool: Any) -> Effect:  # the SDK's Tool
    """Return a tool's effect: from our configuration, else from the server's annotations.

    A server that lies gains nothing by it, as it can do anything in any call: approval is there
    to keep the model from using an honest server for what nobody wants.
    """
    for pattern, effect in server.effects.items():
        if fnmatchcase(tool.name, pattern):
            return effect
    return "pure" if tool.annotations and tool.annotations.read_only_hint else "external"

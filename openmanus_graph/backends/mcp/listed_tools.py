"""A server's list of tools: filtered by the configuration, compared with before, as models see it.

Loads nothing of the SDK, because a replay does not need it.
"""

import hashlib
import json
import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from openmanus_graph.config.files import changed_object, config_home, read_object
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.replaying import ReplayEndedError
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool
from openmanus_graph.state.context import Effect, MCPServer
from openmanus_graph.state.json_values import as_list, as_object, resolved
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.state.validation import schema_problems

log = logging.getLogger(__name__)

_Declared = TypeVar("_Declared")
Schema = dict[str, Any]

MAX_CHARS = 16_000
"""Limit of the JSON that models see for one tool."""
_COMBINED = ("anyOf", "oneOf", "allOf")
_TOP_LEVEL = (*_COMBINED, "not", "enum", "if", "then", "else", "$ref")
_SUBSCHEMAS = ("properties", "$defs", "definitions")
ANYTHING: Schema = {"type": "object", "properties": {}}
SCHEMA_KEY = "openmanus/schema"
"""Key in a tool's metadata of the schema that its server sent."""
TASK_KEY = "openmanus/task"
"""Key in a result's metadata of the task that the server began instead."""
MAX_DESCRIPTION_CHARS = 2000
READ_ONLY = "read-only "
"""Prefix of the digest of a tool that its server declares as read-only."""


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
        model_schema=for_models(schema) if usable else ANYTHING,
        argument_schema=schema if usable else None,
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


def changed_tools(server: MCPServer, tools: Iterable[ListedTool]) -> dict[str, str]:
    """Return the earlier digests of changed tools by name; empty for new tools. Blocks.

    The tools of a server that is seen for the first time are saved as unchanged.
    """
    listed = {tool.name: tool.digest for tool in tools}
    known: dict[str, str] | None = read_object(_file()).get(_key(server))
    if known is None:
        if listed:
            save_digests(server, listed)
        return {}
    return {
        name: known.get(name, "") for name, digest in listed.items() if known.get(name) != digest
    }


def save_digests(server: MCPServer, digests: Mapping[str, str]) -> None:
    """Save digests of tools as known to the user. Blocks."""
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


def is_schema(schema: object) -> bool:
    """Return True if this is a valid JSON schema that allows objects."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    found = as_object(schema)
    try:
        validator_for(found).check_schema(found)
    except (SchemaError, RecursionError, ValueError, TypeError):
        return False
    return isinstance(schema, dict) and found.get("type", "object") == "object"


def for_models(schema: Schema) -> Schema:
    """Return the schema that models see: an object, not too long.

    Providers require `type: object` and reject alternatives at the top. Nested alternatives,
    `$defs` and `$ref` do not change.
    """
    shown = _flat(schema)
    if _size(shown) > MAX_CHARS:
        shown = _without(shown, ("description", "examples", "title", "default"))
    if _size(shown) > MAX_CHARS:
        shown = _outline(shown)
    return shown


def _flat(schema: Schema) -> Schema:
    """Merge the alternatives at the top into one object. Required is what all of them require."""
    top = resolved(schema, schema)
    properties: Schema = dict(as_object(top.get("properties")))
    required = set(_names(top.get("required")))
    for word in _COMBINED:
        branches = [resolved(branch, schema) for branch in as_list(top.get(word))]
        for branch in branches:
            for name, inner in as_object(branch.get("properties")).items():
                properties.setdefault(name, inner)
        wanted = [set(_names(branch.get("required"))) for branch in branches]
        if wanted:
            required |= set.union(*wanted) if word == "allOf" else set.intersection(*wanted)
    kept = {key: value for key, value in top.items() if key not in _TOP_LEVEL}
    for word in ("$defs", "definitions"):
        if word in schema:
            kept[word] = schema[word]
    kept |= {"type": "object", "properties": properties}
    kept.pop("required", None)
    if required:
        kept["required"] = [name for name in properties if name in required]
    return kept


def _outline(schema: Schema) -> Schema:
    """Keep only the names and types of the arguments."""
    properties = {
        name: {"type": kind} if isinstance(kind := as_object(inner).get("type"), str) else {}
        for name, inner in list(as_object(schema.get("properties")).items())[:200]
    }
    required = [name for name in _names(schema.get("required")) if name in properties]
    return {**ANYTHING, "properties": properties, **({"required": required} if required else {})}


def _without(schema: Any, words: tuple[str, ...], *, names: bool = False) -> Any:  # any JSON
    """Remove keywords, but not arguments with the same name."""
    if isinstance(schema, list):
        return [_without(item, words) for item in as_list(schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without(value, words, names=not names and key in _SUBSCHEMAS)
        for key, value in as_object(schema).items()
        if names or key not in words
    }


def _size(schema: Schema) -> int:
    return len(json.dumps(schema, ensure_ascii=False, default=str))


def _names(value: Any) -> list[str]:  # any JSON
    return [name for name in as_list(value) if isinstance(name, str)]


class DescribedTool(JsonSchemaTool):
    """Checks arguments by the server's schema."""

    argument_schema: dict[str, Any] | None
    """The schema that arguments are checked against; None if the server gave no valid one."""

    def problems(self, args: Mapping[str, Any]) -> list[str]:
        try:
            return schema_problems(self.argument_schema or {}, dict(args))
        except Exception:  # noqa: BLE001  # endless or dangling references: the server checks it
            return []


class RecordedTool(DescribedTool):
    """A tool whose server does not run in a replay: the recording answers its calls."""

    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> NoReturn:
        raise ReplayEndedError(f"{self.name} is of an MCP server, and a replay starts none.")

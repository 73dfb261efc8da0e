"""The schemas of tools of MCP servers, for models and for checking calls.

A server can send anything in place of a JSON schema.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from pydantic import PrivateAttr

from openmanus_graph.runtime.replaying import ReplayEndedError
from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool
from openmanus_graph.state.validation import schema_checker

Schema = dict[str, Any]
Checker = Callable[[Any], list[str]]

MAX_CHARS = 16_000
"""Limit of the JSON that models see for one tool."""
_COMBINED = ("anyOf", "oneOf", "allOf")
_TOP_LEVEL = (*_COMBINED, "not", "enum", "if", "then", "else", "$ref")
_SUBSCHEMAS = ("properties", "$defs", "definitions")
ANYTHING: Schema = {"type": "object", "properties": {}}


def is_schema(schema: object) -> bool:
    """Return True if this is a valid JSON schema that allows objects."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        return False
    try:
        validator_for(cast("Schema", schema)).check_schema(cast("Schema", schema))
    except (SchemaError, RecursionError, ValueError, TypeError):
        return False
    return bool(cast("Schema", schema).get("type", "object") == "object")


def problems_of(check: Checker, value: Mapping[str, Any]) -> list[str]:
    """Return the problems of arguments. The server checks what this cannot check."""
    try:
        return check(dict(value))
    except Exception:  # noqa: BLE001  # endless or dangling references
        return []


def for_models(schema: Schema) -> Schema:
    """Return the schema that models see: an object, not too long.

    Providers require `type: object` and reject alternatives at the top. Nested alternatives,
    `$defs` and `$ref` do not change.
    """
    shown = _flat(schema)
    if _size(shown) > MAX_CHARS:
        shown = cast("Schema", _without(shown, ("description", "examples", "title", "default")))
    if _size(shown) > MAX_CHARS:
        shown = _outline(shown)
    return shown


def _flat(schema: Schema) -> Schema:
    """Merge the alternatives at the top into one object. Required is what all of them require."""
    top = _resolved(schema, schema)
    properties: Schema = dict(_object(top.get("properties")))
    required = set(_names(top.get("required")))
    for word in _COMBINED:
        branches = [_resolved(branch, schema) for branch in _list(top.get(word))]
        for branch in branches:
            for name, inner in _object(branch.get("properties")).items():
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


def _resolved(schema: Any, root: Schema) -> Schema:  # any JSON
    """Follow up to eight references within the document."""
    for _ in range(8):
        found = _object(schema)
        reference = found.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return found
        schema = root
        for part in reference[2:].split("/"):
            schema = _object(schema).get(part.replace("~1", "/").replace("~0", "~"))
    return {}


def _outline(schema: Schema) -> Schema:
    """Keep only the names and types of the arguments."""
    properties = {
        name: {"type": kind} if isinstance(kind := _object(inner).get("type"), str) else {}
        for name, inner in list(_object(schema.get("properties")).items())[:200]
    }
    required = [name for name in _names(schema.get("required")) if name in properties]
    return {**ANYTHING, "properties": properties, **({"required": required} if required else {})}


def _without(schema: Any, words: tuple[str, ...], *, names: bool = False) -> Any:  # any JSON
    """Remove keywords, but not arguments with the same name."""
    if isinstance(schema, list):
        return [_without(item, words) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    found = cast("Schema", schema)
    return {
        key: _without(value, words, names=not names and key in _SUBSCHEMAS)
        for key, value in found.items()
        if names or key not in words
    }


def _size(schema: Schema) -> int:
    return len(json.dumps(schema, ensure_ascii=False, default=str))


def _object(value: Any) -> Schema:  # any JSON
    return cast("Schema", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:  # any JSON
    return cast("list[Any]", value) if isinstance(value, list) else []


def _names(value: Any) -> list[str]:  # any JSON
    return [name for name in _list(value) if isinstance(name, str)]


class DescribedTool(JsonSchemaTool):
    """Checks arguments by the server's schema."""

    argument_schema: dict[str, Any] | None
    """The schema that arguments are checked against; None if the server gave no valid one."""
    _checker: Checker | None = PrivateAttr(default=None)

    def problems(self, args: Mapping[str, Any]) -> list[str]:
        if self.argument_schema is None:
            return []
        if self._checker is None:
            self._checker = schema_checker(self.argument_schema)
        return problems_of(self._checker, args)


class RecordedTool(DescribedTool):
    """A tool whose server does not run in a replay: the recording answers its calls."""

    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> NoReturn:
        raise ReplayEndedError(f"{self.name} is of an MCP server, and a replay starts none.")

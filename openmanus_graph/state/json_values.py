"""Reads JSON that may hold anything: what models, servers and other programs write."""

import json
from collections.abc import Mapping
from typing import Any, cast


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a JSON array; an empty one in place of anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def json_or(text: str | bytes, other: Any = None, *, strict: bool = True) -> Any:
    """Return the value of a JSON text, or `other` if it is none. `strict` is that of `json`."""
    try:
        return json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return other


def referred(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the part of a JSON schema that a reference such as `#/$defs/A` names, or None."""
    found: Any = root
    for name in filter(None, reference.removeprefix("#").split("/")):
        found = as_object(found).get(name.replace("~1", "/").replace("~0", "~"))
    return found


def resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a JSON schema; up to eight references within the schema are followed."""
    for _ in range(8):
        found = as_object(schema)
        reference = found.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return found
        schema = referred(reference, root)
    return {}

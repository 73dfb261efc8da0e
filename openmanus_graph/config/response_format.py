"""`response_format`: the form that a caller wants a run's answer in."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from openmanus_graph.conversation.outcome import ResponseFormat
from openmanus_graph.errors import ConfigError

_ACCEPTED = (
    'Give a JSON schema such as {"type": "object", "properties": {...}}, the form that OpenAI\'s '
    'API takes, {"type": "json_schema", "json_schema": {"schema": {...}}}, or the class of a '
    "pydantic model."
)
_WRAPPING = {"type", "name", "description", "strict", "schema"}
"""What stands around a schema in that form, or in the one of OpenAI's newer API."""
_DATA = ("enum", "const", "default", "examples")
"""Keywords whose values are no schemas."""


def read_response_format(given: Any) -> ResponseFormat | None:  # unchecked, as the caller gave it
    """Return the format's bare JSON schema or model. ConfigError says why it is neither."""
    if given is None:
        return None
    if isinstance(given, type) and issubclass(given, BaseModel):
        try:
            given.model_json_schema()
        except PydanticUserError as error:
            raise _wrong(f"{given.__name__} has no JSON schema ({error.message})") from error
        return given
    if not isinstance(given, Mapping):
        raise _wrong(f"is no dict and no model, but {given!r:.60}")
    schema = _unwrapped(cast("Mapping[str, Any]", given))
    _check_schema(schema)
    return schema


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"response_format {what}. {_ACCEPTED}")


def _unwrapped(given: Mapping[str, Any]) -> dict[str, Any]:
    holder: Any = given
    if "json_schema" in given:
        holder = given["json_schema"]
    elif given.get("type") != "json_schema" and ("schema" not in given or set(given) - _WRAPPING):
        return dict(given)
    schema: Any = cast("Any", holder).get("schema") if isinstance(holder, Mapping) else None
    if isinstance(schema, Mapping):
        return dict(cast("Mapping[str, Any]", schema))
    raise _wrong(f"has no schema in its {'json_schema' if holder is not given else 'wrapping'}")


def _check_schema(schema: dict[str, Any]) -> None:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    if not isinstance(schema.get("$schema", ""), str):
        raise _wrong("is no JSON schema: its $schema is no text")
    kind: Any = validator_for(schema)  # the stubs leave the types of both open
    nothing: Any = Registry
    try:
        kind.check_schema(schema)
        validator = kind(schema, registry=nothing())  # nothing is fetched for a reference
        for reference in set(_references(schema)):
            list(validator.evolve(schema={"$ref": reference}).iter_errors(None))
    except SchemaError as error:
        raise _wrong(f"is no JSON schema: {error.message[:300]}") from error
    except Unresolvable as error:
        raise _wrong(f"refers to something that is not in its JSON schema: {error}") from error
    except RecursionError:
        raise _wrong("is no JSON schema: it refers to itself without end") from None


def _references(schema: Any) -> Iterator[str]:
    """Return what a schema refers to; not in parts that are found by a name of their own."""
    if isinstance(schema, list):
        for part in cast("list[Any]", schema):
            yield from _references(part)
    elif isinstance(schema, dict):
        for key, part in cast("dict[str, Any]", schema).items():
            if key == "$ref" and isinstance(part, str):
                yield part
            elif key not in _DATA and not (isinstance(part, dict) and "$id" in part):
                yield from _references(part)

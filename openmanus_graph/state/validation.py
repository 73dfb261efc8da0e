"""What is wrong with a value, in words a model can act on."""

from collections.abc import Callable, Iterator
from typing import Any, cast

from pydantic import ValidationError

_DATA = ("enum", "const", "default", "examples")
"""Keywords whose values are no schemas."""


def schema_problems(schema: dict[str, Any], value: Any) -> list[str]:
    """Check a value against a JSON schema."""
    return schema_checker(schema)(value)


def schema_checker(schema: dict[str, Any]) -> Callable[[Any], list[str]]:
    """Return a function that checks values against a JSON schema."""
    from jsonschema.validators import validator_for
    from referencing import Registry

    # An empty registry: nothing is fetched because a schema refers to it.
    nothing: Any = Registry
    kind: Any = validator_for(schema)  # the stubs leave both types open
    validator = kind(schema, registry=nothing())

    def check(value: Any) -> list[str]:
        return [
            f"{'.'.join(map(str, error.absolute_path)) or 'value'}: {error.message[:300]}"
            for error in validator.iter_errors(value)
        ]

    return check


def schema_defect(schema: dict[str, Any]) -> str:
    """Say why something is no JSON schema by which values can be checked; empty if it is one."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    if not isinstance(schema.get("$schema", ""), str):
        return "is no JSON schema: its $schema is no text"
    kind: Any = validator_for(schema)  # the stubs leave the types of both open
    nothing: Any = Registry
    try:
        kind.check_schema(schema)
        validator = kind(schema, registry=nothing())  # nothing is fetched for a reference
        for reference in set(_references(schema)):
            list(validator.evolve(schema={"$ref": reference}).iter_errors(None))
    except SchemaError as error:
        return f"is no JSON schema: {error.message[:300]}"
    except Unresolvable as error:
        return f"refers to something that is not in its JSON schema: {error}"
    except RecursionError:
        return "is no JSON schema: it refers to itself without end"
    return ""


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


def validation_problems(error: ValidationError, whole: str = "value") -> list[str]:
    """Put pydantic's findings into words; values are left out, they may be secret or long.

    Args:
        error: The findings.
        whole: What to call the value itself.
    """
    return [
        f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg'].replace('tuple', 'list')}"
        for item in error.errors(include_url=False, include_input=False)
    ]

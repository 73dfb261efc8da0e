"""Checks values against schemas, with errors that a model can act on."""

import itertools
from collections.abc import Iterator
from typing import Any, cast

from pydantic import ValidationError

from openmanus_graph.state.json_values import as_list, as_object

_DATA = ("enum", "const", "default", "examples")
"""Keywords whose values are not schemas."""
_WITH_EXPRESSIONS = ("pattern", "patternProperties", "unevaluatedProperties")
"""Keywords whose check runs a regular expression of the schema."""
_MOST_STEPS = 50_000
"""Parts of a schema that are looked at for one value: some seconds."""


def schema_problems(schema: dict[str, Any], value: Any) -> list[str]:
    """Check a value against a JSON schema.

    `pattern`, `patternProperties` and `unevaluatedProperties` are not checked, see `_validator`.
    """
    try:
        return [
            f"{'.'.join(map(str, error.absolute_path)) or 'value'}: {error.message[:300]}"
            for error in _validator(schema).iter_errors(value)
        ]
    except _TooManySteps as error:
        return [f"value: it cannot be checked, the schema {error}"]


class _TooManySteps(Exception):
    pass


def _validator(schema: dict[str, Any]) -> Any:
    """Return a checker for an untrusted schema: it ends soon, and fetches nothing.

    An untrusted regular expression may run forever, and so may parts that refer to each other
    twice. So no expression is run, and parts are counted.
    """
    import attrs
    from jsonschema import validators
    from referencing import Registry

    library: Any = cast("Any", validators)  # the stubs leave all its types open
    kind = library.validator_for(schema)
    names_left: Any = kind.VALIDATORS.get("additionalProperties", _passes)

    def additional(checker: Any, value: Any, instance: Any, part: Any) -> Any:
        return () if "patternProperties" in part else names_left(checker, value, instance, part)

    unchecked = dict.fromkeys(_WITH_EXPRESSIONS, _passes)
    limited = library.extend(kind, {**unchecked, "additionalProperties": additional})
    steps = itertools.count(1)

    def evolve(checker: Any, **changes: Any) -> Any:
        """Make the checker of a part; a `$schema` there does not bring another one."""
        if next(steps) > _MOST_STEPS:
            raise _TooManySteps(f"takes more than {_MOST_STEPS} steps")
        return attrs.evolve(checker, **changes)

    limited.evolve = evolve
    nothing: Any = Registry
    return limited(schema, registry=nothing())


def _passes(*_: Any) -> tuple[()]:
    return ()


def schema_defect(schema: dict[str, Any]) -> str:
    """Return why values cannot be checked by a JSON schema; empty if they can."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing.exceptions import Unresolvable

    if not isinstance(schema.get("$schema", ""), str):
        return "is not a JSON schema: its $schema is not text"
    kind: Any = validator_for(schema)  # the stubs leave its type open
    try:
        kind.check_schema(schema)
        validator = _validator(schema)
        for reference in set(_references(schema)):
            list(validator.evolve(schema={"$ref": reference}).iter_errors(None))
    except SchemaError as error:
        return f"is not a JSON schema: {error.message[:300]}"
    except Unresolvable as error:
        return f"refers to something that is not in its JSON schema: {error}"
    except _TooManySteps as error:
        return f"is too large to check values by: it {error}"
    except RecursionError:
        return "is not a JSON schema: it refers to itself without end"
    return ""


def _references(schema: Any) -> Iterator[str]:
    """Yield the references in a schema, except in parts with an `$id`."""
    if isinstance(schema, list):
        for part in as_list(schema):
            yield from _references(part)
    elif isinstance(schema, dict):
        for key, part in as_object(schema).items():
            if key == "$ref" and isinstance(part, str):
                yield part
            elif key not in _DATA and not (isinstance(part, dict) and "$id" in part):
                yield from _references(part)


def validation_problems(error: ValidationError, whole: str = "value") -> list[str]:
    """Return pydantic's findings in words, without values, which may be secret or long.

    `whole` is the name of the value itself.
    """
    return [
        f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg'].replace('tuple', 'list')}"
        for item in error.errors(include_url=False, include_input=False)
    ]

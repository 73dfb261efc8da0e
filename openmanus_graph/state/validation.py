"""What is wrong with a value, in words a model can act on."""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError


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


def validation_problems(error: ValidationError, whole: str = "value") -> list[str]:
    """Put pydantic's findings into words; values are left out, they may be secret or long.

    Args:
        error: The findings.
        whole: What to call the value itself.
    """
    return [
        f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)
    ]

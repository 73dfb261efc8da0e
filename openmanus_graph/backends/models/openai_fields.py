"""Reading JSON of which nothing is sure: a field of another shape counts as missing."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

Fields = Mapping[str, Any]


def fields(value: object) -> Fields:
    """Return an object, or an empty one in place of anything else."""
    return cast("Fields", value) if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[object]:
    """Return a list, or an empty one in place of anything else."""
    return cast("list[object]", value) if isinstance(value, list) else ()


def count(value: object) -> int:
    """Return a number of tokens, 0 in place of what is none."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0

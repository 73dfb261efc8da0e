"""Values that JSON can hold and others cannot: pure functions over plain data.

Databases have no numbers of more than 64 bits, providers take no NaN, and much code recurses as
deep as the data. Halves of characters (surrogates), which models and servers send, can be neither
stored nor sent.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

MAX_DEPTH = 100
"""Lists and objects inside one another."""
MAX_KEY_CHARS = 1000
UNREADABLE_CHARACTER = "\ufffd"
TOO_DEEP = f"lists or objects that are nested more than {MAX_DEPTH} levels deep"
_SURROGATE = re.compile("[\ud800-\udfff]")
_MIN_NUMBER, _MAX_NUMBER = -(1 << 63), (1 << 63) - 1
_SHOWN_CHARS = 60
_CONTAINERS = (Mapping, list, tuple, set, frozenset)


def with_pairs_joined(text: str) -> str:
    """Join pairs of surrogates to the characters they stand for; lone ones stay."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def without_surrogates(text: str) -> str:
    """Join pairs of surrogates, and mark what is left of lone ones."""
    return _SURROGATE.sub(UNREADABLE_CHARACTER, with_pairs_joined(text))


def first_surrogate(value: object) -> str | None:
    r"""Return the first lone surrogate in plain data, escaped: \ud83d, or \xe9 for a byte."""
    if isinstance(value, str):
        found = _SURROGATE.search(value)
        if found is None:
            return None
        number = ord(found.group())
        return f"\\x{number - 0xDC00:02x}" if 0xDC80 <= number <= 0xDCFF else f"\\u{number:04x}"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        parts = [part for pair in pairs for part in pair]
    else:
        parts = cast("list[object]", value) if isinstance(value, list) else []
    return next(filter(None, map(first_surrogate, parts)), None)


def odd_argument(args: Mapping[str, Any]) -> str:
    """Say which argument of a call holds what can be neither stored nor sent; empty if none does.

    Halves of characters are left to `first_surrogate`.
    """
    for name, value in args.items():
        if len(name) > MAX_KEY_CHARS:
            return f"The name of an argument has {len(name)} characters"
        if what := odd_value(value, 1):
            return f"The argument {name[:_SHOWN_CHARS]!r} holds {what}"
    return ""


def odd_value(value: object, depth: int = 0) -> str:
    """Say what in a value can be neither stored nor sent, as a noun; empty if nothing is."""
    if value is None or isinstance(value, str | bool):
        return ""
    if isinstance(value, int | float):
        return _odd_number(value)
    if depth >= MAX_DEPTH:
        return TOO_DEEP
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        parts = (*map(_odd_key, fields), *(odd_value(part, depth + 1) for part in fields.values()))
    elif isinstance(value, list | tuple):
        parts = tuple(odd_value(part, depth + 1) for part in cast("list[object]", value))
    else:
        return f"a value of the type {type(value).__name__}, which JSON does not have"
    return next(filter(None, parts), "")


def _odd_number(value: float) -> str:
    if isinstance(value, int):
        return "" if _MIN_NUMBER <= value <= _MAX_NUMBER else "a number beyond 64 bits"
    return "" if math.isfinite(value) else "a number that is not finite"


def _odd_key(key: object) -> str:
    if not isinstance(key, str):
        return "a key that is no text"
    return f"a key of {len(key)} characters" if len(key) > MAX_KEY_CHARS else ""


def made_plain(value: Any, depth: int = 0) -> Any:
    """Return a value with texts in place of all that can be neither stored nor sent."""
    if isinstance(value, str):
        return without_surrogates(value)
    if value is None or isinstance(value, bool | bytes):
        return value
    if isinstance(value, int | float):
        return f"({odd})" if (odd := _odd_number(value)) else value
    parts = dict(value) if isinstance(value, BaseModel) else value
    if depth >= MAX_DEPTH and isinstance(parts, _CONTAINERS):
        return f"({TOO_DEEP})"
    if isinstance(parts, Mapping):
        pairs = cast("Mapping[Any, Any]", parts).items()
        return {_plain_key(key): made_plain(part, depth + 1) for key, part in pairs}
    if isinstance(parts, _CONTAINERS):
        return [made_plain(part, depth + 1) for part in cast("list[Any]", parts)]
    return without_surrogates(str(parts))


def _plain_key(key: object) -> str:
    return without_surrogates(str(key)[:MAX_KEY_CHARS])

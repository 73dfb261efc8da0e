"""Halves of characters: models and servers send them, and nothing can store or send them on.

A character beyond U+FFFF is two surrogates in JSON's escapes. Servers cut such pairs apart between
two events, and models forget a half. Bytes that are no UTF-8 are read as surrogates, too.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

UNREADABLE_CHARACTER = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")


def with_pairs_joined(text: str) -> str:
    """Join pairs of surrogates to the characters they stand for; lone ones stay."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def without_surrogates(value: Any) -> Any:
    """Join pairs and mark what is left of lone surrogates, in all texts of plain data."""
    if isinstance(value, str):
        return _SURROGATE.sub(UNREADABLE_CHARACTER, with_pairs_joined(value))
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {without_surrogates(key): without_surrogates(item) for key, item in items}
    if isinstance(value, list):
        return [without_surrogates(item) for item in cast("list[Any]", value)]
    return value


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


class SurrogateBuffer:
    """Buffers the first half of a surrogate pair until the chunk with the second half arrives."""

    def __init__(self) -> None:
        self._buffer = ""

    def add(self, piece: str) -> str:
        """Return the complete text that was not returned yet."""
        text = self._buffer + piece
        self._buffer = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return cast("str", without_surrogates(text[: len(text) - len(self._buffer)]))

    def rest(self) -> str:
        """Return the rest of the buffer, at the end of the text."""
        buffered, self._buffer = self._buffer, ""
        return cast("str", without_surrogates(buffered))

"""Reads the JSON that models write: strict JSON, and JSON with unambiguous faults. Pure.

Accepted faults are triple and single quotes, invalid escapes, trailing commas, doubled braces,
Python's literals, names without quotes, and the marks of strings in Gemma's format. A value that
breaks off is never completed, because half a command must not run.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

MAX_DEPTH = 100
MAX_KEY_CHARS = 1000
UNREADABLE_CHARACTER = "\ufffd"
TOO_DEEP = f"lists or objects that are nested more than {MAX_DEPTH} levels deep"
_SURROGATE = re.compile("[\ud800-\udfff]")
_MIN_NUMBER, _MAX_NUMBER = -(1 << 63), (1 << 63) - 1
_SHOWN_CHARS = 60
_CONTAINERS = (Mapping, list, tuple, set, frozenset)


def with_pairs_joined(text: str) -> str:
    """Replace pairs of surrogates by the characters they encode. Lone surrogates stay."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def without_surrogates(text: str) -> str:
    """Join pairs of surrogates, and replace lone ones."""
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
    """Return which argument of a call cannot be stored or sent, except for lone surrogates."""
    for name, value in args.items():
        if len(name) > MAX_KEY_CHARS:
            return f"The name of an argument has {len(name)} characters"
        if what := odd_value(value, 1):
            return f"The argument {name[:_SHOWN_CHARS]!r} holds {what}"
    return ""


def odd_value(value: object, depth: int = 0) -> str:
    """Return what in a value cannot be stored or sent, as a noun; empty if all can."""
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
        return "a key that is not text"
    return f"a key of {len(key)} characters" if len(key) > MAX_KEY_CHARS else ""


def made_plain(value: Any, depth: int = 0) -> Any:
    """Return a value with texts in place of what cannot be stored or sent."""
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
        return {
            without_surrogates(str(key)[:MAX_KEY_CHARS]): made_plain(part, depth + 1)
            for key, part in pairs
        }
    if isinstance(parts, _CONTAINERS):
        return [made_plain(part, depth + 1) for part in cast("list[Any]", parts)]
    return without_surrogates(str(parts))


UNREADABLE = (ValueError, RecursionError)
_DECODER = json.JSONDecoder(strict=False)  # line breaks inside strings
_MOST_LEVELS = 100
_SPACE = re.compile(r"(?:\s|\\[nt])*+")
"""Between values. Some models write a line break there as in a string."""
_COLON = re.compile(r"\s*(?::|=>?)")
_STRING = {
    mark: re.compile(rf"{re.escape(mark)}({body}){re.escape(mark)}{end}", re.DOTALL)
    for mark, body, end in [
        ('<|"|>', ".*?", ""),
        ("<escape>", ".*?", ""),
        ("<ctrl46>", ".*?", ""),
        ('"""', ".*?", r"(?!\")(?=\s*+[,}\]:])"),
        ("'''", ".*?", r"(?!')(?=\s*+[,}\]:])"),
        ('"', r"(?:[^\"\\]|\\.)*+", ""),
        ("'", r"(?:[^'\\]|\\.)*+", ""),
    ]
}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {**dict(zip("bfnrt", "\b\f\n\r\t", strict=True)), **{one: one for one in "\"'\\/"}}
_BARE = re.compile(r"[^\s,{}\[\]()\"'`<>:=\\][^,{}\[\]\"'`<>:\n\\]*")
LITERALS = {"true": True, "false": False, "null": None, "none": None, "nil": None}


def read_json(text: str, position: int = 0) -> tuple[Any, int]:
    """Return the value at a position, and where it ends. Raises one of `UNREADABLE`."""
    try:
        return _DECODER.raw_decode(text, position)
    except ValueError:
        return _value(text, position, 0)


def object_of(value: Any) -> dict[str, Any] | None:
    """Return a JSON object, given as an object or as text; None for others."""
    for _ in range(2):  # some write the text of a text
        if not isinstance(value, str):
            break
        try:
            text = value.strip()
            value, end = read_json(text)
        except UNREADABLE:
            return None
        if end != len(text):
            return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]  # of JSON


def _space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _value(text: str, position: int, level: int) -> tuple[Any, int]:
    if level > _MOST_LEVELS:
        raise ValueError("nested too deeply")
    if text.startswith("{", position):
        return _object(text, position, level)
    if text.startswith("[", position):
        items: list[Any] = []
        position = _space(text, position + 1)
        while not text.startswith("]", position):
            item, position = _value(text, position, level + 1)
            items.append(item)
            position = _after(text, position, "]")
        return items, position + 1
    if (string := _string(text, position)) is not None:
        return string
    bare = _bare(text, position)
    word = bare.rstrip()
    if word.lower() in LITERALS:
        return LITERALS[word.lower()], position + len(bare)
    try:
        return json.loads(word), position + len(bare)
    except json.JSONDecodeError:  # not of a number with too many digits
        return word, position + len(bare)


def _object(text: str, position: int, level: int) -> tuple[Any, int]:
    position = _space(text, position + 1)
    if text.startswith("{", position):  # doubled braces, as some templates show them
        value, position = _value(text, position, level + 1)
        position = _space(text, position)
        if not text.startswith("}", position):
            raise ValueError("a doubled brace is not closed")
        return value, position + 1
    made: dict[str, Any] = {}
    while not text.startswith("}", position):
        key, position = _string(text, position) or (
            (bare := _bare(text, position)).rstrip(),
            position + len(bare),
        )
        colon = _COLON.match(text, position)
        if colon is None:
            raise ValueError("a name has no value")
        made[key], position = _value(text, _space(text, colon.end()), level + 1)
        ended = text[position - 1] == "}"
        position = _space(text, position)
        if level == 0 and ended and text[position : position + 1] in ("", "<", "`"):
            return made, position  # the last brace alone is missing, behind a whole object
        position = _after(text, position, "}")
    return made, position + 1


def _after(text: str, position: int, end: str) -> int:
    position = _space(text, position)
    if text.startswith(",", position):
        return _space(text, position + 1)
    if not text.startswith(end, position):
        raise ValueError("items are not separated, or break off")
    return position


def _bare(text: str, position: int) -> str:
    """Return words without quotes, with the white space after them."""
    found = _BARE.match(text, position)
    if found is None:
        raise ValueError("no value")
    return found[0]


def _string(text: str, position: int) -> tuple[str, int] | None:
    mark = next((one for one in _STRING if text.startswith(one, position)), None)
    if mark is None:
        return None
    found = _STRING[mark].match(text, position)
    if found is None:
        raise ValueError("a string is not closed")
    inner = str(found[1])
    # Code with its line breaks as they are has its backslashes as they are, too.
    as_written = "\n" in inner and not ('\\"' in inner and '"' not in inner.replace('\\"', ""))
    if mark[0] == "<" or (len(mark) == 3 and as_written):
        return inner, found.end()
    return with_pairs_joined(_ESCAPE.sub(_unescaped, inner)), found.end()


def _unescaped(found: re.Match[str]) -> str:
    """Return the character of an escape. Escapes that JSON lacks stay unchanged."""
    escape = found[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, found[0])

"""The values in a call's arguments: at any depth, in keys, and in texts that are JSON."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openmanus_graph.safety.argument_names import (
    ADDRESSES,
    Names,
    converts,
    grants,
    is_field,
    names_destination,
    says_how,
)

_GRANTEE = "grantee"
_HEADERS = frozenset({"to", "cc", "bcc", "recipient", "recipients", "sendto", "send_to"})
"""Names before a value in one text; others, as in "Hotel: Ritz", are a title's words."""
_PAIR = re.compile(
    r"\s*(?:-{0,2}(?P<name>[\w-]{1,40})\s*[:=]\s*(?P<value>\S[^\n]*)|<(?P<tag>[\w-]{1,40})>(?P<in>[^<]*)</(?P=tag)>)\s*"
)
"""A text that is nothing but a name and its value."""
_MOST_PAIR_CHARS, _MOST_NAME_CHARS, _PAIR_ITEMS = 1000, 40, 2
_PAIRS = (
    (
        ("name", "key", "field", "k", "param", "parameter", "property", "attribute", "header"),
        frozenset({"value", "values", "v", "val", "content"}),
    ),
    (("id", "type", "label", "path", "op"), frozenset({"value", "values", "v", "val"})),
)
"""Fields that name what is in a field beside them: `{"id": "to", "value": "Bob"}`."""
_ROLES = frozenset({
    "writer", "reader", "editor", "viewer", "commenter", "owner", "admin", "member",
    "collaborator", "contributor",
})  # fmt: skip
"""What is given to somebody: the key of such a value is who gets it."""


def leaves(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers in a call's arguments, each with the name of its argument."""
    for names, value in leaves_of(dict(args), ()):
        yield names[0], value


def texts(
    args: Mapping[str, Any], but: Callable[[Names], bool] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield all that a call's arguments say: also keys, and JSON in texts.

    Args:
        args: Of the call.
        but: Says which values are left out, by the names on the way to them.
    """
    for names, value, _ in _opened(args):
        if but is None or not but(names):
            yield names[0], value


@dataclass(frozen=True)
class Destination:
    """A value that decides where something goes."""

    argument: str
    value: str
    is_site: bool
    """Its name says that it is a place on the net."""


def destinations(args: Mapping[str, Any], test: Callable[[Names], bool]) -> Iterator[Destination]:
    """Yield the values in a call's arguments that decide where something goes, keys among them.

    Args:
        args: Of the call.
        test: Says which ones do, by the names on the way to them.
    """
    converted = ("to",) if converts(args) else ()
    for names, value, holds_json in _opened(args):
        if test(names) and not (holds_json or says_how(names[-1], value) or names == converted):
            is_site = any(names_destination(name, ADDRESSES) for name in names)
            yield Destination(names[0], value, is_site)


def _opened(args: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Yield texts, numbers and keys in a call's arguments, and those in texts that are JSON.

    Each has the names on the way to it, and whether it is JSON whose parts are yielded, too.
    """
    pending: list[tuple[tuple[str, ...], Any]] = [((name,), one) for name, one in args.items()]
    pending.reverse()
    while pending:
        way, one = pending.pop()
        for names, value in leaves_of(one, way):
            inner = _json_in(value)
            yield names, value, inner is not None
            if inner is not None:
                pending.append((names, inner))
        yield from ((names, key, False) for names, key in _keys(one, way))


def _keys(value: Any, way: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys in JSON that are values themselves, `{"x@y.example": "writer"}`."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(value, way)]
    while pending:
        one, names = pending.pop()
        if isinstance(one, dict):
            for key, inner in cast("dict[Any, Any]", one).items():
                if not is_field(str(key)):
                    gets = (names and grants(names[-1])) or _is_role(inner)
                    yield (*names, _GRANTEE) if gets else names, str(key)
                pending.append((inner, (*names, str(key))))
        elif isinstance(one, list | tuple):
            pending += [(inner, names) for inner in cast("Sequence[Any]", one)]


def _json_in(text: str) -> Any:
    """Return the JSON that a text is, or the name and value; None if it is none, or a number."""
    if not text.lstrip().startswith(("[", "{", '"')):
        pair = _PAIR.fullmatch(text) if len(text) < _MOST_PAIR_CHARS else None
        name = pair and (pair["name"] or pair["tag"])
        if pair and name and (pair["tag"] or name.lower() in _HEADERS) and names_destination(name):
            return {name: pair["value"] or pair["in"]}
        return None
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def leaves_of(value: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts and numbers in JSON that are not empty, with the names on the way."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(value, names)]
    while pending:  # JSON of others may be nested deeper than Python calls functions
        one, way = pending.pop()
        if isinstance(one, dict):
            fields = cast("dict[Any, Any]", one)
            named = _named(fields)
            pending += [
                (inner, (*way, str(name), *named.get(str(name).lower(), ())))
                for name, inner in reversed(list(fields.items()))
            ]
        elif isinstance(one, list | tuple):
            pending += reversed(list(_items(cast("Sequence[Any]", one), way)))
        elif isinstance(one, str | int | float) and not isinstance(one, bool) and one != "":
            yield way, str(one)


def _named(fields: dict[Any, Any]) -> dict[str, tuple[str, ...]]:
    """Return the names that the fields of an object give to values beside them."""
    said = {str(name).lower(): one for name, one in fields.items() if isinstance(one, str)}
    found: dict[str, tuple[str, ...]] = {}
    for names, values in _PAIRS:
        given = tuple(said[name] for name in names if name in said)
        for value in values & {str(name).lower() for name in fields}:
            found[value] = (*found.get(value, ()), *given)
    return found


def _is_role(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in _ROLES


def _items(items: Sequence[Any], way: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield the items of a list; one behind a name, `["--to", "Bob"]`, has that name, too."""
    before = ""
    for one in items:
        yield one, (*way, before) if before else way
        is_name = isinstance(one, str) and (len(items) == _PAIR_ITEMS or one.startswith("-"))
        before = one.lstrip("-") if is_name and len(one) < _MOST_NAME_CHARS else ""

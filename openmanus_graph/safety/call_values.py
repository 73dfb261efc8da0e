"""The values in a call's arguments: at any depth, in keys, and in texts that are JSON."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openmanus_graph.safety.argument_names import ADDRESSES, Names, is_field, names_destination


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
    for names, value, holds_json in _opened(args):
        if test(names) and not holds_json:
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
                    yield names, str(key)
                pending.append((inner, (*names, str(key))))
        elif isinstance(one, list | tuple):
            pending += [(inner, names) for inner in cast("Sequence[Any]", one)]


def _json_in(text: str) -> Any:
    """Return the JSON that a text is; None if it is none, or only a number."""
    if not text.lstrip().startswith(("[", "{", '"')):
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
            fields = reversed(list(cast("dict[Any, Any]", one).items()))
            pending += [(inner, (*way, str(name))) for name, inner in fields]
        elif isinstance(one, list | tuple):
            pending += [(inner, way) for inner in reversed(cast("Sequence[Any]", one))]
        elif isinstance(one, str | int | float) and not isinstance(one, bool) and one != "":
            yield way, str(one)

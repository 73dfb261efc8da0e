"""Finds what is unknown to the Vega-Lite grammar in a specification, with suggestions.

A validator says of a misspelt field only that none of a hundred alternatives matches. Here the
specification is walked beside the grammar: what no alternative knows at a place is a mistake, and
the nearest name that some alternative knows is what was meant.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

Fragment = Mapping[str, Any]


def spec_faults(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield each unknown field or word, with where it is and the nearest right one."""
    import altair

    schema: Any = altair.VegaLiteSchema
    root: Fragment = schema._rootschema  # there is no public name
    yield from _faults(spec, [root], root["definitions"], "")


def _faults(
    value: Any, fragments: Sequence[Fragment], definitions: Fragment, where: str
) -> Iterator[str]:
    allowed = list(_alternatives(fragments, definitions))
    if not allowed or any(not _says_something(fragment) for fragment in allowed):
        return  # anything may stand here
    if isinstance(value, Mapping):
        yield from _of_fields(cast("Fragment", value), allowed, definitions, where)
    elif isinstance(value, list):
        items = [
            fragment["items"] for fragment in allowed if isinstance(fragment.get("items"), dict)
        ]
        for number, item in enumerate(cast("list[Any]", value) if items else ()):
            yield from _faults(item, items, definitions, f"{where}[{number}]")
    elif isinstance(value, str):
        yield from _of_word(value, allowed, where)


def _of_fields(
    value: Fragment, allowed: Sequence[Fragment], definitions: Fragment, where: str
) -> Iterator[str]:
    objects = [fragment for fragment in allowed if fragment.get("type") == "object"]
    if any(fragment.get("additionalProperties", True) is not False for fragment in objects):
        return
    known: dict[str, list[Fragment]] = {}
    for fragment in objects:
        for name, inner in fragment.get("properties", {}).items():
            known.setdefault(name, []).append(inner)
    for name, inner in value.items():
        place = f"{where}.{name}" if where else name
        if name in known:
            yield from _faults(inner, known[name], definitions, place)
        elif known:
            yield f"there is no field {name!r} at {where or 'the top'}{_nearest(name, known)}"


def _of_word(value: str, allowed: Sequence[Fragment], where: str) -> Iterator[str]:
    words: list[str] = []
    for fragment in allowed:
        if "enum" in fragment or "const" in fragment:
            words += [
                w for w in fragment.get("enum", [fragment.get("const")]) if isinstance(w, str)
            ]
        elif "string" in (kind := fragment.get("type", ())) or kind == "string":
            return  # free text
    if words and value not in words:
        yield f"{where} cannot be {value!r}{_nearest(value, words)}"


def _alternatives(fragments: Sequence[Fragment], definitions: Fragment) -> Iterator[Fragment]:
    """Yield what a place may hold, references and choices followed."""
    for fragment in fragments:
        if "$ref" in fragment:
            name = str(fragment["$ref"]).removeprefix("#/definitions/")
            yield from _alternatives([definitions[name]], definitions)
        elif choices := fragment.get("anyOf") or fragment.get("oneOf") or fragment.get("allOf"):
            yield from _alternatives(choices, definitions)
        else:
            yield fragment


def _says_something(fragment: Fragment) -> bool:
    return bool({"type", "enum", "const", "properties"} & fragment.keys())


def _nearest(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1, 0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = sorted(set(known))
    return f"; known: {', '.join(shown[:30])}{' ...' if len(shown) > 30 else ''}"

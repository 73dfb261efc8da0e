"""Reads a call's arguments as the model meant them, if the tool's schema leaves one reading.

Models write wrong names, JSON in a string where an array belongs, `null` for what is left out, or
an `explanation` that no tool asked for. What stays unclear is left to the validation, whose error
names the argument.
"""

import ast
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.tools import BaseTool
from pydantic import BaseModel

from openmanus_graph.runtime.tool_runtime import JsonSchemaTool
from openmanus_graph.state.json_values import as_list, as_object, resolved
from openmanus_graph.tool_calls.declaration import declared_traits
from openmanus_graph.tool_calls.tool_search import closest

ARGUMENTS: Mapping[str, Sequence[str]] = {
    "path": ("file_path", "filepath", "file", "filename", "file_name"),
    "file_text": ("content", "contents", "text", "file_content"),
    "old_str": ("old_string", "old_text"),
    "new_str": ("new_string", "new_text", "insert_text"),
    "command": ("cmd", "script", "shell_command", "code", "input"),
    "code": ("python", "python_code", "source", "source_code", "script", "command", "cmd", "input"),
    "action": ("command", "cmd"),
    "lines": ("view_range", "line_range"),
    "view_range": ("lines", "line_range"),
    "pages": ("page", "cells", "cell_range", "range", "sheet", "sheets", "slides"),
    "url": ("link", "uri", "address", "href"),
    "urls": ("url", "link", "links"),
    "query": ("q", "search_query", "search"),
    "inquire": ("question", "inquiry"),
    "response": ("answer",),
    "answer_schema": ("schema", "json_schema", "response_schema", "output_schema"),
}
"""Names that are understood, by the argument that is meant."""
FIRST_LINE, LAST_LINE, RANGE = "start_line", "end_line", "lines"
"""Two usual arguments that are understood as one."""
_ONLY_NAMED: Mapping[str, Sequence[str]] = {
    "lines": ("offset", "limit"),
    "view_range": ("offset", "limit", FIRST_LINE, LAST_LINE),
}
"""Names whose values may be meant in more than one way: the refusal names the argument."""
_COMMENTS = (
    "explanation", "reason", "reasoning", "rationale", "thought", "thoughts", "thinking", "purpose",
    "intent", "justification", "comment", "note",
)  # fmt: skip
"""Arguments by which models explain a call, if the tool has none of that name."""
_MOST_CHARS = 1_000_000
"""Of a text that is read as a value."""
_DEPTH = 4
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "array": (list,), "object": (dict,), "null": (type(None),),
}  # fmt: skip

_schemas: WeakKeyDictionary[type, Mapping[str, Any]] = WeakKeyDictionary()
"""Of tools, by their class of arguments: slow to make."""


def as_meant(tool: BaseTool, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments with the declared names, and values of the declared kinds."""
    named = with_declared_names(tool, args)
    schema = tool.parameters if isinstance(tool, JsonSchemaTool) else _parameters(tool)
    return _object(named, schema, schema, _DEPTH) if schema.get("properties") else named


def _parameters(tool: BaseTool) -> Mapping[str, Any]:
    declared: Any = tool.args_schema
    if isinstance(declared, dict):
        return as_object(declared)
    if declared not in _schemas:
        schema: Any = tool.tool_call_schema  # without what the model is not shown
        _schemas[declared] = schema.model_json_schema()
    return _schemas[declared]


def _object(
    given: Mapping[str, Any], schema: Mapping[str, Any], whole: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    known, needed = as_object(schema.get("properties")), schema.get("required") or ()
    others = schema.get("additionalProperties", False)
    found: dict[str, Any] = {}
    for name, value in given.items():
        wanted = resolved(known.get(name, others), whole)
        if name not in known and name in _COMMENTS and depth == _DEPTH and others is False:
            continue
        optional = name in known and name not in needed
        if value is None and optional and "null" not in _kinds(wanted, whole):
            continue
        found[name] = _value(value, wanted, whole, depth)
    return found


def _value(value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any], depth: int) -> Any:
    """Return a value as a schema wants it, or as it is if that is not clear."""
    kinds = {*_kinds(schema, whole)}
    if not kinds or not depth:
        return value
    if not _is_of(value, kinds):
        readings = [one for one in _readings(value) if _is_of(one, kinds)]
        if not readings:
            return value
        value = readings[0]
    choices = _choices(schema, whole)
    schema = next((one for one in choices if _is_of(value, [*_kinds(one, whole)])), schema)
    if isinstance(value, list):
        wanted = resolved(schema.get("items"), whole)
        return [_value(one, wanted, whole, depth - 1) for one in as_list(value)]
    if isinstance(value, dict):
        return _object(as_object(value), schema, whole, depth - 1)
    return value


def _readings(value: Any) -> Iterator[Any]:
    """Yield what a value may mean: as JSON, as JSON in JSON, as a Python literal, as a number."""
    if isinstance(value, float) and value.is_integer():
        yield int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, str) and len(value) <= _MOST_CHARS:
        for read in (json.loads, _python_literal):
            try:
                found = read(value.strip())
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            yield found
            if isinstance(found, str | float):
                yield from _readings(found)


def _python_literal(text: str) -> Any:
    """Return a Python literal as JSON has it: tuples are lists."""
    return json.loads(json.dumps(ast.literal_eval(text)))


def _kinds(schema: Mapping[str, Any], whole: Mapping[str, Any], depth: int = 4) -> Iterator[str]:
    """Yield the types that a schema allows; none if it does not say."""
    named = schema.get("type")
    yield from [named] if isinstance(named, str) else as_list(named)
    if named is None:
        values = as_list(schema.get("enum"))
        yield from (kind for kind in _KINDS if any(_is_of(one, [kind]) for one in values))
    for part in _choices(schema, whole) if depth else ():  # they may refer to themselves
        yield from _kinds(part, whole, depth - 1)


def _choices(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = (as_list(schema.get(key)) for key in ("anyOf", "oneOf", "allOf"))
    return [resolved(part, whole) for some in parts for part in some]


def _is_of(value: Any, kinds: Collection[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, _KINDS.get(kind, ())) for kind in kinds)


def with_declared_names(tool: BaseTool, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments with the names that the tool declares, if the meaning is clear.

    Only for tools declared here: the author of another tool decides what its names mean. Unclear
    names are kept, and validation reports them.
    """
    schema = tool.args_schema
    if not (declared_traits(tool) and isinstance(schema, type) and issubclass(schema, BaseModel)):
        return dict(args)
    known = schema.model_fields
    args = _with_range(known, args)
    meant: dict[str, str] = {}
    for name in args.keys() - known.keys():
        free = [one for one, usual in ARGUMENTS.items() if name in usual and one in known]
        if len(free) == 1 and free[0] not in args:
            meant[name] = free[0]
    uses = Counter(meant.values())
    return {
        meant[name] if uses[meant.get(name, "")] == 1 else name: value
        for name, value in args.items()
    }


def _with_range(known: Collection[str], args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put a first and a last line into the one argument of a tool that only reads lines."""
    given = args.keys() & {FIRST_LINE, LAST_LINE}
    if RANGE not in known or RANGE in args or not given:
        return args
    rest = {name: value for name, value in args.items() if name not in given}
    return {**rest, RANGE: [args.get(FIRST_LINE) or 1, args.get(LAST_LINE) or -1]}


def argument_meant(name: str, known: Collection[str]) -> str:
    """Return the argument that a wrong name probably means; empty if there is none."""
    usual = (*ARGUMENTS.items(), *_ONLY_NAMED.items())
    found = next((one for one, names in usual if one in known and name in names), "")
    return found or closest(name, known)

"""Reads tool calls that a model wrote as text, in the forms that models were trained on. Pure.

A call counts only if nothing but calls follows it: an example that an answer quotes, in a code
block or in the middle of its text, is left alone.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]+`|^(?:[ ]{4}|\t|[ ]{0,3}>)[^\n]*", re.DOTALL | re.MULTILINE
)
"""Code, and lines that an answer quotes."""
_START = re.compile(
    r"<(?:\w+:)?tool_calls?>|<TOOLCALL>|<\|tool_calls?\|>|<function_calls?>|<function=|<invoke\s+name="
    r"|\[TOOL_CALLS\]|<\|python_tag\|>"
)
_BEGUN = re.compile(
    r"\{\s*[\"']|\[\s*\{|<function=[\w.-]+>\s*\S|<invoke\s|[\w.-]+\s*(?:\[ARGS\]|\{|<arg_key>)"
)
"""What follows the mark of a call, whole or broken."""
_END = re.compile(r"</(?:tool_calls?|function_calls?|function|invoke)>")
_WRAPPER = re.compile(
    r"\s*(?:</?(?:\w+:)?tool_calls?>|</?TOOLCALL>|<\|/?tool_calls?\|>|</?function_calls?>"
    r"|\[TOOL_CALLS\]|<\|python_tag\|>|[;,])\s*"
)
_SPECIAL = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end|>", "</s>")
"""What models end a text with, where their server does not take it off."""
_FENCED = re.compile(
    r"\s*```(?:json|JSON|tool_call|tool_code|function_call)?[ \t]*\r?\n(.*?)\n?```\s*\Z", re.DOTALL
)
_FUNCTION = re.compile(r"<function=([\w.-]+)>")
_INVOKE = re.compile(r"<invoke\s+name=[\"']?([\w.-]+)[\"']?>")
_ENDS = {_FUNCTION: "</function>", _INVOKE: "</invoke>"}
_PARAMETER = re.compile(r"<parameter(?:=|\s+name=)[\"']?([\w.-]+)[\"']?>")
_KEYED = re.compile(r"([\w.-]+)\s*(?=<arg_key>)")
_KEYED_END = re.compile(r"</tool_call>\s*(?=<tool_call>|\Z)")
_KEY = re.compile(r"<arg_key>([^<]*)</arg_key>\s*<arg_value>")
_NAMED = re.compile(r"([\w.-]+)\s*(?:\[ARGS\])?\s*(?=\{)")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_UNREADABLE = (ValueError, RecursionError)
_DECODER = json.JSONDecoder(strict=False)  # line breaks inside strings


@dataclass(frozen=True)
class TextCall:
    """One call as it stands in a text."""

    name: str
    args: dict[str, Any] | None
    """None if they cannot be read."""
    source: str
    """What was written."""


def read_text_calls(
    text: str, tools: Sequence[Mapping[str, Any]]
) -> tuple[str, list[TextCall]] | None:
    """Return the text before the calls, and the calls; None if the text makes none.

    Args:
        text: Of a reply without tool calls.
        tools: Definitions of those that are offered, as providers are sent them.
    """
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    text = text.rstrip()
    while text.endswith(_SPECIAL):
        text = text[: text.rindex("<")].rstrip()
    start = _start_of_calls(text)
    if start is None:
        bare = _bare_calls(text, schemas)
        return ("", bare) if bare else None
    calls = _calls_to_the_end(text[start:], schemas)
    return None if calls is None else (text[:start].strip(), calls)


def _start_of_calls(text: str) -> int | None:
    """Return where the first mark of a call stands that is not quoted."""
    hidden = _QUOTED.sub(lambda found: " " * len(found[0]), text)
    found = _START.search(hidden)
    return found.start() if found else None


def _bare_calls(text: str, schemas: Mapping[str, Any]) -> list[TextCall]:
    """Return the calls of a text that is nothing but JSON, fenced or not, and names tools."""
    fenced = _FENCED.match(text)
    source = (fenced[1] if fenced else text).strip()
    if not source.startswith(("{", "[")):
        return []
    try:
        value, end = _DECODER.raw_decode(source)
    except _UNREADABLE:
        return []
    calls = _of_json(value, source) if not source[end:].strip() else None
    return calls if calls and all(call.name in schemas for call in calls) else []


def _calls_to_the_end(text: str, schemas: Mapping[str, Any]) -> list[TextCall] | None:
    """Read calls up to the end of a text; None if something else follows, or nothing was begun."""
    calls: list[TextCall] = []
    position = 0
    while position < len(text):
        if wrapper := _WRAPPER.match(text, position):
            position = wrapper.end()
            continue
        if text[position].isspace():
            position += 1
            continue
        found = _call_at(text, position, schemas)
        if found is None:
            return _broken(text[position:]) if not calls else None
        more, position = found
        calls += more
    return calls or None


def _call_at(
    text: str, position: int, schemas: Mapping[str, Any]
) -> tuple[list[TextCall], int] | None:
    """Return the calls that begin at a position, and where they end; None if there are none."""
    for form, end_tag in _ENDS.items():
        if found := form.match(text, position):
            following = form.search(text, found.end())
            rest = text[found.end() : following.start() if following else None]
            body = rest.rpartition(end_tag)[0] if end_tag in rest else rest
            end = found.end() + len(body) + (len(end_tag) if end_tag in rest else 0)
            call = _tagged(found[1], body, text[position:end], schemas)
            return ([call], end) if call else None
    if found := _KEYED.match(text, position):
        over = _KEYED_END.search(text, found.end())
        body, closed, _ = text[found.end() : over.start() if over else None].rpartition(
            "</arg_value>"
        )
        values = _values(_KEY, body, "</arg_value>")
        end = found.end() + len(body) + len(closed)
        call = TextCall(found[1], _typed(values, schemas.get(found[1])), text[position:end])
        return ([call], end) if values else None
    named = _NAMED.match(text, position)
    begin = named.end() if named else position
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except _UNREADABLE:
        return None
    source = text[position:end]
    if named:
        return [TextCall(named[1], _object_of(value), source)], end
    calls = _of_json(value, source)
    return (calls, end) if calls else None


def _tagged(name: str, body: str, source: str, schemas: Mapping[str, Any]) -> TextCall | None:
    """Read `<function=NAME>` or `<invoke name="NAME">`, with JSON or parameters in it."""
    if values := _values(_PARAMETER, body, "</parameter>"):
        return TextCall(name, _typed(values, schemas.get(name)), source)
    if body.strip():
        return TextCall(name, _object_of(body), source)
    return TextCall(name, {}, source) if name in schemas else None


def _values(opening: re.Pattern[str], body: str, end_tag: str) -> dict[str, str]:
    """Return what stands between tags, by name: each up to the last end before the next opening."""
    found = list(opening.finditer(body))
    values: dict[str, str] = {}
    for one, following in zip_longest(found, found[1:]):
        value = body[one.end() : following.start() if following else None]
        values[one[1].strip()] = value.rpartition(end_tag)[0] if end_tag in value else value
    return values


def _object_of(value: Any) -> dict[str, Any] | None:
    """Return a JSON object, given as it is or as its text; None if it is none."""
    if isinstance(value, str):
        try:
            value = _DECODER.decode(value.strip())
        except _UNREADABLE:
            return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _of_json(value: Any, source: str) -> list[TextCall] | None:
    """Read `{"name": ..., "arguments": {...}}`, or a list of such; None if it is neither."""
    if isinstance(value, list):
        each = [_of_json(one, source) for one in cast("list[Any]", value)]
        return [call for calls in each for call in calls or ()] if all(each) else None
    if not isinstance(value, dict):
        return None
    outer = cast("dict[str, Any]", value)
    said = _object_of(outer.get("function")) or outer
    name = said.get("name", said.get("tool"))
    key = next((key for key in _ARGUMENT_KEYS if key in said), None)
    if not isinstance(name, str) or key is None:
        return None
    args = _object_of(said[key])
    if args is not None and args.get("type") == "object":
        return None  # a tool's declaration
    return [TextCall(name, args, source)]


def _typed(values: Mapping[str, str], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return arguments that stand in tags: texts as they are, others as the schema wants them."""
    properties: Mapping[str, Mapping[str, Any]] = (schema or {}).get("properties", {})
    args: dict[str, Any] = {}
    for name, written in values.items():
        value = written.removeprefix("\n").removesuffix("\n")
        args[name] = value
        if name in properties and properties[name].get("type") != "string":
            try:
                args[name] = json.loads(value)
            except _UNREADABLE:
                continue
    return args


def _broken(text: str) -> list[TextCall] | None:
    """Return a call that was begun but cannot be read; None if the mark began none."""
    ends = [found.end() for found in _END.finditer(text)]
    if not _BEGUN.match(text) or (ends and text[ends[-1] :].strip()):
        return None
    name = re.search(r"\"name\"\s*:\s*\"([\w.-]+)|<function=([\w.-]+)|name=[\"']?([\w.-]+)", text)
    found = next(filter(None, name.groups()), "") if name else ""
    return [TextCall(found, None, text)]

"""Reads tool calls that a model wrote as text, in the forms that models were trained on. Pure.

A call counts only if nothing but calls follows it: an example that an answer quotes, in a code
block or in the middle of its text, is left alone.
"""

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

_TOKEN = r"<[|｜][^<>\n]{1,60}[|｜]>"
"""A special token that the server left in the text."""
_LINES_QUOTED = r"`[^`\n]+`|^(?:[ ]{4}|\t|[ ]{0,3}>)[^\n]*"
_QUOTED = re.compile(rf"(?:```|~~~).*?(?:```|~~~|\Z)|{_LINES_QUOTED}", re.DOTALL | re.MULTILINE)
"""Code, and lines that an answer quotes."""
_QUOTED_BEFORE_END = re.compile(
    rf"(?:```(?!json|xml|tool|function|\s)|(?!\A)```\s).*?(?:```|\Z)|{_LINES_QUOTED}",
    re.DOTALL | re.MULTILINE,
)
"""The same without code blocks that may hold a call."""
_START = re.compile(
    r"<(?:\w+:)?tool_calls?>|<TOOLCALL>|<[|｜]tool[^<>\n]{1,40}[|｜]>|<function_calls?>"
    r"|<function(?:=|\s+name=)|<invoke\s+name=|\[TOOL_CALLS\]|<\|python_tag\|>|\bfunctools(?=\[)",
    re.IGNORECASE,
)
_MARKED_LINE = re.compile(rf"^[ \t]*+(?:{_START.pattern})", re.IGNORECASE | re.MULTILINE)
_BEGUN = re.compile(
    r"\{\s*[\"']|\[\s*\{|<function(?:=|\s+name=)[\"']?[\w.-]+[\"']?>\s*\S|<invoke\s"
    r"|[\w.-]+\s*(?:\[ARGS\]|\{|<arg_key>)"
)
"""What follows the mark of a call, whole or broken."""
_END = re.compile(r"</(?:tool_calls?|function_calls?|function|invoke)>")
_WRAPPER = re.compile(
    r"\s*(?:</?(?:\w+:)?tool_calls?>|</?TOOLCALL>|</?function_calls?>|\[TOOL_CALLS\]|functools(?=\[)"
    rf"|function(?=<[|｜]tool)|{_TOKEN}|```(?:json)?(?=\s|\Z)|[;,])\s*",
    re.IGNORECASE,
)
_SPECIAL = re.compile(rf"(?:{_TOKEN}|</s>|</think>)\Z")
"""What models end a text with, where their server does not take it off."""
_FENCED = re.compile(
    r"\s*```(?:json|JSON|xml|tool_call|tool_code|function_call)?[ \t]*\r?\n(.*?)\n?```\s*\Z",
    re.DOTALL,
)
_FUNCTION = re.compile(r"<function(?:=|\s+name=)[\"']?([\w.-]+)[\"']?>")
_INVOKE = re.compile(r"<invoke\s+name=[\"']?([\w.-]+)[\"']?>")
_ENDS = {_FUNCTION: "</function>", _INVOKE: "</invoke>"}
_PARAMETER = re.compile(r"<parameter(?:=|\s+name=)[\"']?([\w.-]+)[\"']?>")
_KEYED = re.compile(r"([\w.-]+)\s*(?=<arg_key>)")
_KEYED_END = re.compile(r"</tool_call>\s*(?=<tool_call>|\Z)")
_KEY = re.compile(r"<arg_key>([^<]*)</arg_key>\s*<arg_value>")
_NAMED = re.compile(
    r"(?:functions\.)?([\w.-]+)(?::\d+)?+\s*+(?:\[CALL_ID\]\w+)?+"
    rf"(?:\[ARGS\]|{_TOKEN})?+\s*+(?:```(?:json)?\s)?+\s*+(?=\{{)"
)
_NAME_KEYS = ("name", "tool", "tool_name", "function", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
_UNREADABLE = (ValueError, RecursionError)
_DECODER = json.JSONDecoder(strict=False)  # line breaks inside strings
_PYTHON = re.compile(r"(?:\[\s*|print\(\s*)?[A-Za-z_]\w*\(")
_MOST_STARTS = 8
"""Lines that begin like JSON, at the end of a text, that are looked into."""
_OBSERVED = re.compile(r"\s*^Observation:?\s*\Z", re.MULTILINE)
_GAP_CHARS = 80
"""Between the name of a tool and the name of its first argument, in any form of a call."""
_LAST_CHARS = 4000
"""Of a text, in which a call may stand that cannot be read."""
_PROSE = re.compile(r"[^\W\d_]{2,} (?!Input:|name=)[^\W\d_]{2,}")


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
    schemas = _schemas(tools)
    text = _without_end_tokens(text)
    fenced = _FENCED.match(text)
    if fenced and _START.match(fenced[1]):
        text, fenced = fenced[1], None  # a block that is the whole text quotes nothing
    hidden = _QUOTED.sub(_blank, text)
    if found := _START.search(hidden):
        calls = _calls_to_the_end(text[found.start() :], schemas, marked=True)
        return None if calls is None else (text[: found.start()].strip(), calls)
    source = re.sub(_TOKEN, "", fenced[1] if fenced else text).strip()
    if bare := _bare_calls(source, schemas) or _python_calls(source, schemas):
        return "", bare
    for start in [found.start() for found in re.finditer(r"^\{", hidden, re.M)][-_MOST_STARTS:]:
        bare = _bare_calls(text[start:], schemas)
        if bare and all(_fits(call, schemas[call.name]) for call in bare):
            return text[:start].strip(), bare
    return None


def holds_unread_call(text: str, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a text in which no call was read seems to make one all the same.

    In whatever form: a line begins with the mark of a call, or the text ends with the name of a
    tool and, right behind it, the name of an argument of that tool.

    Args:
        text: Of a reply without tool calls.
        tools: As for `read_text_calls`.
    """
    schemas = _schemas(tools)
    text = _without_end_tokens(text)
    hidden = _QUOTED.sub(_blank, text)
    if _MARKED_LINE.search(hidden):
        return True
    if not schemas:
        return False
    if _names_tool(text, hidden, schemas):
        return True
    text = _OBSERVED.sub("", text)
    if not text.endswith(("}", "]", ")", ">", "```", "~~~")):
        return False
    end = _QUOTED_BEFORE_END.sub(_blank, text[-_LAST_CHARS:])
    names = "|".join(map(re.escape, schemas))
    return any(
        _names_argument(end[found.end() : found.end() + _GAP_CHARS], schemas[found[0]])
        for found in re.finditer(rf"(?<![\w-])(?:{names})(?![\w-])", end)
    )


def _names_tool(text: str, hidden: str, schemas: Mapping[str, Any]) -> bool:
    """Say whether a line begins with a tag or with JSON that names a tool, whatever follows it.

    JSON that is the whole text may name one that is not there, or be the arguments alone.
    """
    names = "|".join(map(re.escape, schemas))
    if re.search(rf"^<(?:{names}|execute_\w+)>", hidden, re.MULTILINE):
        return True
    fenced = _FENCED.match(text)
    source = (fenced[1] if fenced else text).strip()
    for start in [found.start() for found in re.finditer(r"^\{", source, re.MULTILINE)][:1]:
        try:
            value, end = _DECODER.raw_decode(source, start)
        except _UNREADABLE:
            return False
        whole, calls = not (start or source[end:].strip()), _of_json(value, source) or []
        if any(call.name in schemas and _fits(call, schemas[call.name]) for call in calls):
            return True
        if whole and isinstance(value, dict):
            given = cast("dict[str, Any]", value).keys()
            return {"name", "arguments"} == given or any(
                _takes(one, given) for one in schemas.values()
            )
    return False


def _takes(schema: Mapping[str, Any], given: Collection[str]) -> bool:
    """Say whether arguments are some of a tool's, and all that it requires."""
    required = set(schema.get("required", ()))
    return bool(given) and required <= set(given) <= schema.get("properties", {}).keys()


def _names_argument(text: str, schema: Mapping[str, Any]) -> bool:
    """Say whether a text names an argument in the way of a call, and no prose before it."""
    names = "|".join(map(re.escape, schema.get("properties", {})))
    found = (
        re.search(rf"(?<=[\W_])(?:{names})(?:[\"']?\s*[=:>]|[\"']\s|</)", text) if names else None
    )
    if found is None:
        return False
    gap = text[: found.start()]
    return not _PROSE.search(gap) and "properties" not in gap


def _schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}


def _without_end_tokens(text: str) -> str:
    text = text.strip("\ufeff \t\r\n")
    while found := _SPECIAL.search(text[-70:]):
        text = text[: len(text) - len(found[0])].rstrip()
    return text


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _bare_calls(source: str, schemas: Mapping[str, Any]) -> list[TextCall]:
    """Return the calls of a text that is nothing but JSON and names tools."""
    calls = _calls_to_the_end(source, schemas) if source.startswith(("{", "[")) else None
    return calls if calls and all(call.name in schemas for call in calls) else []


def _python_calls(source: str, schemas: Mapping[str, Any]) -> list[TextCall]:
    """Return the calls of a text that is nothing but Python calls of tools, or a list of them."""
    if not _PYTHON.match(source):
        return []
    try:
        body = ast.parse(source).body
        return [
            TextCall(name, dict(args), ast.get_source_segment(source, call) or source)
            for statement in body
            for call in _called(statement)
            for name, args in [_python_call(call, schemas)]
        ]
    except (SyntaxError, MemoryError, *_UNREADABLE):
        return []


def _called(statement: ast.stmt) -> Sequence[ast.expr]:
    """Return what a statement calls: alone, in a list or in `print`."""
    if not isinstance(statement, ast.Expr):
        raise ValueError("not an expression")
    value = statement.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "print":
        return value.args
    return value.elts if isinstance(value, ast.List) else [value]


def _python_call(
    call: ast.expr, schemas: Mapping[str, Any]
) -> tuple[str, Iterator[tuple[str, Any]]]:
    if not isinstance(call, ast.Call) or (name := ast.unparse(call.func)) not in schemas:
        raise ValueError("not a call of a tool")
    by_place = zip(schemas[name].get("properties", {}), call.args, strict=False)
    named = [*by_place, *((one.arg or "", one.value) for one in call.keywords)]
    return name, ((key, ast.literal_eval(value)) for key, value in named)


def _fits(call: TextCall, schema: Mapping[str, Any]) -> bool:
    """Say whether a call has arguments that its tool knows."""
    return call.args is not None and call.args.keys() <= schema.get("properties", {}).keys()


def _calls_to_the_end(
    text: str, schemas: Mapping[str, Any], *, marked: bool = False
) -> list[TextCall] | None:
    """Read calls up to the end of a text; None if something else follows, or nothing was begun.

    Args:
        text: Begins with the first.
        schemas: Of the tools' arguments.
        marked: Whether a mark says that it is a call, also where it cannot be read.
    """
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
            return _broken(text[position:]) if marked and not calls else None
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
    if isinstance(outer.get("tool_calls"), list):
        return _of_json(outer["tool_calls"], source)
    said = _object_of(outer.get("function")) or outer
    name = next((said[key] for key in _NAME_KEYS if isinstance(said.get(key), str)), None)
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

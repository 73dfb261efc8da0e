"""The forms in which models write tool calls as text, and how each is read. Pure.

A form is its opening, where a call begins, and the function that reads the call from there.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from openmanus_graph.conversation.loose_json import LITERALS, UNREADABLE, object_of, read_json

TOKEN = r"<[|｜][^<>\n]{1,60}[|｜]>"
"""A special token that the server left in the text."""
_BARS = r"[|｜‖︱]{1,2}"
_SPACE_NAME = rf"(?:\s*+{_BARS}\s*+DSML\s*+{_BARS}\s*+(?:r:)?|\s*+\w{{1,20}}:)?"
"""Before the name of a tag: DeepSeek's mark in all spellings, or `minimax:` and similar."""
_NAME = r"[\"'“”]?([\w.:-]+)[\"'“”]?"
_LABEL = r"(?::[\w-]+)?"
_LISTS = (
    rf"<\s*+/?{_SPACE_NAME}(?:tool_?calls?|function_calls?|calls|tool_use|longcat_tool_call)"
    rf"{_LABEL}(?:\[\])?\s*(?:>|\|(?!>))"
)
_GEMMA = (
    r"<\|tool_call>|<tool_call\|>|<(?:start|end)_function_call>|<ctrl42>(?:call\b(?!:))?|<turn\|>"
)
_HARMONY = (
    r"(?:<\|start\|>)?(?:assistant)?\s*+(?:<\|channel\|>)?\s*+(?:analysis|commentary)?\s*+to="
    r"(?:functions\.|tools\.)?([\w.-]+)(?:\s|\?|=|<\|channel\|>|<\|constrain\|>|<\|message\|>"
    r"|commentary|analysis|json|code)*+(?=\{)"
)
_INVOKE = rf"<{_SPACE_NAME}(?:invoke|function)(?:=|\s+name\s*=\s*){_NAME}\s*[>|]"
START = re.compile(
    rf"{_LISTS}|{_INVOKE}|<function(?:=|\s+name=)|<invoke\s+name=|{_GEMMA}|\[TOOL_CALLS\]"
    r"|<[|｜]tool[^<>\n]{1,40}[|｜]>|<\|(?:python_tag|python_start|action_start|START_ACTION)\|>"
    r"|<\|open\|>(?:tools<|call\s)|\bfunctools(?=\[)|^[ \t]*+call:(?:[\w-]+:)?[\w.-]+\{"
    r"|(?:<\|(?:start|channel)\|>(?:assistant)?\s*+(?:<\|channel\|>)?(?:commentary|analysis)?"
    r"|(?:\A|assistant)(?:commentary|analysis))\s*+to=|\Ato=functions\.",
    re.IGNORECASE | re.MULTILINE,
)
"""What shows that a call begins."""
_TOKENS = (
    rf"<[|｜]/?(?:tool|python_|action_|plugin|constrain|content_invoke|(?:START|END)_ACTION)"
    rf"[^<>\n]{{0,40}}>|<\|open\|>(?:tools|call)|<\s*+/?\s*+{_BARS}\s*+DSML\s*+{_BARS}|{_GEMMA}|</?\w+_tool_call>"
    rf"|</?(?:seed|minimax):tool_call>|</?steptml:|\]<\]minimax\[>\[|<ctrl46>|<\|\"\|>|\[TOOL_CALLS\]"
    r"|\[ARGS\]|<end_of_tool_call|<tool_sep|\bto=functions\.|</?\w*arg_(?:key|value)>"
)
_MENTIONED = rf"(?:(?<=[\w,] )|(?<=[\"'“(]))(?:{_TOKENS})(?:[,.;:)\"'”]| [^\W\d_])"
CALL_TOKEN = re.compile(rf"(?!{_MENTIONED})(?:{_TOKENS})", re.IGNORECASE)
"""What is only written for a call, unless a sentence mentions it."""
BEGUN = re.compile(
    rf"(?i)\{{\s*[\"'{{\w]|\[\s*\{{|{_INVOKE}\s*\S|<invoke\s|(?:call:|\[\s*)?[\w.-]+\s*"
    rf"(?:\[ARGS\]|\{{|\(|<arg_key>|<tool_sep)|[^\n]{{0,60}}\bto="
)
"""What follows the mark of a call, whole or broken."""
NAMED_IN = re.compile(
    r"(?:\A[^\n]{0,60}\bto=(?:functions\.)?|\"name\"\s*:\s*\"|<function=|name=[\"'“]?"
    r"|\bcall:(?:default_api:)?|\A\[?)([\w.-]+)"
)
"""Where an unreadable call has its name."""
_WRAPPER = (
    rf"{_LISTS}|</?TOOLCALL>|<end_of_tool_call{_LABEL}>|\[TOOL_CALLS\]|functools(?=\[)|{_GEMMA}"
    rf"|tools(?=<\|sep\|>|\Z)|function(?=<[|｜]tool)|{TOKEN}|```(?:json|tool_code)?(?=\s|\Z)|[;,]"
)
_WRAPPERS = re.compile(rf"(?:\s|{_WRAPPER})*+", re.IGNORECASE)
"""What occurs before, between and after calls."""
_PREFIX = r"(?:functions\.|tools\.|default_api[.:])?"
_NAMED = (
    rf"(?:call:(?:[\w-]+:)?)?{_PREFIX}([\w.-]+)(?::\d+)?+\s*+(?:\[CALL_ID\]\w+)?+"
    rf"(?:\[ARGS\]|{TOKEN}|<tool_sep{_LABEL}>)?+\s*+(?:```(?:json)?\s)?+\s*+(?=\{{)"
)
PYTHON = re.compile(rf"(?:\[\s*|print\(\s*)?{_PREFIX}[A-Za-z_][\w.]*\(")
_PYTHON_PIECE = re.compile(
    r"(?s)\"\"\"(?:[^\\]|\\.)*?(?:\"\"\"|\\?\Z)|'''(?:[^\\]|\\.)*?(?:'''|\\?\Z)"
    r"|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|[()\[\]{}]"
)
NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
Schemas = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class TextCall:
    name: str
    args: dict[str, Any] | None
    """None if they cannot be read."""
    source: str


Found = tuple[list[TextCall], int]


def _closing(
    tag: re.Pattern[str], following: re.Pattern[str], text: str, position: int
) -> re.Match[str] | None:
    """Return the tag that ends a value: a further part, or the end of the text, follows it."""
    while found := tag.search(text, position):
        position = behind_wrappers(text, found.end())
        begins = (following.match(text, place) for place in (position, found.end()))
        if position == len(text) or any(begins):
            return found
    return None


class _Tags:
    """A form with each argument between tags."""

    def __init__(self, opening: str, parameter: str, value_end: str, end: str) -> None:
        self.opening = re.compile(opening)
        self.parameter = re.compile(parameter)
        self.value_end = re.compile(value_end, re.IGNORECASE)
        self.end = re.compile(end, re.IGNORECASE)

    def read(self, found: re.Match[str], text: str, schemas: Schemas) -> Found | None:
        over = _closing(self.end, self.opening, text, found.end())
        following = None if over else self.opening.search(text, found.end())
        end = over.end() if over else following.start() if following else len(text)
        body = text[found.end() : over.start() if over else end].lstrip()
        name = _known(found[1], schemas)
        if (first := self.parameter.match(body)) is not None:
            args = self._values(body, first, schemas.get(name, {}), is_ended=bool(over))
        elif body:
            try:
                value, stop = read_json(body, behind_wrappers(body, 0))
            except UNREADABLE:
                value, stop = None, 0
            args = object_of(value) if behind_wrappers(body, stop) == len(body) else None
        elif name in schemas:
            args = {}
        else:
            return None
        return [TextCall(name, args, text[found.start() : end])], end

    def _values(
        self, body: str, found: re.Match[str], schema: Mapping[str, Any], *, is_ended: bool
    ) -> dict[str, Any] | None:
        """Return the arguments; None if the last value breaks off."""
        args: dict[str, Any] = {}
        following: re.Match[str] | None = found
        while (one := following) is not None:
            closed = _closing(self.value_end, self.parameter, body, one.end())
            following = self.parameter.search(body, closed.end() if closed else one.end())
            if closed is None and following is None and not is_ended:
                return None
            stop = closed.start() if closed else following.start() if following else len(body)
            name, kind = one[1].strip(), one.groupdict().get("kind")
            args[name] = _typed(
                body[one.end() : stop], kind, schema.get("properties", {}).get(name)
            )
        return args


def _typed(written: str, kind: str | None, schema: Mapping[str, Any] | None) -> Any:
    """Return a value between tags, with the type of its tag, or else of the schema."""
    if kind in ("true", "string"):
        return written
    value = written.removeprefix("\n").removesuffix("\n")
    if value.startswith("<![CDATA[") and value.endswith("]]>"):
        return value[9:-3]
    if kind or (schema is not None and schema.get("type") != "string"):
        try:
            read, end = read_json(value.strip())
        except UNREADABLE:
            return value
        return read if end == len(value.strip()) else value
    return value


def _read_named(found: re.Match[str], text: str, schemas: Schemas) -> Found | None:
    value, end = read_json(text, found.end())
    return [TextCall(_known(found[1], schemas), object_of(value), text[found.start() : end])], end


def _read_json(found: re.Match[str], text: str, schemas: Schemas) -> Found | None:
    value, end = read_json(text, found.start())
    calls = calls_of_json(value, text[found.start() : end])
    return (calls, end) if calls else None


def calls_of_json(value: Any, source: str) -> list[TextCall] | None:
    """Read `{"name": ..., "arguments": {...}}`, or a list of such; None for others."""
    if isinstance(value, list):
        each = [calls_of_json(one, source) for one in cast("list[Any]", value)]
        return [call for calls in each for call in calls or ()] if all(each) else None
    if not isinstance(value, dict):
        return None
    outer = cast("dict[str, Any]", value)
    if isinstance(outer.get("tool_calls"), list):
        return calls_of_json(outer["tool_calls"], source)
    said = object_of(outer.get("function")) or outer
    name = next((said[key] for key in NAME_KEYS if isinstance(said.get(key), str)), None)
    key = next((key for key in _ARGUMENT_KEYS if key in said), None)
    if not isinstance(name, str) or key is None:
        return None
    args = object_of(said[key])
    if args is not None and args.get("type") == "object":
        return None  # a tool's declaration
    return [TextCall(name, args, source)]


def _read_python(found: re.Match[str], text: str, schemas: Schemas) -> Found | None:
    depth, end = 0, 0
    for piece in _PYTHON_PIECE.finditer(text, found.start()):
        depth += (piece[0] in "([{") - (piece[0] in ")]}")
        if depth == 0:
            end = piece.end()
            break
    if not end:
        return None
    source = text[found.start() : end]
    # A string in single quotation marks must not have a line break.
    lines = _PYTHON_PIECE.sub(
        lambda one: one[0] if one[0][:3] in ('"""', "'''") else one[0].replace("\n", "\\n"), source
    )
    statement = ast.parse(lines).body[0]
    value = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "print":
        made: Sequence[ast.expr] = value.args
    else:
        made = value.elts if isinstance(value, ast.List) else [value] if value else []
    calls = [_python_call(one, schemas, lines) for one in made]
    return [one if lines == source else replace(one, source=source) for one in calls], end


def _python_call(call: ast.expr, schemas: Schemas, source: str) -> TextCall:
    if not isinstance(call, ast.Call):
        raise ValueError("not a call")
    written = re.sub(rf"\A{_PREFIX}|\.call\Z", "", ast.unparse(call.func))
    name = _known(written, schemas)
    properties = schemas.get(name, {}).get("properties", {})
    values = [_python_value(one) for one in call.args]
    if len(values) == 1 and isinstance(values[0], dict) and values[0].keys() <= properties.keys():
        args = cast("dict[str, Any]", values[0])
    else:
        args = dict(zip(properties, values, strict=False))
    args |= {one.arg or "": _python_value(one.value) for one in call.keywords}
    return TextCall(name, args, ast.get_source_segment(source, call) or source)


class _Literals(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = node.id.lower()
        return ast.Constant(LITERALS[name]) if name in LITERALS else node


def _python_value(node: ast.expr) -> Any:
    """Return a value as JSON has it. TypeError or ValueError if it has none, such as a set."""
    return json.loads(json.dumps(ast.literal_eval(_Literals().visit(node))))


_XML = _Tags(
    _INVOKE,
    rf"<{_SPACE_NAME}param(?:eter)?(?:=|\s+name\s*=\s*){_NAME}"
    r"(?:\s+(?:string|type)\s*=\s*[\"'“”]?(?P<kind>\w+)[\"'“”]?)?\s*>",
    rf"<\s*/{_SPACE_NAME}param(?:eter)?\s*>",
    rf"<\s*/{_SPACE_NAME}(?:invoke|function)\s*>",
)
_KEYED = _Tags(  # GLM, LongCat, Hunyuan
    rf"(?<![\w.-])([\w.-]++)\s*+(?:<tool_sep{_LABEL}>\s*+)?(?=<(?:longcat_)?arg_key)",
    rf"<(?:longcat_)?arg_key{_LABEL}>([^<]*)</(?:longcat_)?arg_key{_LABEL}>(?:\s|\\n)*"
    rf"<(?:longcat_)?arg_value{_LABEL}>",
    rf"</(?:longcat_)?arg_value{_LABEL}>(?:\\n)?",
    rf"(?:</(?:longcat_)?tool_call{_LABEL}>|<end_of_tool_call{_LABEL}>)",
)
_KIMI = _Tags(
    r"(?:<\|open\|>)?call\s+tool=\"([\w.-]+)\"[^<>\n]*<\|sep\|>",
    r"<\|open\|>argument\s+key=\"([^\"<>\n]+)\"(?:\s+type=\"(?P<kind>\w+)\")?\s*<\|sep\|>",
    r"<\|close\|>argument<\|sep\|>",
    r"<\|close\|>call(?:<\|sep\|>|\Z)",
)


def _read_name(found: re.Match[str], text: str, schemas: Schemas) -> Found | None:
    """Read a tool's name alone: a call without arguments, if it needs none."""
    schema = schemas.get(found[1])
    if schema is None or schema.get("required"):
        return None
    return [TextCall(found[1], {}, found[0])], found.end()


Reader = Callable[[re.Match[str], str, Schemas], Found | None]
FORMS: Sequence[tuple[re.Pattern[str], Reader]] = (
    *((tags.opening, tags.read) for tags in (_XML, _KEYED, _KIMI)),
    (re.compile(_HARMONY), _read_named),
    (re.compile(_NAMED), _read_named),
    (PYTHON, _read_python),
    (re.compile(r"[{\[]"), _read_json),
    (re.compile(rf"([\w.-]+)\s*(?=</(?:\w+_)?tool_call{_LABEL}>\s*\Z)"), _read_name),
)
"""How a call begins in each form, and what reads it from there. The first that can counts."""


def behind_wrappers(text: str, position: int) -> int:
    """Return where the next call begins, after the marks of calls at a position."""
    found = _WRAPPERS.match(text, position)
    return found.end() if found else position


def call_at(text: str, position: int, schemas: Schemas) -> Found | None:
    """Return the calls that begin at a position, and where they end; None if there are none."""
    for opening, read in FORMS:
        if found := opening.match(text, position):
            try:
                made = read(found, text, schemas)
            except (SyntaxError, MemoryError, TypeError, *UNREADABLE):
                continue
            if made:
                return made
    return None


def _known(name: str, schemas: Schemas) -> str:
    """Return a tool's name without what a server joined to it when it removed special tokens."""
    if name in schemas:
        return name
    bare = re.sub(r"\A(?:functions|tools|default_api)[.:]", "", name)
    ends = (bare.removesuffix(end) for end in ("", "json", "code", "commentary"))
    return next((one for one in ends if one in schemas), bare)

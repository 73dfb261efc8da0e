"""Reads tool calls that a model wrote as text, in the forms that models were trained on. Pure.

A call counts only if nothing but calls follows it. Examples that an answer quotes, in a code block
or in the middle of its text, are ignored.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from openmanus_graph.conversation.call_forms import (
    BEGUN,
    CALL_TOKEN,
    NAME_KEYS,
    NAMED_IN,
    PYTHON,
    START,
    TOKEN,
    Schemas,
    TextCall,
    behind_wrappers,
    call_at,
    calls_of_json,
)
from openmanus_graph.conversation.loose_json import UNREADABLE, read_json

_LINES_QUOTED = r"`[^`\n]+`|^(?:[ ]{4}|\t|[ ]{0,3}>)[^\n]*"
_QUOTED = re.compile(rf"(?:```|~~~).*?(?:```|~~~|\Z)|{_LINES_QUOTED}", re.DOTALL | re.MULTILINE)
_QUOTED_BEFORE_END = re.compile(
    rf"(?ms)(?:```(?!json|xml|tool|function|\s)|(?!\A)```\s).*?(?:```|\Z)|{_LINES_QUOTED}"
)
"""The same without code blocks that may contain a call."""
_MARKED_LINE = re.compile(rf"^[ \t]*+(?:{START.pattern})", re.IGNORECASE | re.MULTILINE)
_END = re.compile(r"</(?:tool_calls?|function_calls?|function|invoke)>")
_SPECIAL = re.compile(rf"(?:{TOKEN}|<turn\|>|</s>|</think>)\Z")
"""What models end a text with, if their server does not remove it."""
_FENCED = re.compile(
    r"(?s)\s*```(?:json|JSON|xml|tool_call|tool_code|function_call)?[ \t]*\r?\n(.*?)\n?```\s*\Z"
)
_CALL_FENCE = re.compile(
    r"(?ms)^```(?:tool_code|tool_call|function_call)[ \t]*\r?\n((?:(?!```).)*+)```\s*+\Z"
)
"""A code block that is marked as a call, at the end of a text."""
_MOST_CALLS = 128
_MOST_STARTS = 8
"""Lines that begin like JSON, at the end of a text, that are tried."""
_OBSERVED = re.compile(r"(?<!\s)\s*+^Observation:?\s*+\Z", re.MULTILINE)
_GAP_CHARS = 80
"""Between the name of a tool and the name of its first argument, in any form of a call."""
_LAST_CHARS = 4000
"""Characters at the end of a text in which an unreadable call is looked for."""
_PROSE = re.compile(r"[^\W\d_]{2,} (?!Input:|name=)[^\W\d_]{2,}")


def read_text_calls(
    text: str, tools: Sequence[Mapping[str, Any]]
) -> tuple[str, list[TextCall]] | None:
    """Return the text before the calls, and the calls; None if the text makes none.

    `tools` has the definitions of the offered tools, as providers receive them.
    """
    schemas = _schemas(tools)
    text = _without_end_tokens(text)
    fenced = _FENCED.match(text)
    if fenced and START.match(fenced[1]):
        text, fenced = fenced[1], None  # a block that is the whole text quotes nothing
    hidden = _QUOTED.sub(_blank, text)
    found = START.search(hidden)
    if found or (not fenced and (found := _CALL_FENCE.search(text))):
        begun = text[found.start() :] if found.re is START else found[1]
        calls = _calls_to_the_end(begun, schemas, marked=True)
        return None if calls is None else (text[: found.start()].strip(), calls)
    source = re.sub(TOKEN, "", fenced[1] if fenced else text).strip()
    if bare := _bare_calls(source, schemas):
        return "", bare
    for start in [found.start() for found in re.finditer(r"^\{", hidden, re.M)][-_MOST_STARTS:]:
        bare = _bare_calls(text[start:], schemas)
        if bare and all(_fits(call, schemas[call.name]) for call in bare):
            return text[:start].strip(), bare
    return None


def holds_unread_call(text: str, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a text in which no call was read seems to make one.

    A line begins with the mark of a call, a call's special token occurs anywhere, or the text ends
    with the name of a tool followed by the name of one of its arguments.
    """
    schemas = _schemas(tools)
    if CALL_TOKEN.search(_QUOTED.sub(_blank, text)):
        return True
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
    """Return True if a line begins with a tag or with JSON that names a tool, whatever follows it.

    JSON that is the whole text may name a tool that does not exist, or be only the arguments.
    """
    names = "|".join(map(re.escape, schemas))
    if re.search(rf"^<(?:{names}|execute_\w+)>", hidden, re.MULTILINE):
        return True
    fenced = _FENCED.match(text)
    source = (fenced[1] if fenced else text).strip()
    for start in [found.start() for found in re.finditer(r"^\{", source, re.MULTILINE)][:1]:
        try:
            value, end = read_json(source, start)
        except UNREADABLE:
            named = rf"[\s{{\[]*+[\"']?(?:{'|'.join(NAME_KEYS)})[\"']?\s*:\s*[\"'](?:{names})[\"']"
            return re.match(named, source) is not None
        whole, calls = not (start or source[end:].strip()), calls_of_json(value, source) or []
        if any(call.name in schemas and _fits(call, schemas[call.name]) for call in calls):
            return True
        if whole and isinstance(value, dict):
            given = cast("dict[str, Any]", value).keys()
            return {"name", "arguments"} == given or any(
                given and set(one.get("required", ())) <= given <= one.get("properties", {}).keys()
                for one in schemas.values()
            )
    return False


def _names_argument(text: str, schema: Mapping[str, Any]) -> bool:
    """Return True if a text names an argument as a call does, without prose before it."""
    names = "|".join(map(re.escape, schema.get("properties", {})))
    found = (
        re.search(rf"(?<=[\W_])(?:{names})(?:[\"']?\s*[=:>]|[\"']\s|</)", text) if names else None
    )
    if found is None:
        return False
    gap = text[: found.start()]
    return not _PROSE.search(gap) and "properties" not in gap


def _schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    own = (tool["function"] for tool in tools if "function" in tool)  # not a provider's own
    return {one["name"]: one.get("parameters", {}) for one in own}


def _without_end_tokens(text: str) -> str:
    text = text.strip("\ufeff \t\r\n")
    while found := _SPECIAL.search(text[-70:]):
        text = text[: len(text) - len(found[0])].rstrip()
    return text


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _bare_calls(source: str, schemas: Schemas) -> list[TextCall]:
    """Return the calls of a text that is only JSON or Python, and names tools."""
    if not (source.startswith(("{", "[")) or PYTHON.match(source)):
        return []
    calls = _calls_to_the_end(source, schemas)
    return calls if calls and all(call.name in schemas for call in calls) else []


def _fits(call: TextCall, schema: Mapping[str, Any]) -> bool:
    return call.args is not None and call.args.keys() <= schema.get("properties", {}).keys()


def _calls_to_the_end(
    text: str, schemas: Mapping[str, Any], *, marked: bool = False
) -> list[TextCall] | None:
    """Read calls to the end of a text; None if something else follows, or no call was begun.

    If it is `marked` as a call, a text that cannot be read is a broken call.
    """
    calls: list[TextCall] = []
    position = behind_wrappers(text, 0)
    while position < len(text) and len(calls) < _MOST_CALLS:
        found = call_at(text, position, schemas)
        if found is None:
            return _broken(text[position:]) if marked and not calls else None
        more, position = found
        calls += more
        position = behind_wrappers(text, position)
    return calls if calls and position == len(text) else None


def _broken(text: str) -> list[TextCall] | None:
    """Return a call that was begun but cannot be read; None if none was begun."""
    ends = [found.end() for found in _END.finditer(text)]
    if not BEGUN.match(text) or (ends and text[ends[-1] :].strip()):
        return None
    name = NAMED_IN.search(text)
    return [TextCall(name[1] if name else "", None, text)]

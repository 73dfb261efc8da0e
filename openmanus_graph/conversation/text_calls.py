"""Reads the tool calls and the thoughts that a server left in the text of a reply. Pure.

A call counts only if nothing but calls follows it. Examples that an answer quotes, in a code block
or in the middle of its text, are ignored. So are marks of thoughts that a text mentions.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, cast

from openmanus_graph.conversation import call_forms
from openmanus_graph.conversation.loose_json import UNREADABLE, read_json

_LINES_QUOTED = r"`[^`\n]+`|^(?:[ ]{4}|\t|[ ]{0,3}>)[^\n]*"
_QUOTED = re.compile(rf"(?:```|~~~).*?(?:```|~~~|\Z)|{_LINES_QUOTED}", re.DOTALL | re.MULTILINE)
_QUOTED_BEFORE_END = re.compile(
    rf"(?ms)(?:```(?!json|xml|tool|function|\s)|(?!\A)```\s).*?(?:```|\Z)|{_LINES_QUOTED}"
)
"""The same without code blocks that may contain a call."""
_MARKED_LINE = re.compile(rf"^[ \t]*+(?:{call_forms.START.pattern})", re.IGNORECASE | re.MULTILINE)
_END = re.compile(r"</(?:tool_calls?|function_calls?|function|invoke)>")
_SPECIAL = re.compile(rf"(?:{call_forms.TOKEN}|<turn\|>|</s>|</think>)\Z")
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
) -> tuple[str, list[call_forms.TextCall]] | None:
    """Return the text before the calls, and the calls; None if the text makes none.

    `tools` has the definitions of the offered tools, as providers receive them.
    """
    schemas = _schemas(tools)
    text = _without_end_tokens(text)
    fenced = _FENCED.match(text)
    if fenced and call_forms.START.match(fenced[1]):
        text, fenced = fenced[1], None  # a block that is the whole text quotes nothing
    hidden = _QUOTED.sub(_blank, text)
    found = call_forms.START.search(hidden)
    if found or (not fenced and (found := _CALL_FENCE.search(text))):
        begun = text[found.start() :] if found.re is call_forms.START else found[1]
        calls = _calls_to_the_end(begun, schemas, marked=True)
        return None if calls is None else (text[: found.start()].strip(), calls)
    source = re.sub(call_forms.TOKEN, "", fenced[1] if fenced else text).strip()
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
    if call_forms.CALL_TOKEN.search(_QUOTED.sub(_blank, text)):
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
            keys = "|".join(call_forms.NAME_KEYS)
            named = rf"[\s{{\[]*+[\"']?(?:{keys})[\"']?\s*:\s*[\"'](?:{names})[\"']"
            return re.match(named, source) is not None
        whole, calls = (
            not (start or source[end:].strip()),
            call_forms.calls_of_json(value, source) or [],
        )
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


def _bare_calls(source: str, schemas: call_forms.Schemas) -> list[call_forms.TextCall]:
    """Return the calls of a text that is only JSON or Python, and names tools."""
    if not (source.startswith(("{", "[")) or call_forms.PYTHON.match(source)):
        return []
    calls = _calls_to_the_end(source, schemas)
    return calls if calls and all(call.name in schemas for call in calls) else []


def _fits(call: call_forms.TextCall, schema: Mapping[str, Any]) -> bool:
    return call.args is not None and call.args.keys() <= schema.get("properties", {}).keys()


def _calls_to_the_end(
    text: str, schemas: Mapping[str, Any], *, marked: bool = False
) -> list[call_forms.TextCall] | None:
    """Read calls to the end of a text; None if there are none, or something else follows."""
    calls: list[call_forms.TextCall] = []
    position = call_forms.behind_wrappers(text, 0)
    while position < len(text) and len(calls) < _MOST_CALLS:
        found = call_forms.call_at(text, position, schemas)
        if found is None:
            return _broken(text[position:]) if marked and not calls else None
        more, position = found
        calls += more
        position = call_forms.behind_wrappers(text, position)
    return calls if calls and position == len(text) else None


def _broken(text: str) -> list[call_forms.TextCall] | None:
    """Return a call that was begun but cannot be read; None if none was begun."""
    ends = [found.end() for found in _END.finditer(text)]
    if not call_forms.BEGUN.match(text) or (ends and text[ends[-1] :].strip()):
        return None
    name = call_forms.NAMED_IN.search(text)
    return [call_forms.TextCall(name[1] if name else "", None, text)]


_TAG = r"(?:\w+:)?(?:think|thinking|thought|reasoning|reflection|longcat_think)(?::[\w-]+)?>"
_LONE = [
    (rf"<{_TAG}", rf"</{_TAG}"),
    (r"\[THINK\]", r"\[/THINK\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    (r"<\|open\|>think<\|sep\|>", r"<\|close\|>think<\|sep\|>"),
    (r"<\|channel>thought\b", r"<channel\|>"),
]
"""How thoughts begin and end. If the prompt contains the beginning, only the end is in the text."""
_FORMS = [
    *_LONE,
    (r"<\|channel\|>analysis(?:<\|constrain\|>\w+)?<\|message\|>", r"<\|end\|>|(?=<\|start\|>)"),
    (r"<\|content_thinking\|>", r"<\|end_message\|>"),
    # Of words, which are a thought only if it ends.
    (r"\A\s*Here(?:'s| is) my thought process:", r"Here(?:'s| is) my response:"),
    (r"\A\s*(?:assistant)?analysis(?=[^\W_])", r"assistantfinal|assistant(?=commentary)"),
]
_OF_MARKS = len(_FORMS) - 2
_OPENING = re.compile("|".join(f"(?P<f{n}>{form[0]})" for n, form in enumerate(_FORMS)))
_CLOSINGS = [re.compile(form[1]) for form in _FORMS]
_FIRST = re.compile(rf"\s*(?:<\|(?:start\|>assistant|message_model\|>))?(?:{_OPENING.pattern})")
_ANY_CLOSING = re.compile("|".join(form[1] for form in _FORMS))
_MARK_CHARS = 120
"""Of the marks between a thought and what is said, which come in pieces."""
_MAY_BE_MARK = re.compile(r"\s*(?:[<\[◁]\S{0,60})?")
"""What may become a mark with the next pieces."""
_CLOSING_ALONE = re.compile("|".join(form[1] for form in _LONE))
_MOST_MARKS = 128
_CODE = re.compile(r"(```|~~~).*?\1|`[^`\n]+`", re.DOTALL)
_BEFORE = re.compile(r"^\s*(?:<\|(?:start\|>assistant|message_model\|>))?\Z")
_SPOKEN_OF = re.compile(
    r"[,.;:)]| +(?:is|are|was|and|or|tags?|tokens?|blocks?|means|marks?|denotes|begins?|opens?"
    r"|ends?|closes?|wraps|ist|und|bedeutet|est|et|signifie|es|y|significa|è|e)\b"
    r"|\s*(?:标签|表示|和|用于|タグ|は)"
)
"""After a mark that a sentence mentions."""
_SHELL = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>(?:final|commentary)\s*(?:<\|constrain\|>\w+)?<\|message\|>"
    r"|<\|channel>(?:final|content)\s|<\|(?:START|END)_(?:RESPONSE|TEXT)\|>|<\|end\|>|<\|return\|>"
    r"|<\|(?:open|close)\|>response<\|sep\|>|<\|message_model\|>|<\|content_text\|>|<\|end_message\|>"
)
"""Special tokens around what is said, if the server left them in the text."""
_ANSWER = re.compile(r"<(answer|response)>(.*)</\1>", re.DOTALL)


def split_thoughts(text: str) -> tuple[str, str]:
    """Return the thoughts of a text, and what it says: without thoughts all of it, unchanged.

    Without an opening mark, everything before the closing one is a thought. Without a closing mark,
    everything after the opening one is, up to a call on a separate line.
    """
    hidden = _CODE.sub(lambda code: " " * len(code[0]), text)
    thoughts: list[str] = []
    said, position = "", 0
    for opening in islice(_OPENING.finditer(hidden), _MOST_MARKS):
        if opening.start() < position or _is_mentioned(text, opening):
            continue
        before = said + text[position : opening.start()]
        first = _BEFORE.match(before) is not None
        shown = before.rstrip().endswith((":", "："))
        if not (first or (before.rstrip(" \t").endswith("\n") and not shown)):
            continue
        span = _thought(text, opening, may_break_off=first)
        if span is not None:
            said = "" if first else before
            thoughts.append(text[opening.end() : span[0]])
            position = span[1]
    alone = None if thoughts or _OPENING.search(hidden) else _closing_alone(text, hidden)
    if alone is not None:
        thoughts, position = [text[: alone.start()]], alone.end()
    said = said + text[position:] if thoughts else text
    if _SHELL.match(said.lstrip()):
        said = _SHELL.sub("\n", said).strip()
    if thoughts:
        said = re.sub(r"\A(?:\s*</\w+>)+|</(?:think|thinking)>\s*\Z", "", said).strip()
        answer = _ANSWER.fullmatch(said)
        said = answer[2].strip() if answer else said
    return "\n\n".join(filter(None, (thought.strip() for thought in thoughts))), said


def _thought(text: str, opening: re.Match[str], *, may_break_off: bool) -> tuple[int, int] | None:
    """Return where a thought ends, and where the text after it begins; None if it is none."""
    form = int(str(opening.lastgroup)[1:])
    closings = list(islice(_CLOSINGS[form].finditer(text, opening.end()), _MOST_MARKS))
    unquoted = (one for one in closings if not _is_quoted_mark(text, one))
    closing = next((one for one in closings if not _is_mentioned(text, one)), next(unquoted, None))
    if closing is not None:
        return closing.span()
    if not may_break_off or form >= _OF_MARKS:
        return None
    calls = (one.start() for one in call_forms.START.finditer(text, opening.end()))
    end = next((start for start in calls if text[start - 1] == "\n"), len(text))
    return end, end


def _closing_alone(text: str, hidden: str) -> re.Match[str] | None:
    if text.lstrip().startswith("{"):
        return None  # a thought is not JSON
    closings = islice(_CLOSING_ALONE.finditer(hidden), _MOST_MARKS)
    return next((one for one in closings if not _is_mentioned(text, one)), None)


def _is_quoted_mark(text: str, mark: re.Match[str]) -> bool:
    start = mark.start()
    return start > 0 and text[start - 1] in "`\"'“„«("


def _is_mentioned(text: str, mark: re.Match[str]) -> bool:
    """Return True if a mark is between quotation marks, or in a sentence."""
    if _is_quoted_mark(text, mark) or _SPOKEN_OF.match(text, mark.end()):
        return True
    before, behind = text[max(0, mark.start() - 2) : mark.start()], text[mark.end() :][:2]
    inside = before[1:] == " " and (before[0].isalnum() or before[0] == ",")
    return inside and behind[:1] == " " and behind[1:].islower()


class SaidStream:
    """Passes on only what is said of a text that comes in pieces, as far as that is known.

    A thought without an opening mark is shown until the whole reply replaces it.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_blank = True
        self._says = False
        self._tries = 0
        self.thought = ""
        """What the newest piece adds to a thought in the text."""
        self._thinks = False

    def add(self, piece: str) -> str:
        self.thought = ""
        if self._says:
            return piece
        self._held += piece
        self._is_blank &= not piece.strip()
        if self._is_blank:  # some models send blanks without end
            return ""
        said = self._held
        if opening := _FIRST.match(said):
            self.thought = piece if self._thinks else said[opening.end() :]
            self._thinks = True
            newest = max(0, len(said) - len(piece) - _MARK_CHARS)
            if self._tries == _MOST_MARKS or not _ANY_CLOSING.search(said, newest):
                return ""
            self._tries += 1
            said = split_thoughts(said)[1]
            if said != self._held and _FIRST.match(said):
                return ""
            said += self._held[len(self._held.rstrip()) :] if said else ""
        if _MAY_BE_MARK.fullmatch(said):
            return ""
        self._says = True
        return _SHELL.sub("", said, count=1)

    def rest(self) -> str:
        return "" if self._says else split_thoughts(self._held)[1]

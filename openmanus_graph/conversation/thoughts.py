"""Separates a model's thoughts from what it says, if its server leaves both in one text. Pure.

Marks of thoughts that a text quotes or mentions are ignored.
"""

import re
from itertools import islice

from openmanus_graph.conversation.call_forms import START

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
    unquoted = (one for one in closings if not _is_quoted(text, one))
    closing = next((one for one in closings if not _is_mentioned(text, one)), next(unquoted, None))
    if closing is not None:
        return closing.span()
    if not may_break_off or form >= _OF_MARKS:
        return None
    calls = (one.start() for one in START.finditer(text, opening.end()))
    end = next((start for start in calls if text[start - 1] == "\n"), len(text))
    return end, end


def _closing_alone(text: str, hidden: str) -> re.Match[str] | None:
    if text.lstrip().startswith("{"):
        return None  # a thought is not JSON
    closings = islice(_CLOSING_ALONE.finditer(hidden), _MOST_MARKS)
    return next((one for one in closings if not _is_mentioned(text, one)), None)


def _is_quoted(text: str, mark: re.Match[str]) -> bool:
    start = mark.start()
    return start > 0 and text[start - 1] in "`\"'“„«("


def _is_mentioned(text: str, mark: re.Match[str]) -> bool:
    """Return True if a mark is between quotation marks, or in a sentence."""
    if _is_quoted(text, mark) or _SPOKEN_OF.match(text, mark.end()):
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
        self._says = False
        self._tries = 0

    def add(self, piece: str) -> str:
        if self._says:
            return piece
        self._held += piece
        said = self._held
        if _FIRST.match(said):
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

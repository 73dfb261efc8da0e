"""Tells what a run has found from what its model wrote itself and only reads back. Pure.

A figure in the arguments of a call is no evidence when the call prints it, a file that was written
with it is read, or a line of the same words comes back. What was known before is not lost by it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, cast

from langchain_core.messages import ToolCall

from openmanus_graph.conversation.agreement import beginnings_of, lines_with
from openmanus_graph.conversation.announcements import named_files
from openmanus_graph.conversation.claims import claims_in

CALCULATING = {"python_execute", "bash"}
SEARCHING = {"web_search", "search_tools", "search_library"}
_OUTSIDE = {*SEARCHING, "ask_human"}
NOTES = {"memory", "planning", "tell"}
"""Tools whose results are what a model has written."""
PLACES = ("url", "path", "link", "file", "address")
"""Arguments that name what a call opens, likeliest first."""
_FOUND = {*PLACES, "old_str", "view_range", "pattern"}
"""Arguments that a successful call shows to exist."""
_NUMERAL = re.compile(
    r"(?<![A-Za-z_\d])(?:\d{1,3}(?:[.,'’\u00a0\u202f]\d{3}){1,6}(?![\d.])"
    r"|\d+(?:\.\d+|,\d+(?![\d.,;]))?)"
)
_DIGITS = re.compile(r"\D|^[0.,]+")
_WEB = re.compile(r"https?://(?!localhost|127\.|0\.0\.0\.0|\[::1\])")
_CONDITION = re.compile(
    r"(?i)(?:https?://\S*|[=!<>]=|[<>]|\bin ?[(\[{][^)\]}]*"
    r"|[\w)\]]\[[^\]\n]*|\[[^\]\n\"']{0,20}:\s*"
    r"|\b(?:where|between|having)\b[^\n;|\"']*|\b(?:grep|rg|awk|cut|head|tail|sed -n)\b[^\n;|]*"
    r"|\b(?:head|tail|range|sleep|sample|nlargest|n|k|dpi|timeout|nrows|seed|random_state|limit"
    r"|size|width|height|bins|max\w*|min\w*|port)[=(]"
    r"|(?:match|search|contains|startswith|query|isin|get)\([^\n)]*)\s*['\"]?$"
)
"""Code before a number that selects or limits data."""
_SAID = re.compile(r"[^\W\d_]{2,}[\s,:\"'=€$£]{1,4}$")
_ASSIGNED = re.compile(r"(?:(?<![=<>!])=\s*|print\(\s*|echo\s)['\"]?$")
_YEAR = re.compile(r"(?:19|20)\d\d")
_WORD = re.compile(r"[^\W\d_]{2,}")
_PRINTED = re.compile(
    r"(?:\b(?:print|echo|printf)\b|\.write\w*\()(?![^\n]*(?:open|read|load|get)\w*\()[^\n;|>]*"
)
"""Code that only writes."""
_AROUND = 60


@lru_cache(maxsize=50_000)
def _key(numeral: str) -> str:
    """Return the digits of a number; of short ones also where they end."""
    digits = re.sub(r"\D", "", numeral).strip("0")
    return digits if len(digits) > 2 else numeral.replace(",", ".")


class Authorship:
    """Reads a conversation in its order: what the model wrote, and what it found."""

    def __init__(self, answer: str, calls: Sequence[ToolCall]) -> None:
        kinds = ("quotation", "url", "file")
        self._claims = {one.text.casefold() for one in claims_in(answer) if one.kind in kinds}
        self._stated, numbers = dict[str, set[str]](), set[str]()
        self._numbers = beginnings_of(set("123456789"))
        for call in calls:
            self._stated[call["id"] or ""] = stated = self._stated_in(call)
            numbers |= {one for one in map(_DIGITS.sub, repeat(""), stated - self._claims) if one}
        self._numbers = beginnings_of(numbers, r"0*(?!\d)")
        self._known = set[str]()
        self._written = defaultdict[str, set[str]](set)
        """With the files that the same calls name."""
        self._words = set[str]()

    def writes(self, call: ToolCall) -> None:
        """Read a call of the model."""
        args = str(call["args"])
        files = {one.rpartition("/")[2] for one in named_files(args)}
        for key in self._stated[call["id"] or ""] - self._known:
            self._written[key] |= files
        self._words.update(_WORD.findall(args.casefold()))

    def reads(self, text: str) -> None:
        """Read what the model did not write."""
        self._known.update(key for key, _, _ in self._keys(text))

    def found_in(self, text: str, call: ToolCall | None) -> str:
        """Return a result without what the model wrote: spaces are in its place."""
        given = str(call["args"]) if call else ""
        calculates = call is not None and call["name"] in CALCULATING
        is_outside = call is None or call["name"] in _OUTSIDE
        is_outside |= not calculates and _WEB.search(given) is not None
        own = self._stated[call["id"] or ""] if call and calculates else set[str]()
        left, parts, found = 0, list[str](), set[str]()
        for key, start, end in sorted(self._keys(text), key=lambda one: one[1]):
            files = None if is_outside or key in self._known else self._written.get(key)
            named = files is not None and any(one in given or one in text for one in files)
            if files is None or not (named or key in own or self._is_line(text, start, end)):
                found.add(key)
            elif start >= left:
                parts += [text[left:start], " " * (end - start)]
                left = end
        self._known |= found
        return "".join([*parts, text[left:]])

    def _is_line(self, text: str, start: int, end: int) -> bool:
        """Return True if the model has written the words beside a place of a line."""
        before = text[max(text.rfind("\n", 0, start) + 1, start - _AROUND) : start].casefold()
        after = text[end : end + _AROUND].partition("\n")[0].casefold()
        return self._words.issuperset(_WORD.findall(before)[-1:] + _WORD.findall(after)[:1])

    def _keys(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield the numbers and claims in a text that a call has, with their places."""
        for line in lines_with(text, self._numbers):
            for one in _NUMERAL.finditer(text, *line):
                yield _key(one[0]), *one.span()
        low = text.casefold() if self._claims else ""
        for claim in self._claims if len(low) == len(text) else ():
            for one in re.finditer(re.escape(claim), low):
                yield claim, *one.span()

    def _stated_in(self, call: ToolCall) -> set[str]:
        """Return what a call states: in code a number may be a limit or a condition."""
        text = "\n".join(str(held) for name, held in call["args"].items() if name not in _FOUND)
        code, stated = call["name"] in CALCULATING, set[str]()
        for key, start, _ in self._keys(text):
            before = text[max(0, start - 80) : start].rpartition("\n")[2] if code else ""
            small = len(key) < 3
            said = _SAID.search(before) or (small and _ASSIGNED.search(before))
            is_plain = said or not (small or _YEAR.fullmatch(key))
            if not code or key in self._claims or (is_plain and not _CONDITION.search(before)):
                stated.add(key)
        return stated


def opened_by(call: ToolCall) -> str:
    """Return what a call may open: paths, addresses and code, without texts that it writes."""
    if call["name"] in CALCULATING:
        return _PRINTED.sub(" ", "\n".join(map(str, call["args"].values())))
    opened = list[str]()
    for key, held in call["args"].items():
        one: Any = held
        values = cast("list[Any]", one) if isinstance(one, list) else [one]
        texts = map(str, values)
        opened += [text for text in texts if key in PLACES or not re.search(r"\s", text)]
    return "\n".join(opened)


def without(text: str, claims: Sequence[str]) -> str:
    """Return a text with spaces in place of some of its claims."""
    form = "|".join(rf"(?<!\w){re.escape(one)}(?!\w)" for one in claims)
    blank: Callable[[re.Match[str]], str] = lambda one: " " * len(one[0])  # noqa: E731  # two lines
    return re.sub(form, blank, text) if form else text

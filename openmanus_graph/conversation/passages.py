"""Finds dates, quotations, addresses, files and tests in the texts that a run has seen. Pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from openmanus_graph.conversation.agreement import plain_address
from openmanus_graph.conversation.claims import ADDRESS, Claim
from openmanus_graph.conversation.quantities import (
    DATE,
    WORDED_DATE,
    Day,
    days_of,
    half_width,
    worded_day,
)

SourceKind = Literal["quoted", "same_value", "computed", "derived", "not_found"]
_LETTERS = re.compile(r"[^\W\d_\u3040-\u9fff]{3,}|[\u3040-\u9fff]")
_IS_HTML = re.compile(r"(?i)<t[dh][ >]")
_HTML_ROW = re.compile(
    r"(?is)<tr\b(?:(?!<tr\b).){0,9000}?</tr>(?:\s|</?t(?:head|body|foot)\b[^>]*>)*"
)
_TAG = re.compile(r"<(/?)(\w*)[^<>\n]{0,900}>|&nbsp;")
_MARKS = {"td": "|", "th": "|", "/tr": "|\n", "table": "\n", "br": "\n", "p": "\n"}
"""What HTML tags are in a Markdown table."""
_JOINED = re.compile(r"^(?:根据|依据|按照|参见|见|据|在)")
"""Words that have no space before a file name."""
_HAN = re.compile(r"[\u3040-\u9fff]{4}")
_LEFT_OUT = re.compile(r"\s*(?:\.{3}|…|\[\.{3}\])+\s*")


def without_tags(text: str) -> str:
    """Return a text with its HTML tables as Markdown ones. Positions stay the same."""

    def plain(tag: re.Match[str]) -> str:
        return _MARKS.get(f"{tag[1]}{tag[2]}".lower(), "").ljust(len(tag[0]))

    if not _IS_HTML.search(text):
        return text
    return _TAG.sub(plain, _HTML_ROW.sub(lambda row: row[0].replace("\n", " "), text))


@dataclass(frozen=True)
class Passage:
    """A text that the run has seen."""

    text: str
    call_id: str = ""
    tool: str = ""
    """The tool whose result it is; or `user`, `file` or `run`."""
    name: str = ""
    """The address or path that the call opened."""
    is_printed: bool = False
    """Whether a cell or command printed it."""
    is_stated: bool = False
    """Whether only what it says counts, and not what follows from it."""


@dataclass(frozen=True)
class Finding:
    """What a claim comes from."""

    claim: Claim
    kind: SourceKind
    passage: Passage | None = None
    start: int = 0
    end: int = 0
    """Place in the passage."""
    how: str = ""
    """How it is derived."""


Place = tuple[int, int, int]
"""Index of a passage, start and end in it."""


@dataclass(frozen=True)
class Texts:
    """All that a run has seen and done, and where it mentions what is no number."""

    passages: Sequence[Passage]
    task: str = ""
    files: Set[str] = frozenset()
    """Names of the files that exist."""
    opened: str = ""
    """What the calls that read something were given: paths, addresses, commands."""
    ran_tests: bool = False

    @cached_property
    def texts(self) -> Sequence[str]:
        return [without_tags(half_width(one.text)) for one in self.passages]

    def mention_of(self, claim: Claim) -> Finding | None:
        """Return where a claim that is no number comes from; None if nothing can show it."""
        find: Callable[[Claim], Finding | None] = getattr(self, f"_{claim.kind}")
        return find(claim)

    def _tests(self, claim: Claim) -> Finding:
        return Finding(claim, "computed" if self.ran_tests else "not_found")

    @cached_property
    def days(self) -> Mapping[Day, Sequence[Place]]:
        """Return where dates are, also by their day and month alone, with -1 for any year."""
        found = defaultdict[Day, list[Place]](list)
        for number, text in enumerate(self.texts):
            dates = [(one, days_of(one[0])) for one in re.finditer(DATE, text)]
            dates += [(one, [worded_day(one)]) for one in WORDED_DATE.finditer(text)]
            for one, days in dates:
                for day in (form for year, *rest in days for form in ((year, *rest), (-1, *rest))):
                    found[day[0], day[1], day[2]].append((number, *one.span()))
        return found

    @cached_property
    def _folded(self) -> Sequence[str]:
        return [one.text.casefold() for one in self.passages]

    def _quotation(self, claim: Claim) -> Finding | None:
        """Find a quotation; None if it is in a language that no text has."""
        pieces = [
            found for one in _LEFT_OUT.split(claim.text) if (found := re.findall(r"\w+", one))
        ]
        forms = [re.compile(r"[\W_]+".join(map(re.escape, one)), re.IGNORECASE) for one in pieces]
        longest = max((word.casefold() for one in pieces for word in one), key=len, default="")
        for passage, low in zip(self.passages, self._folded, strict=True):
            places = (one.search(passage.text) for one in forms if longest in low)
            spans = [one.span() for one in places if one is not None]
            if forms and len(spans) == len(forms):
                return Finding(claim, "quoted", passage, spans[0][0], max(end for _, end in spans))
        words = set(_LETTERS.findall(claim.text.casefold()))
        known = [one for one in words if any(one in low for low in self._folded)]
        is_known = any(map(_HAN.search, self.texts)) if _HAN.search(claim.text) else False
        return Finding(claim, "not_found") if is_known or 6 * len(known) >= len(words) > 0 else None

    @cached_property
    def _addresses(self) -> Mapping[str, Place]:
        found = dict[str, Place]()
        for number, one in enumerate(self.passages):
            for address in ADDRESS.finditer(one.text):
                place = number, *address.span()
                plain = plain_address(address[0])
                found.setdefault(plain, place)
                found.setdefault(plain.partition("/")[0], place)
        return found

    @cached_property
    def _opened(self) -> Set[str]:
        return {plain_address(one) for one in ADDRESS.findall(self.opened)}

    def _url(self, claim: Claim) -> Finding:
        address = plain_address(claim.text)
        place, was_opened = self._addresses.get(address), address in self._opened
        if not was_opened and (place is None or claim.says_read):
            return Finding(claim, "not_found")
        passage = self.passages[place[0]] if place else None
        return Finding(claim, "quoted", passage, *(place or (0, 0, 0))[1:])

    def _file(self, claim: Claim) -> Finding:
        name = _JOINED.sub("", claim.text.rpartition("/")[2])
        if claim.says_read and name not in self.opened:
            return Finding(claim, "not_found")
        for passage in self.passages:
            if (start := passage.text.find(name)) >= 0:
                return Finding(claim, "quoted", passage, start, start + len(name))
        known = {one.rpartition("/")[2] for one in self.files}
        is_there = name in known or name in self.opened
        return Finding(claim, "quoted" if is_there else "not_found")

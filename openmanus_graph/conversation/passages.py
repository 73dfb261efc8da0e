"""Finds dates, quotations, addresses, files and tests in the texts that a run has seen. Pure."""

import re
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
_LEFT_OUT = re.compile(r"\s*(?:\.{3}|…|\[\.{3}\])+\s*")


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
        return [half_width(one.text) for one in self.passages]

    def mention_of(self, claim: Claim) -> Finding | None:
        """Return where a claim that is no number comes from; None if nothing can show it."""
        find: Callable[[Claim], Finding | None] = getattr(self, f"_{claim.kind}")
        return find(claim)

    def _tests(self, claim: Claim) -> Finding:
        return Finding(claim, "computed" if self.ran_tests else "not_found")

    @cached_property
    def _days(self) -> Mapping[Day, Place]:
        """Return where dates are, also by their day and month alone, with -1 for any year."""
        found = dict[Day, Place]()
        for number, text in enumerate(self.texts):
            for one in re.finditer(DATE, text):
                for day in days_of(one[0]):
                    found.setdefault(day, (number, *one.span()))
                    found.setdefault((-1, *day[1:]), (number, *one.span()))
            for one in WORDED_DATE.finditer(text):
                day = worded_day(one)
                found.setdefault(day, (number, *one.span()))
                found.setdefault((-1, *day[1:]), (number, *one.span()))
        return found

    def _date(self, claim: Claim) -> Finding:
        for year, *day in claim.days:
            for one in (year, 0) if year else (-1,):
                if (place := self._days.get((one, day[0], day[1]))) is not None:
                    number, start, end = place
                    same = self.texts[number][start:end] == claim.text
                    kind: SourceKind = "quoted" if same else "same_value"
                    return Finding(claim, kind, self.passages[number], start, end)
        return Finding(claim, "not_found")

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
        return Finding(claim, "not_found") if 6 * len(known) >= len(words) > 0 else None

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
        name = claim.text.rpartition("/")[2]
        if claim.says_read and name not in self.opened:
            return Finding(claim, "not_found")
        for passage in self.passages:
            if (start := passage.text.find(name)) >= 0:
                return Finding(claim, "quoted", passage, start, start + len(name))
        known = {one.rpartition("/")[2] for one in self.files}
        is_there = name in known or name in self.opened
        return Finding(claim, "quoted" if is_there else "not_found")

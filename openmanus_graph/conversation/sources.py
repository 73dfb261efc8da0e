"""Finds where the claims of an answer come from: an index over the texts that a run has seen. Pure.

The texts are read once for all claims. A number counts only with a unit that fits, and not if its
sentence names another row or year than the source has.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations
from typing import Literal

from openmanus_graph.conversation.agreement import (
    WORD,
    Wanted,
    has_any,
    has_unit,
    is_value,
    number_forms,
    plain_address,
    range_test,
    sentence_derivations,
    wanted_values,
    words_in,
    years_around,
)
from openmanus_graph.conversation.claims import (
    ADDRESS,
    YEAR,
    Claim,
    Surroundings,
    claims_in,
    sentence_span,
    surroundings,
)
from openmanus_graph.conversation.quantities import (
    COUNT,
    DATE,
    NUMBER,
    NUMBER_WORDS,
    PERCENT,
    WORDED_DATE,
    Day,
    days_of,
    half_width,
    unit_at,
    values_of,
    worded_day,
)
from openmanus_graph.conversation.tables import Derivation, Table, combined, derivations, tables_in

SourceKind = Literal["quoted", "same_value", "computed", "derived", "not_found"]
MOST_OCCURRENCES = 300
"""Places of one number that are looked at."""
MOST_QUOTATIONS = 300
"""Of an answer; each is looked for in the whole evidence."""
_MOST_NEAR = 20
"""Figures around one in the answer, from which it may follow."""
_TABLE_CHARS = 300_000
"""Characters of a text whose tables are read."""
_DERIVED_CHARS, MOST_DERIVED = 500_000, 100_000
"""Characters of all texts from which something is derived, the newest first; and values for all
claims."""
_LETTERS = re.compile(r"[^\W\d_\u3040-\u9fff]{3,}|[\u3040-\u9fff]")
_FROM_OTHERS = (
    "total",
    "mean of total",
    "range of total",
    "number of",
    "ratio",
    "change",
    "product",
)
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


@dataclass(frozen=True)
class Evidence:
    """All that a run has seen and done."""

    passages: Sequence[Passage]
    task: str = ""
    files: Set[str] = frozenset()
    """Names of the files that exist."""
    opened: str = ""
    """What the calls that read something were given: paths, addresses, commands."""
    ran_tests: bool = False

    def check(self, answer: str) -> list[Finding]:
        """Return what each claim of an answer comes from, without those that nothing can show."""
        return _Check(self, half_width(answer), claims_in(answer)).findings()


Place = tuple[int, int, int]
"""Index of a passage, start and end in it."""


@dataclass
class _Check:
    evidence: Evidence
    answer: str
    claims: Sequence[Claim]
    _tables: dict[int, list[Table]] = field(default_factory=dict[int, list[Table]])
    _around: dict[int, Surroundings] = field(default_factory=dict[int, Surroundings])
    _left: int = MOST_DERIVED
    _refused: set[int] = field(default_factory=set[int])
    """Ids of the claims that a text has, but with another unit, row or year."""

    def findings(self) -> list[Finding]:
        numbers = [one for one in self.claims if one.ranges]
        tokens = {id(one): self._tokens_for(one) for one in numbers}
        places = self._places({token for found in tokens.values() for token, _ in found})
        found, quotations = dict[int, Finding | None](), 0
        for one in self.claims:
            quotations += one.kind == "quotation"
            if one.ranges:
                stated = self._number(one, tokens[id(one)], places)
                found[id(one)] = stated or self._worded(one) or self._derived(one)
            elif quotations <= MOST_QUOTATIONS or one.kind != "quotation":
                find: Callable[[Claim], Finding | None] = getattr(self, f"_{one.kind}")
                found[id(one)] = find(one)
        sound = [one for one in numbers if found[id(one)] and one.kind == "number"]
        for one in numbers:
            found[id(one)] = found[id(one)] or self._from_others(one, sound)
        return [finding for one in self.claims if (finding := found.get(id(one))) is not None]

    @cached_property
    def _texts(self) -> Sequence[str]:
        return [half_width(one.text) for one in self.evidence.passages]

    @cached_property
    def _written(self) -> Sequence[Set[str]]:
        """Return the numbers of each passage that some claim may be, as they are written."""
        is_wanted = range_test([one for claim in self.claims for one in wanted_values(claim)])
        found = list[Set[str]]()
        for text in self._texts:
            tokens = {*chain(*(form.findall(text) for form in number_forms(text)))}
            found.append({one for one in tokens if any(map(is_wanted, values_of(one)))})
        return found

    @cached_property
    def _index(self) -> tuple[list[float], list[str]]:
        """Return the values of these in order, and how each is written."""
        tokens = set[str]().union(*self._written)
        pairs = sorted([(value, token) for token in tokens for value in values_of(token)])
        return [value for value, _ in pairs], [token for _, token in pairs]

    def _tokens_for(self, claim: Claim) -> list[tuple[str, Wanted]]:
        values, tokens = self._index
        found = list[tuple[str, Wanted]]()
        for wanted in wanted_values(claim):
            first = bisect_left(values, wanted[0] - 1e-9)
            last = bisect_right(values, wanted[1] + 1e-9)
            found += [(token, wanted) for token in tokens[first : min(last, first + 200)]]
        return found

    def _places(self, tokens: Set[str]) -> Mapping[str, Sequence[Place]]:
        """Return where these are, in one pass through the passages that have some."""
        places = defaultdict[str, list[Place]](list)
        for number, (text, written) in enumerate(zip(self._texts, self._written, strict=True)):
            for form in () if tokens.isdisjoint(written) else number_forms(text):
                for one in form.finditer(text):
                    if (token := one[0]) in tokens and len(places[token]) < MOST_OCCURRENCES:
                        places[token].append((number, *one.span()))
        return places

    def _number(
        self,
        claim: Claim,
        tokens: Sequence[tuple[str, Wanted]],
        places: Mapping[str, Sequence[Place]],
    ) -> Finding | None:
        """Return the best place that has a number: in the row and year that its sentence names."""
        found, elsewhere = list[tuple[int, str, Finding]](), set[str]()
        words = words_in(self._surroundings(claim).sentence)
        for token, wanted in tokens:
            exact = token.strip() == claim.text.strip()
            for number, start, end in places.get(token, ()):
                text, passage = self._texts[number], self.evidence.passages[number]
                table, row = self._row(passage, start)
                column = table.column_at(row, start) if table else -1
                unit = unit_at(text, start, end) or (table.units.get(column) if table else None)
                if claim.kind == "number" and not has_unit(wanted, unit):
                    self._refused.add(id(claim))
                    continue
                names = self._names(claim, table) if table else {}
                if table is not None and not table.fits(row, column, names):
                    elsewhere.update(*names.values())
                    self._refused.add(id(claim))
                    continue
                if table is None and not self._is_same_year(claim, text, start, end):
                    self._refused.add(id(claim))
                    continue
                line = text[text.rfind("\n", 0, start) + 1 :][:600].partition("\n")[0].casefold()
                score = 4 * len(words & words_in(line)) + 2 * exact - 3 * passage.is_stated
                kind: SourceKind = "quoted" if exact else "same_value"
                kind = "computed" if passage.is_printed else kind
                finding = Finding(claim, kind, passage, start, end)
                found.append((score, line, finding))
        # If other rows have it, a line counts only if it names the right one, or nothing.
        fit = [
            (score, finding)
            for score, line, finding in found
            if not elsewhere or not WORD.search(line) or has_any(line, elsewhere)
        ]
        return max(fit, key=lambda one: one[0])[1] if fit else None

    def _worded(self, claim: Claim) -> Finding | None:
        """Find a number below 100 that a text has in words."""
        low, high = claim.ranges[0]
        words = [word for word, n in NUMBER_WORDS.items() if n > 1 and low <= n <= high]
        if not words or claim.kind == "year" or high - low > 1.5:
            return None
        form = re.compile("|".join(rf"\b{one}\b" if one < "一" else one for one in words), re.I)
        for passage, text in zip(self.evidence.passages, self._texts, strict=True):
            if (one := form.search(text)) is not None:
                return Finding(claim, "same_value", passage, *one.span())
        return None

    def _surroundings(self, claim: Claim) -> Surroundings:
        if id(claim) not in self._around:
            self._around[id(claim)] = surroundings(self.answer, claim.start, claim.end)
        return self._around[id(claim)]

    def _tables_of(self, passage: Passage) -> list[Table]:
        if id(passage) not in self._tables:
            short = len(passage.text) <= _TABLE_CHARS
            found = tables_in(half_width(passage.text)) if short else []
            self._tables[id(passage)] = [one for one in found if one.rows]
        return self._tables[id(passage)]

    def _row(self, passage: Passage, position: int) -> tuple[Table | None, int]:
        for table in self._tables_of(passage):
            if table.rows[0].start <= position <= table.rows[-1].end:
                row = table.row_at(position)
                if row is not None:
                    return table, row
        return None, -1

    def _names(self, claim: Claim, table: Table) -> dict[int, set[str]]:
        """Return what the nearest words name in each column of a table."""
        names = dict[int, set[str]]()
        for text in self._surroundings(claim).texts():
            for column, keys in table.named_in(text).items() if text else ():
                names.setdefault(column, keys)
        return names

    def _is_same_year(self, claim: Claim, text: str, start: int, end: int) -> bool:
        """Return False if the sentence of the claim and that of its source name different years."""
        said = years_around(self._surroundings(claim))
        first, last = sentence_span(text, start, end)
        if claim.kind == "year" or not said or not YEAR.search(text, first, last):
            return True
        return not said.isdisjoint(
            years_around(surroundings(text, start, end, with_heading=False)) or said
        )

    # What follows from numbers

    @cached_property
    def _computable(self) -> Sequence[Passage]:
        left, found = _DERIVED_CHARS, list[Passage]()
        for passage in reversed(self.evidence.passages):
            if not passage.is_stated and len(passage.text) <= min(left, _TABLE_CHARS):
                left -= len(passage.text)
                found.append(passage)
        return found

    @cached_property
    def _given(self) -> list[float]:
        """Return the numbers of the task; a share also as a fraction, and with and without it."""
        task, found = self.evidence.task[:4000], list[float]()
        for one in NUMBER.finditer(task):
            for value in values_of(one[0])[:1]:
                share = value / 100
                is_share = unit_at(task, *one.span()) == PERCENT
                found += [share, 1 + share, 1 - share] if is_share else [value]
        return found[:8]

    def _derived(self, claim: Claim) -> Finding | None:
        """Find what follows from a text, of those that the sentence names something of, if any."""
        if claim.kind != "number" or self._left < 0:
            return None
        passages = [one for one in self._computable if self._speaks_of(claim, one)]
        refused = id(claim) in self._refused
        for passage in passages or (() if refused else self._computable):
            self._left -= len(passage.text) // 50
            for one in self._derivations(claim, passage):
                self._left -= 1
                if self._left < 0:
                    return None
                # The number of another row is not a total by chance.
                chance = refused and one.how.startswith(_FROM_OTHERS) and "named" not in one.how
                if not chance and is_value(claim, one):
                    return Finding(claim, "derived", passage, one.start, one.end, one.how)
        return None

    def _speaks_of(self, claim: Claim, passage: Passage) -> bool:
        """Return True if a sentence names a row or column of a table, besides years."""
        said = words_in(self._surroundings(claim).sentence)
        tables = self._tables_of(passage)
        tables = [table for table in tables if table.columns]
        named = (self._names(claim, table).values() for table in tables)
        titles = {word for table in tables for one in table.header for word in words_in(one)}
        return not said.isdisjoint(titles) or any(
            not YEAR.fullmatch(key) for names in named for keys in names for key in keys
        )

    def _derivations(self, claim: Claim, passage: Passage) -> Iterator[Derivation]:
        """Yield counts of lines and words, and what follows from a sentence or a table."""
        text, low = passage.text, passage.text.casefold()
        words = words_in(self._surroundings(claim).sentence)
        lines = [line for line in low.split("\n") if line.strip()][:5000]
        sizes = {"lines": len(lines), "lines without the first": len(lines) - 1}
        sizes |= {"words": len(text.split()), "characters": len(text), "items": text.count(",") + 1}
        sizes |= {f"lines with {w}": sum(w in line for line in lines) for w in words if w in low}
        for how, number in sizes.items():
            yield Derivation(number or -1, f"number of {how}", 0, len(text), COUNT)
        tables = self._tables_of(passage)
        for table in tables:
            before = table.named_in(self.evidence.task[-2000:])
            yield from derivations(table, self._names(claim, table), before, self._given)
        place = 0
        while place < len(text) <= 20_000:
            first, last = sentence_span(text, place, place + 1)
            if self._row(passage, first)[0] is None:
                yield from sentence_derivations(text, first, last)
            place = max(last, place) + 1

    def _from_others(self, claim: Claim, sound: Sequence[Claim]) -> Finding:
        """Find what figures near it in the answer make."""
        near = [one for one in sound if one is not claim and abs(one.start - claim.start) < 600]
        values = [(sum(one.ranges[0]) / 2, one.unit) for one in near[:_MOST_NEAR]]
        made = list[Derivation]()
        for (one, unit), (other, second) in combinations(values, 2):
            made += combined(one, other, 0, 0, unit if unit == second else None)
            made.append(Derivation(one * other, "product", 0, 0))
        for first, last in combinations(range(len(values) + 1), 2):
            if (count := last - first) > 2:
                total, unit = sum(value for value, _ in values[first:last]), values[first][1]
                made += [Derivation(n, "sum", 0, 0, unit) for n in (total, total / count)]
        if claim.kind == "number" and any(is_value(claim, one) for one in made):
            return Finding(claim, "derived", how="figures of the answer")
        return Finding(claim, "not_found")

    # Other claims

    @cached_property
    def _days(self) -> Mapping[Day, Place]:
        found = dict[Day, Place]()
        for number, text in enumerate(self._texts):
            for one in re.finditer(DATE, text):
                for day in days_of(one[0]):
                    found.setdefault(day, (number, *one.span()))
            for one in WORDED_DATE.finditer(text):
                found.setdefault(worded_day(one), (number, *one.span()))
        return found

    def _date(self, claim: Claim) -> Finding:
        for day, (number, start, end) in self._days.items():
            for own in claim.days:
                if own[1:] == day[1:] and (own[0] == day[0] or 0 in (own[0], day[0])):
                    same = self._texts[number][start:end] == claim.text
                    kind: SourceKind = "quoted" if same else "same_value"
                    return Finding(claim, kind, self.evidence.passages[number], start, end)
        return Finding(claim, "not_found")

    @cached_property
    def _folded(self) -> Sequence[str]:
        return [one.text.casefold() for one in self.evidence.passages]

    def _quotation(self, claim: Claim) -> Finding | None:
        """Find a quotation; None if it is in a language that no text has."""
        pieces = [
            found for one in _LEFT_OUT.split(claim.text) if (found := re.findall(r"\w+", one))
        ]
        forms = [re.compile(r"[\W_]+".join(map(re.escape, one)), re.IGNORECASE) for one in pieces]
        longest = max((word.casefold() for one in pieces for word in one), key=len, default="")
        for passage, low in zip(self.evidence.passages, self._folded, strict=True):
            places = (one.search(passage.text) for one in forms if longest in low)
            spans = [one.span() for one in places if one is not None]
            if forms and len(spans) == len(forms):
                return Finding(claim, "quoted", passage, spans[0][0], max(end for _, end in spans))
        words = set(_LETTERS.findall(claim.text.casefold()))
        known = [one for one in words if any(one in low for low in self._folded)]
        return Finding(claim, "not_found") if 3 * len(known) >= len(words) > 0 else None

    @cached_property
    def _addresses(self) -> Mapping[str, Place]:
        found = dict[str, Place]()
        for number, one in enumerate(self.evidence.passages):
            for address in ADDRESS.finditer(one.text):
                place = number, *address.span()
                plain = plain_address(address[0])
                found.setdefault(plain, place)
                found.setdefault(plain.partition("/")[0], place)
        return found

    @cached_property
    def _opened(self) -> Set[str]:
        return {plain_address(one) for one in ADDRESS.findall(self.evidence.opened)}

    def _url(self, claim: Claim) -> Finding:
        address = plain_address(claim.text)
        place, was_opened = self._addresses.get(address), address in self._opened
        if not was_opened and (place is None or claim.says_read):
            return Finding(claim, "not_found")
        passage = self.evidence.passages[place[0]] if place else None
        return Finding(claim, "quoted", passage, *(place or (0, 0, 0))[1:])

    def _file(self, claim: Claim) -> Finding:
        name = claim.text.rpartition("/")[2]
        if claim.says_read and name not in self.evidence.opened:
            return Finding(claim, "not_found")
        for passage in self.evidence.passages:
            if (start := passage.text.find(name)) >= 0:
                return Finding(claim, "quoted", passage, start, start + len(name))
        known = {one.rpartition("/")[2] for one in self.evidence.files}
        is_there = name in known or name in self.evidence.opened
        return Finding(claim, "quoted" if is_there else "not_found")

    def _tests(self, claim: Claim) -> Finding:
        return Finding(claim, "computed" if self.evidence.ran_tests else "not_found")

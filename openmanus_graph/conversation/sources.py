"""Finds where the claims of an answer come from: an index over the texts that a run has seen. Pure.

The texts are read once for all claims. A number counts only with a unit that fits, and not if its
sentence names another row or year than the source has.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from openmanus_graph.conversation.agreement import (
    WORD,
    Wanted,
    beginnings_of,
    first_digits,
    has_any,
    has_unit,
    is_value,
    lines_with,
    number_forms,
    range_test,
    sentence_derivations,
    wanted_values,
    words_in,
    years_around,
)
from openmanus_graph.conversation.claims import (
    YEAR,
    Claim,
    Surroundings,
    claims_in,
    sentence_span,
    surroundings,
)
from openmanus_graph.conversation.passages import Finding, Passage, Place, SourceKind, Texts
from openmanus_graph.conversation.quantities import (
    COUNT,
    NUMBER,
    NUMBER_WORDS,
    PERCENT,
    half_width,
    likely_value,
    mark_of,
    unit_at,
    values_of,
)
from openmanus_graph.conversation.tables import Derivation, Table, combined, derivations, tables_in

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
_FROM_OTHERS = ("total", "mean of total", "range of total", "number of", "ratio", "change",
                "product")  # fmt: skip
_TITLE = 200
_YEAR_BEFORE = re.compile(
    r"(?i)vorjahr|jahr zuvor|(?:previous|last|prior|preceding) year|year (?:before|earlier)"
    r"|上年|去年|前一?年|首年|同比"
)


class Evidence(Texts):
    """All that a run has seen and done."""

    def check(self, answer: str) -> list[Finding]:
        """Return what each claim of an answer comes from, without those that nothing can show."""
        return _Check(self, half_width(answer), claims_in(answer)).findings()


@dataclass
class _Check:
    evidence: Evidence
    answer: str
    claims: Sequence[Claim]
    _tables: dict[int, list[Table]] = field(default_factory=dict[int, list[Table]])
    _around: dict[int, Surroundings] = field(default_factory=dict[int, Surroundings])
    _stated: Sequence[Finding] = ()
    """The numbers that a text has."""
    _marks: dict[int, str] = field(default_factory=dict[int, str])
    _left: int = MOST_DERIVED
    _refused: set[int] = field(default_factory=set[int])
    """Ids of the claims that a text has, but with another unit, row or year."""

    def findings(self) -> list[Finding]:
        numbers = [one for one in self.claims if one.ranges]
        found, quotations = dict[int, Finding | None](), 0
        stated = {id(one): self._number(one) or self._worded(one) for one in numbers}
        self._stated = [one for one in stated.values() if one is not None]
        for one in self.claims:
            quotations += one.kind == "quotation"
            if one.ranges:
                found[id(one)] = stated[id(one)] or self._derived(one)
            elif quotations <= MOST_QUOTATIONS or one.kind != "quotation":
                found[id(one)] = self.evidence.mention_of(one)
        sound = [one for one in numbers if found[id(one)] and one.kind == "number"]
        for one in numbers:
            found[id(one)] = found[id(one)] or self._from_others(one, sound)
        return [finding for one in self.claims if (finding := found.get(id(one))) is not None]

    @cached_property
    def _places(self) -> Mapping[str, Sequence[Place]]:
        """Return where the numbers are that some claim may be, as they are written."""
        wanted = [one for claim in self.claims for one in wanted_values(claim)]
        is_wanted, beginnings = range_test(wanted), beginnings_of(first_digits(wanted))
        places = dict[str, list[Place] | None]()
        for number, text in enumerate(self.evidence.texts):
            lines = [*lines_with(text, beginnings)]
            for form in number_forms(text) if lines else ():
                for one in (one for line in lines for one in form.finditer(text, *line)):
                    token = one[0]
                    if token not in places:
                        places[token] = [] if any(map(is_wanted, values_of(token))) else None
                    found = places[token]
                    if found is not None and len(found) < MOST_OCCURRENCES:
                        found.append((number, *one.span()))
        return {token: found for token, found in places.items() if found}

    @cached_property
    def _index(self) -> tuple[list[float], list[str]]:
        """Return the values of these in order, and how each is written."""
        pairs = sorted([(value, token) for token in self._places for value in values_of(token)])
        return [value for value, _ in pairs], [token for _, token in pairs]

    def _tokens_for(self, claim: Claim) -> Iterator[tuple[str, Wanted]]:
        values, tokens = self._index
        for wanted in wanted_values(claim):
            first = bisect_left(values, wanted[0] - 1e-9)
            last = bisect_right(values, wanted[1] + 1e-9)
            yield from ((token, wanted) for token in tokens[first : min(last, first + 200)])

    def _number(self, claim: Claim) -> Finding | None:
        """Return the best place that has a number: in the row and year that its sentence names."""
        found, elsewhere = list[tuple[int, str, Finding, int]](), set[str]()
        words, nearest = words_in(self._surroundings(claim).sentence), 0
        for token, wanted in self._tokens_for(claim):
            exact = token.strip() == claim.text.strip()
            for number, start, end in self._places[token]:
                text, passage = self.evidence.texts[number], self.evidence.passages[number]
                value = likely_value(token, self._mark(number))
                if value != values_of(token)[0] and not wanted[0] <= (value or 0) <= wanted[1]:
                    continue
                table, row = self._row(passage, start)
                column = table.column_at(row, start) if table else -1
                unit = unit_at(text, start, end) or (table.units.get(column) if table else None)
                line = text[text.rfind("\n", 0, start) + 1 :][:600].partition("\n")[0].casefold()
                shared = len(words & words_in(line))
                if claim.kind == "number" and not has_unit(wanted, unit, counts=claim.counts):
                    nearest = max(nearest, shared)
                    if claim.unit != PERCENT:
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
                score = 4 * shared + 2 * exact - 3 * passage.is_stated
                kind: SourceKind = "quoted" if exact else "same_value"
                kind = "computed" if passage.is_printed else kind
                finding = Finding(claim, kind, passage, start, end)
                # Without its unit a number is less likely than one of another unit nearby.
                has = 99 if claim.unit is None or unit is not None else shared
                found.append((score, line, finding, has))
        # If other rows have it, a line counts only if it names the right one, or nothing.
        fit = [
            (score, finding)
            for score, line, finding, has in found
            if has >= nearest
            and (not elsewhere or not WORD.search(line) or has_any(line, elsewhere))
        ]
        return max(fit, key=lambda one: one[0])[1] if fit else None

    def _mark(self, number: int) -> str:
        if number not in self._marks:
            self._marks[number] = mark_of(self.evidence.texts[number])
        return self._marks[number]

    def _worded(self, claim: Claim) -> Finding | None:
        """Find a number below 100 that a text has in words."""
        low, high = claim.ranges[0]
        words = [word for word, n in NUMBER_WORDS.items() if n > 1 and low <= n <= high]
        if not words or claim.kind == "year" or high - low > 1.5:
            return None
        form = re.compile("|".join(rf"\b{one}\b" if one < "一" else one for one in words), re.I)
        for passage, text in zip(self.evidence.passages, self.evidence.texts, strict=True):
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
        if claim.kind == "year" or not said:
            return True
        if not YEAR.search(text, first, last):  # that of the title, or the one before
            title = {*YEAR.findall(text.lstrip()[:_TITLE].partition("\n")[0])}
            if _YEAR_BEFORE.search(text, first, last):
                title |= {str(int(one) - 1) for one in title}
            is_known = any(one in text for one in said)
            return not 0 < len(title) < 3 or is_known or not said.isdisjoint(title)
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
        for passage in passages or (() if refused else self._beside(claim) or self._computable):
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

    def _beside(self, claim: Claim) -> list[Passage]:
        """Return the texts that have another figure of the same sentence."""
        first, last = sentence_span(self.answer, claim.start, claim.end)
        found = [
            one.passage
            for one in self._stated
            if first <= one.claim.start < last and one.claim is not claim and one.passage
        ]
        return [one for one in self._computable if any(one is other for other in found)]

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
                mark = mark_of(text)
                yield from sentence_derivations(text, first, last, mark)
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

"""Finds where the claims of an answer come from: an index over the texts that a run has seen. Pure.

The texts are read once for all claims. A number counts only with a unit that fits, and not if its
sentence names another row or year than the source has.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from openmanus_graph.conversation.agreement import (
    OF_DATE,
    Wanted,
    beginnings_of,
    currencies_in,
    first_digits,
    has_unit,
    lines_with,
    named_instead,
    names_in,
    number_forms,
    range_test,
    subjects_around,
    wanted_values,
    years_around,
)
from openmanus_graph.conversation.claims import (
    YEAR,
    Claim,
    Surroundings,
    claims_in,
    line_at,
    sentence_span,
    surroundings,
)
from openmanus_graph.conversation.derived import (
    Derivation,
    combined,
    derivations,
    is_value,
    sentence_derivations,
)
from openmanus_graph.conversation.passages import Finding, Passage, Place, SourceKind, Texts
from openmanus_graph.conversation.quantities import (
    COUNT,
    NUMBER,
    PERCENT,
    WORDED_NUMBER,
    Unit,
    half_width,
    key_words,
    likely_value,
    mark_of,
    unit_at,
    values_of,
    worded_value,
    words_in,
)
from openmanus_graph.conversation.tables import Table, tables_in

MOST_OCCURRENCES, MOST_PLACES = 300, 10_000
"""Places that are looked at for one number, and for all numbers of an answer if they are many."""
_LEAST_PLACES, _MOST_TOKENS = 3, 300_000
"""Places for each of very many numbers, and numbers that are remembered as not wanted."""
MOST_QUOTATIONS = 300
"""Of an answer; each is looked for in the whole evidence."""
_MOST_NEAR = 20
"""Figures around one in the answer, from which it may follow."""
_TABLE_CHARS, _ALL_TABLES = 300_000, 3_000_000
"""Characters of a text whose tables are read, and of all of them."""
_TOPIC_CHARS = 20_000
_DERIVED_CHARS, MOST_DERIVED = 500_000, 100_000
"""Characters of all texts from which something is derived, the newest first; and values for all
claims."""
_FROM_OTHERS = ("total", "mean of total", "range of total", "number of", "ratio", "change",
                "product", "percentage")  # fmt: skip
_TITLE, _FEW = 200, 4
_OF_SIZE = re.compile(r"(?i)\bwords?\b|\bw[oö]rt|\bmots?\b|palabra|charact|zeichen|caract|字")


def _start(finding: Finding) -> int:
    return finding.claim.start


def _is_in_currency(claim: Claim, text: str) -> bool:
    """Return False if a text names currencies, but not that of a claim."""
    name = claim.unit.dimension if claim.unit is not None else ""
    named = currencies_in(text) if name.isupper() else set[str]()
    return not named or name in named


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
    _named: dict[int, tuple[Set[str], Set[str]]] = field(
        default_factory=dict[int, tuple[Set[str], Set[str]]]
    )
    _left: int = MOST_DERIVED
    _readable: int = _ALL_TABLES
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
            elif one.kind == "date":
                found[id(one)] = self._date(one)
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
        most = min(MOST_OCCURRENCES, max(_LEAST_PLACES, MOST_PLACES // (len(self.claims) or 1)))
        for number, text in enumerate(self.evidence.texts):
            lines = [*lines_with(text, beginnings)]
            for form in number_forms(text) if lines else ():
                for one in (one for line in lines for one in form.finditer(text, *line)):
                    token = one[0]
                    found = places.get(token)
                    if token not in places:
                        found = list[Place]() if any(map(is_wanted, values_of(token))) else None
                        if found is not None or len(places) < _MOST_TOKENS:
                            places[token] = found
                    if found is not None and len(found) < most:
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
        found, elsewhere = list[tuple[int, Set[str], Finding, int]](), set[str]()
        around, nearest = self._surroundings(claim), 0
        said = words_in(around.sentence)
        for token, wanted in self._tokens_for(claim):
            exact = token.strip() == claim.text.strip()
            for number, start, end in self._places[token]:
                text, passage = self.evidence.texts[number], self.evidence.passages[number]
                table, row = self._row(passage, start)
                column = table.column_at(row, start) if table else -1
                if table and table.is_index(row, column):
                    continue
                unit, scale = table.measure_at(row, column) if table else (None, 1.0)
                unit = unit_at(text, start, end) or unit
                table = table if table and len(table.rows) > 1 else None
                if scale != wanted.scale or not self._is_read_so(token, wanted, number):
                    continue
                named = words_in(line_at(text, start))
                shared = len(said & named)
                is_count = claim.counts and claim.text.isdigit()
                is_rounded = is_count and unit and values_of(token)[0] % 1
                fits = has_unit(wanted, unit, counts=claim.counts) and not is_rounded
                fits = fits and (unit is not None or _is_in_currency(claim, text))
                if claim.kind == "number" and not fits:
                    nearest = max(nearest, shared) if unit is not None else nearest
                    self._refused |= set() if claim.unit == PERCENT else {id(claim)}
                    continue
                own, instead = self._subjects(claim, (number, start, end), unit)
                fits = (
                    table.fits(row, column, self._times(claim, table))
                    if table
                    else self._is_same_year(claim, text, start, end)
                )
                if instead or not fits:
                    elsewhere |= instead or (said & own)
                    self._refused.add(id(claim))
                    continue
                kind: SourceKind = "quoted" if exact else "same_value"
                kind = "computed" if passage.is_printed else kind
                finding = Finding(claim, kind, passage, start, end)
                # Without its unit a number is less likely than one of another unit nearby.
                has = 99 if claim.unit is None or unit is not None else shared
                score = 4 * shared + 2 * exact - 3 * passage.is_stated
                found.append((score, named, finding, has))
        # If other rows have it, a line counts only if it names the right one, or nothing.
        fit = [
            (score, finding)
            for score, named, finding, has in found
            if (has > nearest or not nearest) and (not (elsewhere and named) or named & elsewhere)
        ]
        return max(fit, key=lambda one: one[0])[1] if fit else None

    def _subjects(self, claim: Claim, place: Place, unit: Unit | None) -> tuple[Set[str], Set[str]]:
        """Return the words about a place, and those by which the claim names another instead."""
        number, start, end = place
        table, row = self._row(self.evidence.passages[number], start)
        around = self._surroundings(claim)
        rivals: Sequence[Set[str]]
        if table is not None and len(table.rows) > 1:
            column = table.column_at(row, start)
            own, rivals = table.subjects_at(row, column, around, claim.unit)
        else:
            own, rivals = subjects_around(self.evidence.texts[number], start, end, unit)
            rivals = () if claim.kind == "year" else rivals
        said = {
            one for one in set(own).union(*rivals) if claim.kind == "date" and OF_DATE.match(one)
        }
        return own, named_instead(around, own - said, [one - said for one in rivals])

    def _date(self, claim: Claim) -> Finding:
        for year, month, day in claim.days:
            for one in (year, 0) if year else (-1,):
                for place in self.evidence.days.get((one, month, day), ())[:MOST_OCCURRENCES]:
                    number, start, end = place
                    in_table = self._row(self.evidence.passages[number], start)[0]
                    if not (in_table and self._subjects(claim, place, None)[1]):
                        same = self.evidence.texts[number][start:end] == claim.text
                        kind: SourceKind = "quoted" if same else "same_value"
                        return Finding(claim, kind, self.evidence.passages[number], start, end)
        return Finding(claim, "not_found")

    def _is_read_so(self, token: str, wanted: Wanted, number: int) -> bool:
        """Return True if the likely value of a number in a text is a wanted one."""
        if number not in self._marks:
            self._marks[number] = mark_of(self.evidence.texts[number])
        value = likely_value(token, self._marks[number])
        return value == values_of(token)[0] or wanted.low <= (value or 0) <= wanted.high

    def _worded(self, claim: Claim) -> Finding | None:
        """Find a number that a text has in words."""
        (low, high), *_ = claim.ranges
        if claim.kind == "year" or high - low > 1.5 or round(high) < 2:
            return None
        for n in range(math.ceil(low), math.floor(high) + 1):
            if (place := self._words.get(n)) is not None:
                number, start, end = place
                return Finding(claim, "same_value", self.evidence.passages[number], start, end)
        return None

    @cached_property
    def _words(self) -> Mapping[float, Place]:
        found = dict[float, Place]()
        for passage in self._computable:
            number = self._number_of[id(passage)]
            for one in WORDED_NUMBER.finditer(passage.text):
                found.setdefault(worded_value(one[0]), (number, *one.span()))
        return found

    @cached_property
    def _number_of(self) -> Mapping[int, int]:
        return {id(one): number for number, one in enumerate(self.evidence.passages)}

    def _surroundings(self, claim: Claim) -> Surroundings:
        if id(claim) not in self._around:
            self._around[id(claim)] = surroundings(self.answer, claim.start, claim.end)
        return self._around[id(claim)]

    def _tables_of(self, passage: Passage) -> list[Table]:
        if id(passage) not in self._tables:
            self._readable -= (size := len(passage.text))
            short = size <= _TABLE_CHARS and self._readable >= 0
            text = self.evidence.texts[self._number_of[id(passage)]]
            found = tables_in(text) if short else []
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
        for text in filter(None, self._surroundings(claim).texts()):
            names = {**table.named_in(key_words(text)), **names}
        return names

    def _times(self, claim: Claim, table: Table) -> dict[int, set[str]]:
        """Return the years and months among these names."""
        names = self._names(claim, table).items()
        named = {
            place: {one for one in cells if place < 0 or YEAR.fullmatch(one)}
            for place, cells in names
        }
        return {place: times for place, times in named.items() if times}

    def _is_same_year(self, claim: Claim, text: str, start: int, end: int) -> bool:
        """Return False if the sentence of the claim and that of its source name different years."""
        said = years_around(self._surroundings(claim))
        title = YEAR.findall(text[: 2 * _TITLE].lstrip()[:_TITLE].partition("\n")[0])
        heading = "" if len(title) > 2 or any(one in text for one in said) else " ".join(title)
        near = surroundings(text, start, end, with_heading=False)
        own = years_around(replace(near, heading=heading))
        return claim.kind == "year" or not (said and own) or not said.isdisjoint(own)

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
        beside, refused = self._beside(claim), id(claim) in self._refused
        sentence = self._surroundings(claim).sentence
        said = names_in(sentence), words_in(sentence)
        passages = [one for one in self._computable if one in beside or self._is_about(one, *said)]
        for passage in passages or self._computable:
            self._left -= len(passage.text) // 50
            for one in self._derivations(claim, passage):
                self._left -= 1
                if self._left < 0:
                    return None
                # The number of another row is not a total by chance.
                chance = refused and one.how.startswith(_FROM_OTHERS) and "named" not in one.how
                in_currency = one.unit is not None or _is_in_currency(claim, passage.text)
                if not chance and in_currency and is_value(claim, one):
                    return Finding(claim, "derived", passage, one.start, one.end, one.how)
        return None

    def _beside(self, claim: Claim) -> list[Passage]:
        """Return the texts that have another figure of the same sentence."""
        first, last = sentence_span(self.answer, claim.start, claim.end)
        start = bisect_left(self._stated, first, key=_start)
        near = self._stated[start : bisect_left(self._stated, last, start, key=_start)]
        found = {id(one.passage) for one in near if one.claim is not claim}
        return [one for one in self._computable if id(one) in found]

    def _is_about(self, passage: Passage, names: Set[str], words: Set[str]) -> bool:
        own, titles = self._topics(passage)
        return not (names.isdisjoint(own) and words.isdisjoint(titles))

    def _topics(self, passage: Passage) -> tuple[Set[str], Set[str]]:
        """Return the names in a text, and the words of titles and names in its tables."""
        if id(passage) not in self._named:
            tables = [one for one in self._tables_of(passage) if one.columns]
            titles = words_in("\n".join(title for one in tables for title in one.header))
            titles.update(*(words for one in tables for words in one.subjects))
            self._named[id(passage)] = names_in(passage.text[:_TOPIC_CHARS]), titles
        return self._named[id(passage)]

    def _derivations(self, claim: Claim, passage: Passage) -> Iterator[Derivation]:
        """Yield counts of lines and words, and what follows from a sentence or a table."""
        text, low = passage.text, passage.text.casefold()
        words = words_in(self._surroundings(claim).sentence)
        lines = [line for line in low.split("\n") if line.strip()][:5000]
        sizes = {"lines": len(lines), "lines without the first": len(lines) - 1}
        sizes |= {"items": text.count(",") + 1}
        if _OF_SIZE.search(self._surroundings(claim).sentence):
            sizes |= {"words": len(text.split()), "characters": len(text)}
        sizes |= {f"lines with {w}": sum(w in line for line in lines) for w in words if w in low}
        for how, number in sizes.items():
            yield Derivation(number or -1, f"number of {how}", 0, len(text), COUNT)
        tables = self._tables_of(passage)
        for table in tables:
            few = len(self._computable) <= _FEW
            asked = key_words(self.evidence.task[-2000:])
            said = key_words("\n".join(self._surroundings(claim).texts()))
            yield from derivations(table, said, asked, self._given, is_about=few)
        place = 0
        while place < len(text) <= 20_000:
            first, last = sentence_span(text, place, place + 1)
            begin = last - len(text[first:last].lstrip())
            beside, _ = self._row(passage, begin)
            if beside is None or not beside.header:
                mark = mark_of(text)
                yield from sentence_derivations(text, first, last, mark)
            place = max(last, place) + 1

    def _from_others(self, claim: Claim, sound: Sequence[Claim]) -> Finding:
        """Find what figures near it in the answer make."""
        first = bisect_left(sound, claim.start - 600, key=lambda one: one.start)
        near = [one for one in sound[first : first + _MOST_NEAR + 1] if one is not claim]
        near = [one for one in near if abs(one.start - claim.start) < 600]
        values = [(sum(one.ranges[0]) / 2, one.unit) for one in near]
        made = list[Derivation]()
        self._left -= len(values) ** 2
        for (one, unit), (other, second) in combinations(values if self._left > 0 else (), 2):
            made += combined(one, other, 0, 0, unit if unit == second else None)
            made.append(Derivation(one * other, "product", 0, 0))
        if claim.kind == "number" and any(is_value(claim, one) for one in made):
            return Finding(claim, "derived", how="figures of the answer")
        return Finding(claim, "not_found")

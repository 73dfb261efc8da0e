"""Decides whether a claim and a number, year or address of a source agree. Pure."""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

from openmanus_graph.conversation.claims import (
    YEAR,
    Claim,
    Surroundings,
    parts_of,
    sentences_around,
)
from openmanus_graph.conversation.quantities import (
    BYTE,
    CSV_NUMBER,
    NUMBER,
    PERCENT,
    POUNDS,
    UNIT_AFTER,
    UNIT_WORDS,
    UNITS,
    Unit,
    key_words,
    unit_at,
    words_in,
)

CJK = re.compile(r"[\u3040-\u9fff]")
OF_DATE = re.compile(r"(?:month|day)\d|(?:19|20)\d\d$")
_DEPTH = 12
_GOES_ON = re.compile(r"(?:\b(?:to|auf|bis|a|à)|[至到])\s*\Z")
"""Ends a part whose subject is that of the next one, too."""
_YEAR_BEFORE = re.compile(
    r"(?i)vorjahr|jahr zuvor|année précédente|an plus tôt|año anterior|上年|去年|前一?年|同比|同期"
    r"|(?:previous|last|prior|preceding) year|year (?:before|earlier)"
)
_EARLIER = re.compile(
    r"(?i)\b(?:from|compared|against|versus|after|than|gegenüber|nach|zuvor|contre|après|frente|tras)\b"
    r"[^\d]{0,20}$|[从由][^\d]{0,8}$|相比[^\d]{0,8}$"
)
"""What is before an earlier value, with which another is compared."""
_CAPITAL = re.compile(r"\b[A-ZÀ-Þ][^\W\d_]{2,}")
_CSV_LINE = re.compile(r"(?!.*(?:, |[;\t]|\d,\d+ ?[A-Za-z%€]))[^,\n]*(?:,[^,\n]*)+")
_CURRENCY = re.compile(r"(?<![A-Za-z])(?:US\$|[$€£]|(?i:EUR|USD|GBP|CHF|JPY|CNY|RMB))(?![A-Za-z])")
_FAMILIES = {
    name: {one for one in UNITS.values() if one.dimension == name}
    for name in {one.dimension for one in UNITS.values()}
}


class Wanted(NamedTuple):
    """A range of values that a source may have."""

    low: float
    high: float
    unit: Unit | None
    is_named: bool = False
    """Whether the source has to name the unit."""
    scale: float = 1.0
    """The factor that a title has to name."""


def number_forms(text: str) -> Sequence[re.Pattern[str]]:
    """Return the patterns for the numbers of a text, which may be CSV in whole or in part."""
    if text.count(",", 0, 3000) < 2:
        return (NUMBER,)
    lines = [one for one in text[:3000].split("\n") if one.strip()][:30]
    rows = sum(_CSV_LINE.fullmatch(one) is not None for one in lines)
    if rows < 2 and not re.search(r"\d,\d+,\d", text[:3000]):
        return (NUMBER,)
    return (CSV_NUMBER,) if rows > 0.8 * len(lines) else (NUMBER, CSV_NUMBER)


def wanted_values(claim: Claim) -> Iterator[Wanted]:
    """Yield the ranges that a source of a claim may have, in each unit."""
    unit = claim.unit
    for number, (low, high) in enumerate(claim.ranges):
        yield Wanted(low, high, unit)
        for scale in (1e3, 1e4, 1e6, 1e8, 1e9):
            if high > scale / 10:
                yield Wanted(low / scale, high / scale, unit, scale=scale)
        if unit is None and high <= 1.2 and high - low < 0.2:
            yield Wanted(low * 100, high * 100, PERCENT, True)
        if unit == PERCENT:
            yield Wanted(low / 100, high / 100, None, True)
        for other in _FAMILIES[unit.dimension] if unit is not None and not number else ():
            if unit is not None and other != unit:
                shift, factor = unit.offset - other.offset, other.factor
                first = (low * unit.factor + shift) / factor
                last = (high * unit.factor + shift) / factor
                yield Wanted(first, last, other, other != BYTE)


def range_test(wanted: Sequence[Wanted]) -> Callable[[float], bool]:
    """Return a function that tells whether a value is in one of the ranges."""
    ends = list[tuple[float, float]]()
    for low, high in sorted(one[:2] for one in wanted):
        if ends and low <= ends[-1][1]:
            ends[-1] = ends[-1][0], max(high, ends[-1][1])
        else:
            ends.append((low, high))
    lows = [low for low, _ in ends]

    def is_wanted(value: float) -> bool:
        place = bisect_right(lows, value + 1e-9) - 1
        return place >= 0 and value <= ends[place][1] + 1e-9

    return is_wanted


def first_digits(wanted: Sequence[Wanted]) -> set[str]:
    """Return how the values in the ranges begin, at any power of ten: with up to three digits."""
    found = set[str]()
    for low, high, *_ in wanted:
        if low <= 0 or low * 10 < high:
            return set("123456789")
        size = 10.0 ** (2 - math.floor(math.log10(low)))
        first, last = int(low * size * (1 - 1e-9)), int(high * size * (1 + 1e-9))
        digits = 3 if last - first < 4 else 2
        step = 10 ** (3 - digits)
        # A source may leave zeros at the end out.
        found.update(str(one)[:digits].rstrip("0") for one in range(first, last + step, step))
    return found


def lines_with(text: str, beginnings: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the lines with a number that begins so. Other lines are not read number by number."""
    end = -1
    for one in beginnings.finditer(text):
        if one.start() >= end:
            end = text.find("\n", one.end())
            end = end if end >= 0 else len(text)
            yield text.rfind("\n", 0, one.start()) + 1, end


def beginnings_of(digits: Set[str], end: str = "") -> re.Pattern[str]:
    """Return a pattern for the first digits of numbers, whatever is between them.

    `end` is what follows them; not after the first 12 digits of longer ones.
    """
    return re.compile(f"(?<![1-9]){_branches(digits, end, _DEPTH)}" if digits else r"(?!)")


def _branches(digits: Set[str], end: str, depth: int) -> str:
    tails = defaultdict[str, set[str]](set)
    for one in digits:
        tails[one[0]].add(one[1:])
    forms = list[str]()
    for one, rest in sorted(tails.items()):
        longer, ways = rest - {""}, [end] if "" in rest else []
        if longer and depth > 1:
            ways.append(f"[.,'’\u00a0\u202f ]?{_branches(longer, end, depth - 1)}")
        elif longer:
            ways = [""]
        forms.append(one if "" in ways else f"{one}(?:{'|'.join(ways)})")
    return f"(?:{'|'.join(forms)})"


def has_unit(wanted: Wanted, unit: Unit | None, *, counts: bool = False) -> bool:
    """Return True if a number with this unit may be the one; `counts`: it counts things."""
    expected, required = wanted.unit, wanted.is_named
    if expected is None:
        return unit is None or not required and not (counts and unit.dimension == "share")
    return unit == expected or (unit is None and not required) or {unit, expected} == POUNDS


@lru_cache(maxsize=1000)
def currencies_in(text: str) -> Set[str]:
    return {UNITS[one.upper()].dimension for one in _CURRENCY.findall(text, 0, 20_000)}


def named_instead(around: Surroundings, own: Set[str], rivals: Sequence[Set[str]]) -> Set[str]:
    """Return the words by which a claim, nearest first, names another number of a source instead.

    None if it names this one, which is about `own`, at least as well.
    """
    own, rivals = own - UNIT_WORDS, [one - UNIT_WORDS for one in rivals]
    others = set[str]()
    distinct = {*own}
    dates = {one for text in around.beside for one in key_words(text) if OF_DATE.match(one)}
    for text in (around.part, *around.beside, around.heading) if own else ():
        words, named, names = key_words(text), False, names_in(text)
        words |= dates if text == around.part else set[str]()
        for other in [one for one in rivals if words & (one - own)] or [set[str]()]:
            mine, its = words & (own - other), words & (other - own)
            is_closer = len(its) > len(mine) and CJK.search(text) is not None
            is_less = mine < own - other and (len(mine) <= len(its) or mine.isdisjoint(names))
            if its and is_less and (is_closer or its == other - own):
                return its
            named |= bool(mine)
            others |= its
            distinct -= other
        if named:
            return set()
    return others if distinct.isdisjoint(words_in(around.sentence)) else set()


def subjects_around(
    text: str, start: int, end: int, unit: Unit | None
) -> tuple[Set[str], Sequence[Set[str]]]:
    """Return the words about a number of a text, and those about others of the same unit near it.

    A part of a sentence without a name is about what the part before it names.
    """
    own, rivals = set[str](), list[Set[str]]()
    carried: Set[str] = set[str]()
    for first, stop in sentences_around(text, start, end):
        sentence = text[first:stop]
        carried = set[str]() if CJK.search(sentence) else carried
        before, last = set[str](), set[str]()
        for part in _parts(sentence):
            if not part.units:
                before |= part.words
                carried = part.names or carried
                continue
            words = before | part.words
            if not part.names or _GOES_ON.search(sentence, 0, part.start):
                words = words | carried
            words = words | last if part.is_earlier else words
            carried, before, last = part.names or carried, set[str](), words
            if first + part.start <= start < first + part.end:
                own = words
            elif unit in part.units:
                rivals.append(words)
    return own, rivals


class _Part(NamedTuple):
    """A part of a sentence of a source."""

    start: int
    end: int
    words: Set[str]
    names: Set[str]
    units: Set[Unit | None]
    """Of its numbers."""
    is_earlier: bool
    """Whether its number is an earlier value of what was named before."""


@lru_cache(maxsize=10_000)
def _parts(sentence: str) -> Sequence[_Part]:
    found = list[_Part]()
    for start, end in parts_of(sentence):
        part = sentence[start:end]
        numbers = [one for one in NUMBER.finditer(part) if not YEAR.fullmatch(one[0])]
        units, bare, left = set[Unit | None](), "", 0
        for one in numbers:
            units.add(unit_at(part, *one.span()))
            after = UNIT_AFTER.match(part, one.end())
            bare, left = bare + part[left : one.start()], after.end() if after else one.end()
        words = words_in(bare + part[left:])
        names = names_in(part)
        if CJK.search(part):
            words = words_in(part[: numbers[0].start()] if numbers else part)
            names = words if len(words) > 3 else names
        until = part[: numbers[0].start()] if numbers else ""
        is_earlier = _YEAR_BEFORE.search(part) or _EARLIER.search(until)
        found.append(_Part(start, end, words, names, units, is_earlier is not None))
    return found


def names_in(text: str) -> set[str]:
    """Return the words with a capital, which may be names."""
    return words_in(" ".join(_CAPITAL.findall(text)))


def years_around(around: Surroundings) -> set[str]:
    """Return the years that are named nearest to a number; none if it is an earlier value."""
    if own := set(YEAR.findall(around.part)):
        return own
    if _YEAR_BEFORE.search(around.part):
        years = YEAR.findall(around.before) or YEAR.findall(around.heading)
        return {str(int(one) - 1) for one in years}
    is_earlier = _EARLIER.search(around.before) or _GOES_ON.search(around.part)
    near = () if is_earlier else (*around.beside, around.before, around.heading)
    return next(filter(None, (set(YEAR.findall(one)) for one in near)), own)


def plain_address(address: str) -> str:
    bare = re.sub(r"^https?://(?:www\.)?", "", address.rstrip(".,;:!?*_…)\\").partition("#")[0])
    host, slash, path = bare.partition("/")
    return (host.lower() + slash + path).rstrip("/")

"""Decides whether a claim and a number, year or address of a source agree. Pure."""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import combinations

from openmanus_graph.conversation.claims import YEAR, Claim, Surroundings
from openmanus_graph.conversation.quantities import (
    BYTE,
    COUNT,
    CSV_NUMBER,
    NUMBER,
    PERCENT,
    POUNDS,
    UNITS,
    Unit,
    likely_value,
    unit_at,
)
from openmanus_graph.conversation.tables import Derivation, combined

_CSV_LINE = re.compile(r"(?!.*(?:, |[;\t]|\d,\d+ ?[A-Za-z%€]))[^,\n]*(?:,[^,\n]*)+")
WORD = re.compile(r"[^\W\d_\u3040-\u9fff]{3,}|[\u3040-\u9fff]{2}")
_FAMILIES = {
    name: {one for one in UNITS.values() if one.dimension == name}
    for name in {one.dimension for one in UNITS.values()}
}
Wanted = tuple[float, float, Unit | None, bool]
"""A range of values, the unit that they are in, and whether the source has to name that unit."""


def number_forms(text: str) -> Sequence[re.Pattern[str]]:
    """Return the patterns for the numbers of a text, which may be CSV in whole or in part."""
    lines = [one for one in text[:3000].split("\n") if one.strip()][:30]
    rows = sum(_CSV_LINE.fullmatch(one) is not None for one in lines)
    if rows < 2 and not re.search(r"\d,\d+,\d", text[:3000]):
        return (NUMBER,)
    return (CSV_NUMBER,) if rows > 0.8 * len(lines) else (NUMBER, CSV_NUMBER)


def wanted_values(claim: Claim) -> Iterator[Wanted]:
    """Yield the ranges that a source of a claim may have, in each unit."""
    unit = claim.unit
    for number, (low, high) in enumerate(claim.ranges):
        yield low, high, unit, False
        if unit is None and high <= 1.2 and high - low < 0.2:
            yield low * 100, high * 100, PERCENT, True
        if unit == PERCENT:
            yield low / 100, high / 100, None, True
        for other in _FAMILIES[unit.dimension] if unit is not None and not number else ():
            if unit is not None and other != unit:
                shift, factor = unit.offset - other.offset, other.factor
                first = (low * unit.factor + shift) / factor
                yield first, (high * unit.factor + shift) / factor, other, other != BYTE


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
    for low, high, _, _ in wanted:
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
    """Return a pattern for the first digits of numbers, whatever is between them."""
    return re.compile(f"(?<![1-9]){_branches(digits)}{end}" if digits else r"(?!)")


def _branches(digits: Set[str]) -> str:
    tails = defaultdict[str, set[str]](set)
    for one in digits:
        tails[one[0]].add(one[1:])
    forms = (
        one if "" in rest else f"{one}[.,'’\u00a0\u202f ]?{_branches(rest)}"
        for one, rest in sorted(tails.items())
    )
    return f"(?:{'|'.join(forms)})"


def has_unit(wanted: Wanted, unit: Unit | None, *, counts: bool = False) -> bool:
    """Return True if a number with this unit may be the one; `counts`: it counts things."""
    _, _, expected, required = wanted
    if expected is None:
        return unit is None or not required and not (counts and unit.dimension == "share")
    return unit == expected or (unit is None and not required) or {unit, expected} == POUNDS


def words_in(text: str) -> set[str]:
    return {one.rstrip("s") for one in WORD.findall(text.casefold())}


def years_around(around: Surroundings) -> set[str]:
    found = (set[str](YEAR.findall(one)) for one in around.texts())
    return next(filter(None, found), set[str]())


def has_any(line: str, names: Set[str]) -> bool:
    return any(word in line for name in names for word in name.split())


def plain_address(address: str) -> str:
    bare = re.sub(r"^https?://(?:www\.)?", "", address.rstrip(".,;:!?*_…)\\").partition("#")[0])
    host, slash, path = bare.partition("/")
    return (host.lower() + slash + path).rstrip("/")


def sentence_derivations(text: str, start: int, end: int, mark: str) -> Iterator[Derivation]:
    found = list[tuple[float, Unit | None]]()
    for one in NUMBER.finditer(text, start, end):
        unit = unit_at(text, *one.span())
        if not (YEAR.fullmatch(one[0]) and unit is None):
            value = likely_value(one[0], mark)
            found += [] if value is None else [(value, unit)]
    for (value, unit), (other, second) in combinations(found[:6], 2):
        same = unit if unit == second else None
        yield from combined(value, other, start, end, same, shares=PERCENT in (unit, second))
        yield Derivation(value * other, "product", start, end)
        for whole, its, part, no in ((value, unit, other, second), (other, second, value, unit)):
            if its is not None and no is None and part > 1:
                yield Derivation(whole / part, "ratio", start, end, its)


def is_value(claim: Claim, made: Derivation) -> bool:
    """Return True if a claim may be this value. A share is a ratio, or a difference of shares."""
    value, unit = made.value, claim.unit
    if made.unit == COUNT:
        return unit is None and any(
            low <= value <= high and high - low > 0.9 for low, high in claim.ranges
        )
    if made.is_ratio:
        is_share = unit is None and claim.ranges[0][1] - claim.ranges[0][0] < 0.2 and value <= 1
        if unit != PERCENT and not is_share and (made.how == "change" or not claim.is_factor):
            return False
        value *= 100 if unit == PERCENT else 1
    elif unit is not None and made.unit is not None and made.unit != unit:
        if made.unit.dimension != unit.dimension and unit.dimension != "points":
            return False
        value *= made.unit.factor / unit.factor if made.unit.dimension == unit.dimension else 1
    return any(low <= value <= high for low, high in claim.ranges)

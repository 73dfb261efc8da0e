"""Finds the figures of an answer in texts, or figures from which they follow. Pure.

A figure is found in any notation, rounded, as a number of lines or words, or computed from two
figures or a column. Years and small counts are not looked for.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, combinations, permutations, product
from statistics import fmean
from typing import NamedTuple

MOST_COMBINED = 60
"""Figures that are combined with one another. From more, nearly every figure would follow."""
FEW = 12
"""A noun after so small a number is a count, which is not looked for. Also limits combinations."""
_PERCENT, _POWERS = ("%", "percent", "prozent"), (0, 1, 10, 100, 1000)
_SCALES = {
    **dict.fromkeys(_PERCENT, 0.01),
    **dict.fromkeys(("k", "thousand", "tausend"), 1e3),
    **dict.fromkeys(("million", "Million", "Millionen", "mio", "Mio", "M"), 1e6),
    **{"billion": 1e9, "万": 1e4},
}
_SHARE = re.compile(rf"(\d+(?:\.\d+)?)\s?(?:{'|'.join(_PERCENT)})", re.IGNORECASE)
_FIGURE = r"\d+(?:[.,'’\u00a0\u202f ]\d{3}(?!\d))*(?:[.,]\d+)?(?:[eE][+-]?\d+)?"
_PIECE = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_STATED = re.compile(rf"({_FIGURE})(?:(\s?)({'|'.join(_SCALES)})(?![A-Za-z]))?")
_CLAIMED = re.compile(
    rf"(?<![A-Za-z_\d./\\#])(?<!\w-)({_FIGURE})(?![.,]?\d)"
    rf"(?:(\s?)({'|'.join(_SCALES)})(?![A-Za-z]))?"
    r"(?![A-Za-z_])(\W{0,3}\s*[^\W\d_]{2,})?"
)
_NOT_CLAIMED = re.compile(
    r"(?ims)```.*?(?:```|\Z)|https?://\S+|\b\d{4}-\d\d?(?:-\d\d?)?\b|\b\d\d?[./]\d\d?[./]\d{2,4}\b"
    r"|\b\d+:\d+(?::\d+)?|\bv?(?!\d{1,3}(?:\.\d{3})+\b)\d+(?:\.\d+){2,}|^[^\w\n]{0,20}\d+[.)]\s"
    r"|\b(?:step|item|row|line|column|page|chapter|section|table|n[or]\.?|zeile|seite)\s*\d+"
)
"""Code, addresses, dates, times, versions, numbers of list items and of places in a text."""


class Claim(NamedTuple):
    text: str
    ranges: Sequence[tuple[float, float]]
    """The exact value is in one of them."""


def claims_in(answer: str) -> Iterator[Claim]:
    """Yield the figures that an answer claims."""
    for figure, space, scale, noun in _CLAIMED.findall(_NOT_CLAIMED.sub(" ", answer)):
        whole = float(figure) if figure.isdecimal() and not scale else 1e9
        if not whole or (noun and whole <= FEW) or (len(figure) == 4 and 1900 <= whole <= 2100):
            continue
        ranges = [*_ranges(figure, _SCALES.get(scale, 1.0))]
        ranges += _ranges(figure) if scale in _PERCENT else ()
        yield Claim(figure + space + scale, ranges)


def _ranges(figure: str, scale: float = 1.0) -> Iterator[tuple[float, float]]:
    """Yield, for each reading of a figure, the range of values that are rounded or cut to it."""
    for value, decimals in _readings(figure):
        down, up = 0.51 * 10.0**-decimals, (0.999 if decimals else 0.51) * 10.0**-decimals
        plain = re.sub(r"\D", "", figure)
        rounded = 0.5 * 10.0 ** min(len(plain) - len(plain.rstrip("0")), 15)
        if not decimals and 1 < rounded <= 0.05 * value:
            down = up = rounded
        yield (value - down) * scale, (value + up) * scale
        if decimals and value <= 1 and scale == 1:  # a share, which may be in percent in the text
            yield (value - down) * 100, (value + up) * 100


def _readings(figure: str) -> Iterator[tuple[float, int]]:
    """Yield the meanings of a figure, each with its decimals: 1.234 has two."""
    plain = re.sub(r"['’\s]", "", figure)
    marks = re.findall(r"[.,]", plain)
    head, _, tail = plain.rpartition(marks[-1]) if marks else (plain, "", "")
    if len(marks) == 1 or len(set(marks)) == 2:
        yield _value(f"{re.sub('[.,]', '', head)}.{tail}"), len(re.split("[eE]", tail)[0])
    if not marks or (len(set(marks)) == 1 and len(tail) == 3 and head[0] != "0"):
        yield _value(re.sub("[.,]", "", plain)), 0


def _value(written: str) -> float:
    return min(float(written), 1e15)


def missing_claims(
    claims: Sequence[Claim], texts: Sequence[str], quotable: Sequence[str] = ()
) -> list[Claim]:
    """Return the claims that no text has and that cannot be computed from `texts`."""
    values = sorted({value for text in texts for value in _values(text)})
    stated = sorted(value for text in quotable for value in _values(text))
    missing = [one for one in claims if not (_holds(values, one) or _holds(stated, one))]
    if not missing:
        return []
    computed = sorted(_computed(texts, values))
    missing = [one for one in missing if not _holds(computed, one)]
    found = [sum(one.ranges[0]) / 2 for one in claims if one not in missing][:MOST_COMBINED]
    sums = (total for start in range(len(found)) for total in accumulate(found[start:]))
    made = sorted([*sums, *_combined([found], []), *_scaled(combinations(found, 2))])
    return [one for one in missing if not _holds(made, one)]


def _holds(values: Sequence[float], claim: Claim) -> bool:
    for least, most in claim.ranges:
        place = bisect_left(values, least - 1e-9)
        if place < len(values) and values[place] <= most + 1e-9:
            return True
    return False


def _values(text: str) -> Iterator[float]:
    """Yield the figures of a text in every reading. Joined figures may be several."""
    for figure, _, scale in _STATED.findall(text):
        values = [value for value, _ in _readings(figure)]
        yield from values
        yield from map(_value, _PIECE.findall(figure))
        if scale and scale not in _PERCENT:
            yield from (value * _SCALES[scale] for value in values)


def _computed(texts: Sequence[str], values: Sequence[float]) -> Iterator[float]:
    """Yield what follows from texts with these values.

    Two figures, or two totals, are combined only if there are few, because nearly every figure
    follows from combinations of many.
    """
    tables = [_Table.of(text) for text in texts]
    percents = [_value(one) for text in texts for one in _SHARE.findall(text)][:FEW]
    yield from chain(*_Table.of("\n".join(texts))[:-1], *chain(*tables))
    if len(values) <= MOST_COMBINED:
        yield from _combined([values, [*chain(*(one.totals for one in tables))]], percents)
    figures = [{*_values(text)} for text in texts]
    for own, table in zip(figures, tables, strict=True):
        if len(own) <= MOST_COMBINED < len(values):
            yield from _combined([[*own, *table.counts[:1]], table.totals], percents)
        own.update(table.totals)
        if len(own) <= FEW:
            yield from _scaled(combinations(own, 2))
    for one, other in combinations(figures, 2):  # a price in the task, a number in a file
        if min(len(one), len(other)) <= FEW and max(len(one), len(other)) <= MOST_COMBINED:
            yield from _scaled(product(one, other))


class _Table(NamedTuple):
    totals: Sequence[float]
    """Sums of each column, of all lines and of those with the same other cell."""
    means: Sequence[float]
    ranges: Sequence[float]
    products: Sequence[float]
    """Of two figures of a line, and percentages, of few lines. Products are columns too."""
    counts: Sequence[float]
    """Of lines without the first, of lines, words, characters and items, and of each word."""

    @classmethod
    def of(cls, text: str) -> "_Table":
        lines = [line.lower() for line in text.splitlines() if line.strip()]
        columns, products = defaultdict[tuple[str, int], list[float]](list), list[float]()
        has_percents = any(one in text.lower() for one in (*_PERCENT, "pct"))
        for line in lines[:5000]:
            cells = [one.strip() for one in re.split(r"[,;\t|]|\s{2,}", line)]
            names = {"", *[one for one in cells if one and not one[0].isdecimal()][:6]}
            row = [_value(piece) for piece in _PIECE.findall(line)[:6]]
            made = [one * other for one, other in combinations(row, 2)]
            if len(lines) <= MOST_COMBINED:
                pairs = permutations(row, 2) if has_percents else ()
                products += chain(made, *(_shares(*pair) for pair in pairs))
            for name in names:
                for place, value in enumerate((*row, *made)):
                    columns[name, place].append(value)
        several = [values for values in columns.values() if len(values) > 1]
        words = Counter(word for line in lines for word in set(re.findall(r"\w+", line)))
        sizes = len(lines) - 1, len(lines), len(text.split()), len(text), text.count(",") + 1
        return cls(
            [sum(values) for values in several],
            [fmean(values) for values in several],
            [max(values) - min(values) for values in several],
            products,
            [*map(float, (*sizes, *{*words.values()}))],
        )


def _combined(kinds: Sequence[Sequence[float]], percents: Sequence[float]) -> Iterator[float]:
    """Yield what two figures of a kind make, shares of the later kinds, and percents of all."""
    kinds = [kind[:MOST_COMBINED] for kind in kinds]
    for kind in kinds:
        for one, other in combinations(kind, 2):
            yield from (one + other, abs(one - other))
            yield from _ratios(one, other)
            yield from _ratios(other, one)
    for one, other in chain(*(product(*two) for two in combinations(kinds, 2))):
        if one <= other:
            yield from _ratios(one, other)
    for value, percent in product(chain(*kinds), percents):
        yield from _shares(value, percent)


def _ratios(part: float, whole: float) -> Iterator[float]:
    """Yield a ratio and a change, except of powers of ten, which only move the decimal point."""
    if whole not in _POWERS:
        yield from (part / whole, abs(part / whole - 1))


def _scaled(pairs: Iterable[tuple[float, float]]) -> Iterator[float]:
    """Yield the product and the ratios of pairs of figures."""
    for one, other in pairs:
        yield from (one * other, *_ratios(one, other), *_ratios(other, one))


def _shares(value: float, percent: float) -> tuple[float, float, float]:
    """Return a percentage of a value, and the value with and without it."""
    return value * percent / 100, value * (1 + percent / 100), value * (1 - percent / 100)

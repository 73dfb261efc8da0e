"""Finds the figures of an answer in texts, or what they follow from. Pure.

A figure is found in any notation, rounded, as a number of lines or words, or computed from two
figures or a column of them. A year and a few things counted are not looked for.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations
from statistics import fmean
from typing import NamedTuple

MOST_COMBINED = 60
"""Figures that are combined with one another at most: of more nearly every figure could be made."""
FEW = 12
_PERCENT, _POWERS = ("%", "percent", "prozent"), (0, 1, 10, 100, 1000)
_SCALES = {
    **dict.fromkeys(_PERCENT, 0.01),
    **dict.fromkeys(("k", "thousand", "tausend"), 1e3),
    **dict.fromkeys(("million", "Millionen", "mio", "M"), 1e6),
    **{"billion": 1e9, "万": 1e4},
}
_FIGURE = r"\d+(?:[.,'’\u00a0\u202f ]\d{3}(?!\d))*(?:[.,]\d+)?(?:[eE][+-]?\d+)?"
_PIECE = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_CLAIMED = re.compile(
    rf"(?<![A-Za-z_\d./\\#])(?<!\w-)({_FIGURE})(?![.,]?\d)(?:\s?({'|'.join(_SCALES)})(?![A-Za-z]))?"
    r"(?![A-Za-z_])(\W{0,3}\s*[^\W\d_]{2,})?"
)
_NOT_CLAIMED = re.compile(
    r"```.*?(?:```|\Z)|https?://\S+|\b\d{4}-\d\d?(?:-\d\d?)?\b|\b\d\d?[./]\d\d?[./]\d{2,4}\b"
    r"|\b\d+:\d+(?::\d+)?|\bv?(?!\d{1,3}(?:\.\d{3})+\b)\d+(?:\.\d+){2,}|^[^\w\n]{0,20}\d+[.)]\s"
    r"|\b(?:step|item|row|line|column|page|chapter|section|table|n[or]\.?|zeile|seite)\s*\d+",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
"""Code, addresses, dates, times, versions, the numbers of a list and of places in a text."""


class Claim(NamedTuple):
    """A figure of an answer."""

    text: str
    ranges: Sequence[tuple[float, float]]
    """What it may have been rounded from lies in one of them."""


def claims_in(answer: str) -> Iterator[Claim]:
    """Yield the figures that an answer claims."""
    for figure, scale, noun in _CLAIMED.findall(_NOT_CLAIMED.sub(" ", answer)):
        whole = float(figure) if figure.isdecimal() and not scale else 1e9
        if not whole or (noun and whole <= FEW) or (len(figure) == 4 and 1900 <= whole <= 2100):
            continue
        ranges = [*_ranges(figure, _SCALES.get(scale, 1.0))]
        yield Claim(figure + scale, [*ranges, *(_ranges(figure) if scale in _PERCENT else ())])


def _ranges(figure: str, scale: float = 1.0) -> Iterator[tuple[float, float]]:
    """Yield for each reading of a figure between which values it was rounded, or cut off."""
    for value, decimals in _readings(figure):
        down, up = 0.51 * 10.0**-decimals, (0.999 if decimals else 0.51) * 10.0**-decimals
        plain = re.sub(r"\D", "", figure)
        rounded = 0.5 * 10.0 ** min(len(plain) - len(plain.rstrip("0")), 15)
        if not decimals and 1 < rounded <= 0.05 * value:
            down = up = rounded
        yield (value - down) * scale, (value + up) * scale
        if decimals and value <= 1 and scale == 1:  # a share, which may stand there in percent
            yield (value - down) * 100, (value + up) * 100


def _readings(figure: str) -> Iterator[tuple[float, int]]:
    """Yield what a figure may mean, each with its decimals: 1.234 is either of two."""
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
    """Return the claims that no text holds, and that do not follow from what is found.

    Args:
        claims: Of an answer.
        texts: What it may be computed from.
        quotable: Texts whose figures an answer may repeat, but not compute with.
    """
    values = sorted({value for text in texts for value in _values(text)})
    stated = sorted(value for text in quotable for value in _values(text))
    missing = [one for one in claims if not (_holds(values, one) or _holds(stated, one))]
    if not missing:
        return []
    computed = sorted(_computed(texts, values))
    missing = [one for one in missing if not _holds(computed, one)]
    found = [sum(one.ranges[0]) / 2 for one in claims if one not in missing][:MOST_COMBINED]
    sums = (total for start in range(len(found)) for total in accumulate(found[start:]))
    made = sorted([*sums, *_combined(found)])
    return [one for one in missing if not _holds(made, one)]


def _holds(values: Sequence[float], claim: Claim) -> bool:
    for least, most in claim.ranges:
        place = bisect_left(values, least - 1e-9)
        if place < len(values) and values[place] <= most + 1e-9:
            return True
    return False


def _values(text: str) -> Iterator[float]:
    """Yield the figures of a text in every reading: what is written together may be several."""
    for match in re.finditer(_FIGURE, text):
        yield from (value for value, _ in _readings(match[0]))
        yield from map(_value, _PIECE.findall(match[0]))


def _computed(texts: Sequence[str], values: Sequence[float]) -> Iterator[float]:
    """Yield what follows from texts with these values; of few values, all that two make."""
    few = len(values) <= MOST_COMBINED
    columns = [[*_columns(text)] for text in texts]
    yield from _columns("\n".join(texts))
    for text, made in zip(texts, columns, strict=True):
        lines = [line for line in text.splitlines() if line.strip()]
        words = Counter(word for line in lines for word in set(re.findall(r"\w+", line.lower())))
        sizes = (len(lines), len(lines) - 1, len(text.split()), len(text), text.count(",") + 1)
        yield from (*made, *map(float, {*sizes, *words.values()}))
        base = {*_values(text), *made, float(sizes[1])}
        if not few and len(base) <= MOST_COMBINED:
            yield from _combined([*base])
    if few:
        yield from _combined([*values, *[one for made in columns for one in made][:MOST_COMBINED]])


def _columns(text: str) -> Iterator[float]:
    """Yield sum, mean and range of each column of figures, whole and by the cells beside it.

    The products of two columns are columns, too.
    """
    columns = defaultdict[tuple[str, int], list[float]](list)
    for line in text.splitlines()[:5000]:
        cells = [one.strip() for one in re.split(r"[,;\t|]|\s{2,}", line.lower())]
        names = {"", *[one for one in cells if one and not one[0].isdecimal()][:6]}
        row = [_value(piece) for piece in _PIECE.findall(line)[:6]]
        row += [one * other for one, other in combinations(row, 2)]
        for name in names:
            for place, value in enumerate(row):
                columns[name, place].append(value)
    for values in columns.values():
        if len(values) > 1:
            yield from (sum(values), fmean(values), max(values) - min(values))


def _combined(values: Sequence[float]) -> Iterator[float]:
    """Yield sums, differences, products, ratios and changes of any two values."""
    for one, other in combinations(values, 2):
        yield from (one + other, abs(one - other))
        for part, whole in ((one, other), (other, one)):
            if whole not in _POWERS:  # it would only move the decimal point
                ratio = part / whole
                yield from (ratio, 100 * ratio, abs(100 * ratio - 100), part * whole)
                yield from (part * whole / 100, part * (1 + whole / 100), part * (1 - whole / 100))

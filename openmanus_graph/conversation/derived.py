"""Derives values from the numbers of a table, a sentence or an answer. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations

from openmanus_graph.conversation.claims import YEAR, Claim
from openmanus_graph.conversation.quantities import (
    COUNT,
    NUMBER,
    PERCENT,
    Unit,
    key_words,
    likely_value,
    unit_at,
)
from openmanus_graph.conversation.tables import TIME, Table

MOST_PAIRED, MOST_ALONE = 12, 40
"""Rows whose cells are combined with one another, and within each, if no row is named."""
_AVERAGE = {"average", "mean", "mittel", "schnitt", "durchschnitt", "moyenne", "promedio", "平均"}
LEAST_PART = 0.003
"""A smaller part of a sum is not seen in a rounded one."""


@dataclass(frozen=True)
class Derivation:
    """A value that follows from numbers of a text, and where these are."""

    value: float
    how: str
    start: int
    end: int
    unit: Unit | None = None
    is_ratio: bool = False


def derivations(  # noqa: C901  # one list of what is combined
    table: Table, said: Set[str], asked: Set[str], given: Sequence[float], *, is_about: bool
) -> Iterator[Derivation]:
    """Yield what follows from the numbers of each row and column, for the words of a sentence.

    Rows that the sentence or, if it names none, the task names are combined with one another.
    Of a table that neither names anything of, only its columns are, unless it `is_about` it.
    Totals are multiplied by the `given` numbers.
    """
    names, named_before = table.named_in(said), table.named_in(asked)
    columns, place = dict(table.columns), (table.rows[0].start, table.rows[-1].end)
    own, before = table.rows_named(names), table.rows_named(named_before)
    titles, wanted = (
        {c for c, one in enumerate(table.header) if c in columns and key_words(one) & words}
        for words in (said, asked)
    )
    is_about |= bool(own or before or wanted or len(titles) > 1)
    is_about |= not all(YEAR.fullmatch(table.header[c]) for c in titles)
    for one, other in combinations([*columns][:6] if is_about else (), 2):
        if len(both := columns[one].keys() & columns[other].keys()) > 1:
            # Units and price make revenue.
            products = {n: columns[one][n] * columns[other][n] for n in both}
            columns[100 * one + other + 100] = products
    for column, cells in columns.items():
        yield from _of_column(table, column, cells, own, given)
    if not is_about:
        return
    timeless = {c: keys for c, keys in names.items() if not all(map(TIME.fullmatch, keys))}
    chosen = table.rows_named(timeless) or own or before
    chosen = [*chosen, *(n for n in before if n not in chosen)] if len(chosen) < 2 else chosen
    totals = [
        (sum(cells.values()), table.measure_at(0, c)[0]) for c, cells in columns.items() if cells
    ]
    for (one_total, unit), (total, second) in combinations(totals[:12], 2):
        if unit == second:
            yield from combined(one_total, total, *place, unit)
    is_mean = not _AVERAGE.isdisjoint(said)
    for made in _of_rows(
        table, chosen or range(len(table.rows)), columns, titles, is_mean, all_rows=not chosen
    ):
        if chosen or len(titles) > 1 or made.how in ("sum", "difference"):
            yield made


def _of_rows(
    table: Table,
    rows: Sequence[int],
    columns: Mapping[int, Mapping[int, float]],
    titles: Set[int],
    is_mean: bool,
    *,
    all_rows: bool,
) -> Iterator[Derivation]:
    """Yield what the cells of each row make, and those of one column in two rows, if few."""
    if len(rows) <= MOST_PAIRED or all_rows:
        for n in rows[:MOST_ALONE]:
            yield from _of_row(table, n, columns, titles, is_mean)
    for one, other in combinations(rows, 2) if len(rows) <= MOST_PAIRED else ():
        place = table.rows[one].start, table.rows[other].end
        for column, cells in columns.items():
            if one in cells and other in cells:
                unit, second = (table.measure_at(n, column)[0] for n in (one, other))
                if unit == second:
                    yield from combined(cells[one], cells[other], *place, unit)
                else:
                    yield from ratios(cells[one], cells[other], *place, (unit, second))


def _of_column(
    table: Table,
    column: int,
    cells: Mapping[int, float],
    own: Sequence[int],
    given: Sequence[float],
) -> Iterator[Derivation]:
    place, unit = (table.rows[0].start, table.rows[-1].end), table.measure_at(0, column)[0]
    if len({table.measure_at(n, column) for n in cells}) != 1:
        return
    groups = [("total", [*cells])]
    if len(rows := [n for n in own if n in cells]) > 1:
        groups.append(("total of the named rows", rows))
    for how, rows in groups:
        values = [cells[n] for n in rows]
        total, mean = sum(values), sum(values) / len(values)
        yield Derivation(total, how, *place, unit)
        yield Derivation(mean, f"mean of {how}", *place, unit)
        yield Derivation(max(values) - min(values), f"range of {how}", *place, unit)
        yield Derivation(len(values), f"number of {how}", *place, COUNT)
        for value in given if how == "total" else ():
            for made in (total * value, total / (value or 1), mean * value):
                yield Derivation(made, f"{how} and a number of the task", *place)


def _of_row(
    table: Table,
    n: int,
    columns: Mapping[int, Mapping[int, float]],
    titles: Set[int],
    is_mean: bool,
) -> Iterator[Derivation]:
    place = table.rows[n].start, table.rows[n].end
    row = {column: cells[n] for column, cells in table.columns.items() if n in cells}
    same = [c for c in row if table.measure_at(n, c) == table.measure_at(n, [*row][0])]
    if len(same) > 2 - is_mean:
        total, unit = sum(row[c] for c in same), table.measure_at(n, same[0])[0]
        yield Derivation(total, "total of a row", *place, unit)
        yield Derivation(total / len(same), "mean of a row", *place, unit)
    for one, other in combinations([c for c in row if c in titles or len(titles) < 2][:8], 2):
        units = table.measure_at(n, one)[0], table.measure_at(n, other)[0]
        unit = units[0] if units[0] == units[1] else None
        if units[0] == units[1] and (unit or len(titles) != 1):
            yield from combined(row[one], row[other], *place, unit)
        else:
            yield from ratios(row[one], row[other], *place, units)
        for a, b, whole in ((one, other, units[0]), (other, one, units[1])):
            if unit is None and (whole is not None or is_mean) and row[b] > 1:
                yield Derivation(row[a] / row[b], "ratio", *place, whole)
        if 1 not in (row[one], row[other]):
            yield Derivation(row[one] * row[other], "product", *place)
    yield from _shares(table, n, columns)


def _shares(
    table: Table, n: int, columns: Mapping[int, Mapping[int, float]]
) -> Iterator[Derivation]:
    place = table.rows[n].start, table.rows[n].end
    for cells in columns.values():
        for key in (None, *table.names[n].values()) if n in cells else ():
            rows = [one for one in cells if key is None or key in table.names[one].values()]
            if (total := sum(cells[one] for one in rows)) and len(rows) > 1:
                yield Derivation(
                    cells[n] / total, f"share of {key or 'all'}", *place, is_ratio=True
                )


def combined(
    one: float,
    other: float,
    start: int,
    end: int,
    unit: Unit | None = None,
) -> Iterator[Derivation]:
    """Yield what two numbers of one unit make."""
    if min(one, other) > LEAST_PART * max(one, other):
        yield Derivation(abs(one - other), "difference", start, end, unit)
        yield Derivation(one + other, "sum", start, end, unit)
    yield from ratios(one, other, start, end)


def ratios(
    one: float,
    other: float,
    start: int,
    end: int,
    units: tuple[Unit | None, Unit | None] = (None, None),
) -> Iterator[Derivation]:
    """Yield what two numbers of any unit make; one may be a percentage of the other."""
    for part, whole, unit, share in ((one, other, *units), (other, one, *units[::-1])):
        if whole not in (0, 1, 10, 100, 1000):
            yield Derivation(part / whole, "ratio", start, end, is_ratio=True)
            yield Derivation(abs(part / whole - 1), "change", start, end, is_ratio=True)
        for change in (whole, 100 + whole, 100 - whole) if share == PERCENT else ():
            yield Derivation(part * change / 100, "percentage", start, end, unit)


def sentence_derivations(text: str, start: int, end: int, mark: str) -> Iterator[Derivation]:
    found = list[tuple[float, Unit | None, str]]()
    for one in NUMBER.finditer(text, start, end):
        unit = unit_at(text, *one.span())
        if not (YEAR.fullmatch(one[0]) and unit is None):
            value = likely_value(one[0], mark)
            scale = re.sub(r"[^a-z万亿]", "", one[0])
            found += [] if value is None else [(value, unit, scale)]
    for (value, unit, scale), (other, second, its) in combinations(found[:6], 2):
        same = unit if unit == second else unit or second if scale == its and scale else None
        if same is not None or unit == second:
            yield from combined(value, other, start, end, same)
        else:
            yield from ratios(value, other, start, end, (unit, second))
        yield Derivation(value * other, "product", start, end)
        for whole, its_unit, part, no in (
            (value, unit, other, second),
            (other, second, value, unit),
        ):
            if its_unit and part > 1 and (no is None or no.dimension != its_unit.dimension):
                yield Derivation(whole / part, "ratio", start, end, its_unit)


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
    elif unit == PERCENT and made.unit is None:
        return False
    elif unit is not None and made.unit is not None and made.unit != unit:
        if made.unit.dimension != unit.dimension and unit.dimension != "points":
            return False
        value *= made.unit.factor / unit.factor if made.unit.dimension == unit.dimension else 1
    return any(low <= value <= high for low, high in claim.ranges)

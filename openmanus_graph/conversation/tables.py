"""Reads the tables in a text, what names their rows, and what follows from their numbers. Pure.

Tables are Markdown, CSV, columns of spaces, lines of `name: value`, and JSON objects.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import combinations, groupby

from openmanus_graph.conversation.quantities import (
    COUNT,
    MONTHS,
    NUMBER,
    PERCENT,
    Unit,
    unit_of_title,
    values_of,
)

MOST_ROWS = 5000
MOST_PAIRED, MOST_ALONE = 12, 40
"""Rows whose cells are combined with one another, and within each, if no row is named."""
LEAST_PART = 0.003
"""A smaller part of a sum is not seen in a rounded one."""
_YEAR = re.compile(r"(?:19|20)\d\d")
_RULE = re.compile(r"[\s|:+=-]+")
_NAMED_VALUE = re.compile(r"\s*[-*•]?\s*([^:：=|\n]{1,60}?)\s*(?:[:：=]|->)\s*(\S.*)")
_OBJECT = re.compile(r"\{[^{}]{3,2000}\}")
_PAIR = re.compile(r'"([^"\n]{1,80})"\s*:\s*("(?:[^"\\\n]|\\.)*"|[^\s,\]}]+)')
_DIVIDED: Mapping[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    "|": (re.compile(r"\|.*\||\S \| \S"), re.compile(r"[^|]+")),
    "\t": (re.compile(r"\S.*\t"), re.compile(r"[^\t]+")),
    ";": (re.compile(r";[^;\s][^;]*;|^[^;\s][^;]*;[^;\s][^;]*$"), re.compile(r"[^;]+")),
    ",": (re.compile(r"^(?!.*[,.] [A-Za-z]).*[^,\s],[^,\s]"), re.compile(r'"(?:[^"]|"")*"|[^,]+')),
    " ": (re.compile(r"\S\s{2,}\S"), re.compile(r"\S+(?: \S+)*")),
}
"""What shows how a line is divided, and its cells."""
_NUMERIC = re.compile(r"\W{0,3}(?:[A-Z]{3} ?)?\d[\d.,' ]*[^\n]{0,14}")
_WORD = re.compile(r"[^\W_\u3040-\u9fff]+|[\u3040-\u9fff]+")
_HAN = re.compile(r"[\u3040-\u9fff]")
_COMMON = {
    "the", "and", "for", "are", "was", "from", "with", "der", "die", "das", "und", "ist", "von",
    "für", "mit", "den", "is", "of", "in", "to", "on", "at", "im", "am", "yes", "no", "ja", "nein",
}  # fmt: skip
Names = Mapping[int, Set[str]]
"""What a sentence names of a table, by column; of the header under -1."""


@dataclass(frozen=True)
class Row:
    start: int
    end: int
    cells: Sequence[tuple[int, int, str]]
    """Start, end and text of each."""


@dataclass
class Table:
    """One table. Its names are the cells without numbers, and years."""

    header: Sequence[str]
    rows: Sequence[Row]
    names: list[dict[int, str]] = field(default_factory=list[dict[int, str]])
    """Of each row by column."""
    columns: dict[int, dict[int, float]] = field(default_factory=dict[int, dict[int, float]])
    """The numbers by column and row."""
    units: dict[int, Unit] = field(default_factory=dict[int, Unit])
    """Of the header."""
    _words: dict[str, set[tuple[int, str]]] = field(
        default_factory=lambda: defaultdict[str, set[tuple[int, str]]](set)
    )

    def __post_init__(self) -> None:
        self.names = [{} for _ in self.rows]
        cells = defaultdict[int, dict[int, str]](dict)
        for n, row in enumerate(self.rows):
            for column, one in enumerate(row.cells):
                if one[2]:
                    cells[column][n] = one[2]
        for column, texts in cells.items():
            self._read_column(column, texts)
        for column, title in enumerate(self.header):
            key = name_key(title)
            if (unit := unit_of_title(title)) is not None:
                self.units[column] = unit
            if _YEAR.fullmatch(key) or re.fullmatch(r"m\d\d?", key):
                self._add(-1, -1, key)

    def _read_column(self, column: int, texts: Mapping[int, str]) -> None:
        years = sum(1 for one in texts.values() if _YEAR.fullmatch(one))
        numbers = sum(1 for one in texts.values() if _NUMERIC.fullmatch(one))
        if years > 0.6 * len(texts) or numbers <= 0.4 * len(texts):
            for n, one in texts.items():
                self._add(n, column, name_key(one))
        if years <= 0.6 * len(texts):
            german = any(re.fullmatch(r"\D*[\d.]*\d,\d\d?\D*", one) for one in texts.values())
            read = {n: _number(one, german=german) for n, one in texts.items()}
            values = {n: one for n, one in read.items() if one is not None}
            if values and [*values.values()] not in (
                [*range(len(values))],
                [*range(1, len(values) + 1)],
            ):
                self.columns[column] = values  # else they are numbers of rows

    def _add(self, row: int, column: int, key: str) -> None:
        if key and column >= 0:
            self.names[row][column] = key
        for word in {key, *key.split()} if key else ():
            if len(self._words[word]) < 40:
                self._words[word].add((column, key))

    def row_at(self, position: int) -> int | None:
        low, high = 0, len(self.rows)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.rows[middle].end <= position else (low, middle)
        return low if low < len(self.rows) and self.rows[low].start <= position else None

    def column_at(self, row: int, position: int) -> int:
        cells = self.rows[row].cells
        return next((n for n, one in enumerate(cells) if one[0] <= position <= one[1]), -1)

    def named_in(self, text: str) -> dict[int, set[str]]:
        """Return the names that a text contains, the longest first, each word once."""
        found, left = defaultdict[int, set[str]](set), text.casefold()
        words, position = [_plain(one) for one in _WORD.findall(left)], 0
        while position < len(words):
            hits, length = self._named_at(words, position)
            for column, name in hits:
                found[column].add(name)
            position += length
        for key in sorted(filter(_HAN.search, self._words), key=len, reverse=True):
            if key in left:
                left = left.replace(key, " ")
                for column, name in self._words[key]:
                    found[column].add(name)
        return found

    def _named_at(self, words: Sequence[str], position: int) -> tuple[Set[tuple[int, str]], int]:
        for length in (4, 3, 2, 1):
            key = " ".join(words[position : position + length])
            if hits := {one for one in self._words.get(key, ()) if one[1] == key}:
                return hits, length
        word = words[position]
        partial = set[tuple[int, str]]()
        if len(word) >= 4 and word not in _COMMON:
            partial |= self._words.get(word, partial)
        if len({one[0] for one in partial}) < len(partial):  # several names have this word
            partial.clear()
        return partial, 1

    def fits(self, row: int, column: int, names: Names) -> bool:
        """Return True if a cell belongs to what a sentence names, as far as it names something."""
        own = self.names[row]
        title = name_key(self.header[column]) if 0 <= column < len(self.header) else ""
        return all(
            title in keys if place == -1 else place == column or own.get(place) in {None, *keys}
            for place, keys in names.items()
        )

    def rows_named(self, names: Names) -> list[int]:
        wanted = {place: keys for place, keys in names.items() if place >= 0}
        return [n for n in range(len(self.rows)) if self.fits(n, -1, wanted)] if wanted else []


def name_key(written: str) -> str:
    """Return a name in the form in which names are compared; empty if it cannot name a row."""
    key = " ".join(map(_plain, _WORD.findall(written.casefold())[:6]))
    if len(key) < 2 or key in _COMMON or len(written) > 60:
        return ""
    return key if not key.replace(" ", "").isdecimal() or _YEAR.fullmatch(key) else ""


def _plain(word: str) -> str:
    if (month := MONTHS.get(word)) is not None:
        return f"m{month}"
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def _number(cell: str, *, german: bool) -> float | None:
    found = NUMBER.search(cell) if _NUMERIC.fullmatch(cell) else None
    values = [*values_of(found[0])] if found else []
    if not found or not values:
        return None
    mark = re.fullmatch(r"\d{1,3}([.,])\d{3}", found[0])
    by_thousands = mark is not None and (mark[1] == "," or german) and len(values) > 1
    return values[1] if by_thousands else values[0]


def tables_in(text: str) -> list[Table]:
    """Return the tables of a text: lines that follow one another and are divided alike."""
    objects = [one.span() for one in _OBJECT.finditer(text)]
    if len(objects) > 1 and (found := _records(text, objects)):
        return [found]
    lines, start, tables = list[tuple[str, Row]](), 0, list[Table]()
    for line in text.split("\n")[: 2 * MOST_ROWS]:
        kind, cells = _divided(line)
        places = [(start + a, start + b, line[a:b].strip(" \t\r\"'*")) for a, b in cells]
        if not (kind == "|" and _RULE.fullmatch(line)):
            lines.append((kind, Row(start, start + len(line), places)))
        start += len(line) + 1
    title, blocks = Row(0, 0, ()), list[tuple[Row, Sequence[Row]]]()
    for kind, group in groupby(lines, key=lambda one: one[0]):
        rows = [row for _, row in group]
        if kind == ":":
            blocks.append((title, rows))
        elif kind and len(rows) > 1:
            tables += _tables(rows, spaced=kind == " ")
        title = next((one for one in reversed(rows) if text[one.start : one.end].strip()), title)
    titled = [one for one in blocks if len(one[1]) > 1 and one[0].end]
    keys = [{row.cells[0][2] for row in rows} for _, rows in titled]
    if len(titled) > 1 and all(one & keys[0] for one in keys):
        return [*tables, _sections(text, titled)]
    return [*tables, *(Table((), rows) for _, rows in blocks if len(rows) > 1)]


def _sections(text: str, blocks: Sequence[tuple[Row, Sequence[Row]]]) -> Table:
    """Return one table of blocks of `name: value` that have a title each."""
    header = list(dict.fromkeys(row.cells[0][2] for _, rows in blocks for row in rows))[:40]
    found = list[Row]()
    for title, rows in blocks[:MOST_ROWS]:
        held = {row.cells[0][2]: row.cells[1] for row in rows}
        cells = [held.get(one, (title.start, title.start, "")) for one in header]
        name = title.start, title.end, text[title.start : title.end].strip(" \t\r[]#*:=-_")
        found.append(Row(title.start, rows[-1].end, [name, *cells]))
    return Table(["", *header], found)


def _divided(line: str) -> tuple[str, list[tuple[int, int]]]:
    """Return how a line is divided into cells, and where these are."""
    found = _NAMED_VALUE.fullmatch(line)
    named = [found.span(1), found.span(2)] if found else []
    if found and _NUMERIC.fullmatch(found[2]) and re.search(r"[^\W\d_]", found[1]):
        return ":", named  # commas are of the number
    for kind, (shows, cell) in _DIVIDED.items():
        if shows.search(line):
            cells = [one.span() for one in cell.finditer(line) if one[0].strip()]
            return (kind, cells) if len(cells) > 1 else ("", [])
    return ":" if named else "", named


def _tables(rows: Sequence[Row], *, spaced: bool) -> Iterator[Table]:
    start = 0
    while start < len(rows) - 1:
        titles, end = [one[2] for one in rows[start].cells], start + 1
        width = len(rows[end].cells)
        while end < len(rows) and len(rows[end].cells) == width:
            end += 1
        if width == len(titles) + 1 and spaced:  # the index has no title
            titles.insert(0, "")
        if width == len(titles):
            below = [cell[2] for row in rows[start + 1 : start + 3] for cell in row.cells]
            is_header = any(map(_NUMERIC.fullmatch, below)) and not any(
                _NUMERIC.fullmatch(one) and not _YEAR.fullmatch(one) for one in titles
            )
            first = start + is_header
            yield Table(titles if is_header else (), rows[first:end][:MOST_ROWS])
        start = end


def _records(text: str, objects: Sequence[tuple[int, int]]) -> Table | None:
    header, rows = list[str](), list[Row]()
    for start, end in objects[:MOST_ROWS]:
        found = {one[1]: one.span(2) for one in _PAIR.finditer(text, start, end)}
        header += [one for one in found if one not in header][: 40 - len(header)]
        places = [found.get(one, (start, start)) for one in header]
        rows.append(Row(start, end, [(a, b, text[a:b].strip('"')) for a, b in places]))
    return Table(header, rows) if header else None


@dataclass(frozen=True)
class Derivation:
    """A value that follows from numbers of a text, and where these are."""

    value: float
    how: str
    start: int
    end: int
    unit: Unit | None = None
    is_ratio: bool = False


def derivations(
    table: Table, names: Names, named_before: Names, given: Sequence[float]
) -> Iterator[Derivation]:
    """Yield what follows from the numbers of each row and column, for a sentence with `names`.

    Rows that the sentence or, if it names none, the task names are combined with one another. If
    neither names any, all are, in a small table. Totals are multiplied by the `given` numbers.
    """
    columns, place = dict(table.columns), (table.rows[0].start, table.rows[-1].end)
    for one, other in combinations([*columns][:6], 2):
        if len(both := columns[one].keys() & columns[other].keys()) > 1:
            # Units and price make revenue.
            products = {n: columns[one][n] * columns[other][n] for n in both}
            columns[100 * one + other + 100] = products
    own, before = table.rows_named(names), table.rows_named(named_before)
    for column, cells in columns.items():
        yield from _of_column(table, column, cells, own, given)
    totals = [(sum(cells.values()), table.units.get(c)) for c, cells in columns.items() if cells]
    for (one_total, unit), (total, second) in combinations(totals[:12], 2):
        yield from combined(one_total, total, *place, unit=unit if unit == second else None)
    timeless = {c: keys for c, keys in names.items() if not all(map(_YEAR.fullmatch, keys))}
    chosen = table.rows_named(timeless) or own or before
    chosen = [*chosen, *(n for n in before if n not in chosen)] if len(chosen) < 2 else chosen
    yield from _of_rows(table, chosen or range(len(table.rows)), columns, all_rows=not chosen)


def _of_rows(
    table: Table, rows: Sequence[int], columns: Mapping[int, Mapping[int, float]], *, all_rows: bool
) -> Iterator[Derivation]:
    """Yield what the cells of each row make, and those of one column in two rows, if few."""
    if len(rows) <= MOST_PAIRED or all_rows:
        for n in rows[:MOST_ALONE]:
            yield from _of_row(table, n, columns)
    for one, other in combinations(rows, 2) if len(rows) <= MOST_PAIRED else ():
        place = table.rows[one].start, table.rows[other].end
        for column, cells in columns.items():
            if one in cells and other in cells:
                unit = table.units.get(column)
                yield from combined(cells[one], cells[other], *place, unit=unit)


def _of_column(
    table: Table,
    column: int,
    cells: Mapping[int, float],
    own: Sequence[int],
    given: Sequence[float],
) -> Iterator[Derivation]:
    place, unit = (table.rows[0].start, table.rows[-1].end), table.units.get(column)
    groups = [("total", [*cells])] if cells else []
    if len(rows := [n for n in own if n in cells]) > 1:
        groups.append(("total of the named rows", rows))
    named = defaultdict[str, list[int]](list)
    for n in [n for n in cells if not own or n in own]:
        for key in table.names[n].values():
            named[key].append(n)
    groups += [(f"total of {key}", rows) for key, rows in named.items() if len(rows) > 1]
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
    table: Table, n: int, columns: Mapping[int, Mapping[int, float]]
) -> Iterator[Derivation]:
    place = table.rows[n].start, table.rows[n].end
    row = {column: cells[n] for column, cells in table.columns.items() if n in cells}
    for one, other in combinations([*row][:8], 2):
        units = table.units.get(one), table.units.get(other)
        unit = units[0] if units[0] == units[1] else None
        yield from combined(row[one], row[other], *place, unit=unit, shares=PERCENT in units)
        if 1 not in (row[one], row[other]):
            yield Derivation(row[one] * row[other], "product", *place)
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
    *,
    shares: bool = False,
) -> Iterator[Derivation]:
    """Yield what two numbers make; `shares` if one may be a percentage of the other."""
    if min(one, other) > LEAST_PART * max(one, other):
        yield Derivation(abs(one - other), "difference", start, end, unit)
        yield Derivation(one + other, "sum", start, end, unit)
    for part, whole in ((one, other), (other, one)):
        if whole not in (0, 1, 10, 100, 1000):
            yield Derivation(part / whole, "ratio", start, end, is_ratio=True)
            yield Derivation(abs(part / whole - 1), "change", start, end, is_ratio=True)
        for change in (whole, 100 + whole, 100 - whole) if shares else ():
            yield Derivation(part * change / 100, "percentage", start, end)

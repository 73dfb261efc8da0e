"""Reads the tables in a text, and what names their rows. Pure.

Tables are Markdown, CSV, columns of spaces, lines of `name: value`, and JSON objects.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from openmanus_graph.conversation.claims import YEAR, Surroundings
from openmanus_graph.conversation.quantities import (
    MONTHS,
    NUMBER,
    UNIT_WORDS,
    UNITS,
    Unit,
    key_words,
    unit_at,
    unit_of_title,
    values_of,
    words_in,
)

MOST_ROWS, _LINE_CHARS = 5000, 5000
_RULE = re.compile(r"[\s|:+=-]+")
_NAMED_VALUE = re.compile(r"\s*[-*•]?\s*([^:：=|\n]{1,60}?)\s*(?:[:：=]|->)\s*(\S.*)")
_OBJECTS = [re.compile(r"\{(?:[^{}]++|\{[^{}]*+\})*+\}"), re.compile(r"\{[^{}]++\}")]
_PAIR = re.compile(r'"([^"\n]{1,80})"\s*:\s*("(?:[^"\\\n]|\\.)*"|[^\s,\[{\]}]+)')
_ELEMENT = re.compile(r"<(\w+)\b[^<>]*>(?:\s*<(\w+)\b[^<>]*>[^<]*</\2>)+\s*</\1>")
_FIELD = re.compile(r"(?<=[\s<])(\w+)(?:=\"|\b[^<>]*>)([^<\"]*)")
_KEY = re.compile(r'"([^"\n]{1,80})"\s*:\s*$')
_DIVIDED: Mapping[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    mark: (re.compile(shows), re.compile(rf'"[^"\n]*"|({between})'))
    for mark, shows, between in (
        ("|", r"\|.*\||\S \| \S", r"\|"),
        ("\t", r"\S.*\t", r"\t"),
        (";", r";[^;\s][^;]*;|^[^;\s][^;]*;[^;\s][^;]*$", ";"),
        (",", r"^(?!.*[,.] [A-Za-z]).*[^,\s],[^,\s]", ","),
        (" ", r"\S\s{2,}\S", r"\s{2,}"),
    )
}
"""What shows how a line is divided, and what is between its cells."""
_QUOTED = re.compile(r'"[^"\n]*"')
_NUMERIC = re.compile(r"\W{0,3}(?:[A-Z]{3} ?)?\d[\d.,' ]*[^\n]{0,14}")
_WITH_COMMA = re.compile(r"\D*[\d.]*\d,\d\d?\D*")
_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*\s(?=.*[^\W\d_]{3})")
TIME = re.compile(r"(?:19|20)\d\d(?:-\d\d(?:-\d\d)?)?")
_MOST_RIVALS = 40
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
    caption: str = ""
    names: list[dict[int, str]] = field(default_factory=list[dict[int, str]])
    """Of each row by column."""
    columns: dict[int, dict[int, float]] = field(default_factory=dict[int, dict[int, float]])
    """The numbers by column and row."""
    _is_german: bool = False
    _measures: dict[tuple[int, int], tuple[Unit | None, float]] = field(
        default_factory=dict[tuple[int, int], tuple[Unit | None, float]]
    )
    """Units and factors by row, or by column: the other is -1."""
    _cells_with: dict[str, set[tuple[int, str]]] = field(
        default_factory=lambda: defaultdict[str, set[tuple[int, str]]](set)
    )

    def __post_init__(self) -> None:
        self.names = [{} for _ in self.rows]
        cells = defaultdict[int, dict[int, str]](dict)
        self._is_german = any(_WITH_COMMA.fullmatch(c) for row in self.rows for *_, c in row.cells)
        for n, row in enumerate(self.rows):
            for column, one in enumerate(row.cells):
                if one[2]:
                    cells[column][n] = one[2]
        self._measure(-1, -1, self.caption)
        for n, row in enumerate(self.rows):
            self._measure_row(n, row)
        for column, title in enumerate(self.header):
            self._measure(-1, column, title)
            if YEAR.fullmatch(title) or title.casefold() in MONTHS:
                self._cell(-1, -1, title)
        for column, texts in cells.items():
            self._read_column(column, texts)

    def _measure_row(self, n: int, row: Row) -> None:
        for column, (_, _, cell) in enumerate(row.cells):
            if cell in UNITS and UNITS[cell].dimension == cell:  # a currency beside its amount
                is_before = column and _NUMERIC.fullmatch(row.cells[column - 1][2])
                self._measures[n, column + (-1 if is_before else 1)] = UNITS[cell], 1.0
        if row.cells and not _NUMERIC.fullmatch(row.cells[0][2]):
            self._measure(n, -1, row.cells[0][2])

    def _measure(self, row: int, column: int, title: str) -> None:
        if (found := unit_of_title(title)) != (None, 1.0):
            self._measures[row, column] = found

    def measure_at(self, row: int, column: int) -> tuple[Unit | None, float]:
        """Return the unit and the factor that titles give the numbers of a cell."""
        places = ((row, column), (-1, column), (row, -1), (-1, -1))
        return next((self._measures[one] for one in places if one in self._measures), (None, 1.0))

    def _read_column(self, column: int, texts: Mapping[int, str]) -> None:
        years = sum(1 for one in texts.values() if TIME.fullmatch(one))
        numbers = sum(1 for one in texts.values() if _NUMERIC.fullmatch(one))
        if years > 0.6 * len(texts) or numbers <= 0.4 * len(texts):
            for n, one in texts.items():
                self._cell(n, column, one)
        if years <= 0.6 * len(texts):
            read = {n: _number(one, german=self._is_german) for n, one in texts.items()}
            values = {
                n: one * self.measure_at(n, column)[1] for n, one in read.items() if one is not None
            }
            if values and [*values.values()] not in (
                [*range(len(values))],
                [*range(1, len(values) + 1)],
            ):
                self.columns[column] = values  # else they are numbers of rows
                first = texts[min(values)]
                unit = self._unit_in(first)
                if unit is not None:
                    self._measures.setdefault((-1, column), (unit, 1.0))

    def _cell(self, row: int, column: int, cell: str) -> None:
        if column >= 0:
            self.names[row][column] = cell
        for word in key_words(cell) if len(cell) <= 60 else ():
            if len(self._cells_with[word]) < _MOST_RIVALS:
                self._cells_with[word].add((column, cell))

    def row_at(self, position: int) -> int | None:
        low, high = 0, len(self.rows)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.rows[middle].end <= position else (low, middle)
        return low if low < len(self.rows) and self.rows[low].start <= position else None

    def column_at(self, row: int, position: int) -> int:
        cells = self.rows[row].cells
        return next((n for n, one in enumerate(cells) if one[0] <= position <= one[1]), -1)

    def is_index(self, row: int, column: int) -> bool:
        """Return True if a cell is only the number of its row."""
        return column >= 0 and column not in {*self.columns, *self.names[row]}

    def named_in(self, said: Set[str]) -> dict[int, set[str]]:
        """Return the cells that some words name, by column: wholly, or by a word of no other."""
        found = defaultdict[int, set[str]](set)
        for word in said & self._cells_with.keys():
            cells = self._cells_with[word]
            for column, cell in cells:
                if key_words(cell) <= said or (len(word) > 3 and len(cells) == 1):
                    found[column].add(cell)
        return found

    @cached_property
    def subjects(self) -> Sequence[Set[str]]:
        """Return the words that name each row."""
        texts = ("\n".join(names.values()) for names in self.names)
        return [{one for one in key_words(text) if not YEAR.fullmatch(one)} for text in texts]

    def subjects_at(
        self, row: int, column: int, around: Surroundings, unit: Unit | None
    ) -> tuple[Set[str], list[Set[str]]]:
        """Return the words that name a cell, and those of others that have words of a text.

        Others are in another row with this unit, or in another column if it names things.
        """
        said = key_words("\n".join((around.part, *around.beside, around.heading)))
        found = {n for word in said for n in self._rows_with.get(word, ())[:_MOST_RIVALS]}
        own = {self.measure_at(row, column), (unit, 1.0)}
        same = (n for n in found - {row} if self.measure_at(n, column) in own)
        rivals = [self.subjects[n] for n in same]
        titles = [words_in(one) - UNIT_WORDS for one in self.header]
        if 0 <= column < len(titles) and self._is_transposed:
            rivals = [one | titles[column] for one in rivals]
            rivals += [self.subjects[row] | one for one in titles if one & said - titles[column]]
            return self.subjects[row] | titles[column], rivals
        return self.subjects[row], rivals

    @cached_property
    def _is_transposed(self) -> bool:
        """Whether each column is about one thing: the units are those of the rows."""
        units = [{self._unit_in(cell) for *_, cell in row.cells[1:]} for row in self.rows[:40]]
        return len(set(map(frozenset, units))) > 1 and all(len(one - {None}) < 2 for one in units)

    @staticmethod
    def _unit_in(cell: str) -> Unit | None:
        number = NUMBER.search(cell)
        return unit_at(cell, *number.span()) if number else None

    @cached_property
    def _rows_with(self) -> Mapping[str, Sequence[int]]:
        found = defaultdict[str, list[int]](list)
        for n, words in enumerate(self.subjects):
            for word in words:
                found[word].append(n)
        return found

    def fits(self, row: int, column: int, names: Names) -> bool:
        """Return True if a cell belongs to what a sentence names, as far as it names something."""
        own = self.names[row]
        title = self.header[column] if 0 <= column < len(self.header) else ""
        return all(
            title in keys if place == -1 else place == column or own.get(place) in {None, *keys}
            for place, keys in names.items()
        )

    def rows_named(self, names: Names) -> list[int]:
        wanted = {place: keys for place, keys in names.items() if place >= 0}
        return [n for n in range(len(self.rows)) if self.fits(n, -1, wanted)] if wanted else []


def _number(cell: str, *, german: bool) -> float | None:
    found = NUMBER.search(cell) if _NUMERIC.fullmatch(cell) else None
    values = [*values_of(found[0])] if found else []
    if not found or not values:
        return None
    mark = re.fullmatch(r"\d{1,3}([.,])\d{3}", found[0])
    by_thousands = mark is not None and (mark[1] == "," or german) and len(values) > 1
    return values[1] if by_thousands else values[0]


def tables_in(text: str) -> list[Table]:  # noqa: C901  # one way for each layout
    """Return the tables of a text: lines that follow one another and are divided alike."""
    for sign, forms, pair in (("{", _OBJECTS, _PAIR), ("</", [_ELEMENT], _FIELD)):
        if sign in text and (objects := _objects_in(text, forms, pair)) is not None:
            return [objects]
    lines, start, tables = list[tuple[str, Row]](), 0, list[Table]()
    for line in text.split("\n")[: 2 * MOST_ROWS]:
        kind, cells = _divided(line)
        places = [(start + a, start + b, line[a:b].strip(" \t\r\"'*")) for a, b in cells]
        if not (_RULE.fullmatch(line) and "--" in line):
            lines.append((kind, Row(start, start + len(line), places)))
        start += len(line) + 1
    title, records = Row(0, 0, ()), list[tuple[Row, Sequence[Row]]]()
    for kind, group in groupby(lines, key=lambda one: one[0]):
        rows = [row for _, row in group]
        if kind == ":":
            records += _split(title, rows)
        elif kind and len(rows) > 1:
            tables += _tables(rows, text[title.start : title.end], spaced=kind == " ")
        title = next((one for one in reversed(rows) if text[one.start : one.end].strip()), title)
    keys = Counter(key for _, rows in records for key in {row.cells[0][2] for row in rows})
    alike = [one for one in records if any(keys[row.cells[0][2]] > 1 for row in one[1])]
    if len(alike) > 1:
        return [*tables, _of_records(text, alike)]
    return [*tables, *(Table((), rows) for _, rows in records)]


def _split(title: Row, rows: Sequence[Row]) -> Iterator[tuple[Row, Sequence[Row]]]:
    """Yield the records of lines of `name: value`: each begins with the same name."""
    names = [row.cells[0][2].lstrip("-*• ") for row in rows]
    counts = Counter(names)
    first = next((one for one in names if counts[one] > 1), names[0])
    starts = [n for n, one in enumerate(names) if one == first or not n]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield title if len(starts) == 1 else Row(0, 0, ()), rows[start:end]


def _of_records(text: str, records: Sequence[tuple[Row, Sequence[Row]]]) -> Table:
    """Return one table of records of `name: value`, which may have a title each."""
    header = list(dict.fromkeys(row.cells[0][2] for _, rows in records for row in rows))[:40]
    found = list[Row]()
    for title, rows in records[:MOST_ROWS]:
        held = {row.cells[0][2]: row.cells[1] for row in rows}
        cells = [held.get(one, (rows[0].start, rows[0].start, "")) for one in header]
        name = title.start, title.end, text[title.start : title.end].strip(" \t\r[]#*:=-_")
        found.append(Row(rows[0].start, rows[-1].end, [name, *cells]))
    return Table(["", *header], found)


def _divided(line: str) -> tuple[str, list[tuple[int, int]]]:
    """Return how a line is divided into cells, and where these are."""
    found = _NAMED_VALUE.fullmatch(line)
    named = [found.span(1), found.span(2)] if found else []
    if found and _NUMERIC.fullmatch(found[2]) and re.search(r"[^\W\d_]", found[1]):
        return ":", named  # commas are of the number
    if stamp := _STAMP.match(line):
        return "log", [stamp.span(), (stamp.end(), len(line))]
    bare = _QUOTED.sub('""', line) if '"' in line else line
    for kind, (shows, between) in _DIVIDED.items():
        if kind in bare and len(bare) <= _LINE_CHARS and shows.search(bare):
            edges = [0]
            for one in between.finditer(line):
                edges += one.span(1) if one[1] else ()
            edges.append(len(line))
            cells = list(zip(edges[::2], edges[1::2], strict=True))
            if kind in "| ":  # outside of the table
                first, last = (not line[slice(*cells[n])].strip() for n in (0, -1))
                cells = cells[first : len(cells) - last]
            return (kind, cells) if len(cells) > 1 else ("", [])
    return ":" if named else "", named


def _tables(rows: Sequence[Row], caption: str, *, spaced: bool) -> Iterator[Table]:
    start = 0
    while start < len(rows) - 1:
        titles, end = [one[2] for one in rows[start].cells], start + 1
        width = len(rows[end].cells)
        while end < len(rows) and len(rows[end].cells) == width:
            end += 1
        if spaced and len(split := " ".join(titles).split()) in (width, width - 1):
            titles = split
        if width == len(titles) + 1 and spaced:  # the index has no title
            titles.insert(0, "")
        if width == len(titles):
            below = [cell[2] for row in rows[start + 1 : start + 3] for cell in row.cells]
            is_header = any(map(_NUMERIC.fullmatch, below)) and not any(
                _NUMERIC.fullmatch(one) and not YEAR.fullmatch(one) for one in titles
            )
            first = start + is_header
            yield Table(titles if is_header else (), rows[first:end][:MOST_ROWS], caption)
        start = end


def _objects_in(text: str, forms: Sequence[re.Pattern[str]], pair: re.Pattern[str]) -> Table | None:
    """Return the table of the JSON or XML objects of a text, which may have objects in them."""
    spans = ([one.span() for one in form.finditer(text)] for form in forms)
    objects = next((one for one in spans if len(one) > 1), list[tuple[int, int]]())
    header, rows = list[str](), list[Row]()
    for start, end in objects[:MOST_ROWS]:
        found = {one[1]: one.span(2) for one in pair.finditer(text, start, end)}
        header += [one for one in found if one not in header][: 40 - len(header)]
        key = _KEY.search(text, max(0, start - 90), start)
        places = [key.span(1) if key else (start, start)]
        places += [found.get(one, (start, start)) for one in header]
        rows.append(Row(start, end, [(a, b, text[a:b].strip('"')) for a, b in places]))
    return Table(["", *header], rows) if header else None

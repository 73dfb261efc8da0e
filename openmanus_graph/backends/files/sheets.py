"""Reads workbooks row by row: Excel's formats of all years, and OpenDocument."""

import importlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, BinaryIO

from openmanus_graph.backends.files.office import HEAD_BYTES, Package, attribute, local
from openmanus_graph.backends.files.text_file import numbers_in
from openmanus_graph.errors import ToolError

_LAST = 2**20 + 1
_GAP = 20  # empty cells in a row; more are counted
_LISTED_SHEETS = 40
_DIMENSION = re.compile(rb"<(?:\w+:)?dimension[^>]*\sref=\"([A-Z]+[0-9]+:[A-Z]+[0-9]+)\"")
_PIECE = re.compile(r"\s*(?:'((?:[^']|'')+)'|([^!,]+?))\s*(?:!\s*([^,]*?)\s*)?(?:,|$)")
_MISSING = "(the sheet is missing in the file)"
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_EAST_ASIAN_DATES = {*range(27, 37), *range(50, 59)}  # built-in formats that are not in the file


@dataclass(frozen=True)
class Cells:
    """A sheet, or a part of it. Counted from 1, the last ones are included."""

    number: int
    written: str = ""
    columns: tuple[int, int] = (1, _LAST)
    rows: tuple[int, int] = (1, _LAST)

    def __str__(self) -> str:
        return str(self.number)


@dataclass(frozen=True)
class Sheet:
    name: str
    size: str  # such as "A1:H20", as declared
    lines: Callable[[Cells], Iterable[str]]
    hidden: bool = False

    @property
    def described(self) -> str:
        return f"{self.name} ({self.size}{', hidden' if self.hidden else ''})"


def choose(pages: str | None, sheets: list[Sheet]) -> list[Cells]:
    """Read "1-3", "Sales", "'My Sheet'!A5:H10" and lists of these; ToolError with the names."""
    if pages is None or not pages.strip():
        return [Cells(number) for number in range(1, len(sheets) + 1)]
    names = {sheet.name.strip().casefold(): number for number, sheet in enumerate(sheets, 1)}
    number = names.get(pages.strip().casefold())
    if number and not pages.strip().isdigit():
        return [Cells(number)]
    chosen: list[Cells | None] = []
    for quoted, plain, cells in _PIECE.findall(pages):
        numbers = _numbers(quoted, plain, names)
        if not numbers and ":" in plain and not cells:  # of the sheet named before, or the first
            numbers, cells = [chosen[-1].number if chosen and chosen[-1] else 1], plain
        chosen += [_cells(number, cells) for number in numbers] or [None]
    found = [each for each in chosen if each]
    if not found or len(found) < len(chosen):
        raise ToolError(
            f'pages={pages!r} names no sheet or cells. Write "2", "Sheet" or "Sheet!A5:H10". '
            f"The sheets are: {listed(sheets)}."
        )
    return found


def _numbers(quoted: str, plain: str, names: Mapping[str, int]) -> list[int]:
    if numbers := numbers_in(plain, len(names)):
        return numbers
    number = names.get((quoted.replace("''", "'") or plain).strip().casefold())
    return [number] if number else []


def listed(sheets: list[Sheet]) -> str:
    shown = ", ".join(sheet.described for sheet in sheets[:_LISTED_SHEETS])
    more = len(sheets) - _LISTED_SHEETS
    return f"{shown} and {more} more" if more > 0 else shown


def _cells(number: int, text: str) -> Cells | None:
    from openpyxl.utils.cell import range_boundaries

    if not text:
        return Cells(number)
    try:
        first_column, first_row, last_column, last_row = range_boundaries(text)
    except ValueError:
        return None
    columns = sorted((first_column or 1, last_column or _LAST))
    rows = sorted((first_row or 1, last_row or _LAST))
    return Cells(number, text, (columns[0], columns[1]), (rows[0], rows[1]))


def _column(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number


def _row_line(number: int, values: Iterable[tuple[int, str]], cells: Cells) -> str:
    shown: list[str] = []
    following = cells.columns[0]
    for column, text in values:
        if text and following <= column <= cells.columns[1]:
            gap = column - following
            shown += [f"({gap} empty)"] if gap > _GAP else [""] * gap
            shown.append(cell_text(text))
            following = column + 1
    return f"{number} | {' | '.join(shown)}" if shown else ""


def cell_text(text: str) -> str:
    return text.replace("|", "\\|").replace("\r", "").replace("\n", "<br>")


def sheet_lines(sheets: list[Sheet], cells: Cells) -> Iterator[str]:
    sheet = sheets[cells.number - 1]
    part = f", cells {cells.written}" if cells.written else ""
    yield f"## Sheet {cells.number}: {sheet.described}{part}"
    yield from (line for line in sheet.lines(cells) if line)


def _elements(package: Package, part: str, *names: str) -> Iterator[Any]:
    """Yield elements as they end, and hold none; faults of the file are passed over."""
    etree: Any = importlib.import_module("lxml.etree")  # has no types

    with package.stream(part) as file:
        found = etree.iterparse(
            file, tag=[f"{{*}}{name}" for name in names], resolve_entities=False, recover=True
        )
        for _, element in found:
            yield element
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]
        package.damaged |= bool(found.error_log)


def _rich(element: Any) -> str:
    """Return a text in pieces, without the reading aids of East Asian scripts."""
    pieces = (t.text or "" for t in element.iter("{*}t") if local(t.getparent()) != "rPh")
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), "".join(pieces))


class Workbook:
    """A workbook of Excel since 2007, whose sheets are read row by row."""

    def __init__(self, package: Package, main: str) -> None:
        self.package, self.main = package, main
        self.root = package.xml(main, needed=True)
        parts = package.related(main, "sharedStrings")
        self.shared = (_rich(each) for part in parts for each in _elements(package, part, "si"))
        self.texts: list[str] = []  # as many of them as were needed so far
        properties = self.root.find("{*}workbookPr")
        self.from_1904 = properties is not None and properties.get("date1904") in ("1", "true")

    @cached_property
    def formats(self) -> list[str]:
        """The number format of each style; empty if the styles cannot be read."""
        from openpyxl.styles.numbers import BUILTIN_FORMATS

        parts = self.package.related(self.main, "styles")
        if not parts:
            return []
        styles = self.package.xml(parts[0])
        built_in = BUILTIN_FORMATS | dict.fromkeys(_EAST_ASIAN_DATES, "yyyy-mm-dd")
        codes = {str(number): code for number, code in built_in.items()}
        for each in styles.iter("{*}numFmt"):
            codes[each.get("numFmtId", "")] = each.get("formatCode", "")
        used = styles.iterfind("{*}cellXfs/{*}xf")
        return [codes.get(each.get("numFmtId", ""), "") for each in used]

    def sheets(self) -> list[Sheet]:
        relations = self.package.relations(self.main)
        found: list[Sheet] = []
        for each in self.root.iter("{*}sheet"):
            relation = relations.get(attribute(each))
            size = relation and _DIMENSION.search(self.package.read(relation.target, HEAD_BYTES))
            found.append(Sheet(
                each.get("name", ""),
                size[1].decode() if size else "size unknown",
                partial(self.lines, relation.target) if relation else lambda _: [_MISSING],
                hidden=each.get("state", "visible") != "visible",
            ))  # fmt: skip
        return found

    def lines(self, part: str, cells: Cells) -> Iterator[str]:
        number = 0
        for row in _elements(self.package, part, "row"):
            number = int(row.get("r") or number + 1)
            if number > cells.rows[1]:
                return
            if number >= cells.rows[0]:
                yield _row_line(number, self._row(row), cells)
        for comments in self.package.related(part, "comments"):
            for note in self.package.xml(comments).iter("{*}comment"):
                yield f"(note at {note.get('ref')}: {cell_text(_rich(note))})"
        if self.package.damaged:
            yield "(the workbook is damaged: what could be read is shown)"

    def _row(self, row: Any) -> Iterator[tuple[int, str]]:
        column = 0
        for cell in row:
            if local(cell) == "c":
                letters = (cell.get("r") or "").rstrip("0123456789")
                column = _column(letters) if letters else column + 1
                yield column, self._value(cell)

    def _value(self, cell: Any) -> str:
        parts = {local(child): child for child in cell}
        kind, value = cell.get("t", "n"), parts.get("v")
        text = "" if value is None else value.text or ""
        if "is" in parts:
            return _rich(parts["is"])
        if not text:
            return f"={parts['f'].text or '(a formula)'}" if "f" in parts else ""
        if kind == "s":
            return self._text(int(text)) if text.isdigit() else text
        if kind == "b":
            return "FALSE" if text in ("0", "false") else "TRUE"
        return _ESCAPED.sub("", text) if kind != "n" else self._number(text, cell.get("s", ""))

    def _text(self, number: int) -> str:
        self.texts += itertools.islice(self.shared, max(number + 1 - len(self.texts), 0))
        return self.texts[number] if number < len(self.texts) else "(text missing in the file)"

    def _number(self, text: str, style: str) -> str:
        from openpyxl.styles.numbers import is_date_format, is_timedelta_format

        dates: Any = importlib.import_module("openpyxl.utils.datetime")  # has no full types
        try:
            number = float(text)
            code = self.formats[int(style)] if style and int(style) < len(self.formats) else ""
            if code and is_date_format(code):
                epoch = dates.MAC_EPOCH if self.from_1904 else dates.WINDOWS_EPOCH
                return shown(dates.from_excel(number, epoch, is_timedelta_format(code)))
        except (ValueError, OverflowError):
            return text
        return shown(number)


def shown(value: Any) -> str:
    """Return a value as Excel shows it: numbers have 15 digits, days no time of day."""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e21 else f"{value:.15g}"
    if isinstance(value, str):
        return value
    return "" if value is None else str(value).removesuffix(" 00:00:00")


def old_sheets(file: BinaryIO) -> list[Sheet]:
    """Return the sheets of a workbook in an old, a binary or an OpenDocument format."""
    import python_calamine

    file.seek(0)
    try:
        book = python_calamine.load_workbook(file)
    except python_calamine.PasswordError as error:
        raise ToolError("It is encrypted with a password. Ask for a copy without.") from error
    visible = python_calamine.SheetVisibleEnum.Visible
    return [
        _calamine_sheet(book.get_sheet_by_index(number), each.name, each.visible != visible)
        for number, each in enumerate(book.sheets_metadata)
    ]


def _calamine_sheet(sheet: Any, name: str, hidden: bool) -> Sheet:
    def lines(cells: Cells) -> Iterator[str]:
        for number, row in enumerate(sheet.to_python(skip_empty_area=False), 1):
            if cells.rows[0] <= number <= cells.rows[1]:
                yield _row_line(number, enumerate(map(shown, row), 1), cells)

    last = sheet.end or (-1, -1)
    return Sheet(name, f"{last[0] + 1} rows, {last[1] + 1} columns", lines, hidden)

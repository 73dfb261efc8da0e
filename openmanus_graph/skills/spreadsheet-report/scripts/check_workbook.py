"""Check a workbook: what is empty, broken, too narrow, or a number where a formula should be."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import openpyxl
from openpyxl.utils import get_column_letter

ERRORS = ("#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#N/A", "#NUM!")
REFERENCE = re.compile(r"(?:'([^']+)'|(\w+))!\$?[A-Z]{1,3}\$?\d")

USUAL_WIDTH = 8.43
"""Of a column, in characters, if the file sets none."""


def problems(workbook: Any) -> Iterator[str]:
    """Yield each problem as a sentence."""
    names = set(workbook.sheetnames)
    for wanted in ("Summary", "Chart", "Data"):
        if wanted not in names:
            yield f"There is no sheet {wanted}."
    for sheet in workbook.worksheets:
        yield from sheet_problems(sheet, names)
    if "Chart" in names and not workbook["Chart"]._charts:
        yield "The sheet Chart has no chart."
    if "Summary" in names:
        yield from typed_numbers(workbook["Summary"])


def sheet_problems(sheet: Any, names: set[str]) -> Iterator[str]:
    filled = [cell for cell in cells_of(sheet) if cell.value is not None]
    if not filled and not sheet._charts:
        yield f"The sheet {sheet.title} is empty."
    for cell in filled:
        if cell.value in ERRORS:
            yield f"{sheet.title}!{cell.coordinate} is {cell.value}."
        if is_formula(cell):
            named = {one or other for one, other in REFERENCE.findall(cell.value)}
            for missing in sorted(named - names):
                yield f"{sheet.title}!{cell.coordinate} refers to {missing}, which is not a sheet."
    if sheet.title in ("Data", "Left out"):
        yield from layout_problems(sheet, filled)


def typed_numbers(sheet: Any) -> Iterator[str]:
    """Yield the figures of the summary that are typed where a formula should compute them.

    Numbers count in columns that have a formula, too; whole ones like a year may be a heading.
    """
    columns = {cell.column_letter for cell in cells_of(sheet) if is_formula(cell)}
    if not columns:
        yield f"The sheet {sheet.title} has no formula: totals are typed numbers."
    for cell in cells_of(sheet):
        if cell.data_type != "n" or cell.value is None or cell.column_letter not in columns:
            continue
        if cell.value not in range(1900, 2101):
            yield f"{sheet.title}!{cell.coordinate} is a typed number, {cell.value}."


def layout_problems(sheet: Any, filled: list[Any]) -> Iterator[str]:
    """Yield what makes a sheet of rows hard to read."""
    if sheet.title == "Data" and sheet.freeze_panes is None:
        yield "The first row of Data is not frozen."
    needed: dict[str, int] = {}
    for cell in filled:
        if not is_formula(cell):
            chars = min(shown_chars(cell), 60)
            needed[cell.column_letter] = max(needed.get(cell.column_letter, 0), chars)
    widths = {
        get_column_letter(number): one.width
        for one in sheet.column_dimensions.values()
        for number in range(one.min, one.max + 1)
    }
    for column, chars in needed.items():
        width = widths.get(column, USUAL_WIDTH)
        if width < chars:
            yield f"Column {column} of {sheet.title} is {width:.0f} wide and needs {chars}."


def shown_chars(cell: Any) -> int:
    """Return about how many characters a cell shows; its format counts for dates and figures."""
    shown = re.sub(r"\[[^]]*\]|[\\\"]", "", cell.number_format.partition(";")[0])
    if cell.is_date:
        return len(shown)
    if not isinstance(cell.value, float):
        return len(str(cell.value))
    if shown == "General":  # Excel rounds it until it fits
        return len(f"{cell.value:.0f}")
    return len(f"{cell.value:,.{shown.partition('.')[2].count('0')}f}")


def cells_of(sheet: Any) -> Iterator[Any]:
    for row in sheet.iter_rows():
        yield from row


def is_formula(cell: Any) -> bool:
    return isinstance(cell.value, str) and cell.value.startswith("=")


def main() -> int:
    """Print the problems of the workbook that the command line names; 1 if there are any."""
    found = list(problems(openpyxl.load_workbook(sys.argv[1])))
    for line in found or ["Nothing is wrong."]:
        sys.stdout.write(f"{line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

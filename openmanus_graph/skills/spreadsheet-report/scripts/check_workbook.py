"""Check a workbook: what is empty, broken, too narrow, or a number where a formula should be."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import openpyxl

ERRORS = ("#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#N/A", "#NUM!")
REFERENCE = re.compile(r"(?:'([^']+)'|(\w+))!\$?[A-Z]{1,3}\$?\d")


def problems(workbook: Any) -> Iterator[str]:
    """Yield what is wrong, a sentence each."""
    names = set(workbook.sheetnames)
    for wanted in ("Summary", "Chart", "Data"):
        if wanted not in names:
            yield f"There is no sheet {wanted}."
    for sheet in workbook.worksheets:
        yield from sheet_problems(sheet, names)
    if "Chart" in names and not workbook["Chart"]._charts:
        yield "The sheet Chart has no chart."
    if "Summary" in names and not any(is_formula(cell) for cell in cells_of(workbook["Summary"])):
        yield "The sheet Summary has no formula: totals are typed numbers."


def sheet_problems(sheet: Any, names: set[str]) -> Iterator[str]:
    """Yield what is wrong with the cells of a sheet."""
    filled = [cell for cell in cells_of(sheet) if cell.value is not None]
    if not filled and not sheet._charts:
        yield f"The sheet {sheet.title} is empty."
    for cell in filled:
        if cell.value in ERRORS:
            yield f"{sheet.title}!{cell.coordinate} is {cell.value}."
        if is_formula(cell):
            named = {one or other for one, other in REFERENCE.findall(cell.value)}
            for missing in sorted(named - names):
                yield f"{sheet.title}!{cell.coordinate} refers to {missing}, which is no sheet."
    if sheet.title == "Data":
        yield from layout_problems(sheet, filled)


def layout_problems(sheet: Any, filled: list[Any]) -> Iterator[str]:
    """Yield what makes a sheet of data hard to read."""
    if sheet.freeze_panes is None:
        yield "The first row of Data is not frozen."
    needed: dict[str, int] = {}
    for cell in filled:
        if not is_formula(cell):
            chars = min(len(str(cell.value)), 60)
            needed[cell.column_letter] = max(needed.get(cell.column_letter, 0), chars)
    for column, chars in needed.items():
        width = sheet.column_dimensions[column].width
        if width < chars:
            yield f"Column {column} of Data is {width:.0f} wide, and its texts need {chars}."


def cells_of(sheet: Any) -> Iterator[Any]:
    """Yield all cells of a sheet."""
    for row in sheet.iter_rows():
        yield from row


def is_formula(cell: Any) -> bool:
    """Say whether a cell holds a formula."""
    return isinstance(cell.value, str) and cell.value.startswith("=")


def main() -> int:
    """Print the problems of the workbook that the command line names; 1 if there are any."""
    found = list(problems(openpyxl.load_workbook(sys.argv[1])))
    for line in found or ["Nothing is wrong."]:
        sys.stdout.write(f"{line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

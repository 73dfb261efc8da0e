"""How the checkers of the small tasks read answers and files: strict on values, not on form."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

MOST_NUMBERS = 8
"""An answer with more numbers is a dump of the file, not an answer."""
_SPACES = "\u00a0\u202f "
_NUMBER = re.compile(rf"[-\u2212]?\d(?:[\d.,'\u2019{_SPACES}]*\d)?")
_WORDS = (
    *("zero", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    *("nineteen", "twenty"),
)
_GROUPED = re.compile(rf"\d{{1,3}}(?:[,'\u2019{_SPACES}]\d{{3}})+(?:\.\d+)?")
_EUROPEAN = re.compile(rf"\d{{1,3}}(?:[.'\u2019{_SPACES}]\d{{3}})*,\d{{1,2}}|\d+,\d{{1,2}}")
_ABSENT = re.compile(
    r"no such file|not (?:exist|found|there|present|available|in (?:the|this) (?:folder|directory))"
    r"|n['\u2019]t (?:exist|find|there|locate|present|available)|n['\u2019]t see|(?:is|are|was) no "
    r"|cannot (?:find|locate)|unable to (?:find|locate|open|read)|could not (?:find|locate)"
    r"|missing|filenotfound",
    re.IGNORECASE,
)


def numbers(text: str) -> list[set[float]]:
    """Return the numbers of a text in order, each as all values that it can be read as.

    Separators of thousands, decimal commas and number words are understood; "one" seldom is a
    number. Parts of dates, times and names are none.
    """
    found: list[tuple[int, set[float]]] = []
    for match in _NUMBER.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if re.search(r"\w$|\d[-:/.]$", before) or re.match(r"[-:/]\d|_|[^\W\d_]*_", after):
            continue
        found += [(match.start(), one) for one in _readings(match[0], signed=before[-1:] != "-")]
    for match in re.finditer(r"[a-z]+", text.lower()):
        if match[0] in _WORDS:
            found.append((match.start(), {float(_WORDS.index(match[0]))}))
    return [values for _, values in sorted(found, key=lambda one: one[0])]


def _readings(written: str, *, signed: bool) -> list[set[float]]:
    sign = -1 if written[0] in "-\u2212" and signed else 1
    plain = written.lstrip("-\u2212")
    values: set[float] = set()
    if _GROUPED.fullmatch(plain):
        values.add(sign * float(re.sub(rf"[,'\u2019{_SPACES}]", "", plain)))
    if _EUROPEAN.fullmatch(plain):
        values.add(sign * float(re.sub(r"[^\d,]", "", plain).replace(",", ".")))
    if re.fullmatch(r"\d+(?:\.\d+)?", plain):
        values.add(sign * float(plain))
    if values:
        return [values]
    # Several numbers that only spaces or commas part: "3 4 5" and "3,4,5".
    parts = [part for part in re.split(rf"[,'\u2019{_SPACES}]", plain) if part]
    return [_readings(part, signed=True)[0] for part in parts] if len(parts) > 1 else []


def says_number(answer: str, *wanted: float, within: float = 0.0051) -> bool:
    """Return True if an answer states all these numbers and is not a dump of numbers."""
    said = numbers(answer)
    return len(said) <= MOST_NUMBERS and all(
        any(abs(value - one) < within for values in said for value in values) for one in wanted
    )


def says_name(answer: str, wanted: str, others: Iterable[str]) -> bool:
    """Return True if an answer names this one, before at most one of the others."""
    named = names_in(answer, [wanted, *others])
    return named[:1] == [wanted] and len(named) <= 2


def names_in(text: str, names: Iterable[str]) -> list[str]:
    """Return which of these names occur in a text as words, in the order of their first place."""
    places = {
        name: match.start()
        for name in names
        if (match := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE))
    }
    return sorted(places, key=lambda name: places[name])


def says_absent(answer: str) -> bool:
    """Return True if an answer says that a file is not there."""
    return _ABSENT.search(answer) is not None


def text_of(path: Path) -> str:
    """Return the text of a file; "" if there is none."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file that are not empty, without spaces around them."""
    return [line.strip() for line in text_of(path).splitlines() if line.strip()]


def json_of(path: Path) -> Any:
    """Return what a JSON file holds; None if it is none."""
    try:
        return json.loads(text_of(path))
    except ValueError:
        return None


def table_of(path: Path, columns: Sequence[str]) -> dict[str, list[float]] | None:
    """Return a CSV file's rows of numbers by the text in their first column.

    The order of rows and of columns does not matter, nor do spaces and upper case in the head.

    Returns:
        None if the file is missing, lacks a column or has a cell that is not a number.
    """
    reader = csv.DictReader(io.StringIO(text_of(path)), skipinitialspace=True)
    names = {name.strip().lower(): name for name in reader.fieldnames or ()}
    if not set(columns) <= set(names):
        return None
    key, *others = (names[column] for column in columns)
    try:
        return {row[key].strip(): [float(row[one]) for one in others] for row in reader}
    except (TypeError, ValueError, AttributeError):  # too few cells, no numbers
        return None


def same_values(found: Any, wanted: Any) -> bool:
    """Return True if JSON is equal; a number may be written as text."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and _same_mappings(found, wanted)  # pyright: ignore[reportUnknownArgumentType]  # of JSON
    if isinstance(wanted, list):
        return isinstance(found, list) and _same_lists(found, wanted)  # pyright: ignore[reportUnknownArgumentType]  # of JSON
    if isinstance(wanted, bool) or isinstance(found, bool):
        return found is wanted
    if isinstance(wanted, int | float):
        try:
            return float(found) == wanted
        except (TypeError, ValueError):
            return False
    return bool(found == wanted)


def _same_mappings(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return found.keys() == wanted.keys() and all(
        same_values(found[key], value) for key, value in wanted.items()
    )


def _same_lists(found: list[Any], wanted: list[Any]) -> bool:
    return len(found) == len(wanted) and all(map(same_values, found, wanted))

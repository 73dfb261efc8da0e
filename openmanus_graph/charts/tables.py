"""Reading a table that may be empty, huge, wrongly encoded or full of mixed types."""

import io
import json
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from openmanus_graph.errors import ToolError

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 200 * 1024**2
MAX_ROWS = 20_000
"""Of a chart: more only make a picture that nobody can read."""
NUMBERS_SHARE = 0.8
"""Share of a column's values that must be numbers for the rest to count as missing."""


def read_table(file: BinaryIO, name: str) -> "tuple[pd.DataFrame, list[str]]":
    """Read a table and say what was odd about it.

    Raises:
        ToolError: It is empty, too large, or no table.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if size > MAX_BYTES:
        raise ToolError(
            f"{name} has {size / 1024**2:,.0f} MB; charts are made of tables up to "
            f"{MAX_BYTES // 1024**2} MB. Aggregate it with python_execute first."
        )
    try:
        table, notes = _parse(file, name.lower())
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{name} is no table that can be read: {str(error)[:300]}.") from error
    if table.empty:
        raise ToolError(f"{name} has no rows.")
    if len(table) > MAX_ROWS:
        raise ToolError(
            f"{name} has {len(table):,} rows; a chart shows at most {MAX_ROWS:,}. "
            "Aggregate or sample it with python_execute first."
        )
    table.columns = [str(column) for column in table.columns]
    if table.columns.has_duplicates:
        raise ToolError(f"{name} has two columns of one name. Rename one.")
    return table, [*notes, *_make_numeric(table)]


def _parse(file: BinaryIO, name: str) -> "tuple[pd.DataFrame, list[str]]":
    import pandas as pd

    if name.endswith((".xlsx", ".xls")):
        return pd.read_excel(file), []
    text, notes = _decode(file.read(), name)
    if not text.strip():
        raise ToolError(f"{name} is empty.")
    if name.endswith(".json"):
        return pd.json_normalize(_rows(json.loads(text))), notes
    separator = "\t" if name.endswith(".tsv") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of falling back to a slower parser
        return pd.read_csv(io.StringIO(text), sep=separator, engine="python"), notes


def _decode(content: bytes, name: str) -> tuple[str, list[str]]:
    try:
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        import charset_normalizer

        best = charset_normalizer.from_bytes(content[: 1024**2]).best()
        encoding = best.encoding if best else "latin-1"
        return content.decode(encoding, "replace"), [f"{name} is not UTF-8; read as {encoding}."]


def _rows(value: Any) -> Any:
    """Find the rows in a JSON value: a list, or the only list of an object."""
    if not isinstance(value, dict):
        return value
    values = cast("dict[str, Any]", value).values()
    lists: list[Any] = [inner for inner in values if isinstance(inner, list)]
    return lists[0] if len(lists) == 1 else cast("Any", value)


def _make_numeric(table: "pd.DataFrame") -> list[str]:
    """Turn columns that are numbers but for a few values into numbers, in place."""
    import pandas as pd

    notes: list[str] = []
    for column in table.columns:
        values = table[column]
        if not (values.dtype == object or pd.api.types.is_string_dtype(values)):
            continue
        cleaned = values.astype("string").str.strip().str.replace(r"[,%$€£¥]", "", regex=True)
        numbers = pd.to_numeric(cleaned, errors="coerce")
        wrong = values[numbers.isna() & values.notna()]
        if numbers.notna().sum() < NUMBERS_SHARE * values.notna().sum():
            continue
        table[column] = numbers
        if len(wrong):
            notes.append(
                f"{column}: {len(wrong)} value(s) are no numbers and left out, "
                f"such as {_examples(list(wrong))}."
            )
    return notes


def _examples(values: Sequence[Any]) -> str:
    return ", ".join(repr(str(value)[:30]) for value in values[:3])

"""Columns that are numbers or dates but for a few values, made such."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

SHARE = 0.8
"""Share of a column's values that must be of a kind for the rest to count as missing."""
_DATE = re.compile(
    r"\d{4}[-/.年]\d{1,2}([-/.月]\d{1,2}日?)?"  # the year first
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"  # ... or last
    r"|\d{1,2}\.?\s+[A-Za-z]{3,9}\.?,?\s+\d{4}"  # a month's name
    r"|[A-Za-z]{3,9}\.?\s+(\d{1,2},?\s+)?\d{4}"
)
_COMMA_DECIMAL = r"[+-]?(\d{1,3}(\.\d{3})+|\d+),(\d{1,2}|\d{4,})|[+-]?\d{1,3}(\.\d{3})+,\d+"
"""Only a decimal comma can stand so: no group of thousands has other than three digits."""
_THOUSANDS = r"[+-]?\d{1,3}(,\d{2,3})*,\d{3}(\.\d*)?"
_SIGNS = r"\s*[%$€£¥]\s*|[\u00a0\u202f]"
"""Of currencies and shares, and the spaces that part thousands."""
_DAY_FIRST = re.compile(r"^(\d{1,2})([/.-])(\d{1,2})\2\d{2,4}")


def make_numeric(table: "pd.DataFrame") -> list[str]:
    """Turn texts that are numbers into numbers, in place; say what is left out."""
    import numpy as np
    import pandas as pd

    notes: list[str] = []
    for column in table.columns:
        values = table[column]
        if _is_text(values):
            cleaned = values.astype("string").str.strip().str.replace(_SIGNS, "", regex=True)
            numbers = pd.to_numeric(_with_points(cleaned), errors="coerce").astype("float64")
            if numbers.notna().sum() < max(1, SHARE * values.notna().sum()):
                continue
            notes += _left_out(column, values[numbers.isna() & values.notna()], "numbers")
            table[column] = values = numbers
        if pd.api.types.is_float_dtype(values) and np.isinf(values).any():
            table[column] = values.replace([np.inf, -np.inf], np.nan)
            notes.append(f"{column}: {int(np.isinf(values).sum())} infinite value(s) are left out.")
    return notes


def _with_points(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Write numbers as Python does: `1,200.5`, and `1.200,5` where the comma parts the decimals."""
    if values.str.fullmatch(_COMMA_DECIMAL).fillna(False).any():
        values = values.str.replace(".", "").str.replace(",", ".")
    return values.where(
        ~values.str.fullmatch(_THOUSANDS).fillna(False), values.str.replace(",", "")
    )


def make_times(table: "pd.DataFrame") -> list[str]:
    """Turn texts that are dates, in whatever forms, into dates, in place; say what is left out."""
    notes: list[str] = []
    for column in table.columns:
        values = table[column]
        if not _is_text(values):
            continue
        text = values.astype("string").str.strip()
        dated = text.str.match(_DATE).fillna(False).astype(bool)
        if dated.sum() < max(1, SHARE * text.notna().sum()):
            continue
        dates = _dates(text.where(dated))
        if dates.notna().sum() < max(1, SHARE * text.notna().sum()):
            continue
        notes += _left_out(column, values[dates.isna() & values.notna()], "dates")
        table[column] = dates
    return notes


def _dates(text: "pd.Series[Any]") -> "pd.Series[Any]":
    """Read dates; days come first where a first number above 12, or a dot, says so."""
    import pandas as pd

    text = text.str.replace(r"[年月]", "-", regex=True).str.replace(r"-?日?$", "", regex=True)
    parts = text.str.extract(_DAY_FIRST)
    day_first = bool((pd.to_numeric(parts[0]) > 12).any() or (parts[1] == ".").any())
    found = pd.to_datetime(text.mask(parts[0].notna()), errors="coerce", format="mixed", utc=True)
    year_last = pd.to_datetime(
        text.where(parts[0].notna()), errors="coerce", format="mixed", dayfirst=day_first, utc=True
    )
    return found.fillna(year_last).dt.tz_localize(None)


def _left_out(column: str, wrong: "pd.Series[Any]", kind: str) -> list[str]:
    if not len(wrong):
        return []
    return [
        f"{column}: {len(wrong)} value(s) are no {kind} and left out, such as "
        f"{_examples(list(wrong))}."
    ]


def _is_text(values: "pd.Series[Any]") -> bool:
    import pandas as pd

    return bool(values.dtype == object or pd.api.types.is_string_dtype(values))


def _examples(values: Sequence[Any]) -> str:
    return ", ".join(repr(str(value)[:30]) for value in values[:3])

"""The functions of the shipped suite's `python:` checks; they run in the sandbox.

Each takes the answer and the workspace, and returns True, or what is wrong.
"""

import csv
import json
import sqlite3
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path


def totals_are_right(answer: str, workspace: Path) -> bool | str:
    """Check `totals.json` against `sales.csv`."""
    cents: Counter[str] = Counter()
    with (workspace / "sales.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["status"] != "cancelled":
                cents[row["region"]] += round(100 * float(row["amount"]))
    try:
        found = json.loads((workspace / "totals.json").read_text(encoding="utf-8"))
        given = {name: round(100 * float(value)) for name, value in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return f"totals.json: {type(error).__name__} {error}"
    return given == dict(cents) or f"expected {dict(cents)} cents, found {given}"


def median_is_right(answer: str, workspace: Path) -> bool | str:
    """Check `stats.median` on lists that no test of the task has, and that the tests are whole."""
    cases = "[5], [2, 1], [9, 1, 5, 3], [-1, -2, -3, -4], [7, 7, 1]"
    wanted = "[5, 1.5, 4.0, -2.5, 7]"
    found = _printed(f"from stats import median; print([median(x) for x in [{cases}]])", workspace)
    tests = (workspace / "test_stats.py").read_text(encoding="utf-8")
    if tests.count("assertEqual") != 3:
        return "the tests were changed"
    return found == wanted or f"expected {wanted}, found {found}"


def roman_is_right(answer: str, workspace: Path) -> bool | str:
    """Check `roman.to_roman` on all numbers that it takes, and on some that it must refuse."""
    signs = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}
    code = "from roman import to_roman; print(*[to_roman(n) for n in range(1, 4000)])"
    written = _printed(code, workspace).split()
    if len(set(written)) != 3999:
        return f"{len(set(written))} different numbers instead of 3999"
    for number, text in enumerate(written, 1):
        values = [signs[sign] for sign in text]
        pairs = zip(values, [*values[1:], 0], strict=True)
        if sum(-a if a < b else a for a, b in pairs) != number:
            return f"{number} is {text}"
    tried = (
        "from roman import to_roman\ntry:\n    to_roman({})\nexcept ValueError:\n    print('no')"
    )
    kept = [n for n in (0, 4000, -1) if _printed(tried.format(n), workspace) != "no"]
    return not kept or f"no ValueError for {kept}"


def database_is_right(answer: str, workspace: Path) -> bool | str:
    """Check that `visits.db` holds the rows of `visits.csv`."""
    with (workspace / "visits.csv").open(encoding="utf-8") as file:
        rows = sorted(tuple(row.values()) for row in csv.DictReader(file))
    if not (workspace / "visits.db").is_file():
        return "there is no visits.db"
    database = sqlite3.connect(f"file:{workspace / 'visits.db'}?immutable=1", uri=True)
    try:
        found = sorted(database.execute("SELECT visitor, country, page FROM visits").fetchall())
    except sqlite3.Error as error:
        return f"visits.db: {error}"
    finally:
        database.close()
    return found == rows or f"{len(found)} rows, or others than the {len(rows)} of visits.csv"


def archive_is_whole(answer: str, workspace: Path) -> bool | str:
    """Check that `dist/app.zip` holds the three files as they are."""
    try:
        with zipfile.ZipFile(workspace / "dist" / "app.zip") as archive:
            packed = {Path(name).name: archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        return f"dist/app.zip: {error}"
    wanted = {name: (workspace / name).read_bytes() for name in ("app.ini", "show.py", "notes.txt")}
    return packed == wanted or f"it holds {sorted(packed)}, or not as they are"


def _printed(code: str, workspace: Path) -> str:
    """Run code in the workspace, in another process: it imports what the agent wrote."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip() or done.stderr[-300:]

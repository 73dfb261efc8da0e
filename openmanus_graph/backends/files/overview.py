"""What there is in a workspace at a glance: names, sizes, columns of tables, heads of texts."""

import csv
import heapq
import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any, BinaryIO, cast

from openmanus_graph.backends.files.documents import read_document
from openmanus_graph.backends.files.excerpt import Lines
from openmanus_graph.backends.files.file_kinds import TABLE_DELIMITERS, binary_kind
from openmanus_graph.backends.files.text_file import detect_encoding, printable, whole_characters
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.artifacts import files_in
from openmanus_graph.runtime.workspace import Workspace, opened_file
from openmanus_graph.safety.open_beneath import shown, size_text

MAX_FILES = 60
MAX_CHARS = 4000
"""Of the whole overview."""
MAX_COUNTED = 20_000
"""Files beyond these are not looked for."""
_LIST_CHARS = 2400
"""Of the names and sizes; the rest is for what stands in the files."""
_MAX_FOLDERS = 6
"""Folders that are named among what is left out."""
_NAME_CHARS = 160
_VALUE_CHARS = 40
_LINE_CHARS = 120
_MAX_VALUES = 20
"""Columns, or fields, that are named."""
_HEAD_LINES = 4
_SAMPLE_BYTES = 64 * 1024
_PARSED_BYTES = 2 * 1024 * 1024
"""Of a larger table the rows are estimated; the head of a larger text is not shown."""
_WORKBOOK_BYTES = 5 * 1024 * 1024
_WORKBOOK_S = 5.0
_MAX_WORKBOOKS = 3
"""Each is read by a process of its own, which takes half a second."""
_JSON, _JSON_LINES = "json", ("jsonl", "ndjson")
_WORKBOOK = "xlsx"
_TABLES = (*TABLE_DELIMITERS, _JSON, *_JSON_LINES, _WORKBOOK)

_File = tuple[str, int]
"""Its path in the workspace, and its size in bytes."""


def workspace_overview(workspace: Workspace, without: Collection[str] = ()) -> str:
    """List a workspace's files, with what tables and short texts hold; empty without any. Blocks.

    Files near the root come first. Links, caches, our own and hidden files are left out: these hold
    secrets. Of a large file only the beginning is read.

    Args:
        workspace: Its folder.
        without: Paths that are left out as well.
    """
    walked = islice(files_in(workspace), MAX_COUNTED + 1)
    found = [
        (name, size) for name, (size, _) in walked if "/." not in f"/{name}" and name not in without
    ]
    listed: list[_File] = []
    rows: list[str] = []
    room = _LIST_CHARS
    for name, size in heapq.nsmallest(MAX_FILES, found, key=_distance):
        row = f"{_short(shown(name), _NAME_CHARS)}  {size_text(size)}"
        room -= len(row) + 1
        if room < 0:
            break
        listed.append((name, size))
        rows.append(row)
    rest = _left_out(found, listed)
    room = MAX_CHARS - sum(len(row) + 1 for row in (*rows, *rest))
    contents = _contents(workspace, listed, room)
    return "\n".join([row + contents.get(n, "") for n, row in enumerate(rows)] + rest)


def _distance(file: _File) -> tuple[int, str]:
    """Sort files by how deep in the workspace they lie."""
    return file[0].count("/"), file[0]


def _left_out(found: Sequence[_File], listed: Sequence[_File]) -> list[str]:
    """Return a line on the files that are not listed: how many, and where most of them are."""
    tops = Counter(name.partition("/")[0] if "/" in name else "" for name, _ in found)
    tops -= Counter(name.partition("/")[0] if "/" in name else "" for name, _ in listed)
    if not tops:
        return []
    more = "more than " if len(found) > MAX_COUNTED else ""
    places = ", ".join(
        f"{_short(shown(top), _VALUE_CHARS)}/ ({count})"
        if top
        else f"the workspace itself ({count})"
        for top, count in tops.most_common(_MAX_FOLDERS)
    )
    return [f"[{more}{tops.total()} other files are left out, most of them in {places}]"]


def _contents(workspace: Workspace, files: Sequence[_File], room: int) -> dict[int, str]:
    """Return what stands in the files, by their places: tables first, as far as there is room."""
    contents: dict[int, str] = {}
    workbooks = 0
    for place in sorted(range(len(files)), key=lambda n: _suffix(files[n][0]) not in _TABLES):
        name, size = files[place]
        if _suffix(name) == _WORKBOOK:
            workbooks += 1
            if workbooks > _MAX_WORKBOOKS or size > _WORKBOOK_BYTES:
                continue
        text = _content(workspace, name, size)
        if text and len(text) <= room:
            contents[place] = text
            room -= len(text)
        if room < _VALUE_CHARS:
            break
    return contents


def _content(workspace: Workspace, name: str, size: int) -> str:
    """Say what stands in a file; empty where nothing of it can be said in short."""
    if not size:
        return ""
    suffix = _suffix(name)
    try:
        with opened_file(workspace, name) as file:
            if suffix == _WORKBOOK:
                text = read_document(file, _WORKBOOK, None, Lines(1, 3), timeout_s=_WORKBOOK_S)
                return _indented(text.splitlines())
            return _text_content(file, suffix, size)
    except (ToolError, OSError):
        return ", which cannot be read"


def _text_content(file: BinaryIO, suffix: str, size: int) -> str:
    head = file.read(_SAMPLE_BYTES)
    sample = whole_characters(head, cut=size > len(head))
    encoding = detect_encoding(sample)
    if encoding is None:
        return f", a {binary_kind(head)}"
    text = printable(sample.removeprefix(encoding.bom).decode(encoding.name, "replace"))
    file.seek(len(encoding.bom))
    whole = io.TextIOWrapper(file, encoding.name, errors="replace", newline="")
    try:
        if suffix in TABLE_DELIMITERS:
            rows = None if size > _PARSED_BYTES else whole
            return _table(text, TABLE_DELIMITERS[suffix], rows, size / len(sample))
        if size > _PARSED_BYTES:
            return ""
        if suffix in (_JSON, *_JSON_LINES):
            return _json(whole.read(), lines=suffix != _JSON)
    except (ValueError, csv.Error, RecursionError):
        return f", no valid {suffix}"
    finally:
        whole.detach()  # the file is not ours to close
    return _indented(text.splitlines())


def _table(sample: str, separators: str, rows: Iterable[str] | None, times: float) -> str:
    """Say which columns a table has, how many rows, and what stands in the first of them.

    Args:
        sample: Its beginning.
        separators: Characters that may part its columns.
        rows: Its text, to count the rows of; None: they are estimated.
        times: How many times longer than the sample it is.
    """
    header = sample.partition("\n")[0]
    separator = max(separators, key=header.count)
    columns, *first = islice(csv.reader(io.StringIO(sample, newline=""), delimiter=separator), 2)
    if rows is None:
        lines = sample.count("\n") * times
        count = f"about {round(lines, -3):,.0f} rows"
    else:
        filled = sum(any(row) for row in csv.reader(rows, delimiter=separator))
        count = f"{filled - 1:,} row{'' if filled == 2 else 's'}"
    found = f", {count}; columns: {_listed(columns)}"
    return f"{found}; the first: {_listed(first[0])}" if first else found


def _json(text: str, *, lines: bool) -> str:
    """Say what a JSON text holds: how many rows, with which fields.

    Args:
        text: All of it.
        lines: Whether each line is a value of its own.
    """
    if lines:
        first, *more = filter(None, map(str.strip, text.splitlines()))
        value: Any = [json.loads(first), *more]
    else:
        value = json.loads(text)
    if isinstance(value, dict):
        return f", an object with {_listed(cast('dict[str, Any]', value))}"
    if not isinstance(value, list):
        return ""
    items = cast("list[Any]", value)
    found = f", {len(items):,} items"
    if not items or not isinstance(items[0], dict):
        return found
    return f"{found} with {_listed(cast('dict[str, Any]', items[0]))}"


def _listed(values: Iterable[object]) -> str:
    found = [" ".join(str(value).split()) for value in values]
    more = f" and {len(found) - _MAX_VALUES} more" if len(found) > _MAX_VALUES else ""
    return ", ".join(_short(one, _VALUE_CHARS) for one in found[:_MAX_VALUES]) + more


def _indented(lines: Sequence[str]) -> str:
    filled = (line for line in lines if line.strip())
    return "".join(f"\n    {_short(line, _LINE_CHARS)}" for line in islice(filled, _HEAD_LINES))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower().removeprefix(".")

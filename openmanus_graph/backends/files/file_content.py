"""Looks at a file's content by the kind that its name says: whether it holds that, and its head."""

import csv
import io
import itertools
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import BinaryIO

from openmanus_graph.backends.files.documents import read_document
from openmanus_graph.backends.files.excerpt import Lines
from openmanus_graph.backends.files.file_kinds import (
    TABLE_DELIMITERS,
    binary_kind,
    document_kind,
    image_type,
)
from openmanus_graph.backends.files.sent_pictures import read_picture
from openmanus_graph.backends.files.text_file import detect_encoding, whole_characters
from openmanus_graph.errors import ToolError
from openmanus_graph.safety.open_beneath import size_text

_SAMPLE_BYTES = 256 * 1024
_MOST_BYTES = 50 * 1024 * 1024
"""Of a file that is read as a whole; of a larger one only the beginning is looked at."""
_EXCERPT_CHARS = 2000
_SHEET_ROW = re.compile(r"^\d+ \| ", re.MULTILINE)
_UNKNOWN = binary_kind(b"")
_DOCUMENTS = frozenset({"pdf", "docx", "xlsx", "pptx", "ipynb"})
_PICTURES: Mapping[str, str] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
_BINARY: Mapping[str, str] = {
    "gz": "gzip archive",
    "tgz": "gzip archive",
    "bz2": "bzip2 archive",
    "xz": "xz archive",
    "7z": "7z archive",
    "parquet": "Parquet table",
    "sqlite": "SQLite database",
    "npy": "NumPy array",
}
_TEXT = frozenset(
    ["txt", "md", "rst", "html", "htm", "xml", "svg", "css", "js", "py", "sh", "sql", "tex", "log"]
)


def content_problem(file: BinaryIO, name: str) -> str | None:
    """Say what is wrong with a file's content, by the suffix of its name; None if nothing is.

    Blocks. What only a judgement can tell, invented figures say, is not seen here.
    """
    size, head = os.fstat(file.fileno()).st_size, file.read(_SAMPLE_BYTES)
    if not head:
        return "is empty"
    suffix = PurePath(name).suffix.lower().removeprefix(".")
    if suffix in _DOCUMENTS:
        return _document_problem(file, head, suffix)
    if suffix in _PICTURES:
        return _picture_problem(file, head, suffix, size)
    if suffix == "zip":
        return None if zipfile.is_zipfile(file) else "is no zip archive, or a damaged one"
    if kind := _BINARY.get(suffix):
        return None if binary_kind(head) == kind else f"is no {kind}, but {_found(head)}"
    return _text_problem(file, head, suffix, size)


def content_head(file: BinaryIO, name: str, max_chars: int) -> str:
    """Return a file's size and how it begins, as text; of what has none its kind. Blocks."""
    size, head = os.fstat(file.fileno()).st_size, file.read(_SAMPLE_BYTES)
    begins, encoding = "", None
    try:
        kind = document_kind(file, head, PurePath(name).suffix.lower())
        if kind:
            begins = read_document(file, kind, None, Lines(), max_chars)
    except ToolError as error:
        begins = str(error)
    if not begins:
        encoding = detect_encoding(whole_characters(head, cut=size > len(head)))
        begins = head.decode(encoding.name, "replace") if encoding else f"({binary_kind(head)})"
    more = "\n[...]" if len(begins) > max_chars or encoding and size > len(head) else ""
    return f"{name} ({size_text(size)})\n{begins[:max_chars]}{more}"


def _found(head: bytes) -> str:
    """Name what a file of the wrong kind begins like."""
    kind = binary_kind(head)
    is_text = kind == _UNKNOWN and detect_encoding(whole_characters(head, cut=True))
    return "a text" if is_text else f"a {kind}"


def _document_problem(file: BinaryIO, head: bytes, suffix: str) -> str | None:
    try:
        kind = document_kind(file, head, f".{suffix}")
        if kind is None or kind != suffix:
            return f"is no {suffix} file, but {f'one of {kind}' if kind else _found(head)}"
        text = read_document(file, kind, None, Lines(), _EXCERPT_CHARS)
    except ToolError as error:
        return f"cannot be read: {error}"
    return "has no filled cell" if kind == "xlsx" and not _SHEET_ROW.search(text) else None


def _picture_problem(file: BinaryIO, head: bytes, suffix: str, size: int) -> str | None:
    if image_type(head) != _PICTURES[suffix]:
        return f"is no {suffix} picture, but {_found(head)}"
    if size > _MOST_BYTES:
        return None
    file.seek(0)
    try:
        read_picture(file.read())
    except ToolError:
        return "is a picture that is broken or cut off"
    return None


def _text_problem(file: BinaryIO, head: bytes, suffix: str, size: int) -> str | None:
    """Look at a text; a file with a suffix that says nothing may be anything but blank."""
    encoding = detect_encoding(whole_characters(head, cut=size > len(head)))
    readers: Mapping[str, Callable[[io.TextIOWrapper], str | None]] = {
        "csv": lambda text: _table_problem(text, TABLE_DELIMITERS["csv"]),
        "tsv": lambda text: _table_problem(text, TABLE_DELIMITERS["tsv"]),
        "json": lambda text: _json_problem(text) if size <= _MOST_BYTES else None,
        "geojson": lambda text: _json_problem(text) if size <= _MOST_BYTES else None,
        "jsonl": _json_lines_problem,
        "ndjson": _json_lines_problem,
    }
    if encoding is None:
        meant = suffix in readers or suffix in _TEXT
        return f"is no text, but a {binary_kind(head)}" if meant else None
    file.seek(len(encoding.bom))
    text = io.TextIOWrapper(file, encoding.name, errors="replace", newline="")
    try:
        return readers.get(suffix, _blank_problem)(text)
    finally:
        text.detach()


def _blank_problem(text: io.TextIOWrapper) -> str | None:
    pieces = iter(lambda: text.read(_SAMPLE_BYTES), "")
    return None if any(piece.strip() for piece in pieces) else "holds only white space"


def _table_problem(text: io.TextIOWrapper, delimiters: str) -> str | None:
    """Look for a header and a row of data: lines in which some cell is not blank."""
    sample = text.read(_SAMPLE_BYTES)
    first = next((line for line in sample.splitlines() if line.strip()), "")
    delimiter = max(delimiters, key=first.count)
    rows = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    filled = (row for row in rows if any(cell.strip() for cell in row))
    try:
        found = len(list(itertools.islice(filled, 2)))
    except csv.Error:  # a cell of more than 128 KB: it holds something
        return None
    return ("holds no filled cell", "has a header and no row of data", None)[found]


def _json_problem(text: io.TextIOWrapper) -> str | None:
    try:
        json.load(text)
    except (ValueError, RecursionError) as error:
        return f"is no JSON: {error}"
    return None


def _json_lines_problem(text: io.TextIOWrapper) -> str | None:
    lines = [line for line in itertools.islice(text, 1000) if line.strip()]
    if not lines:
        return "holds only white space"
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except (ValueError, RecursionError) as error:
            return f"is no JSON in record {number}: {error}"
    return None

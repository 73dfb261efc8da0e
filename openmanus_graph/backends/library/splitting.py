"""Reads documents and cuts them into passages, by headings, pages, slides and rows of cells."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePath
from typing import BinaryIO

from openmanus_graph.backends.files import documents, file_content, text_file
from openmanus_graph.backends.library.store import Passage
from openmanus_graph.backends.web.page_text import chunks
from openmanus_graph.errors import ToolError

PASSAGE_CHARS = 1200
_HEADER_CHARS = 600
_HEAD_BYTES = 256 * 1024
_NO_TEXT = "(a picture without text"


def read_passages(file: BinaryIO, name: str) -> tuple[list[Passage], str]:
    """Return a file's passages, and a note on what is left out. ToolError: it cannot be read."""
    head, path = file.read(_HEAD_BYTES), PurePath(name)
    if not head:
        raise ToolError("It is empty.")
    suffix, title = path.suffix.lower(), path.stem
    kind = file_content.document_kind(file, head, suffix)
    if kind is None:
        lines, reached = _text_lines(file, head)
        is_table = suffix[1:] in file_content.TABLE_DELIMITERS
        numbered = enumerate(lines, 1)
        found = _table(title, [*numbered], _lines) if is_table else text_passages(title, lines)
    else:
        unit, parts, reached = documents.read_parts(file, kind)
        found = chain.from_iterable(_part(title, unit, *one) for one in enumerate(parts, 1))
    return list(found), f"Only the text {reached.strip()} is searched." if reached else ""


def _text_lines(file: BinaryIO, head: bytes) -> tuple[list[str], str]:
    encoding = text_file.encoding_of(file)
    if encoding is None:
        raise ToolError(f"It is a {file_content.binary_kind(head)}.")
    with text_file.opened_text(file, encoding, None) as reader:
        lines = reader.read(documents.WHOLE_CHARS).removesuffix("\n").split("\n")
        return lines, f"up to line {len(lines)}" if reader.read(1) else ""


def _part(title: str, unit: str, number: int, lines: Sequence[str]) -> Iterator[Passage]:
    """Yield the passages of a page, a slide, a sheet or of a whole document."""
    if unit == "sheet":
        return _sheet(title, lines)
    if not unit:  # lines are counted as `read_file` does
        return text_passages(title, text_file.wrapped(lines))
    own = lines[1:] if lines and lines[0].startswith("## ") else lines
    return text_passages(
        title, (line for line in own if not line.startswith(_NO_TEXT)), f"{unit} {number}"
    )


def text_passages(title: str, lines: Iterable[str], place: str = "") -> Iterator[Passage]:
    """Yield the passages of a text, which may have headings. Without a place, lines are given."""
    for chunk in chunks("\n".join(lines), PASSAGE_CHARS):
        about = " > ".join(filter(None, (title, chunk.heading)))
        yield from _pieces(about, place or _lines(chunk.first_line, chunk.last_line), chunk.text)


def _pieces(about: str, place: str, text: str) -> Iterator[Passage]:
    """Yield a passage; several if a line or row of it is very long."""
    for piece in text_file.wrapped([text.strip()]):
        if piece:
            yield Passage(about, place, piece)


def _lines(first: int, last: int) -> str:
    return f"lines {first}-{last}" if last > first else f"line {first}"


def _sheet(title: str, lines: Sequence[str]) -> Iterator[Passage]:
    """Yield the passages of a sheet, given as `read_file` shows it."""
    name = lines[0].partition(": ")[2].rpartition(" (")[0]
    quoted = name if name.isidentifier() else "'{}'".format(name.replace("'", "''"))
    rows = list[tuple[int, str]]()
    for line in lines[1:]:
        number = line.partition(" | ")[0]  # notes, which have none, follow the rows
        rows.append((int(number) if number.isdigit() else rows[-1][0] if rows else 1, line))
    return _table(f"{title} > {name}", rows, lambda first, last: f"{quoted}!{first}:{last}")


def _table(
    about: str, rows: Sequence[tuple[int, str]], place: Callable[[int, int], str]
) -> Iterator[Passage]:
    """Yield the passages of a table's numbered rows, each after the first one."""
    header = rows[0][1][:_HEADER_CHARS] if rows else ""
    some, size = list[tuple[int, str]](), len(header)
    for row in (*rows, None):
        if some and (row is None or size + len(row[1]) > PASSAGE_CHARS):
            shown = [] if some[0] is rows[0] else [header]
            text = "\n".join((*shown, *(line for _, line in some)))
            yield from _pieces(about, place(some[0][0], some[-1][0]), text)
            some, size = [], len(header)
        if row is not None:
            some.append(row)
            size += len(row[1]) + 1

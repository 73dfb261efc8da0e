"""`read_file`: documents and plain text of the workspace, as text, in parts."""

import collections
import io
import itertools
import os
from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated, Any, BinaryIO

from langgraph.prebuilt import ToolRuntime
from pydantic import BeforeValidator, WithJsonSchema

from openmanus_graph.backends.files.documents import left_out, read_document
from openmanus_graph.backends.files.file_content import binary_kind, document_kind, image_type
from openmanus_graph.backends.files.overview import folder_shown
from openmanus_graph.backends.files.text_file import (
    MAX_LINE_CHARS,
    Encoding,
    Lines,
    detect_encoding,
    parse_lines,
    printable,
    take,
    whole_characters,
)
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.artifacts import naming_neighbours
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.runtime.workspace import opened_file
from openmanus_graph.safety.open_beneath import shown, size_text
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import MaybeText, file_resource, manus_tool

_SAMPLE_BYTES = 256 * 1024
_COUNTED_BYTES = 50 * 1024 * 1024
_ALL = Lines()
_LONGEST_LINE = 16 * 1024 * 1024


def _range_text(value: Any) -> Any:
    """Write the first and the last line, given as numbers, as a range."""
    match value:
        case [first, last]:
            return f"{first}-{'' if str(last) == '-1' else last}"
        case int():
            return str(value)
        case _:
            return value


LineRange = Annotated[str | None, BeforeValidator(_range_text), WithJsonSchema({"type": "string"})]


@manus_tool(effect="read_only", resource=file_resource, reads_files=True)
def read_file(  # the model is not shown `runtime`
    path: str,
    runtime: ToolRuntime[Any, Any],
    pages: MaybeText = None,
    lines: LineRange = None,
) -> Observation:
    """Read a PDF, Office, HTML, notebook, CSV or text file.

    Args:
        pages: Or slides, sheets, cells.
        lines: First-last.
    """
    session = call_runtime(runtime).session
    with naming_neighbours(session.workspace, path):
        if (folder := folder_shown(session.workspace, path)) is not None:
            return Observation(folder, listing=True)
        text = text_of_file(session, path, session.max_observation_chars, pages, parse_lines(lines))
    return Observation(text, bounded=True)


def text_of_file(
    session: Session, path: str, max_chars: int, pages: str | None = None, wanted: Lines = _ALL
) -> str:
    """Return an excerpt of a file as text. Blocks; ToolError if it cannot be read.

    Args:
        pages: Of a document, such as "1-3,7"; None for all.
        wanted: Lines of the chosen pages.
    """
    with opened_file(session.workspace, path) as file:
        head = file.read(_SAMPLE_BYTES)
        if not head:
            return f"{shown(path)} is empty."
        try:
            kind = document_kind(file, head, PurePath(path).suffix.lower())
            if kind:
                text = read_document(file, kind, pages, wanted, max_chars)
            else:
                text = _read_text(file, head, pages, wanted, max_chars)
        except ToolError as error:
            raise ToolError(f"Cannot read {shown(path)}. {error}") from error
    return printable(text)


def _read_text(
    file: BinaryIO, head: bytes, pages: str | None, wanted: Lines, max_chars: int
) -> str:
    size = os.fstat(file.fileno()).st_size
    sample = whole_characters(head, cut=size > len(head))
    encoding = detect_encoding(sample)
    if encoding is None:
        advice = "use python_execute"
        if image_type(head):
            advice = "view it with str_replace_editor, or if you are not shown pictures " + advice
        raise ToolError(f"It is a {binary_kind(head)} of {size_text(size)}; {advice}.")
    file.seek(len(encoding.bom))
    numbers = itertools.count()
    # Carriage returns in lines do not end them, as for grep and sed; but where nothing else does.
    line_end = "\n" if "\n" in sample.decode(encoding.name, "replace") else None
    lines = _lines(file, encoding, line_end)
    stream = (line for line, _ in zip(lines, numbers, strict=False))
    excerpt = take(stream, wanted, max_chars)
    total = None
    if size <= _COUNTED_BYTES:
        collections.deque(stream, maxlen=0)  # counts the rest
        total = next(numbers)
    if not excerpt.lines:
        shown_total = "fewer" if total is None else total
        if wanted == _ALL:
            raise ToolError(f"It has {shown_total} lines.")
        note = (
            f"[It has {shown_total} lines, none from {wanted.first} on: here it is from its first.]"
        )
        return "\n".join([note, _read_text(file, head, pages, _ALL, max_chars)])
    count = f"{total} lines" if total is not None else "more lines than were counted"
    named = "" if encoding.name == "utf-8" else f", {encoding.name}"
    ignored = "; it has no pages, so pages was ignored" if pages else ""
    rows = [f"[{size_text(size)}, {count}{named}{ignored}]", *excerpt.lines]
    if excerpt.cut:
        rows.append(left_out(excerpt, wanted, total))
    return "\n".join(rows)


def _lines(file: BinaryIO, encoding: Encoding, line_end: str | None) -> Iterator[str]:
    """Yield lines, and never hold a long one in memory. A `line_end` of None means any."""
    reader = io.TextIOWrapper(file, encoding.name, errors="replace", newline=line_end)
    try:
        while line := reader.readline(MAX_LINE_CHARS):
            if line.endswith("\n"):
                yield line[:-1].removesuffix("\r")
                continue
            more = 0
            while rest := reader.readline(MAX_LINE_CHARS):
                more += len(rest.rstrip("\n"))
                if rest.endswith("\n") or more > _LONGEST_LINE:
                    break
            ending = f" [{more} more characters in this line: use python_execute]" if more else ""
            yield line + ending
            if more > _LONGEST_LINE:
                return
    finally:
        reader.detach()

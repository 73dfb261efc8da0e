"""Read PDF, Office, HTML and notebook files in a process of its own.

A hostile or damaged document can crash a parser, eat all memory or never end. Here it only
ends the child. PDFium, moreover, must not be used by two threads of a process.
"""

import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from openmanus_graph.backends.files.child import run_in_child
from openmanus_graph.backends.files.document_formats import OPENERS, Document
from openmanus_graph.backends.files.excerpt import Excerpt, Lines, parse_pages, take, wrapped
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.observation_size import MIN_OBSERVATION_CHARS

_UNPACKED_BYTES = {"docx": 300 * 1024**2, "pptx": 300 * 1024**2, "xlsx": 2 * 1024**3}
_ZIP_ENTRIES = 20_000


def read_document(
    file: BinaryIO,
    kind: str,
    pages: str | None,
    lines: Lines,
    max_chars: int = MIN_OBSERVATION_CHARS,
    timeout_s: float | None = None,
) -> str:
    """Return an excerpt of a document as Markdown. Blocks; ToolError if it cannot be read.

    Args:
        file: The opened file; the child gets it instead of a path, which could change.
        kind: One of `OPENERS`.
        pages: Pages, slides, sheets or cells, such as "1-3,7"; None for all.
        lines: Lines of what was chosen.
        max_chars: Characters of the excerpt.
        timeout_s: Of the reading; a minute if left out.
    """
    request = {
        "kind": kind,
        "pages": pages,
        "first": lines.first,
        "last": lines.last,
        "max_chars": max_chars,
    }
    entry = f"{__name__}:render_request"
    what = f"The {kind} parser"
    return str(run_in_child(entry, file, request, what=what, timeout_s=timeout_s))


def render_request(file: BinaryIO, request: dict[str, Any]) -> str:
    """Do in the child what `read_document` was asked for."""
    lines = Lines(request["first"], request["last"])
    return render(file, request["kind"], request["pages"], lines, request["max_chars"])


def render(
    file: BinaryIO,
    kind: str,
    pages: str | None,
    lines: Lines,
    max_chars: int = MIN_OBSERVATION_CHARS,
) -> str:
    """Read an excerpt in this process; what a parser raises comes through."""
    _check_zip(file, kind)
    document = OPENERS[kind](file)
    if not document.unit:
        return _render_whole(document, pages, lines, max_chars)
    chosen = parse_pages(pages, document.total, document.unit)
    reached = [chosen[0]] if chosen else [0]

    def stream() -> Iterator[str]:
        for page in chosen:
            reached[0] = page
            yield from document.page(page)

    excerpt = take(wrapped(stream()), lines, max_chars)
    rows = [f"[{document.name}, {_counted(document.total, document.unit)}]", *excerpt.lines]
    if excerpt.cut:
        later = [page for page in chosen if page > reached[0]]
        rest = f"; {document.unit}s from {later[0]} on are not shown" if later else ""
        rows.append(
            f'[cut within {document.unit} {reached[0]}{rest}. Continue with lines="{excerpt.next}-"'
            f"{' and the same pages' if pages else ''}, or choose pages.]"
        )
    elif not excerpt.lines:
        rows.append(_nothing(lines, pages))
    return "\n".join(rows)


def _render_whole(document: Document, pages: str | None, lines: Lines, max_chars: int) -> str:
    every = list(wrapped(document.page(1)))
    excerpt = take(every, lines, max_chars)
    ignored = "; it has no pages, so pages was ignored" if pages else ""
    name = f"{document.name}, {_counted(len(every), 'line')} as Markdown{ignored}"
    rows = [f"[{name}]", *excerpt.lines]
    if excerpt.cut:
        rows.append(left_out(excerpt, lines, len(every)))
    elif not excerpt.lines:
        rows.append(_nothing(lines, pages))
    return "\n".join(rows)


def left_out(excerpt: Excerpt, lines: Lines, total: int | None) -> str:
    """Say which lines the output limit cut off, and how to get them."""
    last = lines.last if total is None else min(lines.last or total, total)
    which = f"lines {excerpt.next}-{last}" if last else f"the lines from {excerpt.next} on"
    of = f" of {total}" if total else ""
    return f'[{which}{of} left out. Continue with lines="{excerpt.next}-".]'


def _nothing(lines: Lines, pages: str | None) -> str:
    if lines.first == 1:
        return "(no text)"
    return f"(nothing from line {lines.first} on{' in these pages' if pages else ''})"


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _check_zip(file: BinaryIO, kind: str) -> None:
    """Refuse archives that unpack to far more than any real document.

    The sizes an archive declares can be trusted here: no more than that is unpacked.
    """
    most = _UNPACKED_BYTES.get(kind)
    if most is None:
        return
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
    if len(entries) > _ZIP_ENTRIES or sum(entry.file_size for entry in entries) > most:
        raise ToolError(
            f"The document would unpack to more than {most // 1024**2} MB: it is damaged or made "
            "to do harm, and is not opened."
        )
    file.seek(0)

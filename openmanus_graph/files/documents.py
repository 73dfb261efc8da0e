"""Read PDF, Office, HTML and notebook files in a process of its own.

A hostile or damaged document can crash a parser, eat all memory or never end. Here it only
ends the child. PDFium, moreover, must not be used by two threads of a process.
"""

import json
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from openmanus_graph.errors import ToolError
from openmanus_graph.files.document_formats import OPENERS, Document
from openmanus_graph.files.excerpt import Excerpt, Lines, parse_pages, take, wrapped

TIMEOUT_S = 60
_MEMORY_BYTES = 2 * 1024**3
_UNPACKED_BYTES = {"docx": 300 * 1024**2, "pptx": 300 * 1024**2, "xlsx": 2 * 1024**3}
_ZIP_ENTRIES = 20_000
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from openmanus_graph.files.documents import main; main(json.loads(sys.argv[2]))"
)


def read_document(file: BinaryIO, kind: str, pages: str | None, lines: Lines) -> str:
    """Return an excerpt of a document as Markdown. Blocks; ToolError if it cannot be read.

    Args:
        file: The opened file; the child gets it instead of a path, which could change.
        kind: One of `OPENERS`.
        pages: Pages, slides, sheets or cells, such as "1-3,7"; None for all.
        lines: Lines of what was chosen.
    """
    package = str(Path(__file__).parents[2])
    path = [entry for entry in sys.path if entry and entry != package]
    request = {"kind": kind, "pages": pages, "first": lines.first, "last": lines.last}
    arguments = [json.dumps([*path, package]), json.dumps(request)]
    command = [sys.executable, "-I", "-X", "utf8", "-W", "ignore", "-c", _START, *arguments]
    file.seek(0)
    try:
        child = subprocess.run(
            command, stdin=file, capture_output=True, timeout=TIMEOUT_S, check=False, cwd="/",
            env={key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"Reading took longer than {TIMEOUT_S} seconds. Choose fewer pages, or use "
            "python_execute."
        ) from error
    if child.returncode:
        reason = child.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        raise ToolError(
            f"The {kind} parser failed ({reason or f'signal {-child.returncode}'}). The file is "
            "probably damaged; get it again, or try python_execute."
        )
    answer: dict[str, str] = json.loads(child.stdout)
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["text"]


def main(request: dict[str, Any]) -> None:
    """Run in the child: read the document on stdin, write the answer to stdout as JSON."""
    for limit, most in ((resource.RLIMIT_AS, _MEMORY_BYTES), (resource.RLIMIT_CPU, TIMEOUT_S)):
        _limit(limit, most)
    answer: dict[str, str]
    try:
        with os.fdopen(0, "rb") as file:
            lines = Lines(request["first"], request["last"])
            answer = {"text": render(file, request["kind"], request["pages"], lines)}
    except ToolError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": "The document needs more memory than allowed (2 GB) to be read."}
    sys.stdout.write(json.dumps(answer))


def _limit(limit: int, most: int) -> None:
    soft, hard = resource.getrlimit(limit)
    known = [value for value in (soft, hard, most) if value != resource.RLIM_INFINITY]
    with suppress(ValueError, OSError):  # macOS refuses some; the time limit remains
        resource.setrlimit(limit, (min(known), hard))


def render(file: BinaryIO, kind: str, pages: str | None, lines: Lines) -> str:
    """Read an excerpt in this process; what a parser raises comes through."""
    _check_zip(file, kind)
    document = OPENERS[kind](file)
    if not document.unit:
        return _render_whole(document, pages, lines)
    chosen = parse_pages(pages, document.total, document.unit)
    reached = [chosen[0]] if chosen else [0]

    def stream() -> Iterator[str]:
        for page in chosen:
            reached[0] = page
            yield from document.page(page)

    excerpt = take(wrapped(stream()), lines)
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


def _render_whole(document: Document, pages: str | None, lines: Lines) -> str:
    if pages:
        raise ToolError(f"A {document.name} has no pages. Use lines instead.")
    every = list(wrapped(document.page(1)))
    excerpt = take(every, lines)
    rows = [f"[{document.name}, {_counted(len(every), 'line')} as Markdown]", *excerpt.lines]
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

"""Reads PDF, Office, HTML and notebook files as Markdown, in a child process.

A hostile or damaged document can crash a parser, use all memory or never end. Here it only ends
the child. PDFium must not be used by two threads of a process.
"""

import importlib
import io
import itertools
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from openmanus_graph.backends.files import text_file
from openmanus_graph.backends.files.child import run_in_child
from openmanus_graph.backends.files.text_file import Lines
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS

_UNPACKED_BYTES = {"docx": 300 * 1024**2, "pptx": 300 * 1024**2, "xlsx": 2 * 1024**3}
_ZIP_ENTRIES = 20_000
_MAX_HTML_BYTES = 5 * 1024 * 1024
_MAX_NOTEBOOK_BYTES = 50 * 1024 * 1024
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Document:
    name: str
    unit: str  # what its parts are called; empty if it has none
    total: int
    page: Callable[[int], Iterable[str]]  # returns the lines of a part, counted from 1


def open_pdf(file: BinaryIO) -> Document:
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        pdf = PdfDocument(file)
    except PdfiumError as error:
        if "password" in str(error).lower():
            raise ToolError("The PDF is encrypted with a password. Ask for one without.") from error
        raise ToolError(f"The PDF is damaged: {error}. Download or create it again.") from error

    def page(number: int) -> Iterator[str]:
        yield f"## Page {number}"
        text = pdf[number - 1].get_textpage().get_text_bounded().replace("\ufffe", "")
        if text.strip():
            yield from text.splitlines()
        else:
            yield (
                "(no text: a scan, a picture or an empty page. To see it, render it with "
                "python_execute and pypdfium2, then view the picture.)"
            )

    return Document("PDF", "page", len(pdf), page)


def open_docx(file: BinaryIO) -> Document:
    mammoth: Any = importlib.import_module("mammoth")  # has no types

    def without_content(_image: Any) -> dict[str, str]:  # it would be inlined as base64
        return {"src": "picture"}

    images = mammoth.images.img_element(without_content)
    html = mammoth.convert_to_html(io.BytesIO(file.read()), convert_image=images).value
    lines = _markdown(str(html)).splitlines()
    return Document("Word document", "", 1, lambda _: lines)


def open_html(file: BinaryIO) -> Document:
    data = file.read(_MAX_HTML_BYTES)
    cut = ["", "[the page is longer; only its first 5 MB were read]"] if file.read(1) else []
    lines = [*_markdown(text_file.decode_page(data)).splitlines(), *cut]
    return Document("HTML page", "", 1, lambda _: lines)


def _markdown(html: str) -> str:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(html, "html.parser")
    for tag in soup(["script", "style", "template", "noscript", "svg", "head"]):
        tag.decompose()
    for image in soup("img"):
        if str(image.get("src", "")).startswith("data:"):
            image["src"] = "data"
    try:
        converter = MarkdownConverter(heading_style="atx", table_infer_header=True)
        text: str = converter.convert_soup(soup)
    except RecursionError:  # thousands of nested tags
        text = soup.get_text("\n", strip=True)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def open_xlsx(file: BinaryIO) -> Document:
    from openpyxl import load_workbook

    # Values, and formulas for cells that no program has calculated yet.
    values = load_workbook(file, read_only=True, data_only=True)
    formulas = load_workbook(file, read_only=True)

    def page(number: int) -> Iterator[str]:
        sheet, same = values.worksheets[number - 1], formulas.worksheets[number - 1]
        hidden = "" if sheet.sheet_state == "visible" else ", hidden"
        size = (
            f"{sheet.max_row} rows, {sheet.max_column} columns" if sheet.max_row else "size unknown"
        )
        yield f"## Sheet {number}: {sheet.title} ({size}{hidden})"
        for each in (sheet, same):
            each.reset_dimensions()  # what a file declares may be absurd
        rows = zip(
            sheet.iter_rows(values_only=True), same.iter_rows(values_only=True), strict=False
        )
        for row, (shown, written) in enumerate(rows, start=1):
            pairs = itertools.zip_longest(shown, written)
            cells = [_cell(formula if value is None else value) for value, formula in pairs]
            while cells and not cells[-1]:
                cells.pop()
            if cells:
                yield f"{row} | {' | '.join(cells)}"

    return Document("Excel workbook, row number first", "sheet", len(values.worksheets), page)


def _cell(value: Any) -> str:  # openpyxl gives numbers, dates, texts, formula objects
    if value is None:
        return ""
    text = getattr(value, "text", value)  # array formulas are objects
    return str(text).replace("|", "\\|").replace("\r", "").replace("\n", "<br>")


def open_pptx(file: BinaryIO) -> Document:
    from pptx import Presentation

    slides = list(Presentation(file).slides)

    def page(number: int) -> Iterator[str]:
        slide = slides[number - 1]
        yield f"## Slide {number}"
        yield from _shape_lines(slide.shapes)
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if notes is not None and notes.text.strip():
            yield from ("Notes:", *notes.text.splitlines())

    return Document("PowerPoint presentation", "slide", len(slides), page)


def _shape_lines(shapes: Iterable[Any]) -> Iterator[str]:  # python-pptx does not type them
    from pptx.shapes.picture import Picture

    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shape_lines(shape.shapes)
        elif getattr(shape, "has_table", False):
            for row in shape.table.rows:
                yield "| " + " | ".join(_cell(cell.text) for cell in row.cells) + " |"
        elif getattr(shape, "has_chart", False):
            yield from _chart_lines(shape.chart)
        elif shape.has_text_frame:
            yield from (line for line in shape.text_frame.text.splitlines() if line.strip())
        elif isinstance(shape, Picture):
            yield f"(picture: {shape.name})"


def _chart_lines(chart: Any) -> Iterator[str]:  # python-pptx does not type it
    for plot in chart.plots:
        yield "(chart) categories: " + ", ".join(str(name) for name in plot.categories)
        for series in plot.series:
            yield f"{series.name}: " + ", ".join(str(value) for value in series.values)


def open_ipynb(file: BinaryIO) -> Document:
    data = file.read(_MAX_NOTEBOOK_BYTES + 1)
    if len(data) > _MAX_NOTEBOOK_BYTES:
        raise ToolError("The notebook has more than 50 MB. Use python_execute to read parts.")
    try:
        book = json.loads(data)
        cells: list[Any] = book["cells"] if "cells" in book else book["worksheets"][0]["cells"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise ToolError(
            f"The notebook is damaged: {error}. View it as text with str_replace_editor."
        ) from error

    def page(number: int) -> Iterator[str]:
        cell = cells[number - 1]
        code = cell.get("cell_type") == "code"
        yield f"## Cell {number} ({cell.get('cell_type')})"
        source = _joined(cell.get("source", cell.get("input", ""))).splitlines()
        yield from ["```", *source, "```"] if code else source
        for output in cell.get("outputs", []):
            yield from _output_lines(output)

    return Document("notebook", "cell", len(cells), page)


def _output_lines(output: dict[str, Any]) -> Iterator[str]:
    bundle = output.get("data", {})
    text = output.get("text", bundle.get("text/plain", output.get("traceback", "")))
    joiner = "\n" if "traceback" in output else ""
    yield "Output:"
    yield from _COLOUR.sub("", _joined(text, joiner)).splitlines()
    for media in bundle:
        if media.startswith("image/"):
            yield f"({media} left out)"


def _joined(text: Any, joiner: str = "") -> str:  # a string or a list of lines
    return text if isinstance(text, str) else joiner.join(map(str, text or ()))


OPENERS: dict[str, Callable[[BinaryIO], Document]] = {
    "pdf": open_pdf,
    "docx": open_docx,
    "xlsx": open_xlsx,
    "pptx": open_pptx,
    "html": open_html,
    "ipynb": open_ipynb,
}


def read_document(
    file: BinaryIO,
    kind: str,
    pages: str | None,
    lines: Lines,
    max_chars: int = MIN_OBSERVATION_CHARS,
    timeout_s: float | None = None,
) -> str:
    """Return an excerpt of a document as Markdown. Blocks; ToolError if it cannot be read.

    Pages are also slides, sheets or cells, such as "1-3,7"; None for all. The lines are those of
    the chosen pages.
    """
    request = {"kind": kind, "pages": pages, "max_chars": max_chars, **vars(lines)}
    entry, what = f"{__name__}:render_request", f"The {kind} parser"
    return str(run_in_child(entry, file, request, what=what, timeout_s=timeout_s))


def render_request(file: BinaryIO, request: dict[str, Any]) -> str:
    lines = Lines(request["first"], request["last"])
    return render(file, request["kind"], request["pages"], lines, request["max_chars"])


def render(
    file: BinaryIO,
    kind: str,
    pages: str | None,
    lines: Lines,
    max_chars: int = MIN_OBSERVATION_CHARS,
) -> str:
    """Return an excerpt. Runs in this process and raises whatever a parser raises."""
    _check_zip(file, kind)
    document = OPENERS[kind](file)
    if not document.unit:
        return _render_whole(document, pages, lines, max_chars)
    chosen = text_file.parse_pages(pages, document.total, document.unit)
    reached = [chosen[0]] if chosen else [0]

    def stream() -> Iterator[str]:
        for page in chosen:
            reached[0] = page
            yield from document.page(page)

    excerpt = text_file.take(text_file.wrapped(stream()), lines, max_chars)
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
    every = list(text_file.wrapped(document.page(1)))
    excerpt = text_file.take(every, lines, max_chars)
    ignored = "; it has no pages, so pages was ignored" if pages else ""
    name = f"{document.name}, {_counted(len(every), 'line')} as Markdown{ignored}"
    rows = [f"[{name}]", *excerpt.lines]
    if excerpt.cut:
        rows.append(left_out(excerpt, lines, len(every)))
    elif not excerpt.lines:
        rows.append(_nothing(lines, pages))
    return "\n".join(rows)


def left_out(excerpt: text_file.Excerpt, lines: Lines, total: int | None) -> str:
    """Return a note on the lines that the output limit cut off, and how to get them."""
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

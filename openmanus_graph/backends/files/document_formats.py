"""One function per document format: from an opened file to lines of Markdown."""

import importlib
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from openmanus_graph.backends.files.page_encoding import decode_page
from openmanus_graph.errors import ToolError

_MAX_HTML_BYTES = 5 * 1024 * 1024
_MAX_NOTEBOOK_BYTES = 50 * 1024 * 1024
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Document:
    """An opened document."""

    name: str
    unit: str
    """What its parts are called; empty: it has none."""
    total: int
    page: Callable[[int], Iterable[str]]
    """Gives the lines of a part, 1-based."""


def open_pdf(file: BinaryIO) -> Document:
    """Open a PDF; text as it is laid out, page by page."""
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
    """Open a Word document."""
    mammoth: Any = importlib.import_module("mammoth")  # has no types

    def without_content(_image: Any) -> dict[str, str]:  # it would be inlined as base64
        return {"src": "picture"}

    images = mammoth.images.img_element(without_content)
    html = mammoth.convert_to_html(io.BytesIO(file.read()), convert_image=images).value
    lines = _markdown(str(html)).splitlines()
    return Document("Word document", "", 1, lambda _: lines)


def open_html(file: BinaryIO) -> Document:
    """Open a web page; scripts and styles are dropped."""
    data = file.read(_MAX_HTML_BYTES)
    cut = ["", "[the page goes on; only its first 5 MB were read]"] if file.read(1) else []
    lines = [*_markdown(decode_page(data)).splitlines(), *cut]
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
    """Open an Excel workbook; rows are read as they are needed."""
    from openpyxl import load_workbook

    # Values, and formulas for the cells no program has calculated yet.
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
    """Open a presentation: text, tables and notes of each slide."""
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
    """Open a notebook: source and text output of each cell."""
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
    return Document("notebook", "cell", len(cells), lambda number: _cell_lines(number, cells))


def _cell_lines(number: int, cells: list[Any]) -> Iterator[str]:
    cell = cells[number - 1]
    code = cell.get("cell_type") == "code"
    yield f"## Cell {number} ({cell.get('cell_type')})"
    source = _joined(cell.get("source", cell.get("input", ""))).splitlines()
    yield from ["```", *source, "```"] if code else source
    for output in cell.get("outputs", []):
        yield from _output_lines(output)


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

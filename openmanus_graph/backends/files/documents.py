"""Reads PDF, Office, HTML and notebook files as Markdown, in a child process.

A hostile or damaged document can crash a parser, use all memory or never end. Here it only ends
the child.
"""

import base64
import functools
import hashlib
import importlib
import io
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from openmanus_graph.backends.files import mail, office, office_text, sheets, text_file
from openmanus_graph.backends.files.child import Document, Extras, run_in_child
from openmanus_graph.backends.files.office import Package
from openmanus_graph.backends.files.text_file import Lines
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS
from openmanus_graph.safety import open_beneath

if TYPE_CHECKING:
    from openmanus_graph.runtime.workspace import Workspace

_MAX_HTML_BYTES = 5 * 1024 * 1024
_MAX_NOTEBOOK_BYTES = 50 * 1024 * 1024
WHOLE_CHARS = 10_000_000
"""Of the text of a document that is saved, or searched."""
_WHOLE_S, _ALL_PARTS_S = 5.0, 45.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def open_office(file: BinaryIO, password: str | None) -> Document:
    """Open an Office file, or what programs save under its name, by its content alone."""
    file.seek(0)
    head = file.read(office.HEAD_BYTES)
    file.seek(0)
    if head.startswith(b"PK"):
        return _open_package(Package(file))
    if head.startswith(office.OLE):
        opened = office.without_password(file, password)
        encrypted = opened is not file
        return open_office(opened, None) if encrypted else _workbook(sheets.old_sheets(file))
    return _whole("document", list(_text_lines(file.read(office.MAX_TEXT_BYTES))))


def _open_package(package: Package) -> Document:
    kind, main = package.main()
    by_row = kind == "xlsx"
    package.check_size(office.UNPACKED_SHEET_BYTES if by_row else office.UNPACKED_BYTES)
    if by_row:
        return _workbook(sheets.Workbook(package, main).sheets())
    if kind in ("xlsb", "ods"):
        return _workbook(sheets.old_sheets(package.file))
    if kind == "pptx":
        parts = office_text.slide_parts(package, main)
        page = functools.partial(office_text.slide_lines, package, parts)
        return Document("PowerPoint presentation", "slide", len(parts), page)
    if kind in ("odt", "odp"):
        return _open_open_document(package, main, kind)
    return _open_word(package, main)


def _open_word(package: Package, main: str) -> Document:
    flow = office_text.Flow(package, main, _text_lines)
    root = package.xml(main, needed=True)
    lines = office_text.word_lines(package, flow, root)
    html = _word_html(package.file)
    if office_text.has_all_letters(html, root):
        lines = markdown(html).splitlines()
    changed = "; changes as [+inserted+] and [-deleted-]" if "-]" in "".join(lines) else ""
    damaged = "; damaged: what could be read" if package.damaged else ""
    return _whole(f"Word document{changed}{damaged}", [*lines, *office_text.margins(package, main)])


def _word_html(file: BinaryIO) -> str:
    """Return a Word document by the better reader, which fails on many; empty then."""
    mammoth: Any = importlib.import_module("mammoth")  # has no types

    def without_content(_image: Any) -> dict[str, str]:  # it would be inlined as base64
        return {"src": "picture"}

    images = mammoth.images.img_element(without_content)
    file.seek(0)
    try:
        result = mammoth.convert_to_html(
            file, convert_image=images, style_map="comment-reference => sup"
        )
    except Exception:  # noqa: BLE001  # it raises anything at odd files
        return ""
    return str(result.value)


def _open_open_document(package: Package, main: str, kind: str) -> Document:
    root = package.xml(main, needed=True)
    flow = office_text.Flow(package, main)
    if kind == "odt":
        return _whole("OpenDocument text", list(flow.lines([root])))
    slides = list(root.iter("{*}page"))
    return Document(
        "OpenDocument presentation", "slide", len(slides),
        lambda number: [f"## Slide {number}", *filter(None, flow.lines(slides[number - 1]))],
    )  # fmt: skip


def _workbook(found: list[sheets.Sheet]) -> Document:
    if not found:
        raise ToolError("No sheet was found in the workbook: it is damaged. Get it again.")
    return Document(
        "Excel workbook, row number first", "sheet", len(found),
        lambda cells: sheets.sheet_lines(found, cells),
        choose=lambda pages: sheets.choose(pages, found),
        contents=f": {sheets.listed(found)}" if found[1:] else "",
    )  # fmt: skip


def _text_lines(data: bytes) -> Iterable[str]:
    """Return the text of RTF, MIME, HTML, Office's XML of 2003, or a document in a document."""
    if data.startswith(b"PK"):
        return _open_package(Package(io.BytesIO(data))).page(1)
    if data.startswith(b"{\\rtf"):
        striprtf: Any = importlib.import_module("striprtf.striprtf")  # has no types
        return str(
            striprtf.rtf_to_text(data.decode("cp1252", "replace"), errors="ignore")
        ).splitlines()
    if office.SPREADSHEET_2003 in data[: office.HEAD_BYTES]:
        return office_text.Flow().lines(office.parse_xml(data)[0])
    if b"mime-version:" in data[: office.HEAD_BYTES].lower():
        return mail.open_mail(io.BytesIO(data), markdown, Extras()).page(1)
    return markdown(text_file.decode_page(data)).splitlines()


def _whole(name: str, lines: list[str]) -> Document:
    return Document(name, "", 1, lambda _: lines)


def open_html(file: BinaryIO) -> Document:
    lines = markdown(text_file.decode_page(file.read(_MAX_HTML_BYTES))).splitlines()
    cut = ["", "[the page is longer; only its first 5 MB were read]"] if file.read(1) else []
    return _whole("HTML page", [*lines, *cut])


def markdown(html: str) -> str:
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


def _open_pdf(file: BinaryIO, password: str | None, extras: Extras) -> Document:
    from openmanus_graph.backends.files.pdf import open_pdf  # loads PDFium, in the child only

    return open_pdf(file, password, extras)


OPENERS: dict[str, Callable[[BinaryIO, str | None, Extras], Document]] = {
    "pdf": _open_pdf,
    "html": lambda file, _password, _extras: open_html(file),
    "ipynb": lambda file, _password, _extras: open_ipynb(file),
    "mail": lambda file, _, extras: mail.open_mail(file, markdown, extras),
    "mbox": lambda file, _, extras: mail.open_mbox(file, markdown, extras),
    "msg": lambda file, _, extras: mail.open_msg(file, markdown, extras),
    **dict.fromkeys(office.KINDS, lambda file, password, _: open_office(file, password)),
}


def read_document(
    file: BinaryIO,
    kind: str,
    pages: str | None,
    lines: Lines,
    max_chars: int = MIN_OBSERVATION_CHARS,
    password: str | None = None,
    timeout_s: float | None = None,
) -> str:
    """Return an excerpt of a document as Markdown. Blocks; ToolError if it cannot be read.

    Pages are also slides, sheets or cells, such as "1-3,7" or "Sales!A5:H10"; None for all. The
    lines are those of the chosen pages.
    """
    request = {"kind": kind, "pages": pages, "max_chars": max_chars, "password": password}
    return str(_in_child(file, request | vars(lines), timeout_s)["text"])


def _in_child(file: BinaryIO, request: dict[str, Any], timeout_s: float | None = None) -> Any:
    what, entry = f"The {request['kind']} parser", f"{__name__}:render_request"
    return run_in_child(entry, file, request, what=what, timeout_s=timeout_s)


def read_to_outputs(
    workspace: "Workspace",
    file: BinaryIO,
    kind: str,
    pages: str | None,
    lines: Lines,
    max_chars: int,
    password: str | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Return an excerpt, as `read_document`, and paths of pictures that a model is to look at.

    The outputs then hold the whole text, once per version of the file, pictures of some pages
    without text, and the attachments of a mail.
    """
    from openmanus_graph.runtime.workspace import find, put_file

    known = os.fstat(file.fileno())
    version = (known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns)

    def place_of(recognized: str | None) -> Path:
        key = hashlib.sha256(repr((*version, kind, recognized)).encode()).hexdigest()
        return workspace.outputs / f"{key[:16]}.txt"

    place = place_of(None)
    request = {"kind": kind, "pages": pages, "max_chars": max_chars, "password": password}
    more = {"whole": find(workspace, str(place), outputs=True) is None, "extras": True}
    answer = _in_child(file, request | vars(lines) | more | {"ocr": shutil.which("tesseract")})
    if answer.get("recognized"):  # only the text of the chosen pages is in it
        place = place_of(pages)
    rows, images = [text_file.printable(answer["text"])], list[str]()
    try:
        for name, suffix, data, seen in answer["files"]:
            kept = str(workspace.keep(base64.b64decode(data), suffix))
            images += [kept] if seen else []
            rows.append(f"[{open_beneath.shown(name)}: {kept}]")
        if whole := answer.get("whole"):
            put_file(workspace, place, text_file.printable(whole).encode())
        rows.append(f"[Text{answer.get('reached', '')}: {place}]")
    except OSError as error:
        rows.append(f"[Its text and pictures could not be saved: {error.strerror}]")
    return "\n".join(rows), tuple(images)


def render_request(file: BinaryIO, request: dict[str, Any]) -> dict[str, Any]:
    extras = Extras(request.get("extras", False), request.get("ocr"))
    document = OPENERS[request["kind"]](file, request["password"], extras)
    lines = Lines(request["first"], request["last"])
    answer: dict[str, Any] = {
        "text": _excerpt(document, request["pages"], lines, request["max_chars"]),
        "files": [
            (one.name, one.suffix, base64.b64encode(one.data).decode(), one.seen)
            for one in extras.files
        ],
        "recognized": extras.recognized,
    }
    extras.wanted = False
    if request.get("whole") or extras.recognized:
        answer["whole"], answer["reached"] = _whole_text(document)
    return answer


def read_parts(file: BinaryIO, kind: str) -> tuple[str, list[list[str]], str]:
    """Return what a document's parts are called (empty: a whole), their lines, and up to where."""
    found = run_in_child(f"{__name__}:list_parts", file, {"kind": kind}, what=f"The {kind} parser")
    return found["unit"], found["parts"], found["reached"]


def list_parts(file: BinaryIO, request: dict[str, Any]) -> dict[str, Any]:
    document = OPENERS[request["kind"]](file, None, Extras())
    parts, reached = _parts(document, _ALL_PARTS_S)
    return {"unit": document.unit, "parts": parts, "reached": reached}


def _whole_text(document: Document) -> tuple[str, str]:
    """Return the text of all parts, and up to where; empty if it is complete."""
    parts, reached = _parts(document, _WHOLE_S)
    return "\n".join(line for lines in parts for line in lines), reached


def _parts(document: Document, limit_s: float) -> tuple[list[list[str]], str]:
    """Return the lines of all parts, and up to where; empty if they are complete."""
    found, room, end = list[list[str]](), WHOLE_CHARS, time.monotonic() + limit_s
    for part in document.choose(None) if document.choose else range(1, document.total + 1):
        lines = list[str]()
        found.append(lines)
        for line in document.page(part):
            room -= len(line) + 1
            if room < 0 or time.monotonic() > end:
                place = (document.unit, len(found)) if document.unit else ("line", len(lines))
                return found, f" up to {place[0]} {place[1]}"
            lines.append(line)
    return found, ""


def _excerpt(document: Document, pages: str | None, lines: Lines, max_chars: int) -> str:
    if not document.unit:
        return _render_whole(document, pages, lines, max_chars)
    numbered = functools.partial(text_file.parse_pages, total=document.total, unit=document.unit)
    chosen = (document.choose or numbered)(pages)
    reached = [0]

    def stream() -> Iterator[str]:
        for reached[0], page in enumerate(chosen):
            yield from document.page(page)

    excerpt = text_file.take(text_file.wrapped(stream()), lines, max_chars)
    contents = "" if pages or lines.first > 1 else document.contents
    count = _counted(document.total, document.unit)
    rows = [f"[{document.name}, {count}{contents}]", *excerpt.lines]
    if excerpt.cut:
        later = chosen[reached[0] + 1 :]
        rest = f"; {document.unit}s from {later[0]} on are not shown" if later else ""
        rows.append(
            f"[cut within {document.unit} {chosen[reached[0]]}{rest}. Continue with "
            f'lines="{excerpt.next}-"{" and the same pages" if pages else ""}, or choose pages.]'
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

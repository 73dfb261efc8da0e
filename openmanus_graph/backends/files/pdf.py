"""Reads PDF files: text, values of forms, comments, and pages without text. For the child only.

PDFium must not be used by two threads of a process.
"""

import base64
import ctypes
import io
import re
import subprocess
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, BinaryIO

from pypdfium2 import PdfDocument, PdfiumError, raw

from openmanus_graph.backends.files.child import Document, Extras, File
from openmanus_graph.errors import ToolError

_MOST_PICTURES, _MOST_RECOGNIZED = 3, 8  # pages without text, of one reading
_PICTURE_SIDE, _OCR_SIDE = 1500, 3300  # pixels; a page of A4 at 300 dpi has 3,508
_OCR_S = 30
_OCR_ADVICE = ". For its text install an OCR engine: apt install tesseract-ocr"
_FEW_CHARS = 50  # of a scan: a stamped page number, or the name of the scanner's program
_NO_TEXT = ("Co", "Cn", "Cs", "Cc")
_MOST_ANNOTATIONS = 2000  # of a page
_TAG = re.compile(r"<[^>]*>")
# Numbers of PDFium.
_MARKED = {9: "highlighted", 10: "underlined", 11: "underlined", 12: "struck out"}
_KINDS = {1: "note", 3: "text box", 13: "stamp", 14: "inserted", 17: "attached file"} | _MARKED
_LINK, _STAMP, _POPUP, _WIDGET = 2, 13, 16, 20
_PUSH_BUTTON, _CHECK_BOX, _RADIO_BUTTON = 1, 2, 3
_USUAL_MARKS = ("", "Yes", "On", "1")
_IMAGE = 3
_XFA = (2, 3)
_XFA_NOTE = "(an XFA form, which only Adobe Reader draws: ask for what is filled in)"


def open_pdf(file: BinaryIO, password: str | None, extras: Extras) -> Document:
    try:
        pdf = PdfDocument(file, password=password)
    except PdfiumError as error:
        reason = str(error).lower()
        if "password" in reason:
            asks = "wrong. Ask the user for the right one" if password else (
                "needed. Ask the user for it and give it as password"
            )  # fmt: skip
            raise ToolError(f"The PDF is encrypted, and the password is {asks}.") from error
        fault = "encrypted without a password" if "security" in reason else "damaged"
        reason = str(error).rstrip(".")
        raise ToolError(f"The PDF is {fault}: {reason}. Get another copy.") from error
    with suppress(PdfiumError):  # a damaged form: the pages can still be read
        pdf.init_forms()
    return Document("PDF", "page", len(pdf), _Pages(pdf, extras).page)


def draw_page(file: BinaryIO, request: dict[str, Any]) -> dict[str, Any]:
    """Return the picture of a `page`, or of the last one, as base64; and how many `pages` are."""
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        pdf = PdfDocument(file)
        picture = _picture(pdf[min(request["page"], len(pdf)) - 1], _PICTURE_SIDE)
    except PdfiumError as error:
        raise ToolError(f"This PDF cannot be shown: {error}") from error
    return {"picture": base64.b64encode(picture).decode(), "pages": len(pdf)}


class _Pages:
    """The lines of pages. Each is read once, since OCR takes long."""

    def __init__(self, pdf: Any, extras: Extras) -> None:
        self._pdf, self._extras = pdf, extras
        self._read: dict[int, list[str]] = {}
        self._pictured, self._ocr_s = 0, float(_OCR_S)
        self._unread = 0  # the last page that is neither shown nor recognized

    def page(self, number: int) -> Iterable[str]:
        if number not in self._read:
            lines = list(self._lines(number))
            if number == 1 and self._pdf.get_formtype() in _XFA:
                lines.append(_XFA_NOTE)
            self._read[number] = [f"## Page {number}", *lines] if lines else []
        return self._read[number]

    def _lines(self, number: int) -> Iterator[str]:
        try:
            page = self._pdf[number - 1]
        except PdfiumError as error:
            yield f"(this page is damaged: {error})"
            return
        with closing(page), closing(page.get_textpage()) as found:
            text = _text_in(found)
            if _is_readable(text, page):
                yield from text.splitlines()
            elif next(page.get_objects(max_depth=1), None) is None:
                yield "(an empty page)"
            else:
                yield from self._without_text(page, number)
            yield from _annotation_lines(self._pdf.formenv, page, found)

    def _without_text(self, page: Any, number: int) -> Iterator[str]:
        """Yield the text of a scan, if there is an OCR engine, or a note; and add a picture.

        Of neighbouring pages that are too many for that, only the first has a note.
        """
        extras, note = self._extras, ""
        if extras.wanted and self._pictured < _MOST_PICTURES:
            picture = File(f"page {number}", ".jpg", _picture(page, _PICTURE_SIDE), seen=True)
            extras.files.append(picture)
            self._pictured += 1
            note = "a picture without text, which is shown with this result"
        if text := self._text_by_ocr(page):
            yield from ("(text by OCR, which may be wrong:)", *text.splitlines())
        elif note:
            yield f"({note}{'' if extras.ocr or self._pictured > 1 else _OCR_ADVICE})"
        else:
            before, self._unread = self._unread, number
            if before != number - 1 or number == 1:
                yield (
                    "(a picture without text, as are the next pages that are not listed. Choose "
                    f'some with pages="{number}-{number + _MOST_PICTURES - 1}" to see them.)'
                )

    def _text_by_ocr(self, page: Any) -> str | None:
        extras = self._extras
        if not (extras.wanted and extras.ocr) or extras.recognized == _MOST_RECOGNIZED:
            return None
        extras.recognized += 1
        begun = time.monotonic()
        text = recognized(extras.ocr, page, self._ocr_s) if self._ocr_s > 1 else None
        self._ocr_s -= time.monotonic() - begun
        return text


def _text_in(found: Any, *box: float) -> str:
    text: str = found.get_text_bounded(*box)
    return text.replace("\ufffe", "").strip()


def _is_readable(text: str, page: Any) -> bool:
    """Return True unless the page is a scan, or its fonts do not say which letters they draw."""
    unknown = sum(unicodedata.category(char) in _NO_TEXT and char not in "\r\n\t" for char in text)
    if unknown * 4 > len(text) or not text:
        return False
    if len(text) >= _FEW_CHARS:
        return True
    width, height = page.get_size()
    for image in page.get_objects(filter=(_IMAGE,), max_depth=3):
        left, bottom, right, top = image.get_bounds()
        if (right - left) * (top - bottom) * 2 > width * height:
            return False
    return True


def _picture(page: Any, side: int, *, grey: bool = False) -> bytes:
    image = page.render(scale=side / max(*page.get_size(), 1), grayscale=grey).to_pil()
    out = io.BytesIO()
    image.convert("L" if grey else "RGB").save(out, "JPEG", quality=80)
    return out.getvalue()


def recognized(engine: str, page: Any, limit_s: float) -> str | None:
    """Return the text that tesseract finds in a page; None if it fails or takes too long."""

    def run(*command: str, data: bytes = b"") -> str:
        done = subprocess.run(
            [engine, *command], input=data, capture_output=True, timeout=limit_s, check=True,
            env={"OMP_THREAD_LIMIT": "1"},
        )  # fmt: skip
        return done.stdout.decode("utf-8", "replace").strip()

    try:
        known = [name for name in run("--list-langs").splitlines()[1:] if name != "osd"]
        languages = ("-l", "+".join(known[:3])) if known else ()
        return run("-", "-", *languages, data=_picture(page, _OCR_SIDE, grey=True))
    except (OSError, subprocess.SubprocessError):
        return None


def _string(get: Callable[..., int], *args: Any) -> str:
    """Return the UTF-16 text of a function of PDFium that fills a buffer."""
    size = get(*args, None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    c_type = getattr(get, "argtypes", [None, None])[-2]
    get(*args, ctypes.cast(buffer, c_type), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace").strip()


def _annotation_lines(form: Any, page: Any, found: Any) -> Iterator[str]:
    """Yield the fields of forms and the comments of a page. `found`: its text."""
    fields: dict[str, list[str]] = {}
    comments: list[str] = []
    for kind, annotation in _annotations(page):
        if kind == _WIDGET:
            _add_field(form, annotation, fields)
        elif kind not in (_LINK, _POPUP):
            comments += _comment(found, annotation, kind)
    if fields:
        yield "Form fields:"
    for name, values in fields.items():
        yield f"- {name}: {', '.join(dict.fromkeys(filter(None, values))) or '(not filled in)'}"
    if comments:
        yield from ("Comments:", *comments)


def _annotations(page: Any) -> Iterator[tuple[int, Any]]:
    for index in range(min(raw.FPDFPage_GetAnnotCount(page), _MOST_ANNOTATIONS)):
        if annotation := raw.FPDFPage_GetAnnot(page, index):
            yield raw.FPDFAnnot_GetSubtype(annotation), annotation
            raw.FPDFPage_CloseAnnot(annotation)


def _add_field(form: Any, annotation: Any, fields: dict[str, list[str]]) -> None:
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation) if form else -1
    if kind == -1:  # not part of the document's form
        fields.setdefault(_entry(annotation, "T"), []).append(_entry(annotation, "V"))
    if kind in (_PUSH_BUTTON, -1):
        return
    name = _string(raw.FPDFAnnot_GetFormFieldName, form, annotation)
    label = _string(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    values = fields.setdefault(f"{name} ({label})" if label and label != name else name, [])
    value = _string(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    if kind in (_CHECK_BOX, _RADIO_BUTTON):
        mark = _string(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation)
        stored = _entry(annotation, "V")  # some programs fill in only the value
        if raw.FPDFAnnot_IsChecked(form, annotation) or stored not in ("", "Off"):
            values.append("checked" if mark in _USUAL_MARKS else mark)
        return
    count = raw.FPDFAnnot_GetOptionCount(form, annotation)
    chosen = [
        _string(raw.FPDFAnnot_GetOptionLabel, form, annotation, option)
        for option in range(min(count, _MOST_ANNOTATIONS))
        if raw.FPDFAnnot_IsOptionSelected(form, annotation, option)
    ]
    values += chosen or [" / ".join(value.splitlines())]


def _entry(annotation: Any, key: str) -> str:
    return _string(raw.FPDFAnnot_GetStringValue, annotation, key.encode())


def _comment(found: Any, annotation: Any, kind: int) -> list[str]:
    text = _entry(annotation, "Contents") or _TAG.sub("", _entry(annotation, "RC"))
    author = f" by {name}" if (name := _entry(annotation, "T")) else ""
    about = f' "{_marked(found, annotation)}"' if kind in _MARKED else ""
    text = text or (_entry(annotation, "Name") if kind == _STAMP else "")
    if not (text or about):
        return []  # a drawn line, or a stamp that is a picture
    lines = (text or "(no text)").splitlines()
    return [f"- {_KINDS.get(kind, 'comment')}{author}{about}: {lines[0]}", *lines[1:]]


def _marked(found: Any, annotation: Any) -> str:
    """Return the text under a highlight."""
    texts: list[str] = []
    for index in range(min(raw.FPDFAnnot_CountAttachmentPoints(annotation), 100)):
        quad = raw.FS_QUADPOINTSF()
        if raw.FPDFAnnot_GetAttachmentPoints(annotation, index, quad):
            x, y = (quad.x1, quad.x2, quad.x3, quad.x4), (quad.y1, quad.y2, quad.y3, quad.y4)
            texts.append(_text_in(found, min(x), min(y), max(x), max(y)))
    return " ".join(" ".join(texts).split())

"""Detects the kind of a file by its content, checks it against its name, and reads pictures."""

import base64
import csv
import importlib
import io
import itertools
import json
import os
import re
import struct
import threading
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, cast

from openmanus_graph.backends.files import office, text_file
from openmanus_graph.backends.files.documents import read_document
from openmanus_graph.backends.files.mail import mail_kind
from openmanus_graph.errors import ToolError
from openmanus_graph.safety.open_beneath import named, size_text

if TYPE_CHECKING:
    from PIL.Image import Image


_KINDS = (
    (rb"\x89PNG\r\n\x1a\n", "PNG picture", "image/png"),
    (rb"\xff\xd8\xff", "JPEG picture", "image/jpeg"),
    (rb"GIF8[79]a", "GIF picture", "image/gif"),
    (rb"RIFF.{4}WEBP", "WebP picture", "image/webp"),
    (rb"BM.{4}\0{4}", "BMP picture", "image/bmp"),
    (rb"II\*\0|MM\0\*", "TIFF picture", "image/tiff"),
    (rb".{4}ftypavi[fs]", "AVIF picture", "image/avif"),
    (rb".{4}ftyp(?:hei[cxms]|hevc|m[is]f1)", "HEIC picture", "image/heic"),
    (rb"RIFF.{4}WAVE", "WAV sound", "audio/wav"), (rb"RIFF", "RIFF media file", ""),
    (rb"ID3|\xff[\xfb\xf3\xf2]", "MP3 sound", "audio/mp3"),
    (rb"OggS", "Ogg sound", "audio/ogg"), (rb"fLaC", "FLAC sound", "audio/flac"),
    (rb".{4}ftypM4A ", "MP4 sound", "audio/mp4"),
    (rb".{4}ftypqt  ", "QuickTime video", "video/quicktime"),
    (rb".{4}ftyp", "MP4 video", "video/mp4"), (rb"\x1aE\xdf\xa3", "WebM video", "video/webm"),
    (rb"%PDF-", "PDF document", ""), (rb"PK(?:\x03\x04|\x05\x06)", "zip archive", ""),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "legacy Office file", ""),
    (rb"\x7fELF", "Linux program (ELF)", ""), (rb"MZ", "Windows program", ""),
    (rb"\x1f\x8b", "gzip archive", ""), (rb"BZh", "bzip2 archive", ""),
    (rb"\xfd7zXZ\0", "xz archive", ""), (rb"7z\xbc\xaf\x27\x1c", "7z archive", ""),
    (rb"Rar!", "RAR archive", ""), (rb"SQLite format 3\0", "SQLite database", ""),
    (rb"PAR1", "Parquet table", ""), (rb"\x89HDF\r\n\x1a\n", "HDF5 file", ""),
    (rb"\x93NUMPY", "NumPy array", ""),
    (rb"\xca\xfe\xba\xbe", "Java class or macOS program", ""),
    (rb"", "binary file", ""),
)  # fmt: skip
"""How files begin, what they are called, and the media types of pictures, sounds and videos."""
_MEDIA_SUFFIXES = {
    ".wav": "audio/wav", ".mp3": "audio/mp3", ".ogg": "audio/ogg", ".flac": "audio/flac",
    ".m4a": "audio/mp4", ".mp4": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm",
}  # fmt: skip  # of sounds and videos; the copies that we keep have these
TABLE_DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}
"""By suffix: the characters that may separate the columns."""
_OLE_STREAMS = {
    "__properties_version1.0": "msg", "EncryptedPackage": "encrypted", "WordDocument": "doc",
    "PowerPoint Document": "ppt", "Workbook": "xls", "Book": "xls",
}  # fmt: skip
_OLE_SEARCHED = 32 * 1024 * 1024


def _kind(data: bytes) -> tuple[str, str]:
    """Return what a file that begins so is called, and its media type."""
    found = (names for start, *names in _KINDS if re.match(start, data, re.DOTALL))
    name, media_type = next(found)
    return name, media_type


def binary_kind(data: bytes) -> str:
    return _kind(data)[0]


def image_type(data: bytes) -> str | None:
    """Return the media type of the picture that a file begins like; None for anything else."""
    media_type = _kind(data)[1]
    return media_type if media_type.startswith("image/") else None


def media_suffix(data: bytes) -> str | None:
    """Return the suffix for a sound or video, by its content; None if it is neither."""
    media_type = _kind(data)[1]
    return next((end for end, known in _MEDIA_SUFFIXES.items() if known == media_type), None)


def media_type_of(path: str) -> str | None:
    """Return the media type of a sound or video by its suffix; None if it is neither."""
    return _MEDIA_SUFFIXES.get(path[path.rfind(".") :].lower())


def document_kind(file: BinaryIO, head: bytes, suffix: str) -> str | None:
    """Return the kind of a document: pdf, html, ipynb, mail, mbox, msg or one of Office.

    None if it is none of these. Raises ToolError for documents of old formats.
    """
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head.startswith(b"PK"):
        return _zip_kind(file)
    if head.startswith(office.OLE):
        return _ole_kind(file, suffix)
    if kind := mail_kind(head, suffix) or office.text_kind(head, suffix):
        return kind
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:2048].lower()
    if suffix == ".ipynb" or (start.startswith(b"{") and b'"cell_type"' in start):
        return "ipynb"
    if start.startswith((b"<!doctype html", b"<html")):
        return "html"
    return "html" if suffix in {".html", ".htm", ".xhtml"} and b"<" in head else None


_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, OSError, ValueError, EOFError,
)  # fmt: skip


def _zip_kind(file: BinaryIO) -> str | None:
    try:
        return office.Package(file).main()[0]
    except _DAMAGE as error:
        raise ToolError(
            f"It begins like a zip archive or an Office document, but is damaged: {error}. "
            "Download or create it again."
        ) from error


def _ole_kind(file: BinaryIO, suffix: str) -> str:
    file.seek(0)
    content = file.read(_OLE_SEARCHED)
    held = [kind for name, kind in _OLE_STREAMS.items() if name.encode("utf-16-le") in content]
    old = next((kind for kind in held if kind in ("doc", "ppt", "xls")), None)
    if "msg" in held and (suffix in (".msg", ".oft") or old is None):
        return "msg"
    if "encrypted" in held:
        return suffix[1:] if suffix[1:] in office.KINDS else "docx"  # known when it is decrypted
    if old is None:
        raise ToolError(
            "It begins like an old Office document or an Outlook mail, but its content is missing: "
            "it is cut off, or of another program. Get it again, or in a current format."
        )
    if old != "xls":
        raise ToolError(
            f"It is in the old .{old} format. Ask for a .{old}x copy, or convert it in bash if "
            f"LibreOffice is there: soffice --headless --convert-to {old}x FILE"
        )
    return old


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


MAX_SIDE = 2000
MAX_BYTES = 3_750_000  # as base64 these are 5 MB
MAX_PIXELS = 80_000_000  # of a picture that is decoded: as many take a third of a gigabyte
_SHRINK = 0.75  # the factor for each side while a file is too large
_QUALITY = 85
_ORIENTATION, _UPRIGHT = 0x0112, 1
CUT_OFF = "it is cut off or broken"
_MODES = {"1", "L", "LA", "P", "RGB", "RGBA"}
"""Colour modes that all servers read; CMYK and 16 bits are not among them."""
_DRAWN = {"PNG", "GIF", "BMP"}  # kinds for drawings and screenshots, whose edges a JPEG would blur
_one_at_a_time = threading.Lock()  # held while a picture is decoded: each takes much memory


@dataclass(frozen=True)
class Picture:
    media_type: str  # of the file that was read
    width: int
    height: int
    url: str  # what is sent of it, as a data URL


def read_picture(data: bytes) -> Picture:
    """Read a picture, and scale and convert it where servers might not take it. Blocks.

    A small PNG or JPEG without faults is sent byte for byte. ToolError has a clause with `it`.
    """
    from PIL import Image

    media_type = image_type(data)
    if media_type is None:
        raise ToolError(
            "it is not a picture of a known kind (PNG, JPEG, GIF, WebP, BMP, TIFF, HEIC)"
        )
    if media_type == "image/heic":
        if find_spec("pillow_heif") is None:
            raise ToolError("it is a HEIC picture, which needs a package: pip install pillow-heif")
        importlib.import_module("pillow_heif").register_heif_opener()
    with _one_at_a_time:
        try:
            return _read(data, media_type)
        except ToolError:
            raise
        except (MemoryError, Image.DecompressionBombError) as error:
            raise ToolError("it has too many pixels") from error
        except Exception as error:  # decoders raise anything at hostile bytes
            raise ToolError(CUT_OFF) from error


def _read(data: bytes, media_type: str) -> Picture:
    from PIL import Image, ImageOps

    # Pixels are counted below; the warning would be shown to the person.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    formats = (media_type.partition("/")[2].upper().replace("HEIC", "HEIF"),)
    with Image.open(io.BytesIO(data), formats=formats) as opened:
        width, height = opened.size
        kind = opened.format or ""
        if not width * height or (kind == "PNG" and b"IEND" not in data):  # decoded without it
            raise ToolError(CUT_OFF)
        opened.draft("", (MAX_SIDE, MAX_SIDE))  # large JPEGs are decoded smaller than they are
        if opened.width * opened.height > MAX_PIXELS:
            raise ToolError(f"it has too many pixels ({width} x {height})")
        opened.load()
        good = (
            kind in ("PNG", "JPEG")
            and opened.mode in _MODES
            and _is_upright(opened)
            and not getattr(opened, "is_animated", False)
            and max(width, height) <= MAX_SIDE
            and len(data) <= MAX_BYTES
        )
        if not _is_upright(opened):
            ImageOps.exif_transpose(opened, in_place=True)
        sent = (media_type, data) if good else _encoded(opened, drawn=kind in _DRAWN)
    return Picture(media_type, width, height, data_url(sent[1], sent[0]))


def _is_upright(image: "Image") -> bool:
    """Return True unless readable EXIF data say that a picture is rotated."""
    try:
        return bool(image.getexif().get(_ORIENTATION, _UPRIGHT) == _UPRIGHT)
    except Exception:  # noqa: BLE001  # the pixels were read; broken EXIF data do no harm
        return True


def _encoded(image: "Image", *, drawn: bool) -> tuple[str, bytes]:
    """Return a picture as a file that is small enough, and its media type."""
    if image.mode.startswith(("I", "F")):  # grey of 16 bits or more: its range becomes 8 bits
        wide = image.convert("F")
        low, high = cast("tuple[float, float]", wide.getextrema())  # one band has one pair
        scale = 255 / (high - low or 1)
        image = wide.point(lambda level: level * scale - low * scale).convert("L")
    transparent = image.has_transparency_data
    mode = "RGBA" if transparent else "RGB"
    if image.mode in ("1", "P", "PA"):  # which cannot be scaled
        image = image.convert(mode)
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    image = image.convert(mode)
    as_png = drawn or transparent
    while True:
        out = io.BytesIO()
        image.save(out, "PNG" if as_png else "JPEG", quality=_QUALITY)
        if out.tell() <= MAX_BYTES:
            return f"image/{'png' if as_png else 'jpeg'}", out.getvalue()
        if as_png and not transparent:
            as_png = False  # it is a photo
        else:
            image.thumbnail((image.width * _SHRINK, image.height * _SHRINK))


_SAMPLE_BYTES = 256 * 1024
_MOST_BYTES = 50 * 1024 * 1024
"""Of a file that is read as a whole; of a larger one only the beginning is looked at."""
_EXCERPT_CHARS = 2000
_TABLES = ("xlsx", "xls", "xlsb", "ods")
_SHEET_ROW = re.compile(r"^\d+ \| ", re.MULTILINE)
_JSON, _JSON_LINES = ("json", "geojson"), ("jsonl", "ndjson")
_DOCUMENTS = frozenset({"pdf", "ipynb", *office.KINDS[:8]})
_PICTURE_TYPES = {kind: f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")}
_PICTURE_TYPES["jpg"] = "image/jpeg"
_BINARY: Mapping[str, str] = {
    "gz": "gzip archive", "tgz": "gzip archive", "bz2": "bzip2 archive", "xz": "xz archive",
    "7z": "7z archive", "parquet": "Parquet table", "sqlite": "SQLite database",
    "npy": "NumPy array",
}  # fmt: skip
_TEXT = frozenset(
    ["txt", "md", "rst", "html", "htm", "xml", "svg", "css", "js", "py", "sh", "sql", "tex", "log"]
)


def content_problem(file: BinaryIO, name: str) -> str | None:
    """Return what is wrong with a file's content, by the suffix of its name; None if nothing is.

    Blocks. Faults that need judgement, such as invented figures, are not found.
    """
    size, head = os.fstat(file.fileno()).st_size, file.read(_SAMPLE_BYTES)
    if not head:
        return "is empty"
    suffix = PurePath(named(name)).suffix.lower().removeprefix(".")
    if suffix in _DOCUMENTS:
        return _document_problem(file, head, suffix)
    if suffix in _PICTURE_TYPES:
        return _picture_problem(file, head, suffix, size)
    if suffix == "zip":
        return None if zipfile.is_zipfile(file) else "is not a zip archive, or a damaged one"
    if kind := _BINARY.get(suffix):
        return None if binary_kind(head) == kind else f"is no {kind}, but {_found(head)}"
    return _text_problem(file, head, suffix, size)


def content_head(file: BinaryIO, name: str, max_chars: int) -> str:
    """Return a file's size and its beginning as text, or its kind if it has no text. Blocks."""
    size, head = os.fstat(file.fileno()).st_size, file.read(_SAMPLE_BYTES)
    begins, encoding = "", None
    try:
        kind = document_kind(file, head, PurePath(named(name)).suffix.lower())
        if kind:
            begins = read_document(file, kind, None, text_file.Lines(), max_chars)
    except ToolError as error:
        begins = str(error)
    if not begins:
        encoding = text_file.encoding_of(file)
        begins = head.decode(encoding.name, "replace") if encoding else f"({binary_kind(head)})"
    more = "\n[...]" if len(begins) > max_chars or encoding and size > len(head) else ""
    return f"{name} ({size_text(size)})\n{begins[:max_chars]}{more}"


def _found(head: bytes) -> str:
    """Name what a file of the wrong kind begins like."""
    kind = binary_kind(head)
    is_text = kind == binary_kind(b"") and text_file.encoding_of(
        io.BytesIO(text_file.whole_characters(head, cut=True))
    )
    return "a text" if is_text else f"a {kind}"


def _document_problem(file: BinaryIO, head: bytes, suffix: str) -> str | None:
    try:
        kind = document_kind(file, head, f".{suffix}")
        if kind is None or kind != suffix:
            return f"is no {suffix} file, but {f'one of {kind}' if kind else _found(head)}"
        text = read_document(file, kind, None, text_file.Lines(), _EXCERPT_CHARS)
    except ToolError as error:
        return f"cannot be read: {error}"
    return "has no filled cell" if kind in _TABLES and not _SHEET_ROW.search(text) else None


def _picture_problem(file: BinaryIO, head: bytes, suffix: str, size: int) -> str | None:
    if image_type(head) != _PICTURE_TYPES[suffix]:
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
    """Check a text; a file with an unknown suffix may hold anything but white space."""
    encoding = text_file.encoding_of(file)
    if encoding is None:
        meant = suffix in (*TABLE_DELIMITERS, *_JSON, *_JSON_LINES) or suffix in _TEXT
        return f"is not text, but a {binary_kind(head)}" if meant else None
    with text_file.opened_text(file, encoding) as text:
        if suffix in TABLE_DELIMITERS:
            return _table_problem(text, TABLE_DELIMITERS[suffix])
        if suffix in _JSON_LINES or (suffix in _JSON and size <= _MOST_BYTES):
            return _json_problem(text, lines=suffix in _JSON_LINES)
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


def _json_problem(text: io.TextIOWrapper, *, lines: bool) -> str | None:
    records = itertools.islice(text, 1000) if lines else [text.read()]
    number = 0
    for number, record in enumerate(filter(str.strip, records), 1):
        try:
            json.loads(record)
        except (ValueError, RecursionError) as error:
            return f"is not JSON{f' in record {number}' if lines else ''}: {error}"
    return None if number else "holds only white space"

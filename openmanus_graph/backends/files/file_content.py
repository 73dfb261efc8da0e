"""Checks a file's content against the kind that its name claims, and shows its beginning."""

import csv
import importlib
import io
import itertools
import json
import os
import re
import threading
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, cast

from openmanus_graph.backends.files import file_kinds
from openmanus_graph.backends.files.documents import read_document
from openmanus_graph.backends.files.text_file import Lines, detect_encoding, whole_characters
from openmanus_graph.errors import ToolError
from openmanus_graph.safety.open_beneath import size_text

if TYPE_CHECKING:
    from PIL.Image import Image


MAX_SIDE = 2000
MAX_BYTES = 3_750_000  # as base64 these are 5 MB
MAX_PIXELS = 80_000_000  # of a picture that is decoded: as many take a third of a gigabyte
_SHRINK = 0.75  # the factor for each side while a file is too large
_QUALITY = 85
_ORIENTATION, _UPRIGHT = 0x0112, 1
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

    media_type = file_kinds.image_type(data)
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
            raise ToolError("it is cut off or broken") from error


def _read(data: bytes, media_type: str) -> Picture:
    from PIL import Image, ImageOps

    # Pixels are counted below; the warning would be shown to the person.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    formats = (media_type.partition("/")[2].upper().replace("HEIC", "HEIF"),)
    with Image.open(io.BytesIO(data), formats=formats) as opened:
        width, height = opened.size
        kind = opened.format or ""
        if not width * height or (kind == "PNG" and b"IEND" not in data):  # decoded without it
            raise ToolError("it is cut off or broken")
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
    return Picture(media_type, width, height, file_kinds.data_url(sent[1], sent[0]))


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
_SHEET_ROW = re.compile(r"^\d+ \| ", re.MULTILINE)
_UNKNOWN = file_kinds.binary_kind(b"")
_DOCUMENTS = frozenset({"pdf", "docx", "xlsx", "pptx", "ipynb"})
_PICTURES = {kind: f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")}
_PICTURES["jpg"] = "image/jpeg"
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
    suffix = PurePath(name).suffix.lower().removeprefix(".")
    if suffix in _DOCUMENTS:
        return _document_problem(file, head, suffix)
    if suffix in _PICTURES:
        return _picture_problem(file, head, suffix, size)
    if suffix == "zip":
        return None if zipfile.is_zipfile(file) else "is not a zip archive, or a damaged one"
    if kind := _BINARY.get(suffix):
        return None if file_kinds.binary_kind(head) == kind else f"is no {kind}, but {_found(head)}"
    return _text_problem(file, head, suffix, size)


def content_head(file: BinaryIO, name: str, max_chars: int) -> str:
    """Return a file's size and its beginning as text, or its kind if it has no text. Blocks."""
    size, head = os.fstat(file.fileno()).st_size, file.read(_SAMPLE_BYTES)
    begins, encoding = "", None
    try:
        kind = file_kinds.document_kind(file, head, PurePath(name).suffix.lower())
        if kind:
            begins = read_document(file, kind, None, Lines(), max_chars)
    except ToolError as error:
        begins = str(error)
    if not begins:
        encoding = detect_encoding(whole_characters(head, cut=size > len(head)))
        begins = (
            head.decode(encoding.name, "replace")
            if encoding
            else f"({file_kinds.binary_kind(head)})"
        )
    more = "\n[...]" if len(begins) > max_chars or encoding and size > len(head) else ""
    return f"{name} ({size_text(size)})\n{begins[:max_chars]}{more}"


def _found(head: bytes) -> str:
    """Name what a file of the wrong kind begins like."""
    kind = file_kinds.binary_kind(head)
    is_text = kind == _UNKNOWN and detect_encoding(whole_characters(head, cut=True))
    return "a text" if is_text else f"a {kind}"


def _document_problem(file: BinaryIO, head: bytes, suffix: str) -> str | None:
    try:
        kind = file_kinds.document_kind(file, head, f".{suffix}")
        if kind is None or kind != suffix:
            return f"is no {suffix} file, but {f'one of {kind}' if kind else _found(head)}"
        text = read_document(file, kind, None, Lines(), _EXCERPT_CHARS)
    except ToolError as error:
        return f"cannot be read: {error}"
    return "has no filled cell" if kind == "xlsx" and not _SHEET_ROW.search(text) else None


def _picture_problem(file: BinaryIO, head: bytes, suffix: str, size: int) -> str | None:
    if file_kinds.image_type(head) != _PICTURES[suffix]:
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
    encoding = detect_encoding(whole_characters(head, cut=size > len(head)))
    readers: Mapping[str, Callable[[io.TextIOWrapper], str | None]] = {
        "csv": lambda text: _table_problem(text, file_kinds.TABLE_DELIMITERS["csv"]),
        "tsv": lambda text: _table_problem(text, file_kinds.TABLE_DELIMITERS["tsv"]),
        "json": lambda text: _json_problem(text) if size <= _MOST_BYTES else None,
        "geojson": lambda text: _json_problem(text) if size <= _MOST_BYTES else None,
        "jsonl": _json_lines_problem,
        "ndjson": _json_lines_problem,
    }
    if encoding is None:
        meant = suffix in readers or suffix in _TEXT
        return f"is not text, but a {file_kinds.binary_kind(head)}" if meant else None
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
        return f"is not JSON: {error}"
    return None


def _json_lines_problem(text: io.TextIOWrapper) -> str | None:
    lines = [line for line in itertools.islice(text, 1000) if line.strip()]
    if not lines:
        return "holds only white space"
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except (ValueError, RecursionError) as error:
            return f"is not JSON in record {number}: {error}"
    return None

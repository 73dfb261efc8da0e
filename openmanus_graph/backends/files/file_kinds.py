"""Detects the kind of a file by its content, because names can be wrong."""

import base64
import struct
import zipfile
from typing import Any, BinaryIO, cast

from openmanus_graph.errors import ToolError

_MAGIC = (
    (b"%PDF-", "PDF document"), (b"PK\x03\x04", "zip archive"), (b"PK\x05\x06", "zip archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "legacy Office file"), (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"), (b"\x1f\x8b", "gzip archive"), (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ\x00", "xz archive"), (b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (b"Rar!", "RAR archive"), (b"SQLite format 3\x00", "SQLite database"),
    (b"PAR1", "Parquet table"), (b"\x89HDF\r\n\x1a\n", "HDF5 file"),
    (b"\x93NUMPY", "NumPy array"), (b"ID3", "MP3 sound"), (b"OggS", "Ogg sound"),
    (b"fLaC", "FLAC sound"), (b"\xca\xfe\xba\xbe", "Java class or macOS program"),
)  # fmt: skip
TABLE_DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}
"""By suffix: the characters that may separate the columns."""
_OFFICE_PARTS = {
    "word/document.xml": "docx",
    "xl/workbook.xml": "xlsx",
    "ppt/presentation.xml": "pptx",
}
_OLE_STREAMS = (
    ("WordDocument", "Word .doc", ".docx"), ("Workbook", "Excel .xls", ".xlsx"),
    ("Book", "Excel .xls", ".xlsx"), ("PowerPoint Document", "PowerPoint .ppt", ".pptx"),
)  # fmt: skip
_LISTING_BYTES = 16 * 1024 * 1024
_OLE_SEARCHED = 32 * 1024 * 1024


def binary_kind(data: bytes) -> str:
    if picture := image_type(data):
        return f"{_PICTURES[picture]} picture"
    if data[:4] == b"RIFF":
        return "WAV sound" if data[8:12] == b"WAVE" else "RIFF media file"
    if data[4:8] == b"ftyp":
        return "MP4 video"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "binary file")


def document_kind(file: BinaryIO, head: bytes, suffix: str) -> str | None:
    """Return the kind of a document: pdf, docx, xlsx, pptx, html or ipynb.

    None if it is none of these. Raises ToolError for documents of old or encrypted formats.
    """
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head.startswith(b"PK"):
        return _office_kind(file)
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        raise ToolError(_legacy_advice(file))
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:2048].lower()
    if suffix == ".ipynb" or (start.startswith(b"{") and b'"cell_type"' in start):
        return "ipynb"
    if start.startswith((b"<!doctype html", b"<html")):
        return "html"
    return "html" if suffix in {".html", ".htm", ".xhtml"} and b"<" in head else None


class _ListingReader:
    """A zip archive for `ZipFile`, with a limit on the list of files, which is read at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size if 0 <= size <= _LISTING_BYTES else _LISTING_BYTES + 1)
        if len(data) > _LISTING_BYTES:
            raise ToolError(
                f"It is a zip archive whose list of files has more than {_LISTING_BYTES >> 20} MB, "
                "which is not read. Unpack it in bash."
            )
        return data


def _office_kind(file: BinaryIO) -> str | None:
    try:
        with zipfile.ZipFile(cast("Any", _ListingReader(file))) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, struct.error, NotImplementedError, OSError, ValueError) as error:
        raise ToolError(
            f"It begins like a zip archive or an Office document, but is damaged: {error}. "
            "Download or create it again."
        ) from error
    if "xl/workbook.bin" in names:
        raise ToolError("It is a binary Excel file (.xlsb). Ask for an .xlsx or CSV copy.")
    return next((kind for part, kind in _OFFICE_PARTS.items() if part in names), None)


def _legacy_advice(file: BinaryIO) -> str:
    file.seek(0)
    content = file.read(_OLE_SEARCHED)
    if "EncryptedPackage".encode("utf-16-le") in content:
        return "It is an Office document encrypted with a password. Ask for one without."
    for stream, old, new in _OLE_STREAMS:
        if stream.encode("utf-16-le") in content:
            return (
                f"It is in the old {old} format. Ask for a {new} copy, or convert it in bash if "
                f"LibreOffice is there: soffice --headless --convert-to {new[1:]} FILE"
            )
    return "It is a legacy Office file (OLE). Ask for a copy in a current format."


_PICTURES = {
    "image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WebP",
    "image/bmp": "BMP", "image/tiff": "TIFF", "image/heic": "HEIC", "image/avif": "AVIF",
}  # fmt: skip  # names of the kinds that `image_type` knows
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")


def image_type(data: bytes) -> str | None:
    """Return the media type of the picture that a file begins like; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"BM") and data[6:10] == b"\0\0\0\0":
        return "image/bmp"
    if data.startswith((b"II*\0", b"MM\0*")):
        return "image/tiff"
    if data[4:8] == b"ftyp" and data[8:12] in (b"avif", b"avis"):
        return "image/avif"
    return "image/heic" if data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS else None


_MEDIA_SUFFIXES = {
    ".wav": "audio/wav", ".mp3": "audio/mp3", ".ogg": "audio/ogg", ".flac": "audio/flac",
    ".m4a": "audio/mp4", ".mp4": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm",
}  # fmt: skip  # of sounds and videos; the copies that we keep have these


def media_type_of(path: str) -> str | None:
    """Return the media type of a sound or video by its suffix; None if it is neither."""
    return _MEDIA_SUFFIXES.get(path[path.rfind(".") :].lower())


def media_suffix(data: bytes) -> str | None:
    """Return the suffix for a sound or video, by its content; None if it is neither."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return ".wav"
    if data.startswith(b"ID3") or data[:2] in (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"):
        return ".mp3"
    if data[4:8] == b"ftyp":
        if image_type(data):
            return None  # a picture in the same container
        return {b"M4A ": ".m4a", b"qt  ": ".mov"}.get(data[8:12], ".mp4")
    starts = {b"OggS": ".ogg", b"fLaC": ".flac", b"\x1aE\xdf\xa3": ".webm"}
    return starts.get(data[:4])


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"

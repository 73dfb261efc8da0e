"""Finds the parts of Office files as Office does, whatever their names and namespaces."""

import html
import importlib
import io
import posixpath
import re
import zipfile
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, cast
from urllib.parse import unquote

from openmanus_graph.errors import ToolError

KINDS = ("docx", "xlsx", "pptx", "xls", "xlsb", "odt", "ods", "odp", "doc", "rtf")
"""What `document_kind` calls Office files and, at the end, what programs save in their place."""
_LISTING_BYTES = 16 * 1024 * 1024
_RELATIONS_BYTES = 4 * 1024 * 1024
_ZIP_ENTRIES, _CANDIDATES = 20_000, 20
UNPACKED_BYTES, UNPACKED_SHEET_BYTES = 300 * 1024**2, 2 * 1024**3  # sheets are read by row
_ROOTS = {"document": "docx", "workbook": "xlsx", "presentation": "pptx"}
_OPEN_DOCUMENT = {b"text": "odt", b"spreadsheet": "ods", b"presentation": "odp"}
_OPEN_DOCUMENT_TYPE = re.compile(rb"application/vnd\.oasis\.opendocument\.(\w+)")
_USUAL_MAIN = re.compile(r"(?:.*/)?(document|workbook|presentation)\d*\.(?:xml|bin)")
_ROOT = re.compile(rb"<(?:[\w.-]+:)?([A-Za-z][\w.-]*)[\s/>]")
_RELATION = re.compile(r"<(?:\w+:)?Relationship\s([^>]*)>")
_ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_DEFAULT_PASSWORD = "VelvetSweatshop"  # Excel's own, for files that it opens unasked
OLE = b"\xd0\xcf\x11\xe0"
HEAD_BYTES = 4096
MAX_TEXT_BYTES = 50 * 1024 * 1024
SPREADSHEET_2003 = b"urn:schemas-microsoft-com:office:spreadsheet"


class _Reader:
    """A zip archive for `ZipFile`, with a limit on the list of files, which is read at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self.listed = False

    def read(self, size: int = -1) -> bytes:
        if self.listed:
            return self._file.read(size)
        data = self._file.read(size if 0 <= size <= _LISTING_BYTES else _LISTING_BYTES + 1)
        if len(data) > _LISTING_BYTES:
            raise ToolError(
                f"It is a zip archive whose list of files has more than {_LISTING_BYTES >> 20} MB, "
                "which is not read. Unpack it in bash."
            )
        return data


@dataclass(frozen=True)
class Relation:
    type: str  # the last word of its address, which strict files share with others
    target: str  # the path of a part that exists


class Package:
    """The parts of an Office file. Names are compared as Office does: case and slashes differ."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        self.file = file
        reader = _Reader(file)
        self._zip = zipfile.ZipFile(cast("Any", reader))
        reader.listed = True
        self.damaged = False
        self.names: dict[str, str] = {}
        for name in self._zip.namelist():
            self.names.setdefault(_path(name), name)

    def check_size(self, most: int) -> None:
        """Refuse archives that unpack to far more than any real document.

        The sizes an archive declares can be trusted here: no more than that is unpacked.
        """
        sizes = [entry.file_size for entry in self._zip.infolist()]
        if len(sizes) > _ZIP_ENTRIES or sum(sizes) > most:
            raise ToolError(
                f"The document would unpack to more than {most >> 20} MB: it is damaged or made "
                "to do harm, and is not opened."
            )

    def stream(self, part: str) -> IO[bytes]:
        return self._zip.open(self.names[part])

    def read(self, part: str, size: int = -1) -> bytes:
        with self.stream(part) as file:
            return file.read(size)

    def relations(self, part: str = "") -> dict[str, Relation]:
        """Return what a part refers to by id; parts that are missing are left out."""
        folder, name = posixpath.split(part)
        listed = _path(f"{folder}/_rels/{name}.rels")
        if listed not in self.names:  # some programs name a part anew, and not its relations
            usual = (_path(f"{folder}/_rels/{root}.xml.rels") for root in _ROOTS)
            listed = next((each for each in usual if each in self.names), "")
        if not listed:
            return {}
        data = self.read(listed, _RELATIONS_BYTES)
        text = data.decode("utf-8", "replace")
        found: dict[str, Relation] = {}
        for each in _RELATION.finditer(text):
            values = {key: html.unescape(a or b) for key, a, b in _ATTRIBUTE.findall(each[1])}
            target = values.get("Target", "").replace("\\", "/")
            # Some programs write paths from the root without the slash that says so.
            for path in map(_path, (posixpath.join("/", folder, target), target, unquote(target))):
                if path in self.names and values.get("TargetMode") != "External":
                    kind = values.get("Type", "").rpartition("/")[2]
                    found[values.get("Id", "")] = Relation(kind, path)
                    break
        return found

    def related(self, part: str, *types: str) -> list[str]:
        """Return the parts that a part refers to by these types of relations."""
        return [each.target for each in self.relations(part).values() if each.type in types]

    def main(self) -> tuple[str | None, str]:
        """Return the kind of document, None if it is none, and its main part."""
        if "mimetype" in self.names:
            mime = _OPEN_DOCUMENT_TYPE.match(self.read("mimetype", HEAD_BYTES))
            return (_OPEN_DOCUMENT.get(mime[1]), "content.xml") if mime else (None, "")
        usual = {name: found[1] for name in self.names if (found := _USUAL_MAIN.fullmatch(name))}
        for part in [*self.related("", "officeDocument"), *usual][:_CANDIDATES]:
            root = _ROOT.search(self.read(part, HEAD_BYTES).replace(b"\0", b""))  # it may be UTF-16
            if part.endswith(".bin"):
                return "xlsb", part
            if root and (kind := _ROOTS.get(root[1].decode())):
                return kind, part
        part = next((name for name in usual if name.startswith(("word/", "xl/", "ppt/"))), "")
        return _ROOTS.get(usual.get(part, "")), part

    def xml(self, part: str, *, needed: bool = False) -> Any:  # lxml has no types
        """Return the root of a part; an empty one if it is broken and not `needed`."""
        try:
            root, whole = parse_xml(self.read(part))
        except ToolError:
            if needed:
                raise
            root, whole = parse_xml(b"<broken/>")[0], False
        self.damaged |= not whole
        return root


def text_kind(head: bytes, suffix: str) -> str | None:
    """Return what a program saved as text under the name of an Office file; None for others."""
    start = head[:HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{\\rtf"):
        return "rtf"
    if start.startswith(b"<?xml") and SPREADSHEET_2003 in start:
        return "xls"
    if suffix[1:] not in KINDS:
        return None
    is_mime = b"mime-version:" in start.lower()
    return "html" if start.startswith(b"<") else "mail" if is_mime else None


def _path(name: str) -> str:
    return posixpath.normpath(name.replace("\\", "/")).lstrip("/").lower()


def parse_xml(data: bytes) -> tuple[Any, bool]:
    """Return the root element and whether the text is without faults; ToolError if it has none."""
    etree: Any = importlib.import_module("lxml.etree")  # has no types

    for recover in (False, True):
        parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=recover)
        try:
            root = etree.fromstring(data, parser)
        except etree.XMLSyntaxError:
            continue
        if root is None or (recover and not len(root)):
            break
        if root.getroottree().docinfo.doctype:  # may define entities that multiply
            raise ToolError("It has a DOCTYPE, which no Office program writes, and is not read.")
        return root, not recover
    raise ToolError("The document is damaged. Download or create it again.")


def local(element: Any) -> str:
    """Return an element's name without its namespace: strict files have other ones."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""  # a comment's is a function


def attribute(element: Any, name: str = "id") -> str:
    """Return an attribute that has a namespace, whichever that is; empty without it."""
    ending = f"}}{name}"
    return next((value for key, value in element.attrib.items() if key.endswith(ending)), "")


def without_password(file: BinaryIO, password: str | None) -> BinaryIO:
    """Return an OLE file decrypted, if it is encrypted; ToolError without the right password."""
    library: Any = importlib.import_module("msoffcrypto")  # has no types
    errors: Any = importlib.import_module("msoffcrypto.exceptions")
    file.seek(0)
    out = io.BytesIO()
    try:
        office = library.OfficeFile(file)
        if not office.is_encrypted():
            return file
        options = {"verify_password": True} if office.format == "ooxml" else {}
        office.load_key(password=password or _DEFAULT_PASSWORD, **options)
        office.decrypt(out)
    except errors.InvalidKeyError as error:
        fault = "The password is wrong" if password else "It is encrypted with a password"
        raise ToolError(f"{fault}. Ask for the password, and pass it as password.") from error
    except errors.FileFormatError:
        return file  # of no kind that can be encrypted
    except errors.DecryptionError as error:
        raise ToolError(f"It is encrypted in a way that is not read: {error}.") from error
    return out

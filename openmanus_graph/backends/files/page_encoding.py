"""The encoding of web pages, whose headers and tags are often wrong."""

import codecs
import re

from openmanus_graph.backends.files.text_file import Encoding, detect_encoding

_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml[^>]{0,100}encoding\s*=\s*[\"']([\w-]+)")
_META_WITHIN = 4096
_WIDER = {  # as browsers read these names
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030",
    "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
}  # fmt: skip
_LOOKS_LIKE_UTF8 = ("utf-16", "utf-32", "iso2022", "hz", "utf-7")


def decode_page(data: bytes, declared: str | None = None) -> str:
    """Turn a page into text. Never fails; what cannot be read becomes U+FFFD.

    Args:
        data: The page, or its beginning.
        declared: The charset that its Content-Type header names.
    """
    utf8 = Encoding("utf-8")
    marked = data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    names = [] if marked else _declared(data, declared)
    for name in names:
        # Text that is valid UTF-8 is UTF-8, whatever else it declares: it is not so by accident.
        if name.startswith(_LOOKS_LIKE_UTF8) or not utf8.fits(data):
            try:
                return data.decode(name)
            except UnicodeError:
                continue
    encoding = detect_encoding(data) or utf8
    if encoding.fits(data):
        return encoding.decode(data)
    # One damaged character, or a cut in the middle of one, does not make a charset wrong.
    return data.decode(names[0] if names else "utf-8", "replace")


def _declared(data: bytes, declared: str | None) -> list[str]:
    """Return the encodings that header and tags name, as Python knows them."""
    head = data[:_META_WITHIN]
    found = _META_CHARSET.search(head) or _XML_ENCODING.search(head)
    labels = [declared, found[1].decode("ascii") if found else None]
    names: list[str] = []
    for label in filter(None, labels):
        try:
            name = codecs.lookup(label.strip("\"' ")).name
            b"".decode(name)
        except (LookupError, ValueError):
            continue  # there is none of this name, or it does not give text
        if name != "utf-8":
            names.append(_WIDER.get(name, name))
    return names

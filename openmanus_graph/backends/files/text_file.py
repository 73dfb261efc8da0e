"""Text files: encoding, byte order mark and line ends, and numbered lines for the model."""

import codecs
import io
import itertools
import re
import unicodedata
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.output import with_overrun

MAX_LINE_CHARS = 2_000
_PART = re.compile(r"\s*(\d+)\s*(-?)\s*(\d*)\s*")


@dataclass(frozen=True)
class Lines:
    """A wanted range of lines, 1-based; no last one means the end."""

    first: int = 1
    last: int | None = None


@dataclass(frozen=True)
class Excerpt:
    """The lines that are shown, and whether the output limit cut them."""

    lines: list[str]
    first: int
    cut: bool

    @property
    def next(self) -> int:
        return self.first + len(self.lines)


def parse_lines(text: str | None) -> Lines:
    """Parse a range such as "120-400", "120-" or "7"; ToolError if it is invalid."""
    if text is None or not text.strip():
        return Lines()
    match = _PART.fullmatch(text)
    if not match or int(match[1]) < 1:
        raise ToolError(f'lines={text!r} is not a range of lines. Write "120-400", "120-" or "7".')
    first = int(match[1])
    last = int(match[3]) if match[3] else None if match[2] else first
    if last is not None and last < first:
        raise ToolError(f"lines={text!r} ends before it begins.")
    return Lines(first, last)


def parse_pages(text: str | None, total: int, unit: str) -> list[int]:
    """Parse numbers such as "1-3,7" or "5-"; ToolError if no such page exists."""
    if text is None or not text.strip():
        return list(range(1, total + 1))
    chosen: list[int] = []
    for part in text.split(","):
        numbers = numbers_in(part, total)
        if numbers is None:
            raise ToolError(f'pages={text!r} is not understood. Write "3", "1-3,7" or "5-".')
        chosen += numbers
    if not chosen:
        raise ToolError(f"pages={text!r} names nothing: the document has {total} {unit}s.")
    return chosen


def numbers_in(part: str, total: int) -> list[int] | None:
    """Return the numbers that exist of "3", "1-3" or "5-"; None for another text."""
    match = _PART.fullmatch(part)
    if not match:
        return None
    first = int(match[1])
    last = int(match[3]) if match[3] else total if match[2] else first
    return list(range(max(first, 1), min(last, total) + 1))


def take(lines: Iterable[str], wanted: Lines, max_chars: int) -> Excerpt:
    """Take the wanted lines, or as many as fit. Reads no further than needed.

    At least one line is taken; a little more than `max_chars` is taken whole.
    """
    taken: list[str] = []
    used = fitting = 0
    for line in itertools.islice(lines, wanted.first - 1, wanted.last):
        used += len(line) + 1
        if used > with_overrun(max_chars) and taken:
            return Excerpt(taken[: max(fitting, 1)], wanted.first, cut=True)
        taken.append(line)
        fitting += used <= max_chars
    return Excerpt(taken, wanted.first, cut=False)


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Break very long lines, at a space if possible, so that each part can be requested."""
    for line in lines:
        rest = line
        while len(rest) > MAX_LINE_CHARS:
            at = rest.rfind(" ", MAX_LINE_CHARS // 2, MAX_LINE_CHARS) + 1 or MAX_LINE_CHARS
            yield rest[:at]
            rest = rest[at:]
        yield rest


_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MOST_CHECKED, _CLEAR = 2 * 1024**3, 100_000
_RANKED, _SAMPLE, _HEAD, _CHUNK = 8 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_HIGH = re.compile(rb"[\x80-\xff]+")
_HIGH_LINE = re.compile(rb"^[^\n]*[\x80-\xff][^\n]*\n?", re.MULTILINE)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MIN_UTF16_BYTES = 16  # bytes; less is not evidence of UTF-16
_UTF16_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffe\uffff]")
_WORD = re.compile(r"[^\W\d_]+|[^\x00-\x7f]")
_UNASSIGNED = frozenset({"Cn", "Co", "Cs"})
_BROKEN, _REPLACED = re.compile("[\ud800-\udfff]"), re.compile("\ufffd")
_UNPRINTABLE = re.compile("[\ud800-\udfff\\0]")
_WESTERN = "German French Spanish Portuguese Italian Swedish Danish Finnish Dutch Norwegian"
_EASTERN = "Polish Czech Hungarian Slovak Slovene Croatian Romanian"
_CYRILLIC = "Russian Ukrainian Bulgarian Serbian"
_LANGUAGES = {
    "cp1252": _WESTERN, "cp932": "Japanese Japanese— Japanese——", "gb18030": "Chinese",
    "euc_jp": "Japanese Japanese— Japanese——", "cp949": "Korean", "big5hkscs": "Chinese",
    "cp1251": _CYRILLIC, "koi8_r": _CYRILLIC, "koi8_u": _CYRILLIC, "cp1250": _EASTERN,
    "iso8859_2": _EASTERN, "cp1253": "Greek", "cp1254": "Turkish", "cp1255": "Hebrew",
    "cp1256": "Arabic Farsi", "cp1257": "Lithuanian Estonian", "cp874": "Thai",
    "cp866": _CYRILLIC, "iso8859_5": _CYRILLIC, "cp850": _WESTERN, "cp852": _EASTERN,
    "mac_roman": _WESTERN,
}  # fmt: skip
"""What is mostly written in an encoding; the first are the usual ones."""
_EVERYDAY = {
    "gb18030": range(0xB0, 0xD8), "cp949": range(0xB0, 0xC9), "euc_jp": range(0xB0, 0xD0),
    "cp932": range(0x88, 0x98), "big5hkscs": range(0xA4, 0xC7),
}  # fmt: skip  # the first bytes of the characters of everyday use
_ASCII_SECOND = ("cp932", "big5hkscs")  # where the second byte may be one of ASCII
_LATIN = (_WESTERN, _EASTERN, "Turkish", "Lithuanian Estonian")
_SIGNS = frozenset("–—‘’“”„«»…€•¿¡°§©®±²³µ½£")


@dataclass(frozen=True)
class Encoding:
    name: str
    bom: bytes = b""
    errors: str = "strict"  # `surrogateescape` for a text with a few broken bytes, which are kept
    broken: int = field(default=0, compare=False)  # bytes, or characters of UTF-16 and UTF-32
    broken_line: int = field(default=0, compare=False)  # the first line with one

    def decode(self, data: bytes) -> str:
        """Turn a whole file into text; UnicodeError if it is not in this encoding."""
        return data.removeprefix(self.bom).decode(self.name, self.errors)

    def encode(self, text: str) -> bytes:
        """Turn the text of a whole file into bytes; UnicodeError if a character has none."""
        return self.bom + text.encode(self.name, self.errors)

    @property
    def damage(self) -> str:
        """Return what could not be decoded, as a clause."""
        what = f"{self.broken} byte{'s are' if self.broken > 1 else ' is'} not valid {self.name}"
        return f"{what}, the first in line {self.broken_line}, shown as \ufffd"

    def fits(self, data: bytes) -> bool:
        """Return True if decoding and encoding gives the same bytes."""
        try:
            return self.encode(self.decode(data)) == data
        except UnicodeError:
            return False


def detect_encoding(data: bytes) -> Encoding | None:
    """Return an encoding that reproduces a file's bytes exactly; None if it is not text."""
    found = encoding_of(io.BytesIO(data))
    if found is None or found.fits(data):
        return found
    plain = found.name.startswith("utf") or b"\0" in data
    return None if plain else Encoding("latin-1")


def encoding_of(file: BinaryIO) -> Encoding | None:
    """Return the encoding of an opened file, decided over its first 2 GB; None if it is no text.

    Takes little memory, and leaves the file at any position.
    """
    file.seek(0)
    head = file.read(_HEAD)
    for bom, name in _BOMS:
        if head.startswith(bom):
            return _checked(file, Encoding(name, bom))[0]
    if b"\0" in head:  # UTF-16 without a mark, where nothing speaks against it
        sample = whole_characters(head, cut=bool(file.read(1)))
        names = (name for name in ("utf-16-le", "utf-16-be") if _reads_as_text(sample, name))
        return next((_checked(file, Encoding(name))[0] for name in names), None)
    return _byte_encoding(file, head)


def _byte_encoding(file: BinaryIO, head: bytes) -> Encoding | None:
    utf8, high, lines = _checked(file, Encoding("utf-8"))
    if not utf8.broken:
        return utf8
    if len(_CONTROL.findall(head)) * 50 > len(head):
        return None
    if high - utf8.broken > utf8.broken:
        return utf8
    for name in _ranked(lines[:_RANKED])[:5]:
        found, high, _ = _checked(file, Encoding(name))
        if found.broken * 100 <= high:
            return found
    return Encoding("latin-1")


def _checked(file: BinaryIO, encoding: Encoding) -> tuple[Encoding, int, bytes]:
    """Decode a whole file; return what is broken, the characters beyond ASCII, and such lines."""
    wide = encoding.name.startswith(("utf-16", "utf-32"))
    decoder = codecs.getincrementaldecoder(encoding.name)("replace" if wide else "surrogateescape")
    file.seek(len(encoding.bom))
    broken = high = line = 0
    first, sample, chunk = 0, b"", b"-"
    while chunk and file.tell() < _MOST_CHECKED:
        chunk = file.read(_CHUNK)
        if chunk.isascii() and chunk and not wide and not decoder.getstate()[0]:
            line += chunk.count(b"\n")
            continue
        text = decoder.decode(chunk, final=not chunk)
        # Broken bytes are decoded to surrogates, which UTF-8 cannot express.
        whole = text.replace("\ufffd", "") if wide else text.encode("utf-8", "ignore").decode()
        found = len(text) - len(whole)
        if found and not first:
            good = (_REPLACED if wide else _BROKEN).split(text, maxsplit=1)[0]
            first = line + good.count("\n") + 1
        broken += found
        high += len(text) - len(text.encode("ascii", "ignore"))
        line += text.count("\n")
        lines = _HIGH_LINE.finditer(chunk)  # which alone tell encodings apart
        while len(sample) < _RANKED and not wide and (match := next(lines, None)):
            sample += match[0][:_RANKED]
        if encoding.name == "utf-8" and broken > _CLEAR and broken * 2 > high:
            break  # it is another encoding
    errors = "surrogateescape" if broken and not wide else "strict"
    return replace(encoding, errors=errors, broken=broken, broken_line=first), high, sample


@contextmanager
def opened_text(
    file: BinaryIO, encoding: Encoding, newline: str | None = ""
) -> Generator[io.TextIOWrapper]:
    """Read a file as text, from after its mark. The file stays open: it is not ours to close."""
    file.seek(len(encoding.bom))
    text = io.TextIOWrapper(file, encoding.name, errors="replace", newline=newline)
    try:
        yield text
    finally:
        text.detach()


def whole_characters(head: bytes, *, cut: bool) -> bytes:
    """Return the first bytes of a file without a character cut in two; `cut`: there are more."""
    if not cut:
        return head
    if b"\0" in head:
        return head[: len(head) // 4 * 4]
    return head[: head.rfind(b"\n") + 1] or head


def _reads_as_text(data: bytes, name: str) -> bool:
    """Return True if bytes are clearly text in UTF-16, since nearly any even number decodes.

    Numbers in a binary file hardly ever decode to words of assigned characters with spaces between
    them and without a control character.
    """
    if len(data) % 2 or len(data) < _MIN_UTF16_BYTES:
        return False
    try:
        text = data.decode(name)
    except UnicodeError:
        return False
    sample = text[:_SAMPLE]
    spaces = sum(char in " \n\r\t" for char in sample)
    words = sum(char.isalnum() or unicodedata.category(char)[0] == "M" for char in sample)
    return (
        not _UTF16_CONTROL.search(text)
        and spaces >= max(2, len(sample) // 256)
        and (words + spaces) * 10 >= len(sample) * 6
        and not any(unicodedata.category(char) in _UNASSIGNED for char in sample)
    )


def _ranked(sample: bytes) -> list[str]:
    """Return encodings, the likeliest first, by the letters of the languages written in them.

    Short texts are the rule: a table with one word that is not English.
    """
    runs = [len(run) for run in _HIGH.findall(sample)]
    single = runs.count(1) * 2 > len(runs)  # accents and signs between ASCII letters
    scores = {
        name: _likeness(sample, name) - place / 300
        for place, name in enumerate(_LANGUAGES)
        if not single or _LANGUAGES[name] in _LATIN or name in _ASCII_SECOND
    }
    return sorted(scores, key=lambda name: -scores[name])


def _likeness(sample: bytes, name: str) -> float:
    """Return how usual the characters beyond ASCII are, and the words that they are in."""
    from charset_normalizer.constant import FREQUENCIES

    points = {
        char: 1 - place / (2 * len(FREQUENCIES[language]))
        for language in _LANGUAGES[name].split()
        for place, char in enumerate(FREQUENCIES[language])
    }
    first, wide = _EVERYDAY.get(name, range(0)), name in _EVERYDAY
    latin, total, found, odd, usual = _LANGUAGES[name] in _LATIN, 0.0, 0, 0, 0
    for word in _WORD.findall(sample.decode(name, "surrogateescape")):
        letters = [char for char in word if char >= "\x80"]
        found += len(letters)
        odd += sum(char.lower() not in points and char not in _SIGNS for char in letters)
        mixed = len(letters) < len(word)  # with ASCII, as most words with accents are
        cased = word == word.lower() or (len(word) > 1 and (word.istitle() or word.isupper()))
        fits = wide or (cased and (mixed == latin or (latin and len(word) == 1)))
        total += sum(points.get(char.lower(), 0.0) for char in letters) * (1 if fits else 0.2)
        for char in letters if wide else ():
            code = char.encode(name, "replace")
            everyday = len(code) == 2 and code[0] in first
            narrow = name == "cp932" and "ｦ" <= char <= "ﾟ"
            plain = everyday and (code[1] > 0xA0 or name in _ASCII_SECOND)
            total += plain / 2 + narrow / 3
            usual += plain
        total += (latin and word in _SIGNS) / 2
    clear = (name == "cp1252" and not odd) / 8 + (name == "gb18030" and usual == found) / 5
    return total / found + clear if found else 0.1


def split_lines(text: str) -> list[str]:
    r"""Split into lines that keep their ends: \n, \r\n or \r, and nothing else ends a line."""
    return _LINE.findall(text)


def with_newlines(text: str) -> str:
    r"""Give every line the end \n."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def printable(text: str) -> str:
    """Replace broken bytes and NUL, which not every JSON, log or database can carry."""
    return _UNPRINTABLE.sub("\ufffd", text)


def checked_range(view_range: list[int] | None, total: int) -> tuple[int, int]:
    """Read a `view_range`, 1-based, -1 for the last line; ToolError if it names no lines."""
    if view_range is None:
        return 1, total
    if len(view_range) != 2:
        raise TrustedToolError(
            "view_range takes two numbers: [first line, last line], -1 = the end."
        )
    first, last = view_range
    if not 1 <= first <= max(total, 1):
        raise TrustedToolError(f"view_range begins at {first}; the file has lines 1 to {total}.")
    if last != -1 and last < first:
        raise TrustedToolError(f"view_range ends at {last}, before its beginning {first}.")
    return first, total if last == -1 else min(last, total)


def numbered(lines: list[str], first: int, last: int, max_chars: int) -> str:
    """Show lines as `cat -n` does; the middle of what is longer is left out."""
    whole = _fitting(lines, range(first, last + 1), with_overrun(max_chars))
    if len(whole) == last - first + 1:
        return "\n".join(whole)
    head = _fitting(lines, range(first, last + 1), max_chars * 2 // 3)
    begin, room = first + len(head), max_chars - len("\n".join(head)) - 1
    tail = _fitting(lines, range(last, begin - 1, -1), room)
    notice = (
        f"[lines {begin}-{last - len(tail)} of {len(lines)} left out; "
        f"see more with view_range=[{begin}, {begin + len(head) - 1}]]"
    )
    left_out = len(head) + len(tail) <= last - first
    return "\n".join([*head, *([notice] if left_out else []), *reversed(tail)])


def _fitting(lines: list[str], numbers: range, max_chars: int) -> list[str]:
    """Take numbered lines while they fit; always at least one."""
    taken: list[str] = []
    for number in numbers:
        text = printable(lines[number - 1].rstrip("\r\n"))
        if (more := len(text) - MAX_LINE_CHARS) > 0:
            text = f"{text[:MAX_LINE_CHARS]} [{more} more characters in this line]"
        row = f"{number:6}\t{text}"
        max_chars -= len(row) + 1
        if max_chars < 0 and taken:
            break
        taken.append(row)
    return taken


_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml[^>]{0,100}encoding\s*=\s*[\"']([\w-]+)")
_META_WITHIN = 4096
_WIDER = {  # as browsers read these names
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030",
    "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
}  # fmt: skip
_LOOKS_LIKE_UTF8 = ("utf-16", "utf-32", "iso2022", "hz", "utf-7")


def decode_page(data: bytes, declared: str | None = None) -> str:
    """Turn a web page, or its beginning, into text. Never fails; bad bytes become U+FFFD.

    Headers and tags of pages are often wrong. `declared` is the charset of the Content-Type header.
    """
    utf8 = Encoding("utf-8")
    marked = data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    names = [] if marked else _declared(data, declared)
    for name in names:
        # Text that is valid UTF-8 is UTF-8, whatever it declares: that is never an accident.
        if name.startswith(_LOOKS_LIKE_UTF8) or not utf8.fits(data):
            try:
                found, high, _ = _checked(io.BytesIO(data), Encoding(name))
            except UnicodeError:
                continue
            if found.broken * 4 <= high:  # a damaged or cut character does not make it wrong
                return data.decode(name, "replace")
    encoding = detect_encoding(data)
    return encoding.decode(data) if encoding else data.decode([*names, "utf-8"][0], "replace")


def _declared(data: bytes, declared: str | None) -> list[str]:
    head = data[:_META_WITHIN]
    found = _META_CHARSET.search(head) or _XML_ENCODING.search(head)
    labels = [declared, found[1].decode("ascii") if found else None]
    names: list[str] = []
    for label in filter(None, labels):
        try:
            name = codecs.lookup(label.strip("\"' ")).name
            b"".decode(name)
        except (LookupError, ValueError):
            continue  # no encoding has this name, or it does not decode to text
        if name != "utf-8":
            names.append(_WIDER.get(name, name))
    return names

"""Text files: encoding, byte order mark and line ends, and numbered lines for the model."""

import codecs
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS, with_overrun

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
        match = _PART.fullmatch(part)
        if not match:
            raise ToolError(f'pages={text!r} is not understood. Write "3", "1-3,7" or "5-".')
        first = int(match[1])
        last = min(int(match[3]), total) if match[3] else total if match[2] else first
        chosen += [page for page in range(max(first, 1), last + 1) if page <= total]
    if not chosen:
        raise ToolError(f"pages={text!r} names nothing: the document has {total} {unit}s.")
    return chosen


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


_CONTEXT_LINES = 4
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 64 * 1024
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_HIGH = re.compile(rb"[\x80-\xff]+")
_HIGH_LINE = re.compile(rb"^[^\n]*[\x80-\xff][^\n]*\n?", re.MULTILINE)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MIN_UTF16_BYTES = 16  # bytes; less is not evidence of UTF-16
_UTF16_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffe\uffff]")
_UNASSIGNED = frozenset({"Cn", "Co", "Cs"})
_UNPRINTABLE = re.compile("[\ud800-\udfff\\0]")
_LEGACY_ENCODINGS = ("mac_", "cp437", "cp7", "cp8")
_EUC = re.compile(rb"(?:[\x00-\x7f]|[\xa1-\xf7][\xa1-\xfe])*")


@dataclass(frozen=True)
class Encoding:
    name: str
    bom: bytes = b""
    errors: str = "strict"  # `surrogateescape` for UTF-8 with a few broken bytes, which are kept

    def decode(self, data: bytes) -> str:
        """Turn a whole file into text; UnicodeError if it is not in this encoding."""
        return data.removeprefix(self.bom).decode(self.name, self.errors)

    def encode(self, text: str) -> bytes:
        """Turn the text of a whole file into bytes; UnicodeError if a character has none."""
        return self.bom + text.encode(self.name, self.errors)

    def fits(self, data: bytes) -> bool:
        """Return True if decoding and encoding gives the same bytes."""
        try:
            return self.encode(self.decode(data)) == data
        except UnicodeError:
            return False


def detect_encoding(data: bytes) -> Encoding | None:
    """Return an encoding that reproduces a file's bytes exactly; None if it is not text."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            marked = Encoding(name, bom)
            return marked if marked.fits(data) else None
    if b"\0" in data:  # UTF-16 without a mark, where nothing speaks against it
        names = [name for name in ("utf-16-le", "utf-16-be") if _reads_as_text(data, name)]
        candidates = list(map(Encoding, names))
    else:
        candidates = _byte_encodings(data)
    return next((encoding for encoding in candidates if encoding.fits(data)), None)


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


def _byte_encodings(data: bytes) -> list[Encoding]:
    utf8 = Encoding("utf-8")
    if utf8.fits(data):
        return [utf8]
    if len(_CONTROL.findall(data)) * 50 > len(data):
        return []
    text = data.decode("utf-8", "surrogateescape")
    broken = sum("\udc80" <= char <= "\udcff" for char in text)
    high = sum(char >= "\x80" for char in text)
    if high - broken > broken:
        return [Encoding("utf-8", errors="surrogateescape")]
    names = [*_guesses(_high_lines(data)), "cp1252", "latin-1"]
    return [Encoding(name) for name in names]


def _high_lines(data: bytes) -> bytes:
    """Collect lines that are not ASCII, which alone tell encodings apart."""
    sample = b""
    for match in _HIGH_LINE.finditer(data):
        sample += match.group()
        if len(sample) > _SAMPLE:
            break
    return sample[: 2 * _SAMPLE]


def _guesses(sample: bytes) -> list[str]:
    """Rank encodings. charset-normalizer alone errs on short texts, code with one word say."""
    from charset_normalizer import from_bytes

    matches = from_bytes(sample)
    found = [name for match in matches for name in match.could_be_from_charset]
    found.sort(key=lambda name: name.startswith(_LEGACY_ENCODINGS))  # those of old systems last
    runs = [len(run) for run in _HIGH.findall(sample)]
    accents = runs.count(1) * 2 > len(runs)  # between ASCII letters
    if accents and ("cp1252" in found or (len(runs) < 8 and found[:1] != ["big5"])):
        return ["cp1252"]
    euc = _east_asian(sample, found) if _EUC.fullmatch(sample) else []
    western = ["cp1252"] if max(runs) <= 2 and sum(runs) < 8 else []
    return [*euc, *western, *("gb18030" if name in {"gb2312", "gbk"} else name for name in found)]


def _east_asian(sample: bytes, found: list[str]) -> list[str]:
    leads = [lead for run in _HIGH.findall(sample) for lead in run[::2]]
    if sum(lead in {0xA4, 0xA5} for lead in leads) * 3 > len(leads):
        return ["euc_jp"]  # the rows of the kana
    letters = [lead for lead in leads if lead >= 0xB0]
    common = sum(lead <= 0xD7 for lead in letters)  # the everyday half of GB 2312
    if not letters or common * 10 < len(letters) * 9:
        return []
    hangul = max(letters) <= 0xC8
    return ["cp949"] if hangul and found[:1] == ["cp949"] else ["gb18030"]


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
    whole, _ = _fitting(lines, range(first, last + 1), with_overrun(max_chars))
    if len(whole) == last - first + 1:
        return "\n".join(whole)
    head, used = _fitting(lines, range(first, last + 1), max_chars * 2 // 3)
    rest = range(last, first + len(head) - 1, -1)
    tail, _ = _fitting(lines, rest, max_chars - used)
    left_out = last - first + 1 - len(head) - len(tail)
    if not left_out:
        return "\n".join([*head, *reversed(tail)])
    begin = first + len(head)
    notice = (
        f"[lines {begin}-{begin + left_out - 1} of {len(lines)} left out; "
        f"see more with view_range=[{begin}, {begin + max(len(head), 1) - 1}]]"
    )
    return "\n".join([*head, notice, *reversed(tail)])


def snippet(lines: list[str], first: int, last: int) -> str:
    first, last = max(1, first - _CONTEXT_LINES), min(len(lines), last + _CONTEXT_LINES)
    return (
        numbered(lines, first, last, MIN_OBSERVATION_CHARS) if lines else "(the file is empty now)"
    )


def _fitting(lines: list[str], numbers: range, max_chars: int) -> tuple[list[str], int]:
    """Take numbered lines while they fit; always at least one."""
    taken: list[str] = []
    used = 0
    for number in numbers:
        text = printable(lines[number - 1].rstrip("\r\n"))
        if (more := len(text) - MAX_LINE_CHARS) > 0:
            text = f"{text[:MAX_LINE_CHARS]} [{more} more characters in this line]"
        row = f"{number:6}\t{text}"
        used += len(row) + 1
        if used > max_chars and taken:
            return taken, used - len(row) - 1
        taken.append(row)
    return taken, used


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
                return data.decode(name)
            except UnicodeError:
                continue
    encoding = detect_encoding(data) or utf8
    if encoding.fits(data):
        return encoding.decode(data)
    # One damaged character, or a cut in the middle of one, does not make a charset wrong.
    return data.decode(names[0] if names else "utf-8", "replace")


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

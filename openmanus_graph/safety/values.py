"""Puts values and texts into a canonical form, so that a value is found in a text as a whole.

A text becomes tokens. A date, time, number, address or name with punctuation is one token, so that
digits in it mean nothing else: "June 13" does not name the number 13. Nothing is decoded that hides
a value from a reader: similar letters of other scripts, zero-width characters, percent signs and
base64 give another token.
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from urllib.parse import unquote, urlsplit

from openmanus_graph.errors import ToolError
from openmanus_graph.safety import word_set
from openmanus_graph.safety.urls import canonical_url, is_file_name, may_be_host
from openmanus_graph.state.addresses import (
    has_scheme,
    is_loopback,
    literal_ip,
    normal_host,
    with_scheme,
)

Tokens = tuple[str, ...]
"""A value, or a text, in canonical form."""

DATE, TIME, NUMBER = "date:", "time:", "number:"
URL, EMAIL, IBAN = "url:", "email:", "iban:"
"""Prefixes of tokens of these kinds. The token of a word is the word in lower case."""
_ANY_YEAR = "*"
_LOCAL_WITHOUT_HOST = word_set("file sqlite duckdb postgres postgresql mysql unix")
"""Schemes that mean this machine if no host is named."""

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul",
            "august aug", "september sep sept", "october oct", "november nov", "december dec",
        ), 1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_TOP_LEVEL = (
    "com|org|net|io|ai|app|dev|info|biz|co|me|xyz|top|site|online|shop|club|edu|gov|mil|int"
    "|page|link|click|live|cloud|tech|store|blog|news|wiki|example|test"
)
"""Endings of bare names that are hosts. Before a `/` any ending is one."""
_URL_PATTERN = (
    r"(?<![\w@])(?:[a-z][a-z0-9+.-]{0,20}://|www\.)[^\s<>\"'`\\|^{}]+"
    rf"|(?<![\w@.%-])(?:[\w-]{{1,63}}\.){{1,20}}(?:(?:{_TOP_LEVEL})(?![\w@-])(?:[:/?#][^\s<>\"'`\\|^{{}}]*)?"
    r"|[^\W\d_]{2,}(?::\d+)?/[^\s<>\"'`\\|^{}]*)"
)
# Of an odd one what every reader would make of it: a quoted name, a host in brackets.
_EMAIL_PATTERN = r"(?<![\w.+%-])[\w.+%-]{1,100}@(?:[\w-]{1,63}\.){1,20}[\w-]{0,62}\w"
IBAN_PATTERN = (
    r"(?<![\w-])[a-z]{2}\d{2}(?:(?=(?:[a-z]*\d){6})[a-z0-9]{11,30}"
    r"|(?:[ -][a-z0-9]{4}){2,7}(?:[ -][a-z0-9]{1,3})?)(?![\w-])"
    r"|(?<![\w-])[a-z]{2} ?\d{2}(?:[ .-]\d{4}){3,7}(?:[ .-]\d{1,3})?(?![\w-])"
)
_DATE_PATTERN = (
    r"(?<![\w.-])(?:(?P<iso>\d{4}-\d{1,2}-\d{1,2})(?=t\d|(?![\w-]))"
    rf"|(?P<m1>{_MONTH})\.?\s+(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<y1>\d{{4}}))?(?![\w-])"
    rf"|(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?:of\s+)?(?P<m2>{_MONTH})"
    r"(?:,?\s+(?P<y2>\d{4}))?(?![\w-])"
    r"|(?P<numeric>\d{1,2}[./]\d{1,2}[./]\d{2,4})(?![\w-]))"
)
_TIME_PATTERN = (
    r"(?:(?<![\w.:])|(?<=\d)t)(?:(?P<hour>\d{1,2}):(?P<minute>\d{2})(?P<second>:\d{2})?\s*(?P<half>[ap]\.?m\b)?"
    r"|(?P<hour12>\d{1,2})\s*(?P<half12>[ap]\.?m\b))(?![\w:])"
)
_BEFORE, _AFTER = "\"'`“”‘’«»([{<,;:!?#@*€$£¥", "\"'`“”‘’«»)]}>.,;:!?*€$£¥"
_ITEM_PATTERN = r"(?:^|(?<=[\n:;])|(?<=[:;.!?]\s))[ \t]*\d{1,2}[.)](?=\s)"
"""The number of an item in a list, which names nothing."""
# These two are long. They are compiled, by `re`, when a value is first looked for.
_TOKEN = (
    rf"(?i)(?P<item>{_ITEM_PATTERN})|(?P<email>{_EMAIL_PATTERN})|(?P<url>{_URL_PATTERN})|(?P<iban>{IBAN_PATTERN})"
    rf"|(?P<date>{_DATE_PATTERN})|(?P<time>{_TIME_PATTERN})"
    rf"|(?P<signs>[{re.escape(_BEFORE)}]+)|(?P<word>[^\s—–|]+)"
)
_ADDRESS = rf"(?i)(?P<email>{_EMAIL_PATTERN})|(?P<url>{_URL_PATTERN})|(?P<iban>{IBAN_PATTERN})"
_MOST_ENCODINGS = 3
_ESCAPED = re.compile(r"\\{1,3}u00([0-7][0-9a-fA-F])")
_ODD_MAILBOX = re.compile(
    r"(?<!\w)\"[^\"\n<>]{1,64}\"@\[?\w[\w.:-]{0,100}\]?|(?<![\w.+%-])[\w.+%-]{1,100}@\[[\w.:]{1,60}\]"
    r"|(?<![\w.+%'’`-])[\w.+%'’`-]{0,100}\w(?:['’`]|\([^()\n]{0,40}\))@(?:localhost\b|[^\W_][\w-]{0,62}\.[\w.-]{1,100})"
    r"|(?<![\w.+%-])[\w.+%-]{1,100}@localhost(?![\w.-])"
)
"""A mailbox with a quoted name or a comment, or on an IP address or this machine."""
_ODD_URL = re.compile(
    r"(?i)(?:(?<!\w)(?:https?|wss?|ftp):[/\\]{0,4}|(?<![\w/\\:])[/\\]{2,4})"
    r"(?:(?:[\w-]{1,63}\.){1,20}(?:[^\W\d_]{2,63}|xn--[\w-]{1,59})|(?:\d{1,3}\.){3}\d{1,3}|\[[\da-f:.]{2,45}\])"
    r"(?![\w-])[^\s<>\"'`|^{}]*"
    r"|(?<![\w.:/@-])(?:\d{1,3}\.){3}\d{1,3}(?::\d{2,5}|/)[^\s<>\"'`|^{}]*"
)
"""What browsers take for a URL, although its scheme or slashes are missing or wrong."""
_BETWEEN = re.compile(r"[/?#&=;,:|!*()\[\]<>\"]+")
"""Separators of the parts of a path or query."""
_HOST_OF_URL = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?/{0,2}[^/?#]*[/?#]?", re.IGNORECASE)
_WIDE_DOT = re.compile(r"(?<=[a-zA-Z0-9])[。｡](?=[a-z0-9])")
_OTHER_HOST = re.compile(
    r"\\{1,2}[^\s/?#\"'<>]{0,100}@[\w.-]+"
    r"|['\"`{}|^]{1,3}[\w-]{0,63}(?:\.[\w-]{1,63}){2,20}(?![\w(])"
    r"|[<>\\]{1,3}(?:\.[\w-]{1,63}){2,20}(?![\w(])"
)
r"""What makes the URL before it another host for some programs: `\@evil.example`."""
_URL_END = ".,;:!?)]}*_~'\""
_NEXT_SENTENCE = re.compile(rf"^((?:\w+://)?[\w.-]+\.(?:{_TOP_LEVEL}))\.[A-Z][\w.]*$")
"""An address, and the start of a sentence that follows without a space."""
_BARE_HOST = re.compile(
    r"(?i)(?<![\w@./:%-])(?:(?:\d{1,3}\.){3}\d{1,3}|(?:[\w-]{1,63}\.){1,20}[a-z]{2})(?![\w./-])"
)
"""A host as a single word, in a text whose programs use the network."""
_WITH_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://|www\.", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)*")
_CHINESE = (
    "\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uff0f\uff1a-\uff20\u3001-\u3003\u3008-\u3011"
)
_BESIDE_CHINESE = re.compile(rf"(?<=[{_CHINESE}])(?=[!-~])|(?<=[!-~])(?=[{_CHINESE}])")
_LIKE_ASCII = "\u212a\u037e\u1fef\u2000\u2001"
"""Characters that Unicode's composition turns into others."""
_SAME_SIGNS = str.maketrans({"’": "'", "ʼ": "'"})


def tokens_of(value: object) -> Tokens:
    """Return the canonical form of a value, or of all of a text. Signs alone stay unchanged."""
    text = str(value)
    return tuple(_tokens(text)) or tuple(text.split())


def plainly_written(text: str) -> str:
    """Return a text in plain spelling, with spaces between Chinese and other characters."""
    return _BESIDE_CHINESE.sub(" ", _plainly_spelt(text))


def addresses_in(text: str) -> Iterator[str]:
    """Yield the URLs, e-mail addresses and IBANs in a text, also disguised ones.

    All `spellings` are searched: without zero-width characters and wide letters, and without
    percent signs, HTML entities and JSON escapes, even doubled. What programs read in different
    ways is found as a whole: `"a"@b.example`.
    """
    found = dict.fromkeys(one for variant in spellings(text) for one in _addresses_in(variant))
    # What a disguise cuts off is the end of what it hides.
    backwards = sorted(address[::-1] for address in found)
    cut = {one for one, longer in pairwise(backwards) if longer.startswith(one)}
    whole = [address for address in found if address[::-1] not in cut]
    yield from {tokens_of(address): address for address in whole}.values()


def spellings(text: str) -> Iterator[str]:
    """Yield a text in each way in which `addresses_in` reads it, and as written."""
    plain = _WIDE_DOT.sub(".", _plainly_spelt(text))
    yield from dict.fromkeys((*_decoded(plain), plain, text))


def _decoded(text: str) -> Iterator[str]:
    def unescape(text: str) -> str:
        return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)

    for _ in range(_MOST_ENCODINGS):
        variants = (unquote(text), html.unescape(text), unescape(text))
        changed = [one for one in variants if one != text]
        if not changed:
            return
        yield from changed
        text = unescape(html.unescape(unquote(text)))
        yield text


def _addresses_in(text: str) -> Iterator[str]:
    for found in re.finditer(_ADDRESS, text):
        address = found[0]
        if found["url"] is not None:
            rest = _OTHER_HOST.match(text, found.end())
            yield address + rest[0] if rest else address.rstrip(_URL_END)
        else:
            yield address.rstrip(_URL_END)
    for odd in _ODD_MAILBOX.finditer(text):
        yield odd[0]
    for odd in _ODD_URL.finditer(text):
        yield odd[0].rstrip(_URL_END)


def addresses_behind(url: str) -> Iterator[str]:
    """Yield the addresses after a URL's host. Its site may send its reader, or data, there.

    `/@name`, `logo@2x.png` and `react@18.2.0` are not mailboxes. IBANs need correct check digits,
    because ids look like them.
    """
    behind = _HOST_OF_URL.sub(" ", url)
    for address in addresses_in(behind):
        if has_scheme(address) or _ODD_URL.match(address) or _ODD_MAILBOX.fullmatch(address):
            yield address
    parts = dict.fromkeys(part for text in spellings(behind) for part in _BETWEEN.split(text))
    texts = (part if "@" in part else part.replace("+", " ") for part in parts)
    for found in (found for text in texts for found in re.finditer(_ADDRESS, text)):
        address = found[0].rstrip(_URL_END)
        if found["iban"] is not None:
            plain = re.sub(r"[ .-]", "", address).upper()
            digits = "".join(str(int(char, 36)) for char in plain[4:] + plain[:4])
            holds = int(digits) % 97 == 1  # its check digits are right
        elif found["email"] is not None:
            is_account = found.string[: found.start()].endswith("@")  # `/@name@another.example`
            holds = not is_account and may_be_host(address.rpartition("@")[2])
        else:
            holds = address.casefold().startswith("www.")
        if holds:
            yield address


def reached_by(program: str, hosts: Iterable[str] = (), *, bare_names: bool) -> Iterator[str]:
    """Yield the addresses beyond this machine that a program, or its commands' `hosts`, name.

    With `bare_names`, a name without a scheme is a host. In code, `page.click` is none.
    """
    bare = _BARE_HOST.findall(program) if bare_names else []
    found = [
        one
        for one in (*addresses_in(program), *(one for one in bare if not is_file_name(one)))
        if bare_names or _WITH_SCHEME.match(one) or tokens_of(one)[0].startswith(EMAIL)
    ]
    known = set[str]()
    for address in found:
        with suppress(ValueError):
            known.add(urlsplit(with_scheme(address)).hostname or "")
    for address in dict.fromkeys((*found, *(one for one in hosts if one not in known))):
        if not _is_this_machine(address):
            yield address


def _is_this_machine(address: str) -> bool:
    try:
        parts = urlsplit(with_scheme(address))
        if not parts.hostname:  # `http:///evil.example` is reached all the same
            return parts.scheme.partition("+")[0] in _LOCAL_WITHOUT_HOST
        host = normal_host(parts.hostname)
    except (ValueError, ToolError):  # in brackets that hold none, or no host's name
        return False
    ip = literal_ip(host)
    return is_loopback(host) or (ip is not None and ip.is_unspecified)


def is_address(token: str) -> bool:
    return token.startswith((URL, EMAIL, IBAN))


def squeezed(text: str) -> str:
    """Return only the letters and digits of a text, so that spaces and signs hide nothing."""
    return "".join(char for char in _plainly_spelt(text).casefold() if char.isalnum())


def same_date(said: str, asked: str) -> bool:
    """Return True if a date that was said, perhaps without its year, is the one asked for."""
    year, _, day = said.removeprefix(DATE).partition("-")
    return year == _ANY_YEAR and asked.startswith(DATE) and asked.endswith(f"-{day}")


def _plainly_spelt(text: str) -> str:
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", visible)


def words_in(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words and bare numbers of a text as tokens, with start and end."""
    for found in re.finditer(_TOKEN, text):
        if found["word"] is not None:
            end = found.start() + len(found[0].rstrip(_AFTER))
            yield from ((token, found.start(), end) for token in _word(found[0]))


def _tokens(text: str) -> Iterator[str]:
    for found in re.finditer(_TOKEN, _composed(text)):
        raw = found[0]
        if found["item"] is not None or found["signs"] is not None:
            continue
        if found["word"] is not None:
            yield from _word(raw)
        elif found["email"] is not None:
            local, _, host = _small(raw).rpartition("@")
            with suppress(ToolError):
                host = normal_host(host)
            yield f"{EMAIL}{local}@{host}"
        elif found["url"] is not None:
            yield from _url(raw)
        elif found["iban"] is not None:
            yield IBAN + re.sub(r"[ .-]", "", raw).upper()
        elif found["date"] is not None:
            yield _date(found)
        else:
            yield _time(found)


def _composed(text: str) -> str:
    """Return a text with accents in one form, and no sign made one of ASCII: `K` is not a `K`."""
    readable = "".join(
        part if part in _LIKE_ASCII else unicodedata.normalize("NFC", part)
        for part in re.split(f"([{_LIKE_ASCII}])", text)
    )
    return readable.translate(_SAME_SIGNS)


def _small(text: str) -> str:
    """Return a text in lower case. No other letter becomes ASCII: `ſ` is not a `s`."""
    if text.isascii():
        return text.lower()
    return "".join(
        char if small.isascii() and not char.isascii() else small
        for char in text
        for small in (char.casefold(),)
    )


def _word(raw: str) -> Iterator[str]:
    plain = _small(raw.rstrip(_AFTER))
    if not plain:
        return
    if _NUMBER.fullmatch(plain):
        yield NUMBER + _number(plain)
    else:
        yield plain.removesuffix("'s")


def _number(text: str) -> str:
    """Return one form of a number: `1,000.50`, `1.000,50` and `1000.5` are the same."""
    last = max(text.rfind(","), text.rfind("."))
    whole, fraction = (text[:last], text[last + 1 :]) if last >= 0 else (text, "")
    groups = re.split(r"[.,]", whole)
    repeated = text.count(text[last]) > 1 if last >= 0 else False
    if last >= 0 and text[last] == "," and len(fraction) == 3 and len(groups) >= 1:
        repeated = True  # thousands: 1,000
    if any(len(group) != 3 for group in groups[1:]):
        return text  # a version, say: no number
    digits = re.sub(r"[.,]", "", text) if repeated else f"{''.join(groups)}.{fraction or 0}"
    with suppress(InvalidOperation):
        return f"{Decimal(digits).normalize():f}"
    return text


def _url(raw: str) -> Iterator[str]:
    address = _NEXT_SENTENCE.sub(r"\1", raw.rstrip(_URL_END))
    if has_scheme(address) and not address.casefold().startswith(("http://", "https://")):
        yield URL + address
        return
    try:
        yield URL + canonical_url(with_scheme(address)).removeprefix("www.")
    except ToolError:
        yield address.casefold()


def _date(found: re.Match[str]) -> str:
    year, month, day = _ANY_YEAR, 0, 0
    if found["iso"] is not None:
        year, month, day = (found["iso"].split("-")[0], *map(int, found["iso"].split("-")[1:]))
    elif found["numeric"] is not None:
        first, second, last = re.split(r"[./]", found["numeric"])
        if "." in found["numeric"] or int(first) > 12:
            first, second = second, first
        year, month, day = last if len(last) == 4 else f"20{last}", int(first), int(second)
    else:
        name, number = found["m1"] or found["m2"], found["d1"] or found["d2"]
        year = found["y1"] or found["y2"] or _ANY_YEAR
        month, day = _MONTHS[name.casefold()], int(number)
    with suppress(ValueError):
        date(2000 if year == _ANY_YEAR else int(year), month, day)
        return f"{DATE}{year}-{month:02}-{day:02}"
    return found[0].casefold()


def _time(found: re.Match[str]) -> str:
    hour = int(found["hour"] or found["hour12"])
    half = (found["half"] or found["half12"] or "").casefold()
    if half.startswith("p") and hour < 12:
        hour += 12
    elif half.startswith("a") and hour == 12:
        hour = 0
    second = found["second"] or ":00"
    return f"{TIME}{hour:02}:{found['minute'] or '00'}{second}"

"""Reads mail: .eml with all that MIME allows, mailboxes, and Outlook's .msg.

Files are opened in the child only.
"""

import codecs
import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.policy import Compat32
from pathlib import PurePath
from typing import Any, BinaryIO, cast

from openmanus_graph.backends.files.child import Document, Extras, File
from openmanus_graph.backends.files.text_file import decode_page
from openmanus_graph.errors import ToolError
from openmanus_graph.safety.open_beneath import size_text

_SUFFIXES = (".eml", ".mht", ".mhtml", ".mbox", ".mbx")
_MAILBOX = re.compile(rb"From \S+ [^\n]*\d{4}[^\n]*\n>?[\w-]+:")
_MAIL = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:>?From [^\n]*\n)?[\w-]+:[^\n]*\n[\w \t-]")
_MAIL_HEADER = re.compile(
    rb"^(?:From|To|Received|Message-ID|MIME-Version|Subject|Date|Return-Path):", re.M | re.I
)
_SHOWN = ("From", "Sender", "Reply-To", "To", "Cc", "Bcc", "Date", "Subject")
_RECIPIENT_TYPE, _HTML = 0x0C15, 0x1013  # properties of Outlook
_RECIPIENTS = {1: "to", 2: "cc", 3: "bcc"}
_MOST_ATTACHED, _ATTACHED_BYTES = 20, 50 * 1024 * 1024  # listed and saved, of one mail
_MAILBOX_BYTES = 50 * 1024 * 1024
_MESSAGE_START = re.compile(rb"(?:\A|\r?\n\r?\n)From [^\n]*\n(?=[\w-]+:)")
_ADVICE = {
    "application/ms-tnef": "Outlook's winmail.dat: save it, and unpack it in bash with tnef",
    "application/pkcs7-mime": "S/MIME, encrypted or signed: open it with openssl cms in bash",
    "application/pgp-encrypted": "the mail is encrypted with PGP: only its owner can decrypt it",
}
_SIGNATURES = ("application/pkcs7-signature", "application/pgp-signature")

Markdown = Callable[[str], str]  # converts HTML


class _RawHeaders(Compat32):
    """Headers with bytes that no standard allows are decoded as a person's programs do."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        data = value.encode("utf-8", "surrogateescape")
        return value if value.isascii() else decode_page(data)


_POLICY = _RawHeaders()


def mail_kind(head: bytes, suffix: str) -> str | None:
    """Tell mail by its headers. Texts of other kinds may begin so, and are left to their names."""
    if suffix not in _SUFFIXES and suffix[1:].isalnum():
        return None
    if _MAILBOX.match(head) and suffix != ".eml":
        return "mbox"
    return "mail" if _MAIL.match(head) and _MAIL_HEADER.search(head) else None


def open_mail(file: BinaryIO, markdown: Markdown, extras: Extras) -> Document:
    message = _parsed(file.read().removeprefix(codecs.BOM_UTF8).lstrip())
    lines = list(_message_lines(message, markdown, extras))
    return Document("mail", "", 1, lambda _: lines)


def open_mbox(file: BinaryIO, markdown: Markdown, extras: Extras) -> Document:
    data = file.read(_MAILBOX_BYTES)
    starts = list(_MESSAGE_START.finditer(data))
    ends = [*(match.start() for match in starts[1:]), len(data)]

    def page(number: int) -> Iterator[str]:
        message = _parsed(data[starts[number - 1].end() : ends[number - 1]])
        yield f"## Message {number}"
        yield from _message_lines(message, markdown, extras)

    longer = ", of its first 50 MB" if file.read(1) else ""
    return Document(f"mailbox{longer}", "message", len(starts), page)


def read_mail(data: bytes) -> tuple[dict[str, list[str]], str, list[str]]:
    """Return a mail's headers by names in lower case, its plain text, and names of attachments."""
    headers, head = dict[str, list[str]](), data.partition(b"\r\n\r\n")[0]
    for name, value in _parsed(head + b"\r\n\r\n").items():
        headers.setdefault(name.lower(), []).append(_header(str(value)))
    try:
        parts = list(_leaves(_parsed(data)))
        attached = [_name(part) for part in parts if _is_attached(part)]
        if (more := len(attached) - _MOST_ATTACHED) > 0:
            attached[_MOST_ATTACHED:] = [f"and {more} more"]
        shown = [part for part in parts if not _is_attached(part)]
        return headers, _body(shown, lambda _: "(only HTML)"), attached
    except (RecursionError, ValueError, LookupError):
        return headers, "(the mail is malformed)", []


def _parsed(data: bytes) -> Message:
    return message_from_bytes(data, policy=_POLICY)  # pyright: ignore[reportUnknownVariableType]


def _header(text: str) -> str:
    """Return a header as a person reads it. Broken encoded words stay as they are."""
    flat = re.sub(r"\r?\n[ \t]+", " ", text)
    with suppress(HeaderParseError, ValueError):
        parts = decode_header(flat)
        flat = "".join(
            decode_page(part, charset) if charset and isinstance(part, bytes) else
            part.decode("latin-1") if isinstance(part, bytes) else part
            for part, charset in parts
        )  # fmt: skip
    return " ".join(flat.split())


def _message_lines(message: Message, markdown: Markdown, extras: Extras) -> Iterator[str]:
    for name in _SHOWN:
        yield from (f"{name}: {_header(str(value))}" for value in message.get_all(name, ()))
    yield ""
    attached, shown = list[Message](), list[Message]()
    for part in _leaves(message):
        (attached if _is_attached(part) else shown).append(part)
    yield from _body(shown, markdown).splitlines()
    files = (_file(_name(part), part.get_content_type(), _data(part)) for part in attached)
    yield from _attachment_lines(list(zip(map(_described, attached), files, strict=True)), extras)


def _attachment_lines(attached: Sequence[tuple[str, File | None]], extras: Extras) -> Iterator[str]:
    """List attachments, and add them to the files that are saved, as many as fit."""
    yield from ("", "Attachments:") if attached else ()
    for text, file in attached[:_MOST_ATTACHED]:
        yield f"- {text}"
        used = sum(len(one.data) for one in extras.files)
        wanted = extras.wanted and len(extras.files) < _MOST_ATTACHED
        if wanted and file and used + len(file.data) <= _ATTACHED_BYTES:
            extras.files.append(file)
    if (more := len(attached) - _MOST_ATTACHED) > 0:
        yield f"[{more} more attachments, which are not saved]"


def _leaves(message: Message) -> Iterator[Message]:
    """Yield the parts that hold content; a forwarded message is one of them."""
    if message.get_content_type() == "message/rfc822" or not message.is_multipart():
        yield message
        return
    for part in _parts(message):
        yield from _leaves(part)


def _parts(message: Message) -> list[Message]:
    found = message.get_payload()
    return cast("list[Message]", found) if isinstance(found, list) else []


def _is_attached(part: Message) -> bool:
    kind = part.get_content_type()
    if kind.startswith("multipart/"):
        return False  # its parts were not found: it is shown as text
    shown = kind in ("text/plain", "text/html") and part.get_filename() is None
    return not shown or part.get_content_disposition() == "attachment"


def _body(parts: list[Message], markdown: Markdown) -> str:
    """Return the text: HTML only where there is no plain text."""
    html = [part for part in parts if part.get_content_type() == "text/html"]
    texts = [_plain_text(part) for part in parts if part not in html]
    if not any(text.strip() for text in texts):
        texts = [markdown(_text(part)) for part in html]
    return "\n\n".join(text.strip("\r\n") for text in texts if text.strip()) or "(no text)"


def _text(part: Message) -> str:
    data = part.get_payload(decode=True)
    return decode_page(data, part.get_content_charset()) if isinstance(data, bytes) else ""


def _plain_text(part: Message) -> str:
    text = _text(part).replace("\r\n", "\n")
    if str(part.get_param("format", "")).lower() != "flowed":
        return text
    # RFC 3676: a line that ends with a space continues in the next one.
    joint = "" if str(part.get_param("delsp", "")).lower() == "yes" else " "
    return re.sub(r"(?<!^--) \n(?! )(?!>)", joint, text, flags=re.MULTILINE).replace("\n ", "\n")


def _name(part: Message) -> str:
    if named := part.get_filename():
        return PurePath(_header(named).replace("\\", "/")).name or "unnamed"
    if part.get_content_type() == "message/rfc822":
        subjects = [str(one.get("Subject", "")) for one in _parts(part)]
        return f"message {_header(' '.join(subjects))!r}"
    return "unnamed"


def _data(part: Message) -> bytes:
    if inner := _parts(part):  # a forwarded message
        return inner[0].as_bytes()
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _described(part: Message) -> str:
    kind = part.get_content_type()
    if kind in _SIGNATURES:
        return f"{_name(part)} (a signature, which was not checked)"
    advice = _ADVICE.get(kind.replace("x-pkcs7", "pkcs7").replace("vnd.ms-tnef", "ms-tnef"))
    about = advice or f"{kind}, {size_text(len(_data(part)))}"
    return f"{_name(part)} ({about})"


def _file(name: str, kind: str, data: bytes) -> File:
    suffix = PurePath(name).suffix
    if not re.fullmatch(r"\.\w{1,8}", suffix):
        suffix = ".eml" if kind == "message/rfc822" else mimetypes.guess_extension(kind) or ".bin"
    return File(name, suffix, data)


def open_msg(file: BinaryIO, markdown: Markdown, extras: Extras) -> Document:
    from oxmsg import Message as Outlook

    try:
        message = Outlook.load(file.read())
        attached = list(map(_msg_attachment, message.attachments))
        lines = list(_msg_lines(message, markdown))
    except Exception as error:  # a hostile file may be anything
        raise ToolError(f"The Outlook mail is damaged: {error}. Get it again.") from error
    lines += _attachment_lines(attached, extras)
    return Document("Outlook mail", "", 1, lambda _: lines)


def _msg_lines(message: Any, markdown: Markdown) -> Iterable[str]:
    headers = {name.lower(): value for name, value in message.message_headers.items()}
    sent = {"from": message.sender, "date": message.sent_date, "subject": message.subject}
    for one in message.recipients:  # a draft, or a mail that was sent, has no headers
        name = _RECIPIENTS.get(one.properties.int_prop_value(_RECIPIENT_TYPE), "to")
        address = f"{one.name} <{one.email_address}>"
        sent[name] = f"{sent[name]}, {address}" if name in sent else address
    for name in _SHOWN:
        if value := headers.get(name.lower()) or sent.get(name.lower()):
            yield f"{name}: {_header(str(value))}"
    yield ""
    text = (message.body or "").replace("\r\n", "\n").strip()
    if not text and (html := message.properties.binary_prop_value(_HTML)):
        text = markdown(decode_page(html, message.properties.body_encoding))
    yield from (text or "(no text that can be read: it may be in RTF)").splitlines()


def _msg_attachment(one: Any) -> tuple[str, File | None]:
    name, kind, data = one.file_name or "unnamed", one.mime_type, one.file_bytes
    if data is None:
        return f"{name} (an Outlook item inside, which cannot be saved)", None
    return f"{name} ({kind}, {size_text(one.size)})", _file(name, kind or "", data)

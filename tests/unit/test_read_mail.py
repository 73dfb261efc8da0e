"""Mail as programs and people write it: .eml, mailboxes, and Outlook's .msg."""

import base64
import io
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path

import pytest

from openmanus_graph.backends.files import mail as mail_files
from openmanus_graph.backends.files.child import Extras
from openmanus_graph.backends.files.file_content import document_kind
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session
from tests.support.documents import read, rendered
from tests.support.outlook import compound_file, outlook_mail, storage


def shown(data: bytes, suffix: str = ".eml", max_chars: int = 7000) -> str:
    kind = document_kind(io.BytesIO(data), data[:1000], suffix)
    assert kind is not None
    return rendered(io.BytesIO(data), kind, max_chars=max_chars)


def eml(headers: str, body: str | bytes = "text", charset: str = "utf-8") -> bytes:
    data = body.encode(charset) if isinstance(body, str) else body
    return f"From: a@x.example\nMIME-Version: 1.0\n{headers}\n".encode(charset) + b"\n" + data


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (eml("Subject: =?utf-8?B?R3LDvMOfZQ==?="), "Subject: Grüße"),
        # One character is split into two encoded words.
        (eml("Subject: =?utf-8?B?R3LD?=\n =?utf-8?B?vMOfZQ==?="), "Subject: Grüße"),
        (eml("Subject: =?no-such?Q?Gr=FC=DFe?="), "Subject: Grüße"),
        (eml("Subject: =?utf-8?B?not base64!?="), "Subject: =?utf-8?B?not base64!?="),
        # Headers that are not encoded at all, which no standard allows.
        (eml("Subject: Grüße aus Köln", charset="utf-8"), "Subject: Grüße aus Köln"),
        (eml("Subject: Grüße aus Köln", charset="cp1252"), "Subject: Grüße aus Köln"),
        (eml("To: =?gb2312?B?1tDOxA==?= <b@x.example>"), "To: 中文 <b@x.example>"),
        (eml("Content-Type: text/plain; charset=iso-2022-jp", "漢字", "iso-2022-jp"), "漢字"),
        (eml("Content-Type: text/plain; charset=unknown-8bit", "Grüße", "cp1252"), "Grüße"),
        (eml("Content-Type: text/plain; charset=us-ascii", "Grüße", "utf-8"), "Grüße"),
        (eml("Content-Transfer-Encoding: base64", base64.b64encode("Grüße".encode())), "Grüße"),
        (eml("Content-Transfer-Encoding: quoted-printable", "a=C3=BC=\nb"), "aüb"),
        (eml("Content-Type: text/plain; format=flowed", "one \ntwo\n> cited \n> more\n-- \nme"),
         "one two\n> cited"),
        (eml("Content-Type: text/html", "<p>Hi <b>you</b></p><script>x</script>"), "Hi **you**"),
        (b"\xef\xbb\xbf" + eml("Subject: marked"), "Subject: marked"),
        (eml("Content-Type: multipart/mixed; boundary=x", "--y\nno such part"), "no such part"),
    ],
)  # fmt: skip
def test_headers_and_text_are_decoded(data: bytes, found: str) -> None:
    assert found in shown(data)


def message(**headers: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = "a@x.example", "b@x.example"
    for name, value in headers.items():
        mail[name] = value
    mail.set_content("See the files.")
    return mail


def test_the_plain_text_is_shown_rather_than_the_html() -> None:
    mail = message()
    mail.add_alternative("<p>Other words</p>", subtype="html")
    text = shown(bytes(mail))
    assert "See the files." in text
    assert "Other words" not in text


def test_attachments_are_listed_and_saved(session: Session) -> None:
    mail = message(Subject="Files")
    mail.add_attachment(b"a,b\n1,2\n", maintype="text", subtype="csv", filename="päge.csv")
    mail.add_attachment(message(Subject="Inner"))
    mail.add_attachment(b"x", maintype="image", subtype="png", filename="../../evil/..\\n.png")
    (session.workspace.root / "a.eml").write_bytes(bytes(mail))
    text = read(session, "a.eml").text
    assert "- päge.csv (text/csv, 8 bytes)\n- message 'Inner' (message/rfc822, " in text
    assert "- n.png (image/png, 1 bytes)" in text
    saved = dict(row.strip("[]").split(": ") for row in text.splitlines() if ": /" in row)
    assert Path(saved["päge.csv"]).read_bytes() == b"a,b\n1,2\n"
    assert "Subject: Inner" in read(session, saved["message 'Inner'"]).text
    assert Path(saved["n.png"]).read_bytes() == b"x"


def test_attachments_in_a_mailbox_are_saved(session: Session) -> None:
    mail = message()
    mail.add_attachment(b"x", maintype="a", subtype="b", filename="a.bin")
    line = b"From a@x.example Mon Jan  1 00:00:00 2024\n"
    data = b"\n".join(line + bytes(mail) for _ in range(30))
    (session.workspace.root / "a.mbox").write_bytes(data)
    text = read(session, "a.mbox").text
    assert text.count("[a.bin: ") == 20
    place = Path(text.partition("[a.bin: ")[2].partition("]")[0])
    assert place.read_bytes() == b"x"


def test_attachments_that_are_too_large_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_files, "_ATTACHED_BYTES", 10)
    mail = message()
    for size in (8, 3, 2):
        mail.add_attachment(b"x" * size, maintype="a", subtype="b", filename=f"{size}.bin")
    extras = Extras(wanted=True)
    mail_files.open_mail(io.BytesIO(bytes(mail)), str, extras)
    assert [one.name for one in extras.files] == ["8.bin", "2.bin"]


@pytest.mark.parametrize(
    ("headers", "listed"),
    [
        # As in mail-parser#26, mail#1213, mailcore2#822, eml_parser#31 and ailang#678.
        ('Content-Type: application/pdf;\n\tname="=?UTF-8?Q?Warszawa=2D=C5?=\n\t=?UTF-8?Q?=9Ar?='
         '\n\t=?UTF-8?Q?=2Epdf?="', "Warszawa-Śr.pdf (application/pdf, 3 bytes)"),
        ("Content-Disposition: attachment; filename==?utf-8?B?dGVzdC50eHQ=?=",
         "test.txt (text/plain, 3 bytes)"),
        ("Content-Type: image/jpeg; name=\"____.JPG\"\nContent-Disposition: inline; "
         "filename*=\"koi8-r''%C6%CF%D4%CF.JPG\"", "фото.JPG (image/jpeg, 3 bytes)"),
        ('Content-Type: message/rfc822\nContent-Disposition: inline; filename="18"\n\nSubject: x',
         "18 (message/rfc822, 15 bytes)"),
        ('Content-Disposition: attachment; filename="=?iso-8859-1?Q?Salg_12B=2C_2000?=.pdf"',
         "Salg 12B, 2000.pdf (text/plain, 3 bytes)"),
    ],
)  # fmt: skip
def test_names_of_attachments_are_decoded_as_programs_write_them(headers: str, listed: str) -> None:
    parts = f"--x\n\ntext\n--x\n{headers}\n\nabc\n--x--\n"
    assert f"- {listed}" in shown(eml("Content-Type: multipart/mixed; boundary=x", parts))


def test_200_attachments_are_bounded(session: Session) -> None:
    mail = message()
    for number in range(200):
        mail.add_attachment(b"x", maintype="a", subtype="b", filename=f"{number}.bin")
    (session.workspace.root / "a.eml").write_bytes(bytes(mail))
    text = read(session, "a.eml").text
    assert "- 19.bin (a/b, 1 bytes)\n[180 more attachments, which are not saved]" in text
    assert len(text) < 5000


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("application/ms-tnef", "winmail.dat", "unpack it in bash with tnef"),
        ("application/pkcs7-mime", "smime.p7m", "openssl cms"),
        ("application/x-pkcs7-mime", "smime.p7m", "openssl cms"),
        ("application/pgp-encrypted", "", "encrypted with PGP"),
        ("application/pgp-signature", "", "a signature, which was not checked"),
    ],
)
def test_what_only_other_programs_can_open_is_said(kind: str, name: str, said: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["MIME-Version"] = "a@x.example", "1.0"
    mail["Content-Type"] = f'{kind}; name="{name}"'
    assert said in shown(bytes(mail) + b"data")


def test_a_mailbox_is_read_message_by_message() -> None:
    first, second = bytes(message(Subject="One")), bytes(message(Subject="Two"))
    line = b"From a@x.example Mon Jan  1 00:00:00 2024\n"
    text = shown(line + first + b"\n" + line + second, ".mbox")
    assert text.startswith("[mailbox, 2 messages]\n## Message 1\nFrom: a@x.example")
    assert "## Message 2\n" in text
    assert "Subject: Two" in text


@pytest.mark.parametrize(
    ("data", "suffix"),
    [
        (b"From 1234 Mon Sep 17 00:00:00 2001\nFrom: a\nSubject: [PATCH] x\n\n", ".patch"),
        (b"Subject: notes\nDate: today\n\n", ".txt"),
        (b"name: x\nversion: 1\n", ""),
        (b"no headers at all", ".eml"),
    ],
)
def test_other_texts_are_no_mail(data: bytes, suffix: str) -> None:
    assert document_kind(io.BytesIO(data), data, suffix) is None


RECIPIENTS: list[Mapping[int, str | bytes | int]] = [
    {0x3001: "Bob", 0x3003: "bob@x.example", 0x0C15: 1},
    {0x3001: "Cy", 0x3003: "cy@x.example", 0x0C15: 2},
]
ROWS = b"a,b\n" * 2000
TABLE: dict[int, str | bytes | int] = {0x3707: "größe.csv", 0x3701: ROWS, 0x370E: "text/csv"}
SENT = {0x0037: "Größe", 0x0C1A: "Ann", 0x0C1F: "ann@x.example"}


def test_outlook_mail_shows_headers_text_and_attachments(session: Session) -> None:
    data = outlook_mail({**SENT, 0x1000: "Hello\r\nthere"}, RECIPIENTS, [TABLE])
    (session.workspace.root / "a.msg").write_bytes(data)
    text = read(session, "a.msg").text
    assert 'From: "Ann" <ann@x.example>\nTo: Bob <bob@x.example>\nCc: Cy <cy@x.example>' in text
    assert "Subject: Größe\n\nHello\nthere\n\nAttachments" in text
    assert "- größe.csv (text/csv, 7.8 KB)" in text
    saved = text.partition("[größe.csv: ")[2].partition("]")[0]
    assert Path(saved).read_bytes() == ROWS


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({0x1013: b"<p>Hi <b>you</b> \xfc</p>", 0x3FDE: 1252}, "Hi **you** ü"),
        ({0x1013: b"<p>broken \xff\xfe\xfd</p>", 0x3FDE: 65001}, "broken"),
        ({0x1009: b"rtf"}, "(no text that can be read: it may be in RTF)"),
        ({0x007D: "From: Else <e@x.example>\r\nCc: f@x.example\r\n"}, "Cc: f@x.example"),
    ],
)
def test_outlook_mail_without_plain_text(body: dict[int, str | bytes | int], found: str) -> None:
    assert found in shown(outlook_mail({**SENT, **body}, [], []), ".msg")


def test_a_damaged_outlook_mail_is_said() -> None:
    streams = storage(32, {0x0037: "x"})
    del streams["__substg1.0_0037001F"]
    with pytest.raises(ToolError, match="The Outlook mail is damaged"):
        shown(compound_file(streams), ".msg")


def test_an_outlook_item_inside_is_named() -> None:
    data = outlook_mail(SENT, [], [{0x3707: "inner", 0x3705: 5}])
    assert "inner (an Outlook item inside, which cannot be saved)" in shown(data, ".msg")

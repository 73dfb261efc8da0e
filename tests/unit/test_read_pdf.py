"""PDF files as people fill in, comment, scan and encrypt them."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont
from pydantic import SecretStr
from pypdf import PdfReader, PdfWriter
from pypdfium2 import PdfDocument

from openmanus_graph.backends.files import documents, pdf
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.setting_declaration import parse_secret
from tests.support.documents import read
from tests.support.documents import rendered as rendered_document
from tests.support.pdfs import page_of, pdf_of, scans

WIDGET = "/Type /Annot /Subtype /Widget /Rect [10 10 60 20]"
DRAWN = "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Length 0 >>\nstream\n\nendstream"
HIGHLIGHT = "/Type /Annot /Rect [10 140 200 170] /QuadPoints [19 165 90 165 19 145 90 145]"
NOTE = "/Type /Annot /Rect [1 1 9 9]"
STAMP = "/Type /Annot /Subtype /Stamp /Rect [10 10 120 40]"


def box(name: str, stored: str, shown: str = "Yes") -> str:
    look = f"/AP << /N << /{shown} 9 0 R /Off 9 0 R >> >>"
    return f"<< {WIDGET} /FT /Btn /T ({name}) {stored} {look} >>"


def rendered(data: bytes, password: str | None = None) -> str:
    return rendered_document(io.BytesIO(data), "pdf", password=password)


@pytest.mark.parametrize(
    ("objects", "fields", "shown"),
    [
        # A value without a picture of it, as programs leave it that fill in forms.
        ([f"<< {WIDGET} /FT /Tx /T (name) /V (Maria) >>"], "[6 0 R]", "name: Maria"),
        ([f"<< {WIDGET} /FT /Tx /T (a) /V <FEFF00C90074> >>"], "[6 0 R]", "a: Ét"),
        ([f"<< {WIDGET} /FT /Tx /T (a) /TU (Your name) /V (x) >>"], "[6 0 R]", "a (Your name): x"),
        ([f"<< {WIDGET} /FT /Tx /T (a) >>"], "[6 0 R]", "a: (not filled in)"),
        ([f"<< {WIDGET} /FT /Tx /Ff 4096 /T (a) /V (x\\ny) >>"], "[6 0 R]", "a: x / y"),
        (
            [
                f"<< {WIDGET} /Parent 7 0 R >>",
                "<< /T (city) /Parent 8 0 R /Kids [6 0 R] /FT /Tx /V (Ulm) >>",
                "<< /T (address) /Kids [7 0 R] >>",
            ],
            "[8 0 R]",
            "address.city: Ulm",
        ),
        ([box("agree", "/V /Yes /AS /Yes"), *[DRAWN] * 3], "[6 0 R]", "agree: checked"),
        ([box("agree", "/V /Yes"), *[DRAWN] * 3], "[6 0 R]", "agree: checked"),
        ([box("agree", "/V /Off /AS /Off"), *[DRAWN] * 3], "[6 0 R]", "agree: (not filled in)"),
        (
            [
                box("", "/Parent 8 0 R /AS /Off", "card"),
                box("", "/Parent 8 0 R /AS /cash", "cash"),
                "<< /FT /Btn /Ff 49152 /T (pay) /V /cash /Kids [6 0 R 7 0 R] >>",
                DRAWN,
            ],
            "[8 0 R]",
            "pay: cash",
        ),
        (
            [f"<< {WIDGET} /FT /Ch /Ff 131072 /T (c) /Opt [[(de) (Germany)]] /V (de) >>"],
            "[6 0 R]",
            "c: Germany",
        ),
        (
            [f"<< {WIDGET} /FT /Ch /Ff 2097152 /T (l) /Opt [(a) (b) (c)] /V [(a) (c)] >>"],
            "[6 0 R]",
            "l: a, c",
        ),
        # As in PdfPig#267 and pypdf#3893.
        ([box("agree", "/AS /Yes"), *[DRAWN] * 3], "[6 0 R]", "agree: checked"),
        ([f"<< {WIDGET} /FT /Btn /T (a) /AP << >> /V /Yes >>"], "[6 0 R]", "a: checked"),
        # Not in the list of fields, or without any form.
        ([f"<< {WIDGET} /FT /Tx /T (lost) /V (kept) >>"], "[]", "lost: kept"),
        ([f"<< {WIDGET} /FT /Tx /T (lost) /V (kept) >>"], "", "lost: kept"),
    ],
)
def test_filled_forms_show_their_values(objects: list[str], fields: str, shown: str) -> None:
    text = rendered(page_of([part.replace("/T ()", "") for part in objects], "Form", fields))
    assert text.splitlines()[-2:] == ["Form fields:", f"- {shown}"]


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (f"<< {HIGHLIGHT} /Subtype /Highlight /T (Ann) /Contents (why?) >>",
         '- highlighted by Ann "Total 1250": why?'),
        (f"<< {HIGHLIGHT} /Subtype /StrikeOut >>", '- struck out "Total 1250": (no text)'),
        (f"<< {NOTE} /Subtype /Text /Contents (one\\ntwo) >>", "- note: one\ntwo"),
        (f"<< {NOTE} /Subtype /FreeText /RC (<p>rich</p>) >>", "- text box: rich"),
        (f"<< {STAMP} /Name /Approved >>", "- stamp: Approved"),
    ],
)  # fmt: skip
def test_comments_and_stamps_are_shown(annotation: str, shown: str) -> None:
    assert f"Total 1250\nComments:\n{shown}" in rendered(page_of([annotation], "Total 1250"))


def test_links_are_no_comments() -> None:
    link = "<< /Type /Annot /Subtype /Link /Rect [1 1 9 9] /Contents (there) >>"
    assert "there" not in rendered(page_of([link], "Text"))


def test_an_xfa_form_is_said() -> None:
    data = "<< /Length 4 >>\nstream\n<a/>\nendstream"
    form = page_of([data], "Please wait...", "[] /XFA [(datasets) 6 0 R]")
    assert "Please wait...\n(an XFA form, which only Adobe Reader draws" in rendered(form)


def encrypted(algorithm: str, user: str, owner: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(page_of(text="The code is 7"))))
    writer.encrypt(user, owner, algorithm=algorithm)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
@pytest.mark.parametrize("password", ["user", "owner", "Schlüssel"])
def test_a_password_opens_an_encrypted_pdf(algorithm: str, password: str) -> None:
    data = encrypted(algorithm, "user" if password == "owner" else password, "owner")
    assert "The code is 7" in rendered(data, password)


def test_no_password_is_needed_where_the_users_is_empty() -> None:
    assert "The code is 7" in rendered(encrypted("AES-256", "", "owner"))


@pytest.mark.parametrize(
    ("password", "said"),
    [(None, "password is needed. Ask the user for it"), ("no", "password is wrong. Ask the user")],
)
def test_a_missing_or_wrong_password_is_said(password: str | None, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        rendered(encrypted("AES-256", "user", "owner"), password)


def test_a_pdf_for_certain_people_only_is_not_called_damaged() -> None:
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>"]
    data = pdf_of([*objects, "<< /Filter /Adobe.PubSec /V 4 >>"], "/Encrypt 3 0 R /ID [<00> <00>]")
    with pytest.raises(ToolError, match="encrypted without a password"):
        rendered(data)


def test_the_tool_takes_a_password_and_a_secret_by_its_name(session: Session) -> None:
    secrets = [parse_secret(SecretStr(one)) for one in ("file=user@files", "bank=user@b.example")]
    browser = replace(session.settings.browser, secrets=tuple(secrets))
    known = Session("test", replace(session.settings, browser=browser))
    (session.workspace.root / "a.pdf").write_bytes(encrypted("AES-256", "user", "owner"))
    for password in ("user", "<secret>file</secret>"):
        assert "The code is 7" in read(known, "a.pdf", password=password).text
    with pytest.raises(ToolError, match=r"the secret bank is for https://b\.example only"):
        read(known, "a.pdf", password="<secret>bank</secret>")
    known.close()


def scanned(text: str) -> bytes:
    import matplotlib

    font = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
    image, out = Image.new("L", (850, 1100), 255), io.BytesIO()
    ImageDraw.Draw(image).text((80, 100), text, fill=0, font=ImageFont.truetype(font, 32))
    image.save(out, "JPEG")
    return out.getvalue()


def engine(folder: Path, command: str) -> Path:
    """Make a program that is called like the OCR engine."""
    folder.mkdir()
    program = folder / "tesseract"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --list-langs ] && echo "List:\nosd\neng" && exit\n{command}'
    )
    program.chmod(0o755)
    return program


def test_an_engine_that_never_ends_is_stopped(tmp_path: Path) -> None:
    program = engine(tmp_path / "bin", "while :; do :; done")
    page = PdfDocument(scans(1, scanned("Invoice")))[0]
    assert pdf.recognized(str(program), page, 1.0) is None


@pytest.mark.parametrize("installed", [True, False])
def test_a_scan_of_2000_pages_is_bounded(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: bool
) -> None:
    (session.workspace.root / "a.pdf").write_bytes(scans(2000, scanned("Invoice 4711")))
    if installed:  # it reads the language, and says how large the picture is
        engine(tmp_path / "bin", 'echo "Invoice 4711 in $4 of $(($(wc -c) / 10000))0 KB"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = read(session, "a.pdf", pages="1-" if installed else "5-")
    assert len(found.text) < 2000
    assert len(found.images) == 3
    with Image.open(found.images[0]) as page:
        assert page.size == (1160, 1500)
    assert found.text.count("Invoice 4711 in eng of") == (8 if installed else 0)
    assert found.text.count("apt install tesseract-ocr") == (not installed)
    assert f'Choose some with pages="{9 if installed else 8}-' in found.text


def test_a_page_whose_font_names_no_letters_is_shown_as_a_picture(session: Session) -> None:
    cmap = (
        "/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <FF> "
        "endcodespacerange 1 beginbfrange <20> <7E> <E020> endbfrange endcmap end"
    )
    data = page_of(
        [f"<< /Length {len(cmap)} >>\nstream\n{cmap}\nendstream"],
        "The quick brown fox jumps over the lazy dog again and again",
        font="/ToUnicode 6 0 R",
    )
    (session.workspace.root / "a.pdf").write_bytes(data)
    assert len(read(session, "a.pdf").images) == 1


@pytest.mark.parametrize("text", ["", "Scanned by a phone"])
def test_a_page_with_a_big_picture_and_hardly_any_text_is_a_scan(
    session: Session, text: str
) -> None:
    data = scans(1, scanned("")).replace(
        b"612 0 0 792 0 0 cm /I Do", f"612 0 0 792 0 0 cm /I Do % {text}".encode()
    )
    (session.workspace.root / "a.pdf").write_bytes(data)
    assert len(read(session, "a.pdf").images) == 1


def test_the_text_is_in_a_file_written_once_per_version(session: Session) -> None:
    path = session.workspace.root / "a.pdf"
    path.write_bytes(page_of(text="first version"))
    places = [
        read(session, "a.pdf", lines=lines).text.split("[Text: ")[1] for lines in ("1-1", "2-2")
    ]
    assert places[0] == places[1]
    written = Path(places[0].removesuffix("]"))
    assert written.read_text() == "## Page 1\nfirst version"
    before = written.stat().st_mtime_ns
    read(session, "a.pdf")
    assert written.stat().st_mtime_ns == before
    path.write_bytes(page_of(text="a later version"))
    again = read(session, "a.pdf").text.split("[Text: ")[1]
    assert "a later version" in Path(again.removesuffix("]")).read_text()


def test_pages_read_later_do_not_write_the_text_again(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine(tmp_path / "bin", "echo Invoice")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (session.workspace.root / "a.pdf").write_bytes(page_of(text="plain text"))
    (session.workspace.root / "scan.pdf").write_bytes(scans(20, scanned("")))
    for name, places in (("a.pdf", 1), ("scan.pdf", 2)):  # OCR is of the chosen pages only
        found = {read(session, name, pages=one).text.split("[Text: ")[1] for one in ("1", "1-")}
        assert len(found) == places


def test_a_very_long_document_is_saved_up_to_a_limit(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"<p>{'x' * 99}</p>" for _ in range(20))
    (session.workspace.root / "a.html").write_text(f"<html>{rows}</html>")
    data = documents.render_request  # what the child calls
    monkeypatch.setattr(documents, "WHOLE_CHARS", 505)
    with (session.workspace.root / "a.html").open("rb") as file:
        request = {"kind": "html", "pages": None, "max_chars": 7000, "password": None}
        answer = data(file, {**request, "first": 1, "last": None, "whole": True})
    assert len(answer["whole"]) <= 505
    assert answer["reached"].startswith(" up to line")

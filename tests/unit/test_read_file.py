import json
import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import openpyxl
import pytest
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from PIL import Image
from pptx import Presentation
from pptx.util import Inches

from openmanus_graph.backends.files import child, documents
from openmanus_graph.backends.files.text_file import Lines, parse_lines, parse_pages
from openmanus_graph.errors import NamesError, ToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tools.files import read_file, str_replace_editor
from tests.support.documents import rendered as rendered_document


class Read(Protocol):
    def __call__(self, path: str | Path, **arguments: Any) -> str: ...


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
def session(root: Path) -> Iterator[Session]:
    session = tool_session(root)
    yield session
    session.close()


@pytest.fixture
def read(session: Session) -> Read:
    def call(path: str | Path, **arguments: Any) -> str:
        args = {"path": str(path), "runtime": tool_runtime(session), **arguments}
        message = read_file.invoke(
            {"type": "tool_call", "id": "call_1", "name": "read_file", "args": args}
        )
        assert isinstance(message, ToolMessage)
        assert isinstance(message.content, str)
        return message.content.partition("\n[Text: ")[0]

    return call


def rendered(path: Path, kind: str, pages: str | None = None, lines: str | None = None) -> str:
    """Read in this process: the child is started by a few tests only."""
    with path.open("rb") as file:
        return rendered_document(file, kind, pages, parse_lines(lines))


def make_pdf(path: Path, texts: list[str]) -> Path:
    # Only here: every worker of a test run imports this file, and few its tests.
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    with PdfPages(path) as pdf:
        for text in texts:
            figure = Figure()
            figure.text(0.1, 0.05, text, fontsize=5)
            pdf.savefig(figure)
    return path


def encrypted_pdf() -> bytes:
    """A PDF whose user password is not the empty one."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 10 10] >>",
        b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <"
        + b"11" * 32
        + b"> /U <"
        + b"22" * 32
        + b"> >>",
    ]
    content = b"%PDF-1.4\n"
    places: list[int] = []
    for number, body in enumerate(objects, start=1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"<< /Size 5 /Root 1 0 R /Encrypt 4 0 R /ID [<00> <00>] >>"
    return content + b"xref\n0 5\n0000000000 65535 f \n%strailer\n%s\nstartxref\n%d\n%%%%EOF\n" % (
        table,
        trailer,
        len(content),
    )


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def make_docx(path: Path, body: str, prolog: str = "") -> Path:
    package = "http://schemas.openxmlformats.org/package/2006"
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
            '"application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{types}"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
        )
        archive.writestr(
            "word/document.xml",
            f'{prolog}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
        )
    return path


def paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


# Containment and odd files


@pytest.mark.parametrize("path", ["../x.txt", "/etc/passwd"])
def test_paths_out_of_the_workspace_are_refused(read: Read, path: str) -> None:
    with pytest.raises(ToolError, match="outside the workspace"):
        read(path)


def test_a_link_out_of_the_workspace_is_refused(read: Read, root: Path) -> None:
    (root / "link").symlink_to("/etc/passwd")
    with pytest.raises(ToolError, match="outside the workspace"):
        read("link")


def test_protected_files_are_out_of_reach(read: Read, session: Session, root: Path) -> None:
    (root / ".openmanus").mkdir()
    session.workspace = replace(session.workspace, protected=(root / ".openmanus",))
    (root / ".openmanus/threads.db").write_text("secret")
    with pytest.raises(ToolError, match="out of reach"):
        read(".openmanus/threads.db")


def test_fifos_are_refused(read: Read, root: Path) -> None:
    os.mkfifo(root / "fifo")
    with pytest.raises(ToolError, match=r"(?i)is a fifo, not a file"):
        read("fifo")


def test_a_folder_is_listed(read: Read, root: Path) -> None:
    (root / "folder").mkdir()
    (root / "folder" / "a.csv").write_text("1")
    os.mkfifo(root / "folder" / "fifo")
    assert "a.csv  1 " in read("folder")
    assert "folder/" in read(".", pages="1", lines="1-2")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("data/salse.csv", "There is: data/sales.csv."),
        ("data/Sales.CSV", "Did you mean data/sales.csv?"),
        ("/data/sales.csv", "Did you mean data/sales.csv?"),
        ("/workspace/data/sales.csv", "Did you mean data/sales.csv?"),
        ("/mnt/data/notes.md", "Did you mean notes.md?"),
        ("results/notes.md", "Did you mean notes.md?"),
        ("orders.xlsx", "There is: "),
    ],
)
def test_a_missing_file_names_its_neighbours(read: Read, root: Path, asked: str, said: str) -> None:
    (root / "data").mkdir()
    (root / "data" / "sales.csv").write_text("1")
    for name in (*(f"{n}.txt" for n in range(20)), "notes.md", ".secret"):
        (root / name).write_text("1")
    with pytest.raises(NamesError) as caught:
        read(asked)
    assert said in str(caught.value)
    named = str(caught.value).rpartition(said)[2]
    assert ".secret" not in named
    assert named.count(",") < 5
    (root / "data" / "sales.csv").unlink()
    with pytest.raises(ToolError) as alone:
        read("data/sales.csv")
    assert not isinstance(alone.value, NamesError), "an empty folder names nothing"


@pytest.mark.parametrize("path", ["../a.txt", "/etc/passwd", "no/such/a.txt", "a\0b", "/", ""])
def test_nothing_elsewhere_is_named(read: Read, root: Path, path: str) -> None:
    (root / "a.txt").write_text("1")
    (root.parent / "b.txt").write_text("1")
    (root / "link").symlink_to(root.parent)
    for asked in (path, "link/c.txt"):
        if path in ("", "/") and asked == path:
            continue
        with pytest.raises(ToolError) as caught:
            read(asked)
        assert "b.txt" not in str(caught.value).replace(asked, "")


def test_missing_and_empty_files_say_so(read: Read, root: Path) -> None:
    (root / "a.pdf").touch()
    assert "empty" in read("a.pdf")
    with pytest.raises(ToolError, match="does not exist"):
        read("b.pdf")


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"\x7fELF\x02\0\0", "Linux program (ELF)"), (b"SQLite format 3\0rest", "SQLite database")],
)
def test_binary_files_are_named_and_refused(
    read: Read, root: Path, content: bytes, kind: str
) -> None:
    (root / "f").write_bytes(content)
    with pytest.raises(ToolError, match=f"{re.escape(kind)}.*python_execute"):
        read("f")


def test_a_picture_is_referred_to_the_editor(read: Read, root: Path) -> None:
    Image.new("RGB", (3, 3)).save(root / "p.png")
    with pytest.raises(ToolError, match=r"PNG picture.*view it with str_replace_editor"):
        read("p.png")


# Text


def test_text_is_returned_with_its_size_and_lines(read: Read, root: Path) -> None:
    (root / "a.csv").write_text("a,b\n1,2\n")
    assert read("a.csv") == "[8 bytes, 2 lines]\na,b\n1,2"


def test_long_text_is_cut_and_says_how_to_go_on(read: Read, root: Path) -> None:
    rows = [f"row {n}" for n in range(1, 5001)]
    (root / "a.csv").write_text("\n".join(rows) + "\n")
    seen: list[str] = []
    following: str | None = None
    while len(seen) < 5000:
        text = read("a.csv", lines=following)
        assert len(text) < 7_300
        header, *shown = text.split("\n")
        assert "5000 lines" in header
        if shown[-1].startswith("["):
            notice = shown.pop()
            number = len(seen) + len(shown) + 1
            assert f"lines {number}-5000 of 5000 left out" in notice
            following = f"{number}-"
            assert f'lines="{following}"' in notice
        seen += shown
    assert seen == rows


@pytest.mark.parametrize(("lines", "rows"), [("2-3", "l2\nl3"), ("4-", "l4\nl5"), ("5", "l5")])
def test_lines_select_a_range(read: Read, root: Path, lines: str, rows: str) -> None:
    (root / "a.txt").write_bytes(b"l1\r\nl2\r\nl3\r\nl4\r\nl5")
    assert read("a.txt", lines=lines).split("\n", 1)[1] == rows


def test_lines_beyond_the_end_show_the_file(read: Read, root: Path) -> None:
    (root / "a.txt").write_text("one\ntwo\n")
    text = read("a.txt", lines="120-400")
    assert text.startswith("[It has 2 lines, none from 120 on")
    assert text.endswith("one\ntwo")


@pytest.mark.parametrize("lines", ["0-3", "x", "5-2", "-3", "1,2"])
def test_bad_line_ranges_are_refused(lines: str) -> None:
    with pytest.raises(ToolError, match="lines="):
        parse_lines(lines)


def test_a_very_long_line_is_cut(read: Read, root: Path) -> None:
    (root / "a.json").write_text("x" * 100_000 + "\nnext")
    text = read("a.json")
    assert "x [98000 more characters in this line" in text
    assert text.endswith("next")


@pytest.mark.parametrize("pages", ["1", "1-3,7", "all", "120-400"])
def test_pages_of_a_text_file_are_ignored(read: Read, root: Path, pages: str) -> None:
    (root / "a.txt").write_text("one\ntwo\nthree")
    text = read("a.txt", pages=pages, lines="2-")
    assert "no pages, so pages was ignored]\ntwo\nthree" in text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Le café est très bon, déjà vu à l'été.", "cp1252"),
        ("编码检测测试文件，包含一些中文内容。", "gbk"),
        ("город,сумма\nМосква,300\nКазань,200\nУфа,100", "cp1251"),
        ("Größe", "utf-16"),
        ("x" * 300_000 + "\né end", "utf-8"),
        ("é" * 200_000, "utf-8"),
    ],
)
def test_text_in_any_encoding_is_read(read: Read, root: Path, text: str, encoding: str) -> None:
    (root / "a.txt").write_bytes(text.encode(encoding))
    shown = read("a.txt")
    assert text[:10] in shown
    assert text.strip()[-5:] in shown or "more characters" in shown
    assert "\ufffd" not in shown


def test_a_huge_text_file_takes_little_memory(read: Read, root: Path) -> None:
    line = b"0123456789" * 10 + b"\n"
    with (root / "big.log").open("wb") as file:
        file.write(line * 10_000)
        file.truncate(1024**3)  # the rest is a hole of NULs
    text, most = measured(lambda: read("big.log"))
    assert most < 20e6
    assert len(text) < 10_300
    assert text.startswith("[1.0 GB, more lines than were counted]")
    assert 'Continue with lines="70-"' in text
    assert read("big.log", lines="10000-10000").count("\n") == 1


def test_a_huge_line_is_not_held(read: Read, root: Path) -> None:
    with (root / "big.log").open("wb") as file:
        file.write(b"x" * 300_000)
        file.truncate(1024**3)
    text, most = measured(lambda: read("big.log"))
    assert "more characters in this line" in text
    assert most < 20e6


def measured(call: Callable[[], str]) -> tuple[str, int]:
    """Return a result, and how many bytes Python held at most meanwhile."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# PDF


@pytest.mark.slow
def test_a_pdf_is_read_page_by_page(read: Read, root: Path) -> None:
    make_pdf(root / "a.pdf", ["first page", "second page", "third page"])
    text = read("a.pdf", pages="2-3")
    assert text == "[PDF, 3 pages]\n## Page 2\nsecond page\n## Page 3\nthird page"


def test_a_pdf_is_known_by_its_content(read: Read, root: Path) -> None:
    make_pdf(root / "a.pdf", ["hello"]).rename(root / "a.txt")
    assert "## Page 1\nhello" in read("a.txt")


@pytest.mark.slow
def test_a_long_pdf_is_cut_and_says_how_to_go_on(root: Path) -> None:
    path = make_pdf(root / "a.pdf", [f"page {n} " + "\n".join(["x" * 75] * 40) for n in range(8)])
    text = rendered(path, "pdf")
    assert len(text) < 7_400
    notice = text.rsplit("\n", 1)[1]
    assert "cut within page 3; pages from 4 on are not shown" in notice
    start = notice.split('lines="')[1].split('"')[0]
    assert rendered(path, "pdf", lines=start).split("\n")[1].startswith("xxx")
    assert "page 7" in rendered(path, "pdf", pages="8")


def test_a_scanned_pdf_says_that_it_has_no_text(root: Path) -> None:
    Image.new("RGB", (50, 50), "white").save(root / "scan.pdf")
    assert "a picture without text" in rendered(root / "scan.pdf", "pdf")


def test_an_encrypted_pdf_says_so(read: Read, root: Path) -> None:
    (root / "a.pdf").write_bytes(encrypted_pdf())
    with pytest.raises(ToolError, match=r"a\.pdf.*encrypted, and the password is needed"):
        read("a.pdf")


def test_pages_that_do_not_exist_are_an_error(root: Path) -> None:
    path = make_pdf(root / "a.pdf", ["one"])
    with pytest.raises(ToolError, match=r"the document has 1 pages"):
        rendered(path, "pdf", pages="7-9")


def test_pages_are_parsed() -> None:
    assert parse_pages("1-3, 7", 9, "page") == [1, 2, 3, 7]
    assert parse_pages("8-", 9, "page") == [8, 9]
    assert parse_pages("9-99", 9, "page") == [9]
    assert parse_pages(None, 2, "page") == [1, 2]
    for wrong in ("a", "1-2-3", ",", "0", "10"):
        with pytest.raises(ToolError, match="pages="):
            parse_pages(wrong, 9, "page")


# Office


def test_a_word_document_becomes_markdown(read: Read, root: Path) -> None:
    row = "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in "ab")
    body = (
        paragraph("Title", "Heading1")
        + paragraph("Some text")
        + f"<w:tbl><w:tr>{row}</w:tr><w:tr>{row}</w:tr></w:tbl>"
    )
    make_docx(root / "a.docx", body)
    text = read("a.docx")
    assert "# Title\n\nSome text\n" in text
    assert "| a | b |\n| --- | --- |\n" in text  # as the better reader writes it
    assert read("a.docx", pages="1").partition("\n")[2] == text.partition("\n")[2]


def test_a_long_word_document_is_cut_and_says_how_to_go_on(root: Path) -> None:
    path = make_docx(root / "a.docx", "".join(paragraph(f"word {n} " * 9) for n in range(999)))
    text = rendered(path, "docx")
    assert "1997 lines as Markdown" in text
    start = text.rsplit('lines="', 1)[1].split('"')[0]
    assert rendered(path, "docx", lines=start).split("\n")[1] != text.split("\n")[1]
    assert "word 998" in rendered(path, "docx", lines="1997")


def test_a_very_long_paragraph_can_be_read_to_its_end(root: Path) -> None:
    path = make_docx(root / "a.docx", paragraph("word " * 3500 + "last"))
    assert "last" not in rendered(path, "docx")
    start = rendered(path, "docx").rsplit('lines="', 1)[1].split('"')[0]
    second = rendered(path, "docx", lines=start)
    start = second.rsplit('lines="', 1)[1].split('"')[0]
    assert "last" in rendered(path, "docx", lines=start)


def make_xlsx(path: Path) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Sales"
    for row in (["name", "sum"], ["a|b", 1.5], [], ["total", "=SUM(B2:B3)"]):
        sheet.append(row)
    sheet.merge_cells("A6:B6")
    sheet["A6"] = "merged"
    other = book.create_sheet("Big")
    for number in range(1, 2001):
        other.append([number, f"row {number}"])
    book.save(path)
    return path


def test_a_workbook_is_read_sheet_by_sheet(read: Read, root: Path) -> None:
    make_xlsx(root / "a.xlsx")
    assert read("a.xlsx", pages="1").split("\n") == [
        "[Excel workbook, row number first, 2 sheets]",
        "## Sheet 1: Sales (A1:B6)",
        "1 | name | sum",
        "2 | a\\|b | 1.5",
        "4 | total | =SUM(B2:B3)",
        "6 | merged",
    ]


def test_a_large_sheet_is_cut_and_says_how_to_go_on(root: Path) -> None:
    path = make_xlsx(root / "a.xlsx")
    text = rendered(path, "xlsx", pages="2")
    assert len(text) < 10_300
    assert "cut within sheet 2" in text
    assert "2000 | 2000 | row 2000" in rendered(path, "xlsx", pages="2", lines="2001")


def test_slides_are_read_with_tables_and_notes(read: Read, root: Path) -> None:
    deck = Presentation()
    for number in (1, 2):
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        assert slide.shapes.title is not None
        slide.shapes.title.text = f"Title {number}"
        box = Inches(1), Inches(2), Inches(4), Inches(1)
        table = slide.shapes.add_table(1, 2, *box).table
        table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
        notes = slide.notes_slide.notes_text_frame
        assert notes is not None
        notes.text = f"note {number}"
    deck.save(str(root / "a.pptx"))
    assert read("a.pptx", pages="2").split("\n") == [
        "[PowerPoint presentation, 2 slides]",
        "## Slide 2",
        "Title 2",
        "| left | right |",
        "Notes:",
        "note 2",
    ]


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a.pptx"])
def test_damaged_office_files_are_an_error(read: Read, root: Path, name: str) -> None:
    main = {"a.docx": "word/document.xml", "a.xlsx": "xl/workbook.xml"}
    with zipfile.ZipFile(root / name, "w") as archive:
        archive.writestr(main.get(name, "ppt/presentation.xml"), "<not xml")
    with pytest.raises(ToolError, match="is damaged"):
        read(name)
    (root / name).write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(ToolError, match="is damaged"):
        read(name)


def test_a_damaged_pdf_is_an_error(root: Path) -> None:
    (root / "a.pdf").write_bytes(b"%PDF-1.4\nnothing else")
    with pytest.raises(ToolError, match="The PDF is damaged"):
        rendered(root / "a.pdf", "pdf")


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx"])
def test_an_archive_that_unpacks_to_too_much_is_not_opened(root: Path, kind: str) -> None:
    block = bytes(1024**2)
    with zipfile.ZipFile(root / "a", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("word/document.xml", "w") as part:
            part.write(block)
        entry = archive.getinfo("word/document.xml")
        entry.file_size = 3 * 1024**3  # what the directory declares is what may be unpacked
    with pytest.raises(ToolError, match="would unpack to more than"):
        rendered(root / "a", kind)


def test_an_archive_that_understates_its_size_gives_no_more(root: Path) -> None:
    path = make_docx(root / "a.docx", paragraph("x" * 5_000_000))
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("word/document.xml")
        size = entry.file_size.to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (100).to_bytes(4, "little")))
    with pytest.raises(zipfile.BadZipFile, match="CRC"):
        rendered(path, "docx")


@pytest.mark.slow
def test_entities_that_multiply_are_an_error(read: Read, root: Path) -> None:
    levels = "".join(
        f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' if n else f'<!ENTITY e0 "{"x" * 100}">'
        for n in range(9)
    )
    make_docx(root / "a.docx", paragraph("&e8;"), prolog=f"<!DOCTYPE x [{levels}]>")
    with pytest.raises(ToolError, match="has a DOCTYPE"):
        read("a.docx")


@pytest.mark.parametrize(
    ("stream", "advice"),
    [
        ("WordDocument", r"old \.doc format.*\.docx copy.*--convert-to docx"),
        ("Workbook", "probably damaged"),
        ("PowerPoint Document", r"old \.ppt format"),
        ("EncryptedPackage", "probably damaged"),
        ("Other", "begins like an old Office document"),
    ],
)
def test_legacy_and_encrypted_office_files_get_advice(
    read: Read, root: Path, stream: str, advice: str
) -> None:
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)
    (root / "a.docx").write_bytes(head + stream.encode("utf-16-le"))
    with pytest.raises(ToolError, match=advice):
        read("a.docx")


# HTML and notebooks


def test_html_becomes_markdown_without_scripts(read: Read, root: Path) -> None:
    (root / "a.html").write_text(
        "<!DOCTYPE html><html><head><title>T</title><style>p{color:red}</style></head><body>"
        "<h1>Head</h1><script>alert(1)</script><p>Text <a href='http://x/'>link</a></p>"
        "<img src='data:image/png;base64,AAAA' alt='dot'><noscript>no</noscript></body></html>"
    )
    text = read("a.html")
    assert "# Head\n\nText [link](http://x/)" in text
    for unwanted in ("alert", "color", "base64", "noscript"):
        assert unwanted not in text


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "cp1251"])
def test_html_follows_the_declared_charset(root: Path, encoding: str) -> None:
    word = {"gbk": "你好", "cp1251": "Привет"}.get(encoding, "日本 é")
    html = f"<html><meta charset='{encoding}'><p>{word}</p></html>"
    (root / "a.html").write_bytes(html.encode(encoding))
    assert word in rendered(root / "a.html", "html")


def test_deeply_nested_html_still_gives_its_text(root: Path) -> None:
    (root / "a.html").write_text("<html>" + "<div>" * 5000 + "deep" + "</div>" * 5000)
    assert "deep" in rendered(root / "a.html", "html")


def test_a_notebook_is_read_cell_by_cell(read: Read, root: Path) -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": "1/0",
            "outputs": [
                {"output_type": "stream", "text": ["printed\n"]},
                {"output_type": "error", "traceback": ["\x1b[31mZeroDivisionError\x1b[0m"]},
                {"output_type": "display_data", "data": {"image/png": "AAAA"}},
            ],
        },
    ]
    (root / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    text = read("a.ipynb")
    assert text.startswith("[notebook, 2 cells]\n## Cell 1 (markdown)\n# Title\ntext\n## Cell 2")
    assert "```\n1/0\n```\nOutput:\nprinted\nOutput:\nZeroDivisionError" in text
    assert "(image/png left out)" in text
    assert "AAAA" not in text
    assert "Title" not in rendered(root / "a.ipynb", "ipynb", pages="2")


def test_a_damaged_notebook_is_an_error(root: Path) -> None:
    for content in ("{", "[]", '{"worksheets": []}', '{"nbformat": 4}'):
        (root / "a.ipynb").write_text(content)
        with pytest.raises(ToolError, match="notebook is damaged"):
            rendered(root / "a.ipynb", "ipynb")


# The child process


def test_a_parser_that_crashes_or_runs_on_ends_only_the_child(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a").write_bytes(b"x")
    with (root / "a").open("rb") as file:
        monkeypatch.setattr(child, "_START", "import os; os.kill(os.getpid(), 11)")
        with pytest.raises(ToolError, match="signal 11"):
            documents.read_document(file, "pdf", None, Lines())
        monkeypatch.setattr(child, "_START", "while True: pass")
        monkeypatch.setattr(child, "TIMEOUT_S", 1)
        with pytest.raises(ToolError, match="longer than 1 seconds"):
            documents.read_document(file, "pdf", None, Lines())


def test_memory_of_the_child_is_limited() -> None:
    program = "from openmanus_graph.backends.files import child as d\n"
    program += "d._limit(d.resource.RLIMIT_AS, d._MEMORY_BYTES); bytearray(3 * 1024 ** 3)"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "MemoryError" in result.stderr


def test_the_child_sees_no_secrets(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a").write_bytes(b"x")
    program = "import json, os; print(json.dumps({'value': {'text': str([*os.environ.items()])}}))"
    monkeypatch.setattr(child, "_START", program)
    monkeypatch.setenv("OPENAI_API_KEY", "the-secret")
    with (root / "a").open("rb") as file:
        assert "the-secret" not in documents.read_document(file, "pdf", None, Lines())


def test_the_child_starts_without_the_agent_libraries() -> None:
    program = "import sys, openmanus_graph.backends.files.documents; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in result.stdout.split()}
    assert not loaded & {"langchain_core", "langgraph", "pydantic", "openpyxl", "pypdfium2"}


# Declaration


def test_reading_waits_for_edits_of_the_same_file() -> None:
    args = {"path": "x/a.txt"}
    assert traits_of(read_file).effect == "read_only"
    assert traits_of(read_file).resource_of(args) == traits_of(str_replace_editor).resource_of(args)


def test_the_schema_is_small_and_hides_the_runtime() -> None:
    schema: dict[str, Any] = convert_to_openai_tool(read_file)["function"]
    properties: dict[str, Any] = schema["parameters"]["properties"]
    assert list(properties) == ["path", "pages", "lines", "password"]
    assert len(str(schema)) < 800


@pytest.mark.parametrize(
    ("lines", "shown"),
    [([2, 3], "b c"), ([3, -1], "c d"), (["2", "3"], "b c"), (2, "b"), (None, "a b c d")],
)
def test_the_lines_may_be_given_as_numbers(read: Read, root: Path, lines: Any, shown: str) -> None:
    (root / "f.txt").write_text("a\nb\nc\nd\n")
    assert read("f.txt", lines=lines).splitlines()[1:] == shown.split()

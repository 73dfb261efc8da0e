"""Office documents as the world writes them: odd parts, names, namespaces, suffixes, passwords."""

import io
import os
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha1
from pathlib import Path
from typing import Any, cast

import openpyxl
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from msoffcrypto.method.container.ecma376_encrypted import ECMA376Encrypted
from msoffcrypto.method.ecma376_agile import ECMA376Agile
from msoffcrypto.method.ecma376_standard import ECMA376Standard
from openpyxl.comments import Comment
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from openmanus_graph.backends.files import documents, file_content
from openmanus_graph.backends.files.text_file import Lines, parse_lines
from openmanus_graph.errors import ToolError
from tests.support.documents import rendered

RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT = {
    SHEET: "http://purl.oclc.org/ooxml/spreadsheetml/main",
    WORD: "http://purl.oclc.org/ooxml/wordprocessingml/main",
    OFFICE: "http://purl.oclc.org/ooxml/officeDocument/relationships",
    "http://schemas.openxmlformats.org/presentationml/2006/main": (
        "http://purl.oclc.org/ooxml/presentationml/main"
    ),
    "http://schemas.openxmlformats.org/drawingml/2006/main": (
        "http://purl.oclc.org/ooxml/drawingml/main"
    ),
}
Parts = dict[str, bytes]
Change = Callable[[Parts], Parts]


def shown(
    data: bytes,
    suffix: str,
    pages: str | None = None,
    lines: str | None = None,
    password: str | None = None,
    max_chars: int = 6000,
) -> str:
    """Read bytes as `read_file` reads a file with this suffix, in this process."""
    file = io.BytesIO(data)
    kind = file_content.document_kind(file, data[:65536], suffix)
    assert kind, "it is no document"
    return rendered(file, kind, pages, parse_lines(lines), max_chars, password)


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def changed(data: bytes, *changes: Change) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for change in changes:
        parts = change(parts)
    return zipped(parts)


def named(name: Callable[[str], str]) -> Change:
    return lambda parts: {name(key): content for key, content in parts.items()}


def text(old: str, new: str, part: str = "") -> Change:
    """Replace a text in the parts whose name has `part`; it must be there."""

    def change(parts: Parts) -> Parts:
        found = {
            key: re.sub(old.encode(), new.encode(), content) if part in key else content
            for key, content in parts.items()
        }
        assert found != parts, f"{old} is not in {part or 'any part'}"
        return found

    return change


def without(part: str) -> Change:
    def change(parts: Parts) -> Parts:
        found = {key: content for key, content in parts.items() if part not in key}
        assert found != parts
        return found

    return change


def renamed(old: str, new: str) -> list[Change]:
    return [named(lambda name: name.replace(old, new)), text(re.escape(old), new)]


def only_renamed(old: str, new: str) -> list[Change]:
    """Rename a part and what leads to it, and leave its own relations as they are."""
    return [
        named(lambda name: name.replace(f"/{old}", f"/{new}") if "_rels" not in name else name),
        text(re.escape(old), new),
    ]


def strict(parts: Parts) -> Parts:
    for old, new in STRICT.items():
        parts = {key: content.replace(old.encode(), new.encode()) for key, content in parts.items()}
    return parts


def wide(part: str) -> Change:
    """Write a part in UTF-16."""

    def change(parts: Parts) -> Parts:
        content = parts[part].decode().partition("?>")[2] or parts[part].decode()
        return parts | {part: content.encode("utf-16")}

    return change


def relations(**targets: str) -> str:
    """Return a list of relations of types to targets; types of one kind end in a number."""
    rows = (
        f'<Relationship Id="{name}" Type="{OFFICE}/{name.rstrip("0123456789")}" Target="{target}"/>'
        for name, target in targets.items()
    )
    return (
        f'<?xml version="1.0"?><Relationships xmlns="{RELATIONS}">{"".join(rows)}</Relationships>'
    )


def workbook(first: str = "", strings: str = "", book: str = "", more: str = "") -> bytes:
    """Return a workbook with these rows in its first sheet, and texts that the cells share."""
    first = first or (
        '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row><row r="2">'
        '<c r="A2" t="inlineStr"><is><t>North</t></is></c><c r="B2"><v>120</v></c>'
        '<c r="C2" s="1"><v>45413</v></c></row><row r="3"><c r="A3" t="str"><v>Sum</v></c>'
        '<c r="B3"><f>SUM(B2:B2)</f><v></v></c></row>'
    )
    second = '<row r="3"><c r="B3"><v>0.5</v></c></row>'
    names = "".join(
        f'<sheet name="{name}" sheetId="{number}" r:id="worksheet{number}" {state}/>'
        for number, (name, state) in enumerate(
            [("Sales", ""), ("My Sheet", 'state="hidden"')], start=1
        )
    )
    xml = f'<?xml version="1.0"?><%s xmlns="{SHEET}" xmlns:r="{OFFICE}">'
    return zipped({
        "[Content_Types].xml": (
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
        ),
        "_rels/.rels": relations(officeDocument="xl/workbook.xml"),
        "xl/workbook.xml": (
            f'{xml % "workbook"}<workbookPr {book}/><bookViews><workbookView/></bookViews>'
            f"<sheets>{names}</sheets></workbook>"
        ),
        "xl/_rels/workbook.xml.rels": relations(
            worksheet1="/xl/worksheets/sheet1.xml", worksheet2="/xl/worksheets/sheet2.xml",
            sharedStrings="sharedStrings.xml", styles="styles.xml", theme="theme.xml",
        ),
        "xl/sharedStrings.xml": (
            f'{xml % "sst"}<si><t>Region</t></si><si><r><t>To</t></r><r><t>tal</t></r></si>'
            f"{strings}</sst>"
        ),
        "xl/styles.xml": (
            f'{xml % "styleSheet"}<numFmts><numFmt numFmtId="164" formatCode="[h]:mm"/></numFmts>'
            '<fills count="1"><fill><patternFill/></fill></fills><cellXfs><xf numFmtId="0"/>'
            '<xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="31"/></cellXfs></styleSheet>'
        ),
        "xl/worksheets/sheet1.xml": (
            f'{xml % "worksheet"}<dimension ref="A1:XFD1048576"/><sheetViews><sheetView/>'
            f"</sheetViews><sheetData>{first}</sheetData>{more}</worksheet>"
        ),
        "xl/worksheets/sheet2.xml": (
            f'{xml % "worksheet"}<sheetData>{second}</sheetData></worksheet>'
        ),
    })  # fmt: skip


SALES = ["1 | Region | Total", "2 | North | 120 | 2024-05-01", "3 | Sum | =SUM(B2:B2)"]
BOOK_CHANGES: dict[str, list[Change]] = {
    "as it is": [],
    "other part name": renamed("workbook.xml", "workbook22.xml"),
    "other part name, same relations": only_renamed("workbook.xml", "workbook22.xml"),
    "other sheet names": renamed("worksheets/sheet", "worksheets/Tabelle "),
    "backslashes": [named(lambda name: name.replace("/", "\\"))],
    "backslashes in targets": [text("xl/workbook", r"xl\\\\workbook", "_rels/.rels")],
    "upper case": [named(str.upper)],
    "other case of a target": [text("sharedStrings.xml", "SharedStrings.XML", "workbook.xml.rels")],
    "strict": [strict],
    "prefixes": [
        text("<(/?)(worksheet|sheetData|row|c|v|f|sheetViews)\\b", r"<\1x:\2", "sheet1.xml"),
        text("worksheet xmlns=", "worksheet xmlns:x=", "sheet1.xml"),
    ],
    "relative targets without folder": [text('Target="/xl/', 'Target="xl/', "workbook.xml.rels")],
    "empty fill": [text("<fills.*</fills>", "<fills><fill/></fills>", "styles.xml")],
    "odd views": [
        text("<sheetView/>", '<sheetView zoomScale="no" view="wide"/>', "sheet1.xml"),
        text("<workbookView/>", '<workbookView activeTab="-1" odd="1"/>', "workbook.xml"),
    ],
    "broken names": [text("</sheets>", "</sheets><definedNames><definedName/></definedNames>")],
    "odd format of a sheet": [
        text("<dimension ", '<sheetFormatPr defaultRowHeight="no"/><dimension ')
    ],
    "no content types": [without("Content_Types")],
    "no styles": [without("styles.xml")],
    "broken styles": [text("(?s)<cellXfs.*", "", "styles.xml")],
    "no relations of the package": [without("_rels/.rels")],
    "a relation to nothing": [text("styles.xml", "NULL", "workbook.xml.rels")],
    "UTF-16": [wide("xl/worksheets/sheet1.xml"), wide("xl/workbook.xml")],
    "texts elsewhere": [
        named(lambda name: name.replace("xl/shared", "shared")),
        text("sharedStrings.xml", "/sharedStrings.xml", "workbook.xml.rels"),
    ],
    "odd formats": [text('numFmtId="164"', 'numFmtId=""', "styles.xml")],
    "a folder entry": [lambda parts: {"xl/": b"", **parts}],
    "no rows numbered": [text(' r="[A-Z]*[0-9]+"', "", "sheet1.xml")],
}


@pytest.mark.parametrize("name", BOOK_CHANGES)
def test_a_workbook_is_read_whatever_its_parts_are_like(name: str) -> None:
    rows = shown(changed(workbook(), *BOOK_CHANGES[name]), ".xlsx").splitlines()
    expected = list(SALES)
    if "styles" in name or name == "a relation to nothing":
        expected[1] = "2 | North | 120 | 45413"
    assert [row for row in rows if row in expected] == expected
    assert "2 sheets" in rows[0]
    assert "3 |  | 0.5" in rows


def test_what_cells_hold_is_shown() -> None:
    cells = [  # reference, attributes, content, what is shown
        ("A1", 't="s"', "<v>9</v>", "(text missing in the file)"),
        ("B1", 't="b"', "<v>1</v>", "TRUE"),
        ("C1", 't="e"', "<v>#DIV/0!</v>", "#DIV/0!"),
        ("D1", 't="d"', "<v>2024-05-01T00:00:00</v>", "2024-05-01T00:00:00"),
        ("E1", 't="inlineStr"', "<is><r><t>a</t></r><r><t>b|c</t></r></is>", "ab\\|c"),
        ("F1", 't="s"', "<v>2</v>", "東京"),
        ("G1", 't="s"', "<v>3</v>", "line<br>next"),
        ("H1", 's="2"', "<v>1.5</v>", "1 day, 12:00:00"),
        ("I1", 's="3"', "<v>1.25</v>", "1904-01-02 06:00:00"),
        ("J1", "", "<v>0.30000000000000004</v>", "0.3"),
        ("K1", "", "<v>1E-2</v>", "0.01"),
        ("L1", "", '<f t="shared" ref="L1:M1" si="0">A1+1</f>', "=A1+1"),
        ("M1", "", '<f t="shared" si="0"/>', "=(a formula)"),
        ("N1", 's="1"', "<v>99999999</v>", "99999999"),
        ("O1", 's="77"', "<v>7</v>", "7"),
        ("P1", "", "<v>1234567890123450</v>", "1234567890123450"),
        ("XFD1", "", "<v>1</v>", "(16367 empty) | 1"),
    ]
    row = "".join(f'<c r="{place}" {kind}>{content}</c>' for place, kind, content, _ in cells)
    strings = "<si><t>東京</t><rPh><t>トウキョウ</t></rPh></si><si><t>line_x000D_\nnext</t></si>"
    data = workbook(f'<row r="1">{row}</row>', strings, 'date1904="1"')
    assert (
        shown(data, ".xlsx", "1").splitlines()[2] == f"1 | {' | '.join(each[3] for each in cells)}"
    )


def test_hidden_sheets_merged_cells_and_notes_are_shown() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet["B2"] = "head"
    sheet["B2"].comment = Comment("ask Anna", "Max")
    sheet.merge_cells("B2:C2")
    book.create_sheet("Secret").sheet_state = "veryHidden"
    book.create_chartsheet("Graph")
    out = io.BytesIO()
    book.save(out)
    rows = shown(out.getvalue(), ".xlsx").splitlines()
    assert rows[0].endswith(
        "3 sheets: Sheet (B2:C2), Secret (A1:A1, hidden), Graph (size unknown)]"
    )
    assert rows[2:4] == ["2 |  | head", "(note at B2: ask Anna)"]


@pytest.mark.parametrize(
    ("pages", "rows"),
    [
        ("Big!A5:B6", ["5 | a5 | b5", "6 | a6 | b6"]),
        ("big!$A$5:$B$6", ["5 | a5 | b5", "6 | a6 | b6"]),
        ("Big!B6:A5", ["5 | a5 | b5", "6 | a6 | b6"]),
        ("2!B5", ["5 | b5"]),
        ("'My Sheet, 2'!B:C", ["1 | b1 | c1", "2 | b2 | c2"]),
        ("My Sheet, 2", ["1 | a1 | b1 | c1", "2 | a2 | b2 | c2"]),
        ("Big!C3:C3,A4:B4", ["3 | c3", "4 | a4 | b4"]),
        ("A1:B1", ["1 | x"]),
        ("2024!A1", ["1 | y"]),
        ("2024", ["1 | y"]),
        ("Anna's", ["1 | z"]),
        ("'Anna''s'!A1,1", ["1 | z", "1 | x"]),
        ("4-", ["1 | y", "1 | z"]),
        ("Big!200:201", ["200 | a200 | b200 | c200"]),
        ("Big!A900:B999", []),
    ],
)
def test_sheets_and_cells_are_chosen(pages: str, rows: list[str]) -> None:
    book = openpyxl.Workbook()
    first = book.active
    assert first is not None
    first["A1"] = "x"
    for name, last in (("Big", 200), ("My Sheet, 2", 2)):
        sheet = book.create_sheet(name)
        for row in range(1, last + 1):
            sheet.append([f"{column}{row}" for column in "abc"])
    book.create_sheet("2024")["A1"] = "y"
    book.create_sheet("Anna's")["A1"] = "z"
    out = io.BytesIO()
    book.save(out)
    found = shown(out.getvalue(), ".xlsx", pages).splitlines()
    assert [row for row in found if re.match(r"\d+ \|", row)] == rows
    assert all(
        "cells" in row
        for row in found
        if row.startswith("## ") and "!" in pages and "," not in pages
    )


@pytest.mark.parametrize("pages", ["Sale", "9", "Sales!A1:B2:C3", "'Sales", ","])
def test_an_unknown_sheet_names_the_sheets(pages: str) -> None:
    with pytest.raises(
        ToolError,
        match=r"names no sheet.*Sales \(A1:XFD1048576\), My Sheet \(size unknown, hidden\)",
    ):
        shown(workbook(), ".xlsx", pages)


# Word

XML = f'xmlns:w="{WORD}" xmlns:r="{OFFICE}"'
M = "http://schemas.openxmlformats.org/officeDocument/2006/math"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"


def word(body: str, more: Mapping[str, str | bytes] | None = None, **targets: str) -> bytes:
    """Return a document with this body, parts of the folder "word", and relations to them."""
    rows = "".join(f"<w:p><w:r><w:t>{each}</w:t></w:r></w:p>" for each in ("Rent", "1250 EUR"))
    return zipped({
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": relations(officeDocument="word/document.xml"),
        "word/document.xml": (
            f'<w:document {XML} xmlns:m="{M}" xmlns:mc="{MC}" xmlns:v="urn:v" xmlns:c="urn:c">'
            f"<w:body>{body or rows}</w:body></w:document>"
        ),
        "word/_rels/document.xml.rels": relations(**targets),
        **{f"word/{name}": content for name, content in (more or {}).items()},
    })  # fmt: skip


def run(content: str) -> str:
    return f"<w:p><w:r><w:t>{content}</w:t></w:r></w:p>"


WORD_CHANGES: dict[str, list[Change]] = {
    "as it is": [],
    "Word Online": renamed("document.xml", "document2.xml"),
    "other part name, same relations": only_renamed("document.xml", "document2.xml"),
    "backslashes": [named(lambda name: name.replace("/", "\\"))],
    "other folder": renamed("word/", "Doc/"),
    "strict": [strict],
    "upper case": [named(str.upper)],
    "no content types": [without("Content_Types")],
    "no relations": [without("rels")],
    "a relation to nothing": [
        text(
            "</Relationships>",
            '<Relationship Id="x" Type="styles" Target="../NULL"/></Relationships>',
        )
    ],
    "an alternative without a fallback": [
        text(
            "<w:body>",
            '<w:body><w:p><mc:AlternateContent><mc:Choice Requires="wps"/>'
            "</mc:AlternateContent></w:p>",
        )
    ],
    "a broken style sheet": [
        text(
            "</Relationships>",
            relations(styles="styles.xml").partition(f'"{RELATIONS}">')[2],
            "document.xml.rels",
        ),
        lambda parts: {**parts, "word/styles.xml": b"<w:styles"},
    ],
    "UTF-16": [wide("word/document.xml")],
    "a cut end": [text("</w:p></w:body></w:document>", "", "document.xml")],
    "a character that XML forbids": [text("Rent", "Rent&#1;", "document.xml")],
}


DAMAGED = ("a broken style sheet", "a cut end", "a character that XML forbids")


@pytest.mark.parametrize("name", WORD_CHANGES)
@pytest.mark.parametrize("suffix", [".docx", ".docm", ".dotx", ".doc", ".bin"])
def test_a_word_document_is_read_whatever_its_parts_are_like(name: str, suffix: str) -> None:
    rows = shown(changed(word(""), *WORD_CHANGES[name]), suffix).splitlines()
    assert [row.rstrip("\x01") for row in rows[1:] if row] == ["Rent", "1250 EUR"]
    assert ("damaged" in rows[0]) == (name in DAMAGED)


def test_nothing_that_a_word_document_says_is_lost() -> None:
    def note(kind: str, number: int, content: str) -> str:
        author = 'w:author="Anna"' if kind == "comment" else ""
        return f'<w:{kind} w:id="{number}" {author}>{run(content)}</w:{kind}>'

    box = f"<w:txbxContent>{run('In a box.')}</w:txbxContent>"
    body = (
        '<w:p><w:pPr><w:pStyle w:val="berschrift1"/></w:pPr><w:r><w:t>Head</w:t></w:r></w:p>'
        "<w:p><w:r><w:t>Area </w:t></w:r><m:oMath><m:r><m:t>a=b</m:t></m:r></m:oMath></w:p>"
        "<w:p><w:r><w:t>Due </w:t></w:r><w:del><w:r><w:delText>May</w:delText></w:r></w:del>"
        "<w:ins><w:r><w:t>June</w:t></w:r></w:ins></w:p>"
        '<w:p><w:r><w:t>See</w:t><w:footnoteReference w:id="2"/></w:r>'
        '<w:r><w:commentReference w:id="0"/></w:r></w:p>'
        f"<w:p><w:r><mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback><w:pict>{box}"
        "</w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>"
        f"<w:tbl><w:tr><w:tc>{run('a')}{run('b|c')}</w:tc><w:sdt><w:sdtContent><w:tc>{run('d')}"
        "</w:tc></w:sdtContent></w:sdt></w:tr></w:tbl>"
        "<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>item</w:t></w:r></w:p>"
        '<w:altChunk r:id="aFChunk1"/><w:altChunk r:id="aFChunk2"/><w:altChunk r:id="aFChunk3"/>'
        '<w:p><w:r><w:drawing><c:chart r:id="chart1"/></w:drawing></w:r></w:p>'
    )
    data = word(
        body,
        {
            "styles.xml": f'<w:styles {XML}><w:style w:styleId="berschrift1"><w:name w:val='
            '"heading 1"/></w:style></w:styles>',
            "footnotes.xml": f'<w:footnotes {XML}><w:footnote w:type="separator" w:id="0">'
            f"{run('----')}</w:footnote>{note('footnote', 2, 'Not free.')}</w:footnotes>",
            "comments.xml": f"<w:comments {XML}>{note('comment', 0, 'Why?')}</w:comments>",
            "header1.xml": f"<w:hdr {XML}>{run('Draft')}</w:hdr>",
            "a.mht": MIME,
            "b.rtf": r"{\rtf1\ansi From {\b RTF}, 5 \u8364?.\par}",
            "c.docx": word(run("From Word.")),
            "chart.xml": "<c:chart xmlns:c='urn:c'><c:ser><c:tx><c:v>Sum</c:v></c:tx><c:cat><c:v>Q1"
            "</c:v></c:cat><c:val><c:v>7</c:v></c:val></c:ser></c:chart>",
        },
        styles="styles.xml", footnotes="footnotes.xml", comments="comments.xml",
        header="header1.xml", aFChunk1="a.mht", aFChunk2="b.rtf", aFChunk3="c.docx",
        chart1="chart.xml",
    )  # fmt: skip
    head, *rows = shown(data, ".docx").splitlines()
    assert "changes as [+inserted+] and [-deleted-]" in head
    assert [row for row in rows if row] == [
        "# Head",
        "Area a=b",
        "Due [-May-][+June+]",
        "See [note: Not free.] [comment by Anna: Why?]",
        "In a box.",
        "| a<br>b\\|c | d |",
        "- item",
        "# Rent€",
        "From RTF, 5 €.",
        "From Word.",
        "(chart) categories: Q1",
        "Sum: 7",
        "(header: Draft)",
    ]


@pytest.mark.parametrize(
    "content",
    [
        "<m:oMath><m:r><m:t>a=b</m:t></m:r></m:oMath>",
        '<w:bdo w:val="rtl"><w:r><w:t>a=b</w:t></w:r></w:bdo>',
        "<w:ruby><w:rt><w:r><w:t>xx</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>a=b</w:t></w:r>"
        "</w:rubyBase></w:ruby>",
        "<w:fldSimple><w:r><w:t>a=b</w:t></w:r></w:fldSimple>",
        "<w:smartTag><w:customXml><w:r><w:t>a=b</w:t></w:r></w:customXml></w:smartTag>",
    ],
)
def test_no_element_hides_its_text(content: str) -> None:
    body = f"<w:p>{content}<w:r><w:rPr><w:b/></w:rPr><w:t> holds</w:t></w:r></w:p>"
    assert "a=b" in shown(word(body), ".docx")
    assert "**holds**" in shown(word(body.replace(content, "")), ".docx")


# Slides


def deck() -> bytes:
    """Return two slides: a title with notes, and a group with a text, a table and a chart."""
    made = Presentation()
    for number in (1, 2):
        slide = made.slides.add_slide(made.slide_layouts[5])
        assert slide.shapes.title is not None
        slide.shapes.title.text = f"Title {number}"
    box = Inches(1), Inches(2), Inches(4), Inches(1)
    shapes = made.slides[1].shapes
    shapes.add_group_shape().shapes.add_textbox(*box).text_frame.text = "In a group"
    shapes.add_table(1, 2, *box).table.cell(0, 1).text = "right"
    chart = cast("Any", CategoryChartData)()  # has no types
    chart.categories = ["Q1", "Q2"]
    chart.add_series("Sum", (1, 2.5))
    shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *box, chart)
    notes = made.slides[1].notes_slide.notes_text_frame
    assert notes is not None
    notes.text = "Say hello"
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


SECOND = ["## Slide 2", "Title 2", "In a group", "|  | right |", "(chart) categories: Q1, Q2",
          "Sum: 1, 2.5", "Notes:", "Say hello"]  # fmt: skip
SLIDE_CHANGES: dict[str, list[Change]] = {
    "as it is": [],
    "a show": [text("presentationml.presentation.main", "presentationml.slideshow.main")],
    "a template with macros": [text("presentationml.presentation.main", "odd", "Content_Types")],
    "other part name, same relations": only_renamed("presentation.xml", "deck1.xml"),
    "other names": [
        *renamed("presentation.xml", "deck1.xml"),
        *renamed("slide2", "page2"),
    ],
    "backslashes": [named(lambda name: name.replace("/", "\\"))],
    "strict": [strict],
    "a content type is missing": [
        text('<Default [^>]*Extension="xml"[^>]*/>', "", "Content_Types")
    ],
    "relations to nothing": [
        text(
            "</Relationships>", '<Relationship Id="x" Type="image" Target="NULL"/></Relationships>'
        )
    ],
}


@pytest.mark.parametrize("name", SLIDE_CHANGES)
@pytest.mark.parametrize("suffix", [".pptx", ".ppsx"])
def test_slides_are_read_whatever_their_parts_are_like(name: str, suffix: str) -> None:
    rows = shown(changed(deck(), *SLIDE_CHANGES[name]), suffix, "2").splitlines()
    assert rows == ["[PowerPoint presentation, 2 slides]", *SECOND]


def test_a_broken_slide_is_reported() -> None:
    data = changed(deck(), text("(?s)<p:cSld.*", "<", "slides/slide1.xml"))
    assert "presentation is damaged" in shown(data, ".pptx", "1")
    assert "Title 2" in shown(data, ".pptx", "2")


def test_a_missing_slide_and_a_hidden_one_are_reported() -> None:
    hide = text("<p:sld ", '<p:sld show="0" ', "slide2.xml")
    data = changed(deck(), without("slides/slide1.xml"), hide)
    assert shown(data, ".pptx").splitlines()[1:5] == [
        "## Slide 1",
        "(the slide is missing in the file)",
        "## Slide 2",
        "(hidden)",
    ]


# What programs save under the names of Office


TABLE = "<table><tr><td>Region</td><td>Total</td></tr><tr><td>North</td><td>120</td></tr></table>"
XML_2003 = """<?xml version="1.0"?>
<?mso-application progid="Excel.Sheet"?>
<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet"
 xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet">
 <Worksheet ss:Name="Sales"><Table><Row><Cell><Data ss:Type="String">Region</Data></Cell>
 <Cell ss:MergeAcross="1"><Data ss:Type="String">Total</Data></Cell>
 <Cell><Data ss:Type="String">Day</Data></Cell></Row>
 <Row ss:Index="4"><Cell ss:Index="2"><Data ss:Type="Number">120</Data></Cell></Row></Table>
 </Worksheet><Worksheet ss:Name="Other"><Table/></Worksheet></Workbook>"""
MIME = """MIME-Version: 1.0
Content-Type: multipart/related; boundary="----=_x"

------=_x
Content-Type: text/html; charset="UTF-8"
Content-Transfer-Encoding: quoted-printable

<html><body><h1>Rent=E2=82=AC</h1></body></html>
------=_x--
"""


@pytest.mark.parametrize(
    ("content", "suffix", "expected"),
    [
        (f"<html>{TABLE}</html>", ".xls", "| North | 120 |"),
        (TABLE, ".xls", "| North | 120 |"),
        (f"\ufeff<meta charset=utf-8>{TABLE}", ".xls", "| North | 120 |"),
        (XML_2003, ".xls", "## Sales\n| Region | Total |  | Day |\n|  | 120 |"),
        (XML_2003, ".xml", "## Sales\n| Region | Total |  | Day |\n|  | 120 |"),
        (r"{\rtf1\ansi\ansicpg1252 Rent 5 \'80\par}", ".doc", "Rent 5 €"),
        ("<html><h1>Rent</h1></html>", ".doc", "# Rent"),
        ("<div><b>Rent</b></div>", ".doc", "**Rent**"),
        (MIME, ".doc", "# Rent€"),
    ],
)
def test_a_wrong_suffix_does_not_matter(content: str, suffix: str, expected: str) -> None:
    assert expected in shown(content.encode(), suffix)


@pytest.mark.parametrize("suffix", [".xlsx", ".docx", ".pptx", ".xls", ".zip"])
def test_the_content_counts_and_not_the_suffix(suffix: str) -> None:
    assert "2 | North | 120" in shown(workbook(), suffix)
    assert "1250 EUR" in shown(word(""), suffix)
    assert "1 | Region | 120" in shown(open_document("spreadsheet", ROWS), suffix)


@pytest.mark.parametrize("suffix", [".docx", ".xlsx", ".pptx", ".doc", ".zip"])
def test_an_archive_of_something_else_is_no_document(suffix: str) -> None:
    for parts in (
        {"a.txt": b"x"},
        {"xl/readme.txt": b"x"},
        {"visio/document.xml": b"<VisioDocument/>"},
    ):
        data = zipped(parts)
        assert file_content.document_kind(io.BytesIO(data), data, suffix) is None


# Passwords


def large(data: bytes) -> bytes:
    """Return a document of more than 4096 bytes: the library writes no smaller ones rightly."""
    return changed(data, lambda parts: {**parts, "docProps/thumbnail.jpeg": os.urandom(5000)})


def agile(data: bytes, password: str) -> bytes:
    return bytes(ECMA376Agile.encrypt(password, io.BytesIO(data)))


def standard(data: bytes, password: str) -> bytes:
    """Encrypt as Office 2007 does: AES-128, with a key from 50,000 rounds of SHA-1."""
    salt, verifier = bytes(range(16)), b"a verifier of 16"
    key = ECMA376Standard.makekey_from_password(password, 0x660E, 0x8004, 24, 128, 16, salt)

    def sealed(plain: bytes) -> bytes:
        encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        return encryptor.update(plain + bytes(-len(plain) % 16)) + encryptor.finalize()

    name = "AES".encode("utf-16-le") + bytes(2)
    header = struct.pack("<8I", 0x24, 0, 0x660E, 0x8004, 128, 24, 0, 0) + name
    info = struct.pack("<HHII", 3, 2, 0x24, len(header)) + header + struct.pack("<I", 16) + salt
    info += sealed(verifier) + struct.pack("<I", 20) + sealed(sha1(verifier).digest())
    out = io.BytesIO()
    ECMA376Encrypted(struct.pack("<Q", len(data)) + sealed(data), info).write_to(out)
    return out.getvalue()


@pytest.mark.parametrize("encrypt", [agile, standard])
@pytest.mark.parametrize("suffix", [".xlsx", ".docx", ".pptx", ".bin"])
def test_an_encrypted_document_is_read_with_its_password(
    encrypt: Callable[[bytes, str], bytes], suffix: str
) -> None:
    made, expected = {
        ".docx": (word(""), "1250 EUR"),
        ".pptx": (deck(), "Title 2"),
    }.get(suffix, (workbook(), "2 | North | 120"))
    data = encrypt(large(made), "Größe 7")
    assert expected in shown(data, suffix, password="Größe 7")
    for wrong, said in ((None, "encrypted with a password"), ("", "encrypted"), ("x", "is wrong")):
        with pytest.raises(ToolError, match=rf"{said}.*pass it as password"):
            shown(data, suffix, password=wrong)


def test_a_password_is_not_needed_where_excel_asks_for_none() -> None:
    assert "2 | North | 120" in shown(agile(large(workbook()), "VelvetSweatshop"), ".xlsx")
    assert "2 | North | 120" in shown(workbook(), ".xlsx", password="useless")


def test_the_child_process_is_given_the_password(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(agile(large(word("")), "secret"))
    with (tmp_path / "a.docx").open("rb") as file:
        found = documents.read_document(file, "docx", None, Lines(), password="secret")
    assert "1250 EUR" in found


# Old and open formats


def record(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def compound(name: str, stream: bytes) -> bytes:
    """Return an OLE file with one stream of at least 4096 bytes."""
    size = -(-max(len(stream), 4096) // 512)
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    header += struct.pack("<HHHHH6xIIIIIIIII", 0x3E, 3, 0xFFFE, 9, 6, 0, 1, 1, 0, 4096,
                          0xFFFFFFFE, 0, 0xFFFFFFFE, 0)  # fmt: skip
    header += struct.pack("<109I", 0, *[0xFFFFFFFF] * 108)
    table = [0xFFFFFFFD, 0xFFFFFFFE, *range(3, size + 2), 0xFFFFFFFE]
    fat = struct.pack("<128I", *table, *[0xFFFFFFFF] * (128 - len(table)))
    entries = b""
    for title, kind, child, start, length in (
        ("Root Entry", 5, 1, 0xFFFFFFFE, 0),
        (name, 2, 0xFFFFFFFF, 2, size * 512),
    ):
        wide_name = title.encode("utf-16-le") + bytes(2)
        entries += wide_name.ljust(64, b"\0") + struct.pack("<HBB", len(wide_name), kind, 1)
        entries += struct.pack("<III36xIQ", 0xFFFFFFFF, 0xFFFFFFFF, child, start, length)
    return header + fat + entries.ljust(512, b"\0") + stream.ljust(size * 512, b"\0")


def xls() -> bytes:
    """Return a workbook of Excel 97 with one sheet "Sales"."""

    def cell(kind: int, row: int, column: int, content: bytes) -> bytes:
        return record(kind, struct.pack("<HHH", row, column, 0) + content)

    begin = struct.pack("<HHHHII", 0x0600, 0x0005, 0, 0, 0, 0)
    name = b"\x05\x00Sales"
    around = record(0x0809, begin) + record(0x0085, struct.pack("<IH", 0, 0) + name) + record(0x0A)
    sheet_at = struct.pack("<I", len(around))
    around = around.replace(
        record(0x0085, bytes(6) + name), record(0x0085, sheet_at + bytes(2) + name)
    )
    texts = [
        cell(0x0204, 0, n, struct.pack("<HB", len(t), 0) + t)
        for n, t in enumerate([b"Region", b"Total"])
    ]
    number = cell(0x0203, 1, 1, struct.pack("<d", 120))
    sheet = (
        record(0x0809, begin[:2] + b"\x10\x00" + begin[4:])
        + b"".join(texts)
        + number
        + record(0x0A)
    )
    return around + sheet


def open_document(kind: str, body: str) -> bytes:
    mime = f"application/vnd.oasis.opendocument.{kind}"
    names = " ".join(
        f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for prefix, name in (("office", "office"), ("text", "text"), ("table", "table"),
                             ("draw", "drawing"), ("presentation", "presentation"))
    )  # fmt: skip
    content = (
        f'<?xml version="1.0"?><office:document-content {names}><office:body><office:{kind}>{body}'
        f"</office:{kind}></office:body></office:document-content>"
    )
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{mime}"/>'
        "</manifest:manifest>"
    )
    return zipped({"mimetype": mime, "content.xml": content, "META-INF/manifest.xml": manifest})


ROWS = (
    '<table:table table:name="Sales"><table:table-row><table:table-cell office:value-type="string">'
    "<text:p>Region</text:p></table:table-cell><table:table-cell office:value-type='float' "
    "office:value='120'><text:p>120,00</text:p></table:table-cell></table:table-row></table:table>"
)


def test_an_old_workbook_is_read() -> None:
    expected = "1 | Region | Total\n2 |  | 120"
    assert expected in shown(compound("Workbook", xls()), ".xls")
    assert expected in shown(compound("Workbook", xls()), ".xlsx", "Sales!A1:B2")


def test_open_document_files_are_read() -> None:
    sheet = ROWS.replace("Region", "at 00:00:00")
    assert "## Sheet 1: Sales (1 rows, 2 columns)\n1 | at 00:00:00 | 120" in shown(
        open_document("spreadsheet", sheet), ".ods"
    )
    body = (
        "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
        '<text:h text:outline-level="2">Head</text:h><text:p>Rent <text:span>1250</text:span> EUR'
        "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>net</text:p>"
        f"</text:note-body></text:note></text:p>{ROWS}"
    )
    rows = shown(open_document("text", body), ".odt").splitlines()
    assert [row for row in rows[1:] if row] == [
        "## Head", "Rent 1250 EUR [note: net]", "| Region | 120,00 |",
    ]  # fmt: skip
    pages = "".join(
        f"<draw:page><draw:frame><draw:text-box><text:p>Page {number}</text:p></draw:text-box>"
        "</draw:frame></draw:page>"
        for number in (1, 2)
    )
    found = shown(open_document("presentation", pages), ".odp", "2")
    assert found == "[OpenDocument presentation, 2 slides]\n## Slide 2\nPage 2"


# Bounds

BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 100}">' for n in range(9))


@pytest.mark.parametrize(
    "data",
    [
        changed(workbook(), text("<worksheet", f"<!DOCTYPE x [{BOMB}]><worksheet", "sheet1.xml"),
                text("North", "&e8;")),
        changed(workbook(), text("<workbook ", f"<!DOCTYPE x [{BOMB}]><workbook ", "workbook.xml"),
                text("Sales", "&e8;")),
        changed(word(""), text("<w:document", f"<!DOCTYPE x [{BOMB}]><w:document", "document.xml"),
                text("Rent", "&e8;")),
    ],
    ids=["sheet", "workbook", "document"],
)  # fmt: skip
def test_entities_that_multiply_are_not_expanded(data: bytes) -> None:
    try:
        found = shown(data, ".xlsx")
    except ToolError as error:
        found = str(error)
    assert len(found) < 1000


@pytest.mark.slow
def test_a_sheet_of_a_million_rows_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    rows = "".join(
        f'<row r="{n}"><c r="A{n}"><v>{n}</v></c><c r="B{n}" t="s"><v>0</v></c></row>'
        for n in range(1, 1_000_001)
    )
    (tmp_path / "a.xlsx").write_bytes(workbook(rows))
    with (tmp_path / "a.xlsx").open("rb") as file:
        found = documents.read_document(file, "xlsx", "Sales!A999999:B1000000", Lines())
    assert found.splitlines()[2:] == ["999999 | 999999 | Region", "1000000 | 1000000 | Region"]


def test_an_archive_with_a_password_is_an_error() -> None:
    data = workbook()
    flags = [found.start() + 6 for found in re.finditer(b"PK\x03\x04", data)]
    flags += [found.start() + 8 for found in re.finditer(b"PK\x01\x02", data)]
    sealed = bytearray(data)
    for place in flags:
        sealed[place] |= 1
    with pytest.raises(ToolError, match="password required"):
        shown(bytes(sealed), ".xlsx")


def test_many_candidates_for_the_main_part_do_not_take_long() -> None:
    names = [f"word/document{number}.xml" for number in range(3000)]
    reads = 0

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            nonlocal reads
            reads += 1
            return super().read(size)

    data = zipped(dict.fromkeys(names, b"<odd/>"))
    assert file_content.document_kind(Counted(data), data, ".docx") == "docx"
    assert reads < 500

"""What a plan's `file:` check takes for a file that holds what its name says."""

import io
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import openpyxl
import pytest
from PIL import Image

from openmanus_graph.backends.files.file_content import content_head, content_problem

PNG_START = b"\x89PNG\r\n\x1a\n"


def workbook(*cells: str) -> bytes:
    book, data = openpyxl.Workbook(), io.BytesIO()
    for cell in cells:
        book.worksheets[0][cell] = 1
    book.save(data)
    return data.getvalue()


def picture(kind: str) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (3, 2)).save(data, kind)
    return data.getvalue()


def archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        made.writestr("a", "x")
    return data.getvalue()


def problem(folder: Path, name: str, data: bytes) -> str | None:
    path = folder / name
    path.write_bytes(data)
    with path.open("rb") as file:
        return content_problem(file, name)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"month,total\n1,2\n"),
        ("a.csv", b"\xef\xbb\xbfmonth;total\r\n1;2"),
        ("a.csv", 'a,b\n"x\ny",2\n'.encode("utf-16")),
        ("a.csv", b"a," + b"x" * 200_000 + b"\n"),
        ("a.TSV", b"a\tb\n1\t2\n"),
        ("a.json", b"{}"),
        ("a.jsonl", b'{"a": 1}\n\n[]\n'),
        ("a.md", b"x"),
        ("a.png", picture("PNG")),
        ("a.jpg", picture("JPEG")),
        ("a.xlsx", workbook("B3")),
        ("a.zip", archive()),
        ("a.gz", b"\x1f\x8b\x08"),
        ("a.dat", b"\0\0\1"),
        ("Makefile", b"all:\n"),
    ],
)
def test_what_is_of_its_kind_has_no_problem(tmp_path: Path, name: str, data: bytes) -> None:
    assert problem(tmp_path, name, data) is None


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"month,total\n", "no row of data"),
        ("a.csv", b"month,total\n\n , \n", "no row of data"),
        ("a.csv", b",\n", "no filled cell"),
        ("a.csv", PNG_START + b"\0\0", "a PNG picture"),
        ("a.tsv", b"a\tb", "no row of data"),
        ("a.json", b"{'a': 1}", "not JSON"),
        ("a.json", b"[" * 100_000, "not JSON"),
        ("a.jsonl", b"{}\nx\n", "not JSON in record 2"),
        ("a.md", b" \n\t\n", "white space"),
        ("a.md", PNG_START + b"\0\0", "a PNG picture"),
        ("noname", b"\n", "white space"),
        ("a.png", b"hello", "but a text"),
        ("a.png", picture("JPEG"), "but a JPEG picture"),
        ("a.png", picture("PNG")[:40], "broken or cut off"),
        ("a.pdf", b"hello", "but a text"),
        ("a.pdf", b"%PDF-1.4\n", "damaged"),
        ("a.xlsx", workbook(), "no filled cell"),
        ("a.xlsx", workbook("A1")[:800], "damaged"),
        ("a.docx", workbook("A1"), "one of xlsx"),
        ("a.zip", b"PK\x03\x04xxxx", "damaged"),
        ("a.gz", b"hello", "but a text"),
        ("a.parquet", b"a,b\n1,2\n", "but a text"),
    ],
)
def test_what_is_empty_or_of_another_kind_has_one(
    tmp_path: Path, name: str, data: bytes, why: str
) -> None:
    assert why in (problem(tmp_path, name, data) or "")


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("a.txt", b"hello\n", "a.txt (6 bytes)\nhello\n"),
        ("a.txt", b"x" * 600, f"a.txt (600 bytes)\n{'x' * 500}\n[...]"),
        ("a.json", '"grün"'.encode("utf-16"), '"grün"'),
        ("a.xlsx", workbook("B3"), "3 |  | 1"),
        ("a.png", picture("PNG"), "(PNG picture)"),
        ("a.pdf", b"%PDF-1.4\n", "damaged"),
    ],
)
def test_the_head_of_a_file_is_shown_as_text(
    tmp_path: Path, name: str, data: bytes, shown: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with path.open("rb") as file:
        assert shown in content_head(file, name, 500)


@pytest.mark.parametrize("large", [False, True], ids=["zip", "zip64"])
@pytest.mark.parametrize("comment", [b"", b"a comment"])
def test_a_huge_list_of_files_is_not_read(tmp_path: Path, large: bool, comment: bytes) -> None:
    listed = 3 << 30
    path = tmp_path / "sparse.docx"
    with path.open("wb") as file:
        file.write(b"PK\3\4" + b"\0" * 26 + b"a")
        end = file.seek(listed + 40)
        if large:
            file.write(b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, listed, 40))
            file.write(b"PK\6\7" + struct.pack("<IQI", 0, end, 1))
        size, count = (0xFFFFFFFF, 0xFFFF) if large else (listed, 1)
        file.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, count, count, size, 40, len(comment)))
        file.write(comment)
    code = (
        "import resource, sys; from pathlib import Path; "
        "from openmanus_graph.backends.files.file_content import content_problem; "
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30,) * 2); "
        "print(content_problem(Path(sys.argv[1]).open('rb'), sys.argv[1]))"
    )
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert "list of files has more than 16 MB" in ran.stdout, ran.stderr

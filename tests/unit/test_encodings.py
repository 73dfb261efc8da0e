"""Encodings are decided over a whole file, and what cannot be decoded is said."""

import io
import tracemalloc
from pathlib import Path

import pytest

from openmanus_graph.backends.charts.tables import read_table
from openmanus_graph.backends.files.file_content import content_problem
from openmanus_graph.backends.files.text_file import detect_encoding, encoding_of
from openmanus_graph.runtime.session import Session
from openmanus_graph.testing.replays import tool_runtime
from openmanus_graph.tools.files import str_replace_editor
from tests.support.documents import read

LATE = "id,note\n" + "".join(f"{i},plain ascii text number {i}\n" for i in range(9000))
SENTENCES = [
    ("cp1252", "Grüße aus Köln"), ("cp1252", "Crème brûlée – 5 €"), ("cp1252", "“quoted”"),
    ("cp1252", "100 €"), ("cp1252", "50 °C"), ("cp1252", "São Paulo"), ("cp1252", "MÜLLER GMBH"),
    ("cp1252", "à"), ("cp1250", "Zażółć gęślą jaźń"), ("iso8859_2", "Zażółć gęślą jaźń"),
    ("cp1254", "Şişli, İstanbul çarşısı"), ("cp1251", "Отчёт о продажах"), ("cp1251", "ИТОГО"),
    ("koi8_r", "Отчёт о продажах"), ("koi8_r", "Привет, мир"), ("cp866", "Отчёт о продажах за май"),
    ("cp1253", "Αναφορά πωλήσεων"), ("cp1255", "דוח מכירות"), ("cp1256", "تقرير المبيعات"),
    ("gbk", "最后一行备注"), ("gbk", "合计,金额,日期"), ("gb18030", "你好，世界。请查看附件。"),
    ("big5", "最後一行備註"), ("big5", "你好，世界。請查看附件。"), ("shift_jis", "売上報告書"),
    ("shift_jis", "カタカナのテスト"), ("shift_jis", "最終行の備考です。ご確認ください。"),
    ("euc_jp", "最終行の備考です。ご確認ください。"), ("euc_kr", "마지막 줄의 비고입니다."),
    ("euc_kr", "매출 보고서"),
    # As in chardet#219, and charset_normalizer#357, #571, #605 and #731.
    ("gb2312", "中"), ("cp932", "ﾃｽﾄ ﾊﾝｶｸｶﾅ です"), ("cp932", "・リスト,名前"),
    ("iso8859_2", "Příliš žluťoučký kůň úpěl"), ("cp1251", 'TITLE "Опиум роз"'),
]  # fmt: skip


@pytest.mark.parametrize(("encoding", "text"), SENTENCES)
@pytest.mark.parametrize("before", ["", LATE], ids=["short", "late"])
def test_a_few_words_tell_their_encoding(encoding: str, text: str, before: str) -> None:
    data = f"{before}9001,{text}\n".encode(encoding)
    found = detect_encoding(data)
    assert found is not None
    assert found.decode(data).endswith(f"9001,{text}\n")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("gbk", "最后一行备注"), ("utf-16-le", "Grüße"), ("utf-16-be", "Grüße"), ("latin-1", "Grüße"),
     ("utf-8", "最后")],
)  # fmt: skip
def test_every_reader_decides_over_the_whole_file(
    session: Session, encoding: str, text: str
) -> None:
    path = session.workspace.root / "a.csv"
    path.write_bytes(f"{LATE}9001,{text}\n".encode(encoding))
    assert f"9001,{text}" in read(session, "a.csv", lines="9002-").text
    with path.open("rb") as file:
        table, _ = read_table(file, "a.csv")
        assert table.iloc[-1, 1] == text
        file.seek(0)
        assert content_problem(file, "a.csv") is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (f"{LATE}ä\n".encode() + b"bad \xff\n\xfe" + "ö\nü\n".encode(),
         "2 bytes are not valid utf-8, the first in line 9003"),
        ("最后一行备注\n".encode("gbk") * 300 + b"\xff\n",
         "1 byte is not valid gb18030, the first in line 301"),
        (b"\xef\xbb\xbf" + "ä\nö".encode() + b"\xe4",
         "1 byte is not valid utf-8, the first in line 2"),
        ("ä\n".encode() * 9 + "ö".encode()[:1], "1 byte is not valid utf-8, the first in line 10"),
        ("Grüße aus Köln\n".encode("utf-16") + b"\x00\xd8",
         "1 byte is not valid utf-16-le, the first in line 2"),
    ],
)  # fmt: skip
def test_undecodable_bytes_are_said(session: Session, data: bytes, said: str) -> None:
    (session.workspace.root / "a.txt").write_bytes(data)
    assert said in read(session, "a.txt").text.partition("\n")[0]


def test_a_real_replacement_character_is_not_counted(session: Session) -> None:
    (session.workspace.root / "a.txt").write_text("already \ufffd broken\n", encoding="utf-8")
    assert "not valid" not in read(session, "a.txt").text


def test_an_edit_keeps_the_bytes_that_could_not_be_decoded(session: Session) -> None:
    path = session.workspace.root / "a.txt"
    before = "最后一行备注\n".encode("gbk") * 300
    path.write_bytes(before + b"\xff\nend\n")
    args = {"command": "str_replace", "path": "a.txt", "old_str": "end", "new_str": "结束"}
    str_replace_editor.invoke({**args, "runtime": tool_runtime(session)})
    assert path.read_bytes() == before + b"\xff\n" + "结束\n".encode("gbk")


@pytest.mark.parametrize("data", [bytes(range(256)) * 40, b"\x00\x01\x02" * 99, b"MZ\x00\x00" * 99])
def test_what_is_not_text_is_not_called_text(data: bytes) -> None:
    assert detect_encoding(data) is None


def test_a_large_file_is_decided_in_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        for _ in range(40):
            file.write(b"plain text\n" * 100_000)
        file.write("最后一行备注\n".encode("gbk") * 100)
    with (tmp_path / "a").open("rb") as file:
        tracemalloc.start()
        found = encoding_of(file)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert found is not None
    assert found.name == "gb18030"
    assert most < 16 * 1024 * 1024


def test_an_empty_text_is_utf_8() -> None:
    assert (found := encoding_of(io.BytesIO())) is not None
    assert found.name == "utf-8"


def test_one_chinese_word_of_everyday_is_read() -> None:
    words = ["月份", "销售", "姓名", "年龄", "备注", "金额", "部门", "日期", "产品", "数量",
             "城市", "地区", "客户", "价格", "合计"]  # fmt: skip
    tables = {word: f'"{word}",v\n' + f'"{word}",17\n' * 3 for word in words}
    found = {word: detect_encoding(text.encode("gbk")) for word, text in tables.items()}
    read = [word for word, encoding in found.items() if encoding and encoding.name == "gb18030"]
    assert len(read) >= len(words) - 1

"""Libraries: how documents are cut, added again, found, read on and removed, in both databases."""

import io
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from openpyxl import Workbook

from openmanus_graph.backends.library import adding
from openmanus_graph.backends.library.adding import add, source_of
from openmanus_graph.backends.library.splitting import PASSAGE_CHARS, read_passages
from openmanus_graph.backends.library.store import (
    Document,
    Library,
    Passage,
    libraries,
    search,
)
from openmanus_graph.backends.persistence.texts import search_terms
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.config import homes
from openmanus_graph.errors import ConfigError, StorageError, ToolError
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.documents import rendered
from tests.support.pdfs import page_of, pdf_of
from tests.support.static_site import serving

Done = tuple[Counter[str], list[str]]


@pytest.fixture
def library(each_database: DatabaseUrl) -> Library:
    return made(each_database)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a few documents."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "lease.md").write_text("# Lease\n\nText.\n\n## Deposit\n\nThe deposit is 2,500 EUR.\n")
    (docs / "leave.txt").write_text("Employees get thirty days of holiday each year.\n")
    return docs


def made(url: DatabaseUrl, name: str = "mine", owner: str = "") -> Library:
    (found,) = libraries(url, owner, [name], create=name)
    return found


def document(source: str, *texts: str, mine: bool = False) -> Document:
    passages = [Passage("title", f"page {at}", text) for at, text in enumerate(texts, 1)]
    return Document(source, f"digest of {texts}", mine, passages)


def added(library: Library, *sources: object, mine: bool = False) -> Done:
    return add(library, [source_of(str(one)) for one in sources], Guard(), mine=mine)


def counts(done: Done) -> list[int]:
    return [done[0][kind] for kind in ("added", "changed", "unchanged", "removed")]


def places(library: Library, query: str, limit: int = 5) -> list[str]:
    return [Path(hit.label).name for hit in search([library], query, limit)]


def cut(data: bytes, name: str) -> list[Passage]:
    with Path(name).open("wb") as file:
        file.write(data)
    with Path(name).open("rb") as file:
        return read_passages(file, name)[0]


def test_passages_of_a_text_have_their_lines_and_headings() -> None:
    long = "word " * 500
    text = f"# Guide\n\n{'Start. ' * 100}\n## Install\n{'Install it. ' * 60}\n{long}\nThe end.\n"
    first, second, *rest = cut(text.encode(), "guide.md")
    assert (first.about, first.place) == ("guide > Guide", "lines 1-3")
    assert (second.about, second.place) == ("guide > Guide > Install", "lines 4-5")
    assert [one.place for one in rest[:2]] == ["line 6", "line 6"]  # one long line
    assert rest[-1].text.endswith("The end.")
    assert all(one.text for one in (first, second, *rest))


def test_passages_of_a_workbook_have_cells_and_the_first_row() -> None:
    book = Workbook()
    sheet = book.worksheets[0]
    sheet.title = "My Sales"
    sheet.append(["Region", "Product", "Amount"])
    for row in range(2, 120):
        sheet.append([f"region {row}", f"product {row}", row * 10])
    other = book.create_sheet("Prices")
    other["AB3"] = "far away"
    out = io.BytesIO()
    book.save(out)
    found = cut(out.getvalue(), "sales.xlsx")
    shown = rendered(out, "xlsx", pages=found[1].place)  # as `read_file` takes it
    assert shown.splitlines()[-1] in found[1].text
    assert found[0].place.startswith("'My Sales'!1:")
    assert found[0].about == "sales > My Sales"
    assert all(one.text.startswith("1 | Region | Product | Amount") for one in found[:-1])
    assert "119 | region 119 | product 119 | 1190" in found[-2].text
    assert found[-2].place.endswith(":119")
    assert (found[-1].place, found[-1].text) == ("Prices!3:3", "3 | (27 empty) | far away")


def test_passages_of_a_table_repeat_its_first_line() -> None:
    rows = "".join(f"city {n},{n * 7},{'x' * 20}\n" for n in range(100))
    found = cut(f"city,people,note\n{rows}".encode(), "cities.csv")
    assert found[0].place.startswith("lines 1-")
    assert found[-1].place.endswith("-101")
    assert all(one.text.startswith("city,people,note\ncity ") for one in found)
    assert max(len(one.text) for one in found) <= PASSAGE_CHARS + 20
    assert [one.place for one in cut(b"only,a,head", "head.csv")] == ["line 1"]


def test_passages_of_a_pdf_have_pages_and_a_scan_has_none() -> None:
    (page,) = cut(page_of(text="A page about leases, long enough to be read as text"), "one.pdf")
    assert (page.about, page.place) == ("one", "page 1")
    assert page.text.startswith("A page about leases")
    for data, name, why in (
        (b"", "empty.txt", "It is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "picture.png", "It is a PNG picture"),
        (b"\0\1\2\3" * 100, "noise.bin", "It is a binary file"),
    ):
        with pytest.raises(ToolError, match=why):
            cut(data, name)


def test_a_folder_is_added_once_and_again_with_what_changed(library: Library, folder: Path) -> None:
    assert counts(added(library, folder)) == [2, 0, 0, 0]
    assert counts(added(library, folder, folder / "lease.md")) == [0, 0, 2, 0]
    (hit,) = search([library], "deposits", 5)  # another form of the word
    assert hit.label == f"{folder}/lease.md, lines 1-7"
    assert "2,500 EUR" in hit.text
    (folder / "lease.md").write_text("The deposit is 3,000 EUR.")
    (folder / "leave.txt").unlink()
    (folder / "below").mkdir()
    (folder / "below" / "new.txt").write_text("A new note on deposits.")
    assert counts(added(library, folder)) == [1, 1, 0, 1]
    assert places(library, "holiday") == []
    assert places(library, "deposit 3,000") == ["lease.md, line 1", "new.txt, line 1"]
    assert "2,500" not in str(search([library], "deposit", 5))


def test_hidden_files_caches_keys_links_and_the_home_are_left_out(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".env", ".git/config", "node_modules/a.js", "openmanus.toml", "own/threads.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret words")
    (folder / "link.txt").symlink_to("/etc/hostname")
    monkeypatch.setenv(homes.HOME_VARIABLE, str(folder / "own"))
    assert counts(added(library, folder)) == [2, 0, 0, 0]
    assert places(library, "secret") == []


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(library: Library, folder: Path) -> None:
    encrypted = pdf_of(
        ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>",
         f"<< /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O <{'41' * 32}> /U <{'42' * 32}> >>"],
        trailer="/Encrypt 3 0 R /ID [<00> <00>]",
    )  # fmt: skip
    (folder / "secret.pdf").write_bytes(encrypted)
    (folder / "broken.docx").write_bytes(b"PK\3\4 nothing of a document")
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    done = added(library, folder)
    assert counts(done) == [2, 0, 0, 0]
    notes = "\n".join(done[1])
    assert f"{folder}/secret.pdf: Skipped. The PDF is encrypted, and the password" in notes
    assert f"{folder}/broken.docx: Skipped. It begins like a zip archive" in notes
    assert f"{folder}/photo.png: Skipped. It is a PNG picture" in notes
    with pytest.raises(ConfigError, match=r"There is no /.*/none\.txt"):
        added(library, folder / "none.txt")


def test_of_a_huge_file_the_beginning_is_searched(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmanus_graph.backends.files.documents.WHOLE_CHARS", 100_000)
    with (folder / "huge.log").open("w") as file:
        file.writelines(f"entry {number} of the log\n" for number in range(20_000))
    done = added(library, folder)
    assert counts(done) == [3, 0, 0, 0]
    (note,) = done[1]
    assert note.startswith(f"{folder}/huge.log: Only the text up to line ")
    assert "entry 4321 of" in search([library], "4321", 1)[0].text
    assert places(library, "15000") == []


def test_a_web_page_is_added_by_the_guards_rules(library: Library, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    page = "<title>Tides</title><nav>menu</nav><main><h1>Tides</h1><p>High water at noon.</main>"
    (site / "tides.html").write_text(page)
    (site / "notes.txt").write_text("Low water at six.")
    with serving(folder=site) as address:
        refused = added(library, f"{address}/tides.html")
        assert "127.0.0.1" in refused[1][0]
        guard = Guard((address.removeprefix("http://"),))
        urls = [f"{address}/tides.html", f"{address}/notes.txt", f"{address}/none"]
        done = add(library, urls, guard)
        assert counts(done) == [2, 0, 0, 0]
        assert done[1] == [f"{address}/none: Skipped. The server answered 404 Not Found."]
        assert counts(add(library, urls, guard)) == [0, 0, 2, 0]
        (site / "notes.txt").write_text("Low water at seven.")
        assert counts(add(library, urls[1:2], guard)) == [0, 1, 0, 0]
    (hit,) = search([library], "noon", 5)
    assert (hit.source, hit.about) == (urls[0], "Tides > Tides")


def test_documents_are_the_users_own_only_where_the_user_says_so(
    library: Library, folder: Path
) -> None:
    def own() -> dict[str, bool]:
        return {Path(one.source).name: one.mine for one in library.documents().values()}

    added(library, folder)
    assert own() == {"lease.md": False, "leave.txt": False}
    assert counts(added(library, folder / "lease.md", mine=True)) == [0, 1, 0, 0]
    assert own() == {"lease.md": True, "leave.txt": False}
    assert [hit.mine for hit in search([library], "deposit", 1)] == [True]
    added(library, folder)
    assert own() == {"lease.md": True, "leave.txt": False}
    (folder / "lease.md").write_text("Somebody wrote a new deposit.")
    added(library, folder)
    assert own() == {"lease.md": False, "leave.txt": False}


TEXTS = {
    "german": "Die Kündigungsfrist für Wohnungen beträgt drei Monate.",
    "chinese": "人工智能的发展需要大量的数据和计算能力。",
    "japanese": "東京の人口は約千四百万人です。パリンプセストの写本。",
    "korean": "대한민국의 수도는 서울이며 인구는 약 천만 명이다.",
    "thai": "กรุงเทพเป็นเมืองหลวงของประเทศไทย",
    "english": "The committees decided to postpone the vote on fisheries.",
    "number": "Invoice INV-2024-0317 over 1,234.50 EUR was paid in cash.",
}


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("KUNDIGUNGSFRIST wohnung?", "german"), ("drei monate", "german"),
        ("数据和算法", "chinese"), ("人工智能", "chinese"), ("計算 计算能力", "chinese"),
        ("東京の人口", "japanese"), ("パリンプセスト", "japanese"), ("人口", "japanese"),
        ("서울 인구", "korean"), ("수도는 어디", "korean"), ("เมืองหลวง", "thai"),
        ("which committee decides about fishery", "english"), ("inv-2024-0317", "number"),
        ("1234.50 1,234.50", "number"),
    ],
)  # fmt: skip
def test_words_are_found_whatever_the_writing(library: Library, query: str, name: str) -> None:
    library.put([document(one, text) for one, text in TEXTS.items()])
    assert search([library], query, 3)[0].source == name


@pytest.mark.parametrize("query", ["", " ", "?!. -- ;", "\0", "🙂", "_", "%"])
def test_a_query_without_words_is_refused(library: Library, query: str) -> None:
    library.put([document("a", "some text")])
    with pytest.raises(ToolError, match="has no words"):
        search([library], query, 5)


@pytest.mark.parametrize(
    "query",
    ['"', "AND OR NOT NEAR(a b)", "words:x", "a*", "x" * 10_000, "发" * 10_000, "a\ud800b",
     "';DROP TABLE libraries;--", "& | ! <-> :*", "fish " * 2000 + "needle",
     " ".join(f"word{number}" for number in range(1500))],
)  # fmt: skip
def test_no_query_is_an_error(library: Library, query: str) -> None:
    library.put([document("a", "a needle in a haystack")])
    if search_terms(query):
        assert len(search([library], query, 5)) <= 1


def test_terms_of_unspaced_writing_are_pairs() -> None:
    assert search_terms("人工智能 AI") == [("人", "工"), ("工", "智"), ("智", "能"), ("ai",)]
    assert search_terms("人 Straße Straße x") == [("人",), ("strasse",), ("x",)]


def test_rare_words_count_more_and_common_ones_are_left_out(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler = "the report is about the usual matters of the year"
    library.put([document(f"{n}", f"{filler} number{n}") for n in range(30)])
    library.put([document("rare", f"{filler} and xylophones")])
    assert search([library], "the report about a xylophone", 3)[0].source == "rare"
    monkeypatch.setattr("openmanus_graph.backends.persistence.text_index._MOST_SCORED", 20)
    assert [hit.source for hit in search([library], "the report xylophones", 3)] == ["rare"]
    assert len(search([library], "the report", 3)) == 1  # it finds something, and groups it


def test_passages_that_repeat_others_are_one_hit(library: Library) -> None:
    notice = " ".join(f"notice{number}" for number in range(40))
    texts = [f"{notice} page{number}" for number in range(3)]
    library.put([document("a", *texts), document("copy", texts[0]), document("b", "notice1 only")])
    hits = [{hit.label, *hit.also} for hit in search([library], "notice1", 5)]
    pages = {"a, page 1", "a, page 2", "a, page 3", "copy, page 1"}
    assert sorted(hits, key=len) == [{"b, page 1"}, pages]
    library.put([document("a", *texts, mine=True)])
    assert [hit.mine for hit in search([library], "notice2", 5)] == [False]  # the copy is not


def test_a_document_is_read_on_from_a_place(library: Library) -> None:
    library.put([document("a, b.txt", "one", "two", "three"), document("a", "other")])

    def texts(query: str) -> list[str]:
        return [hit.text for hit in library.read(query)]

    assert texts("a, b.txt") == ["one", "two", "three"]
    assert texts("a, b.txt, page 2") == ["two", "three"]
    assert texts("a") == ["other"]
    assert texts("b.txt") == texts("a, b") == texts("") == []


def test_each_owner_has_libraries_of_their_own(each_database: DatabaseUrl) -> None:
    for owner in ("", "ada", "bob"):
        made(each_database, "work", owner).put([document(f"of {owner}", f"needle {owner}")])
    made(each_database, "home", "ada").put([document("private", "needle at home")])

    def found(owner: str, *names: str) -> list[str]:
        hits = search(libraries(each_database, owner, names), "needle", 9)
        return sorted(hit.source for hit in hits)

    assert found("") == ["of "]
    assert found("bob") == ["of bob"]
    assert found("ada") == ["of ada", "private"]
    assert found("ada", "home") == ["private"]
    assert found("eve") == []
    made(each_database, "work", "ada").delete()
    assert found("ada") == ["private"]
    assert found("bob") == ["of bob"]
    with pytest.raises(ConfigError, match="is no name"):
        made(each_database, "../x")


def test_a_library_that_is_removed_while_it_is_used_is_empty(each_database: DatabaseUrl) -> None:
    library = made(each_database)
    library.put([document("a", "needle")])
    made(each_database).delete()
    assert search([library], "needle", 5) == library.read("a") == []
    library.put([document("b", "needle")])  # an addition under way
    assert libraries(each_database) == []
    again = made(each_database)
    assert search([again], "needle", 5) == []
    assert again.documents() == {}


def test_two_additions_at_once_leave_each_document_once(library: Library, folder: Path) -> None:
    for number in range(150):
        (folder / f"{number}.txt").write_text(f"needle {number}")
    both = [threading.Thread(target=added, args=(library, folder)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(library.documents()) == 152
    hits = search([library], "needle 77", 1)
    assert [hit.label for hit in hits] == [f"{folder}/77.txt, line 1"]
    assert len(library.read(f"{folder}/77.txt")) == 1


def test_an_addition_that_was_stopped_continues(
    library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        (folder / f"{number}.txt").write_text(f"needle {number}")
    groups = 0
    put = Library.put

    def stopped(self: Library, documents: Sequence[Document]) -> None:
        nonlocal groups
        groups += 1
        if groups == 2:
            raise StorageError("The disk is full.")
        put(self, documents)

    monkeypatch.setattr(Library, "put", stopped)
    with pytest.raises(StorageError):
        added(library, folder)
    assert len(library.documents()) == adding._AT_ONCE  # pyright: ignore[reportPrivateUsage]
    assert search([library], "needle", 1)
    monkeypatch.undo()
    done = added(library, folder)
    assert counts(done) == [38, 0, 64, 0]

"""Threads are found by their texts, and listed page by page, in both databases."""

import asyncio

import pytest
from langchain_core.messages import HumanMessage

from openmanus_graph.backends.persistence import text_index
from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.texts import (
    MAX_PIECES,
    PIECE_CHARS,
    SNIPPET_CHARS,
    line_with,
    text_of,
)
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.state.addresses import DatabaseUrl

TEXTS = {
    "german": "Rechnung für die Straße prüfen",
    "chinese": "帮我整理2024年的发票\n然后发给会计",
    "japanese": "木版画の『パリンプセスト』を探す",
    "thai": "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "korean": "세금계산서를 보냈습니다",
    "code": "open www.example.com/path_to/file-x.pdf now\nsend_invoice(ＡＢＣ)",
}


@pytest.fixture
def database(each_database: DatabaseUrl) -> Database:
    return open_database(each_database)


@pytest.fixture
def threads(database: Database) -> Threads:
    return Threads(database)


@pytest.fixture
def told(database: Database, threads: Threads) -> Threads:
    """Return threads, each of which was told one text."""
    for name, text in TEXTS.items():
        threads.begin(f"{name}-", "manus", "task", {}, None)
        JournalTable(database).write(f"{name}-", [(1, "{}")], [text])
    return threads


def found(threads: Threads, query: str) -> list[str]:
    return [thread.id.rstrip("-") for _, thread in threads.page(99, None, query)]


@pytest.mark.parametrize("few", [text_index._FEW_TEXTS, 0], ids=["rare", "common"])  # pyright: ignore[reportPrivateUsage]
def test_words_are_found_whatever_the_writing(
    told: Threads, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_index, "_FEW_TEXTS", few)
    for query, name in {
        "rechn": "german", "FÜR": "german", "fur strasse": "german", "Rechnung prufen": "german",
        "发票": "chinese", "票": "chinese", "整理2024": "chinese", "会计 发票": "chinese",
        "パリン": "japanese", "版画の『パ": "japanese", "ไม่มี": "thai", "계산서": "korean",
        "example": "code", "file-x.pd": "code", "path_to/file": "code", "abc": "code",
        "invoice(": "code",
    }.items():  # fmt: skip
        assert found(told, query) == [name], query
    for query in ("票发", "nung", "prüfen für x", "path-for"):
        assert found(told, query) == [], query


@pytest.mark.parametrize(
    "query",
    ['"', "'", '"rechn', "rechn*", "(rechn", "-rechn", "rechn)", "^rechn", "words:rechn", "rechn\0",
     "rechn\ud800", "AND OR NOT", "NEAR(a b)", "a & b | !c", "<->", "x:*", "%", "_", "\\", "🙂",
     "\0", "';DROP TABLE texts;--", "x" * 5000, "发" * 5000, "a b c d e f g h i j k l"],
)  # fmt: skip
def test_no_query_is_an_error_or_finds_everything(told: Threads, query: str) -> None:
    names = found(told, query)
    assert len(names) < 2
    if "rechn" in query and "words" not in query:
        assert names == ["german"]
    told.lines([f"{name}-" for name in TEXTS], query)


def test_the_line_with_the_words_is_shown(told: Threads, database: Database) -> None:
    ids = [f"{name}-" for name in TEXTS]
    lines = told.lines(ids, "会计")
    assert lines["chinese-"] == "然后发给会计"
    assert not any(line for thread, line in lines.items() if thread != "chinese-")
    JournalTable(database).write("code-", [(1, "{}")], [f"no {number}" for number in range(50)])
    assert told.lines(ids, "example")["code-"].startswith("open www.example.com")
    assert told.lines(ids, "?!") == {}
    long = f"{'ü' * 500} Ärger im {'büro ' * 100}"
    assert line_with([["arger"]], f"Mainarger\n{long}") == long[461 : 461 + SNIPPET_CHARS]


def test_words_of_a_thread_are_in_any_of_its_texts_and_its_title(
    threads: Threads, database: Database
) -> None:
    threads.begin("one", "manus", "Find the invoice", {}, HumanMessage("Find the invoice"))
    JournalTable(database).write("one", [], ["It was paid in Berlin.", "x" * 300])
    threads.rename("one", "Übersicht 2024")
    assert found(threads, "invoi berl ubersicht") == ["one"]
    assert found(threads, "invoi paris") == []
    threads.rename("one", "Other")
    assert found(threads, "ubersicht") == []
    database.run("UPDATE titles SET words = ''")  # as a former version left it
    assert found(threads, "the") == ["one"]
    assert found(threads, "on") == ["one"], "its id"
    assert found(threads, "ne") == []
    threads.rename("one", "50%?")
    assert found(threads, "%?") == ["one"]


def test_a_text_that_comes_again_is_stored_once(threads: Threads, database: Database) -> None:
    threads.begin("one", "manus", "task", {}, None)
    answer = " ".join(map(str, range(2000)))
    for _ in range(2):
        JournalTable(database).write("one", [], [answer, "between"])
    ((pieces,),) = database.run("SELECT count(*) FROM texts")
    assert pieces == len(answer) // PIECE_CHARS + 2
    JournalTable(database).write("one", [], [f"{'x ' * MAX_PIECES * PIECE_CHARS} unsearched"])
    assert found(threads, "unsearched") == []


async def test_a_text_of_the_terminal_is_written_with_the_next_transaction(
    threads: Threads, database: Database
) -> None:
    threads.begin("one", "manus", "task", {}, None)
    threads.add_text_later("one", "palimpsest")
    await database.arun("SELECT 1")
    assert found(threads, "palimps") == ["one"]
    threads.add_text_later("never-begun", "elsewhere")
    await asyncio.to_thread(database.settle)
    assert found(threads, "elsewhere") == []


def test_a_deleted_thread_leaves_no_word(told: Threads, database: Database) -> None:
    told.delete("german-")
    told.delete("code-")
    assert found(told, "rechn") == []
    assert found(told, "发票") == ["chinese"]
    for name in TEXTS:
        told.delete(f"{name}-")
    assert database.run("SELECT * FROM texts") == []
    assert database.run("SELECT * FROM indexed_threads") == []
    told.begin("new", "manus", "task", {}, None)  # its number may be that of a deleted one
    assert [name for query in ("rechn", "发票", "invoice") for name in found(told, query)] == []


def test_pages_stay_right_while_threads_are_pinned_and_run(threads: Threads) -> None:
    for number in range(9):
        threads.begin(f"t{number}", "manus", "task", {}, None)
    for name in ("t2", "t5"):
        threads.mark(name, "pinned", on=True)
    listed: list[str] = []
    before: int | None = None
    while page := threads.page(2, before):
        before = page[-1][0]
        listed += [thread.id for _, thread in page]
        if len(listed) == 4:
            threads.begin("t3", "manus", "again", {}, None)  # it is the newest now
            threads.mark("t1", "pinned", on=True)
            threads.begin("new", "manus", "task", {}, None)
            threads.mark("t5", "pinned", on=False)
    assert listed == ["t5", "t2", "t8", "t7", "t6", "t5", "t4", "t0"]
    assert [one.id for _, one in threads.page(99)] == [
        "t2", "t1", "new", "t3", "t8", "t7", "t6", "t5", "t4", "t0",
    ]  # fmt: skip
    assert [one.id for one in threads.newest(2)] == ["new", "t3"]


def test_threads_are_listed_by_owner_and_archive(threads: Threads, database: Database) -> None:
    for name in ("ann", "bob", "machine", "shell"):
        threads.begin(name, "manus", "task", {}, None)
    owners = [("ann", "ann"), ("bob", "bob"), ("machine", "")]
    database.run_many(("INSERT INTO owners (thread, owner) VALUES (?, ?)", owners))
    threads.mark("shell", "archived", on=True)
    threads.mark("bob", "archived", on=True)

    def listed(query: str = "", *, owner: str | None, archived: bool | None) -> list[str]:
        return [t.id for _, t in threads.page(9, None, query, owner=owner, archived=archived)]

    assert listed(owner=None, archived=None) == ["shell", "machine", "bob", "ann"]
    assert listed(owner=None, archived=False) == ["machine", "ann"]
    assert listed(owner="", archived=None) == ["shell", "machine"]
    assert listed(owner="bob", archived=False) == []
    assert listed("task", owner="bob", archived=True) == ["bob"]
    assert listed("task", owner="nobody", archived=None) == []
    threads.begin("bob", "manus", "task", {}, None)  # it works again
    assert listed(owner="bob", archived=False) == ["bob"]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"type": "think_end", "text": "said"}, "said"),
        ({"type": "steer", "text": "no, left"}, "no, left"),
        ({"type": "tool_end", "output": "o" * 9000}, "o" * PIECE_CHARS),
        ({"type": "interrupt", "question": "Which?"}, "Which?"),
        ({"type": "answered", "answer": "That"}, "That"),
        ({"type": "answered", "answer": {"type": "respond", "message": "That"}}, "That"),
        ({"type": "answered", "answer": {"type": "accept"}}, ""),
        ({"type": "final", "answer": "Done"}, "Done"),
        ({"type": "tool_start", "args": {"text": "args"}}, ""),
        ({"type": "notice", "text": "notice"}, ""),
        ({"type": "think_end", "text": None}, ""),
        ({}, ""),
    ],
)
def test_an_event_is_found_by_what_was_said_or_shown(event: dict[str, object], text: str) -> None:
    assert text_of(event) == text

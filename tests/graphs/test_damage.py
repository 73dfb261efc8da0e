"""A damaged database is a StorageError wherever the damage is, and never another failure."""

import asyncio
import contextlib
import itertools
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import id as ids

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.persistence import sqlite
from openmanus_graph.backends.persistence.backend import DamagedRowError, Database
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger, LedgerEntry, open_ledger
from openmanus_graph.backends.persistence.sqlite import SqliteDatabase
from openmanus_graph.backends.persistence.sqlite_checkpointer import CHECKPOINTS
from openmanus_graph.backends.persistence.steering import SteeringMessages, open_steering
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import StorageError, UnavailableError
from openmanus_graph.interfaces.service.own_process import RunError, prepare_home
from openmanus_graph.interfaces.service.threads import hold_thread
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import calls, run_graph

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
PAGE = 4096


@tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n} " + "y" * 6000


async def run_on(home: Path, *answers: Any) -> list[str]:
    """Run on the checkpoints of a home folder, and return all results so far."""
    async with open_checkpointer(DatabaseUrl.in_folder(home)) as saver:
        graph = build_manus_graph(tools=[look], checkpointer=saver)
        return (await run_graph(graph, *answers, config=CONFIG)).results()


async def read_all(home: Path) -> int:
    async with open_checkpointer(DatabaseUrl.in_folder(home)) as saver:
        graph = build_manus_graph(tools=[look], checkpointer=saver)
        await graph.aget_state(CONFIG)
        return len([state async for state in graph.aget_state_history(CONFIG)])


async def test_every_page_of_the_checkpoints_may_be_damaged() -> None:
    home = openmanus_home()
    prepare_home(home)
    await run_on(home, *[calls(("look", {"n": n})) for n in range(3)], "done")
    path = home / CHECKPOINTS
    whole = path.read_bytes()
    known = await read_all(home)
    refused = 0
    for page, filling in itertools.product(range(len(whole) // PAGE), (b"\0", b"\xff", b"A")):
        path.write_bytes(whole[: page * PAGE] + filling * PAGE + whole[(page + 1) * PAGE :])
        try:
            assert await read_all(home) == known, "what can be read is whole"
        except StorageError:
            refused += 1
    assert refused > len(whole) // PAGE
    path.write_bytes(whole)
    assert await read_all(home) == known


@pytest.mark.parametrize(
    "damage",
    [
        "options = '{\"a'",
        "options = '[1]'",
        "task = CAST(x'6bff' AS TEXT)",
        "agent = CAST(x'6bff' AS TEXT)",
        "status = x'6b'",
        "created = 'last week'",
    ],
)
def test_a_damaged_thread_is_listed_and_costs_no_other(damage: str) -> None:
    rows = open_database(database_url())
    threads = Threads(rows)
    for name in ("sound", "hit"):
        threads.begin(name, "manus", "task", {"max_steps": 3}, None)
    rows.run(f"UPDATE threads SET {damage} WHERE id = 'hit'")
    expected = {"hit": "damaged", "sound": "running"}
    assert {one.id: one.status for one in threads.newest(99)} == expected
    assert {one.id: one.status for _, one in threads.page(9, None, "")} == expected
    hit = threads.find("hit")
    assert hit is not None
    assert hit.status == "damaged"


@pytest.mark.parametrize("damage", ["'{\"a'", "'{}'", "CAST(x'6bff' AS TEXT)", "x'6b'"])
def test_a_damaged_message_names_its_thread(damage: str) -> None:
    rows = open_database(database_url())
    threads = Threads(rows)
    threads.begin("hit", "manus", "task", {}, HumanMessage("task"))
    rows.run(f"UPDATE user_messages SET message = {damage}")
    with pytest.raises(DamagedRowError, match=r"thread hit is damaged.*openmanus run"):
        threads.newest_message("hit")


def test_a_damaged_event_is_told_in_its_place() -> None:
    rows = open_database(database_url())
    table = JournalTable(rows)
    table.write("t", [(number, '{"type": "notice"}') for number in (1, 2, 3, 4)])
    rows.run("UPDATE events SET event = '{\"typ' WHERE seq = 2")
    rows.run("UPDATE events SET event = CAST(x'6bff' AS TEXT) WHERE seq = 3")
    found = table.read("t", 0)
    assert [number for number, _ in found] == [1, 2, 3, 4]
    assert ["damaged" in text for _, text in found] == [False, True, True, False]


async def test_a_damaged_steering_message_is_left_out() -> None:
    steering = open_steering(database_url())
    kept = [await steering.add("t", text) for text in ("one", "two")]
    open_database(database_url()).run(
        "UPDATE steering SET text = CAST(x'6bff' AS TEXT) WHERE id = ?", (kept[0],)
    )
    assert [one.text for one in await steering.of("t")] == ["two"]


@pytest.mark.parametrize(
    "damage",
    [
        "outcome = replace(outcome, 'paid', 'said')",
        "outcome = char(0)",
        "outcome = CAST(x'6bff' AS TEXT)",
        "args = replace(args, '5', '9')",
        "args = x'6b'",
        "stage = 'dona'",
    ],
)
async def test_an_outcome_that_is_not_as_it_was_written_is_unknown(damage: str) -> None:
    ledger = open_ledger(database_url())
    hit, sound = (EffectKey("t", "b", "pay", '{"eur":5}', number) for number in range(2))
    for key in (hit, sound):
        await ledger.intend(key, {"eur": 5}, "c")
        await ledger.conclude(key, {"eur": 5}, {"text": "paid"})
    rows = open_database(database_url())
    rows.run(f"UPDATE ledger SET {damage} WHERE occurrence = 0")
    assert await ledger.find(hit) == LedgerEntry("intent", None, {"eur": 5}, 1)
    assert await ledger.find(sound) == LedgerEntry("done", {"text": "paid"}, {"eur": 5}, 1)
    await ledger.intend(hit, {"eur": 6}, "c")
    await ledger.conclude(hit, {"eur": 6}, {"text": "paid again"})
    assert await ledger.find(hit) == LedgerEntry("done", {"text": "paid again"}, {"eur": 6}, 2)


async def test_a_flipped_bit_anywhere_is_a_storage_error_at_most(tmp_path: Path) -> None:
    path = tmp_path / "openmanus.db"
    database = SqliteDatabase(path)
    await use_all(database)
    database.close()
    whole = path.read_bytes()
    used = [place for place, byte in enumerate(whole) if byte]
    named = 0
    for place in used[::97]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        try:
            database = SqliteDatabase(path)
        except StorageError:
            named += 1
            continue
        try:
            await use_all(database)
        except StorageError:
            named += 1
        finally:
            database.close()
    assert 0 < named < len(used[::97])


async def use_all(database: Database) -> None:
    """Write to each table and read all that there is."""
    threads, ledger = Threads(database), Ledger(database)
    journal, steering = JournalTable(database), SteeringMessages(database)
    for name in ("a", "b"):
        threads.begin(name, "manus", "task", {"max_steps": 3}, HumanMessage("task"))
        threads.find(name)
        with contextlib.suppress(DamagedRowError):
            threads.newest_message(name)
        key = EffectKey(name, "b", "pay", "{}", 0)
        await ledger.find(key)
        await ledger.intend(key, {}, "c")
        await ledger.conclude(key, {}, {"text": "paid"})
        journal.write(name, [(journal.last(name) + 1, '{"type": "notice"}')], ["a text"])
        journal.read(name, 0)
        await steering.add(name, "text")
        await steering.of(name)
    threads.newest(99)
    threads.page(9, None, "task")
    threads.lines(["a", "b"], "text")


async def test_a_locked_database_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.5)
    path = openmanus_home() / "openmanus.db"
    ours = SqliteDatabase(path)
    ours.run("CREATE TABLE t (x)")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        writing = asyncio.ensure_future(ours.arun("INSERT INTO t VALUES (1)"))
        ticks = 0
        while not writing.done():
            await asyncio.sleep(0.01)
            ticks += 1
        with pytest.raises(UnavailableError, match="holds the database"):
            await writing
        other.execute("ROLLBACK")
    assert ticks > 5
    ours.run("INSERT INTO t VALUES (2)")
    assert ours.run("SELECT x FROM t") == [(2,)]
    ours.close()


def test_another_process_that_opens_for_ever_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.2)
    path = openmanus_home() / "openmanus.db"
    path.parent.mkdir()
    with (
        FileLock(path.with_suffix(".lock")),
        pytest.raises(UnavailableError, match="holds the database"),
    ):
        SqliteDatabase(path)


async def test_a_clock_that_was_set_back_does_not_hide_what_came_after() -> None:
    home = openmanus_home()
    prepare_home(home)
    clock: Any = ids
    clock._last_v6_timestamp = ids.uuid6().time + 36_000_000_000_000  # 1000 hours ahead
    first = await run_on(home, calls(("look", {"n": 1})), "one")
    clock._last_v6_timestamp = None  # a new process, with the clock set right again
    second = await run_on(home, calls(("look", {"n": 2})), "two")
    clock._last_v6_timestamp = None
    third = await run_on(home, "three")
    assert [result[:6] for result in third] == ["seen 1", "seen 2"]
    assert third == second == [*first, second[1]]


def test_threads_are_listed_by_their_last_run_whatever_the_clock_says() -> None:
    rows = open_database(database_url())
    threads = Threads(rows)
    for name in ("a", "b", "c", "a"):
        threads.begin(name, "manus", "task", {}, None)
        rows.run("UPDATE threads SET updated = '2000-01-01' WHERE id = ?", (name,))
        rows.run("UPDATE threads SET created = '1999-01-01' WHERE id = 'a'")
    assert [thread.id for thread in threads.newest(99)] == ["a", "c", "b"]
    assert threads.newest(99)[0].created == "1999-01-01"


def test_a_lock_that_cannot_be_taken_is_named(tmp_path: Path) -> None:
    (tmp_path / "locks" / "t.lock").mkdir(parents=True)
    with pytest.raises(RunError, match=r"t\.lock cannot be locked"), hold_thread(tmp_path, "t"):
        pass

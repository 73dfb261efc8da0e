"""A damaged database is an sqlite3.Error wherever the damage is, and never another failure."""

import asyncio
import contextlib
import itertools
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import id as ids

from openmanus_graph import build_manus_graph
from openmanus_graph.cli.failures import RunError, prepare_home
from openmanus_graph.cli.lock import hold_thread
from openmanus_graph.config.resolve import openmanus_home
from openmanus_graph.persistence import database
from openmanus_graph.persistence.checkpoints import CHECKPOINTS, open_checkpointer
from openmanus_graph.persistence.database import Database, open_database
from openmanus_graph.persistence.ledger import EffectKey, open_ledger
from openmanus_graph.persistence.threads import Threads
from tests.support.graphs import calls, run_graph

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
PAGE = 4096


@tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n} " + "y" * 6000


async def run_on(home: Path, *answers: Any) -> list[str]:
    """Run on the checkpoints of a home folder, and return all results so far."""
    async with open_checkpointer(home) as saver:
        graph = build_manus_graph(tools=[look], checkpointer=saver)
        return (await run_graph(graph, *answers, config=CONFIG)).results()


async def read_all(home: Path) -> int:
    async with open_checkpointer(home) as saver:
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
        except sqlite3.Error:
            refused += 1
    assert refused > len(whole) // PAGE
    path.write_bytes(whole)
    assert await read_all(home) == known


def test_rows_that_cannot_be_read_are_damage() -> None:
    rows = open_database(openmanus_home())
    Threads(rows).begin("t", "manus", "task", {}, None)
    rows.run("UPDATE threads SET options = '{\"a'")
    with pytest.raises(sqlite3.DatabaseError, match="cannot be read"):
        Threads(rows).all()
    ledger = open_ledger(openmanus_home())
    key = EffectKey("t", "b", "pay", "{}", 0)
    asyncio.run(ledger.intend(key, {}, "c"))
    rows.run("UPDATE ledger SET outcome = char(0)")
    with pytest.raises(sqlite3.DatabaseError, match="cannot be read"):
        asyncio.run(ledger.find(key))


async def test_a_locked_database_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE_S", 0.5)
    path = openmanus_home() / "openmanus.db"
    ours = Database(path)
    ours.run("CREATE TABLE t (x)")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        writing = asyncio.ensure_future(ours.arun("INSERT INTO t VALUES (1)"))
        ticks = 0
        while not writing.done():
            await asyncio.sleep(0.01)
            ticks += 1
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await writing
        other.execute("ROLLBACK")
    assert ticks > 5
    ours.run("INSERT INTO t VALUES (2)")
    assert ours.run("SELECT x FROM t") == [(2,)]
    ours.close()


def test_another_process_that_opens_for_ever_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "PATIENCE_S", 0.2)
    path = openmanus_home() / "openmanus.db"
    path.parent.mkdir()
    with (
        FileLock(path.with_suffix(".lock")),
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        Database(path)


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
    rows = open_database(openmanus_home())
    threads = Threads(rows)
    for name in ("a", "b", "c", "a"):
        threads.begin(name, "manus", "task", {}, None)
        rows.run("UPDATE threads SET updated = '2000-01-01' WHERE id = ?", (name,))
        rows.run("UPDATE threads SET created = '1999-01-01' WHERE id = 'a'")
    assert [thread.id for thread in threads.all()] == ["a", "c", "b"]
    assert threads.all()[0].created == "1999-01-01"


def test_a_lock_that_cannot_be_taken_is_named(tmp_path: Path) -> None:
    (tmp_path / "locks" / "t.lock").mkdir(parents=True)
    with pytest.raises(RunError, match=r"t\.lock cannot be locked"), hold_thread(tmp_path, "t"):
        pass

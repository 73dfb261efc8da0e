"""Databases of earlier versions become today's, and those of later ones are refused."""

import contextlib
import sqlite3
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableConfig

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.database_thread import StorageError
from openmanus_graph.backends.persistence.ledger import CallPlace, EffectKey, open_ledger
from openmanus_graph.backends.persistence.schema import CURRENT, migrate_sqlite
from openmanus_graph.backends.persistence.sqlite import SqliteDatabase
from openmanus_graph.backends.persistence.steering import JournalTable, open_steering
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import RefusedDataError
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.interfaces.service.threads import hold_thread, is_running
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import run_graph
from tests.support.postgres import Postgres

UNVERSIONED = Path(__file__).parent.parent / "support" / "home_unversioned.zip"
"""A home folder of before tables had versions, with some rows of each kind."""

VERSION_1 = Path(__file__).parent.parent / "support" / "postgres_version_1.sql"
"""The same rows in PostgreSQL, in tables of version 1, which knew no leases (`pg_dump`)."""


@pytest.fixture
def old() -> DatabaseUrl:
    """The database of that home folder."""
    url = database_url()
    with zipfile.ZipFile(UNVERSIONED) as archive:
        archive.extractall(url.file.parent)
    return url


def version_of(url: DatabaseUrl) -> int:
    with contextlib.closing(sqlite3.connect(url.file)) as database:
        (found,) = database.execute("PRAGMA user_version").fetchone()
    return int(found)


async def check_rows(url: DatabaseUrl) -> None:
    """Fail unless all rows of the old databases are there, and can be changed."""
    database = open_database(url)
    threads = Threads(database)
    known = [(one.id, one.status, one.task) for one in threads.all()]
    assert known == [
        ("a", "finished", "task of a"),
        ("c", "running", "task of c"),
        ("b", "finished", "task of b"),
    ]
    assert threads.all()[0].options == {"max_steps": 3}
    message = threads.newest_message("c")
    assert message is not None
    assert message.text == "task of c"
    ledger = open_ledger(url)
    begun = EffectKey("c", "b1", "pay", '{"amount":5}', 0)
    done = EffectKey("b", "b1", "pay", '{"amount":7}', 0)
    entries = [await ledger.find(key) for key in (begun, done)]
    assert [one and (one.stage, one.outcome) for one in entries] == [
        ("intent", None),
        ("done", {"text": "paid 7"}),
    ]
    assert await ledger.asked(begun) == {"unknown outcome 1": 2}
    steering = await open_steering(url).of("c")
    assert [one.text for one in steering] == ["first word", "second word"]
    assert [seq for seq, _ in JournalTable(database).read("b", 0)] == [1, 2, 3]
    threads.begin("b", "manus", "again", {}, None)
    assert [one.id for one in threads.all()] == ["b", "a", "c"]


async def test_all_rows_of_unversioned_files_are_there(old: DatabaseUrl) -> None:
    assert version_of(old) == 0
    database = open_database(old)
    assert version_of(old) == CURRENT
    assert database.run("SELECT id FROM a2a_tasks") == [("t1",)]
    await check_rows(old)


async def test_all_rows_of_postgresqls_version_1_are_there(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    postgres.execute(VERSION_1.read_text(encoding="utf-8"))
    address = postgres.url(options="options=-csearch_path%3Dversion_1")
    url = DatabaseUrl.parse(address)
    await check_rows(url)
    database = open_database(url)
    assert database.run("SELECT version FROM openmanus_schema") == [(CURRENT,)]
    titles = {one.id: one.title for one in Threads(database).all()}
    assert titles == {"a": "The title of a", "b": "task of b", "c": "task of c"}
    place = CallPlace("c", "b1", "", "m-c", "pay", "digest", 0)
    assert await open_ledger(url).first_at(place, "reply-2", "c2") == ("reply-1", "c1")
    monkeypatch.setenv(DATABASE_VARIABLE, address)
    with hold_thread(tmp_path, "a"):
        assert is_running(tmp_path, "a"), "there are leases"
    close_databases()


async def test_all_rows_of_files_of_version_1_are_there(old: DatabaseUrl) -> None:
    open_database(old)
    close_databases()
    with contextlib.closing(sqlite3.connect(old.file)) as database:
        for table in ("model_calls", "recorded_facts"):
            database.execute(f"DROP TABLE {table}")
        database.execute("PRAGMA user_version = 1")  # there are no leases in files: nothing else
    await check_rows(old)
    assert version_of(old) == CURRENT


async def test_a_thread_of_unversioned_files_is_refused_in_a_sentence(old: DatabaseUrl) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "a"}}
    async with open_checkpointer(old) as saver:
        with pytest.raises(RefusedDataError, match="another program or version"):
            await run_graph(build_manus_graph(checkpointer=saver), "more", config=config)


def set_later(url: DatabaseUrl, name: str) -> None:
    with contextlib.closing(sqlite3.connect(url.file.with_name(name))) as database:
        database.execute("PRAGMA user_version = 99")


def test_a_file_of_a_later_version_is_refused(old: DatabaseUrl) -> None:
    set_later(old, "openmanus.db")
    with pytest.raises(StorageError, match=r"later version of openmanus-graph.*pip install"):
        open_database(old)


async def test_checkpoints_of_a_later_version_are_refused(old: DatabaseUrl) -> None:
    set_later(old, "checkpoints.db")
    opening = open_checkpointer(old)
    with pytest.raises(StorageError, match=r"later version of openmanus-graph.*pip install"):
        await opening.__aenter__()


def test_files_that_can_only_be_read_are_read_as_they_are(old: DatabaseUrl) -> None:
    """As of another user: root may write everywhere, so SQLite is told so."""
    address = f"{old.file.as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as database:
        migrate_sqlite(database, "here")
        assert database.execute("SELECT count(*) FROM threads").fetchone() == (3,)
    assert version_of(old) == 0


def test_processes_that_open_old_files_at_once_migrate_them_once(old: DatabaseUrl) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(SqliteDatabase, [old.file] * 4))
    assert [len(Threads(database).all()) for database in opened] == [3] * 4
    for database in opened:
        database.close()
    close_databases()

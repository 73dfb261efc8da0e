"""A new database has the newest tables, older ones get them, and others are refused."""

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openmanus_graph.backends.persistence import backend
from openmanus_graph.backends.persistence import sqlite as sqlite_backend
from openmanus_graph.backends.persistence.backend import VERSIONS, Database
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import (
    backend_of,
    close_databases,
    open_database,
    open_file,
)
from openmanus_graph.backends.persistence.sqlite import LIBRARY_VERSIONS, SqliteDatabase
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import StorageError
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.postgres import Postgres

NEXT = "ALTER TABLE titles ADD COLUMN starred INTEGER NOT NULL DEFAULT 0"


def version_of(url: DatabaseUrl) -> int:
    if not url.is_local:
        ((found,),) = open_database(url).run("SELECT version FROM openmanus_schema")
        return int(found)
    with contextlib.closing(sqlite3.connect(url.file)) as database:
        (found,) = database.execute("PRAGMA user_version").fetchone()
    return int(found)


def set_version(url: DatabaseUrl, name: str, version: int) -> None:
    close_databases()
    url.file.parent.mkdir(exist_ok=True)
    with contextlib.closing(sqlite3.connect(url.file.with_name(name))) as database:
        database.execute(f"PRAGMA user_version = {version}")


def begin(database: Database) -> None:
    Threads(database).begin("t", "manus", "the task", {}, None)


def test_a_new_database_has_the_newest_version(each_database: DatabaseUrl) -> None:
    open_database(each_database)
    assert version_of(each_database) == len(VERSIONS)


def test_a_later_version_keeps_the_rows(
    each_database: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(open_database(each_database))
    close_databases()
    later = (*VERSIONS, (NEXT,))
    if each_database.is_local:
        database: Database = SqliteDatabase(each_database.file, later)
    else:
        monkeypatch.setattr(backend, "VERSIONS", later)
        monkeypatch.setattr(backend, "SHARED_VERSIONS", (*backend.SHARED_VERSIONS, ()))
        database = backend_of(each_database)(each_database)
    assert database.run("SELECT title, starred FROM titles") == [("the task", 0)]
    database.close()
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"later version of openmanus-graph.*pip install"):
        open_other(each_database)


def open_other(url: DatabaseUrl) -> Database:
    """Open a database as another process would."""
    return backend_of(url)(url)


@pytest.mark.parametrize("version", [len(VERSIONS) + 1, 99])
def test_a_file_of_a_later_version_is_refused(version: int) -> None:
    url = database_url()
    open_database(url)
    set_version(url, "openmanus.db", version)
    with pytest.raises(StorageError, match=r"later version of openmanus-graph.*pip install"):
        open_database(url)


async def test_checkpoints_of_a_later_version_are_refused() -> None:
    url = database_url()
    set_version(url, "checkpoints.db", 99)
    opening = open_checkpointer(url)
    with pytest.raises(StorageError, match=r"later version of openmanus-graph.*pip install"):
        await opening.__aenter__()


def test_a_file_from_before_the_first_version_is_refused() -> None:
    url = database_url()
    open_database(url)
    set_version(url, "openmanus.db", 0)
    with pytest.raises(StorageError, match=r"before the first release.*Move it away") as refused:
        open_database(url)
    assert str(url.file) in str(refused.value)


def test_files_that_can_only_be_read_are_read_as_they_are() -> None:
    """As of another user: root may write everywhere, so SQLite is told so."""
    url = database_url()
    begin(open_database(url))
    close_databases()
    from openmanus_graph.backends.persistence import sqlite

    migrate: Callable[..., None] = vars(sqlite)["_migrate"]
    address = f"{url.file.as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as database:
        migrate(database, url.file, (*VERSIONS, (NEXT,)))
        assert database.execute("SELECT count(*) FROM threads").fetchone() == (1,)
    assert version_of(url) == len(VERSIONS)


def test_processes_that_open_a_new_file_at_once_make_its_tables_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(SqliteDatabase, [tmp_path / "new.db"] * 4))
    begin(opened[0])
    assert [len(Threads(database).newest(99)) for database in opened] == [1] * 4
    for database in opened:
        database.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_whose_tables_another_process_makes_meanwhile_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    path, looks = tmp_path / "new.db", sqlite_backend.has_tables
    opened: list[SqliteDatabase] = []

    def raced(db: sqlite3.Connection) -> bool:
        monkeypatch.setattr(sqlite_backend, "has_tables", looks)
        found = looks(db) if when == "after" else None
        opened.append(SqliteDatabase(path))  # the other process, from the beginning to the end
        return looks(db) if found is None else found

    monkeypatch.setattr(sqlite_backend, "has_tables", raced)
    opened.append(SqliteDatabase(path))
    begin(opened[1])
    assert [len(Threads(database).newest(99)) for database in opened] == [1, 1]
    for database in opened:
        database.close()


def test_both_backends_have_the_same_columns(postgres: Postgres) -> None:
    shared = open_database(DatabaseUrl.parse(postgres.database()))
    theirs = set(
        shared.run(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND column_name != 'rowid'"
            " AND table_name NOT IN ('openmanus_schema', 'leases')"
        )
    )
    libraries = open_file(Path("library.db").absolute(), LIBRARY_VERSIONS)
    ours = {
        row
        for database in (open_database(database_url()), libraries)
        for row in database.run(
            "SELECT tables.name, columns.name FROM sqlite_master AS tables,"
            " pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
            " AND tables.name NOT LIKE '%\\_words%' ESCAPE '\\'"
        )
    }
    assert {*ours, ("texts", "words"), ("library_passages", "words")} == theirs
    close_databases()

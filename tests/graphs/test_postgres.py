"""PostgreSQL as the database: what it refuses, loses or must not hear is a sentence at most."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from openmanus_graph import ConfigError, build_manus_graph, manus_tool
from openmanus_graph.backends.persistence import postgres as backend
from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import (
    backend_of,
    close_databases,
    open_database,
)
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.errors import StorageError, UnavailableError
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import calls, run_graph
from tests.support.postgres import Postgres

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
PASSWORD = "hunter%2Fnever%40seen"


@pytest.fixture
def place(postgres: Postgres) -> Iterator[DatabaseUrl]:
    """An empty place for tables."""
    yield DatabaseUrl.parse(postgres.database())
    close_databases()


def again(url: DatabaseUrl, options: str = "") -> DatabaseUrl:
    """Return the address as another process would have it, with further options."""
    return DatabaseUrl.parse(url.secret.get_secret_value() + options)


def begin(database: Database, *names: str) -> list[str]:
    """Begin threads and return the names of all."""
    threads = Threads(database)
    for name in names:
        threads.begin(name, "manus", "task", {}, None)
    return [thread.id for thread in threads.newest(99)]


def test_texts_of_one_thread_that_are_written_at_one_moment_are_all_kept(
    place: DatabaseUrl,
) -> None:
    workers = [open_database(place), open_database(again(place, "&application_name=other"))]
    begin(workers[0], "t")
    words = [[f"{name}{number}" for number in range(60)] for name in ("left", "right")]

    def write(which: int) -> None:
        table = JournalTable(workers[which])
        for number, word in enumerate(words[which]):
            table.write("t", [(1000 * which + number, "{}")], [word])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
    found = Threads(workers[0])
    missing = [one for both in words for one in both if not found.page(9, query=one)]
    assert missing == []


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (f"postgresql://u:{PASSWORD}@/db?host=/nowhere", "cannot be reached"),
        (f"postgresql://u:{PASSWORD}@127.0.0.1:1/db", "cannot be reached"),
        (f"postgresql://u:{PASSWORD}@no.host.invalid/db", "cannot be reached"),
        (f"postgresql://u:{PASSWORD}@h/db?no_option={PASSWORD}", "has an option"),
    ],
)
def test_a_server_that_is_not_there_is_named_without_the_password(
    address: str, reason: str
) -> None:
    url = DatabaseUrl.parse(address)
    with pytest.raises(StorageError, match=reason) as refused:
        open_database(url)
    said = f"{refused.value} {refused.value!r} {refused.value.__cause__} {url} {url!r}"
    assert "never" not in said
    assert "hunter" not in said


def test_a_database_that_does_not_exist_is_named(postgres: Postgres) -> None:
    with pytest.raises(UnavailableError, match="nodb.*does not exist"):
        open_database(DatabaseUrl.parse(postgres.url("nodb")))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, backend.__name__)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"extra `postgres`.*openmanus-graph\[postgres\]"):
        backend_of(DatabaseUrl.parse("postgresql://h/db"))


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("UPDATE openmanus_schema SET version = 99", "openmanus-graph"),
        ("INSERT INTO checkpoint_migrations VALUES (99)", "langgraph-checkpoint-postgres"),
    ],
)
async def test_tables_of_a_later_version_are_refused(
    place: DatabaseUrl, statement: str, names: str
) -> None:
    async with open_checkpointer(place):
        open_database(place).run(statement)
    with pytest.raises(StorageError, match=f"later version of {names}.*pip install --upgrade"):
        async with open_checkpointer(again(place, "&application_name=other")):
            pass


def test_processes_that_start_at_once_make_the_tables_once(place: DatabaseUrl) -> None:
    opened: list[Database] = []
    starting = [
        threading.Thread(target=lambda: opened.append(backend_of(place)(place))) for _ in range(4)
    ]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()
    assert len(opened) == 4
    assert [len(begin(database, f"t{n}")) for n, database in enumerate(opened)] == [1, 2, 3, 4]
    for database in opened:
        database.close()


def test_connections_that_are_cut_are_replaced(place: DatabaseUrl, postgres: Postgres) -> None:
    database = open_database(place)
    assert begin(database, "a") == ["a"]
    postgres.cut_connections()
    assert begin(database, "b") == ["b", "a"]


def test_connections_that_are_cut_one_after_another_are_replaced(
    place: DatabaseUrl, postgres: Postgres
) -> None:
    database = backend.PostgresDatabase(place)
    cuts = iter([True, True, False])

    def job() -> object:
        with database.connection() as connection:
            if next(cuts):
                postgres.cut_connections()
            return connection.execute("SELECT 1").fetchone()

    assert database.repeated(job) == (1,)
    database.close()


async def test_a_server_that_goes_is_told_and_used_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "WAIT_S", 1.0)
    with Postgres.running("fsync=on") as server:
        url = DatabaseUrl.parse(server.url())
        monkeypatch.setenv(DATABASE_VARIABLE, server.url())
        async with open_checkpointer(url) as saver:
            graph = build_manus_graph(checkpointer=saver)
            await run_graph(graph, "one", config=CONFIG)
            await asyncio.to_thread(server.stop)
            with pytest.raises(UnavailableError, match="cannot be reached"):
                await run_graph(graph, "two", config=CONFIG)
            with pytest.raises(UnavailableError, match="cannot be reached"):
                await asyncio.to_thread(begin, open_database(url), "a")
            await asyncio.to_thread(server.start)
            ran = await run_graph(graph, "three", config=CONFIG)
            assert [message.text for message in ran.messages][:2] == ["the task", "one"]
            assert begin(open_database(url), "b") == ["b"]
        close_databases()


def test_a_full_disk_is_told(place: DatabaseUrl) -> None:
    database = open_database(place)
    for statement in (
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE"
        " 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON threads EXECUTE FUNCTION full_disk()",
    ):
        database.run(statement)
    with pytest.raises(UnavailableError, match="disk of the database .* is full"):
        begin(database, "a")


def test_a_database_that_can_only_be_read_is_read(place: DatabaseUrl) -> None:
    begin(open_database(place), "a")
    secret = place.secret.get_secret_value()
    only_read = DatabaseUrl.parse(f"{secret}%20-cdefault_transaction_read_only%3Don")
    database = open_database(only_read)
    assert begin(database) == ["a"]
    with pytest.raises(StorageError, match="cannot be written"):
        begin(database, "b")


def test_texts_with_nul_are_kept_without_it(place: DatabaseUrl) -> None:
    threads = Threads(open_database(place))
    threads.begin("a", "manus", "a\0b", {}, None)
    assert threads.newest(99)[0].task == "a\ufffdb"


async def test_the_tables_lie_in_a_schema_of_our_own(postgres: Postgres) -> None:
    postgres.execute("CREATE DATABASE shared")
    postgres.execute("CREATE TABLE threads (theirs TEXT)", database="shared")
    url = DatabaseUrl.parse(postgres.url("shared"))
    assert begin(open_database(url), "a") == ["a"]
    async with open_checkpointer(url):
        pass
    found = open_database(url).run(
        "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'checkpoints'"
    )
    assert found == [("openmanus",)]
    close_databases()


@pytest.mark.parametrize("shared", [False, True])
async def test_a_network_checkpointer_needs_a_ledger_on_the_network(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    paid: list[int] = []

    @manus_tool(effect="external", approval=False)
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        paid.append(amount)
        return "paid"

    address = postgres.database()
    async with AsyncPostgresSaver.from_conn_string(address) as saver:
        await saver.setup()
        graph = build_manus_graph(tools=[pay], checkpointer=saver)
        answers: Any = (calls(("pay", {"amount": 1})), "done")
        if not shared:
            with pytest.raises(ConfigError, match=r"AsyncPostgresSaver.*database_url"):
                await run_graph(graph, *answers, config=CONFIG)
            assert paid == []
            return
        monkeypatch.setenv(DATABASE_VARIABLE, address)
        assert (await run_graph(graph, *answers, config=CONFIG)).results() == ["paid"]
        rows = open_database(DatabaseUrl.parse(address)).run("SELECT tool, stage FROM ledger")
        assert rows == [("pay", "done")]
    close_databases()

"""How the server writes down that a run has ended, whatever the database is like then."""

import asyncio
import contextlib
import json
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.persistence import sqlite
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.leases import give_back_lease, take_lease
from openmanus_graph.backends.persistence.postgres import PostgresDatabase
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import UnavailableError
from openmanus_graph.interfaces.server import journal, recorder
from openmanus_graph.interfaces.server.recorder import Recorder, write_missing_ends
from openmanus_graph.interfaces.server.store import Store, open_server_saver, open_store, saver
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.runtime.events import ObservedRun
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import run_graph, scripted
from tests.support.postgres import Postgres, rows_of

RUN = ObservedRun("run", "t", "manus", {"messages": [HumanMessage("the task", id="m")]})
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """A server's store, with a thread whose run has come to its end."""
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(journal, "RETRY_S", 0.01)
    monkeypatch.setattr(recorder, "RETRY_S", 0.01)
    async with open_server_saver():
        made = await open_store()
        graph = build_manus_graph(checkpointer=saver())
        await run_graph(graph, "the answer", task=RUN.given, config=CONFIG)
        yield made
        await made.journal.close()


class Locked(logging.Handler):
    """Holds the database until the recorder says that it waits, and then does what it is told."""

    def __init__(self, store: Store, then: Callable[[], Any] | None = None) -> None:
        super().__init__()
        path = DatabaseUrl.in_folder(store.home).file
        self._other = sqlite3.connect(path, isolation_level=None)
        self._other.execute("BEGIN EXCLUSIVE")
        self._then = then or self.release

    def emit(self, record: logging.LogRecord) -> None:
        if "waits to be written" in record.getMessage():
            self._then()

    def __enter__(self) -> "Locked":
        recorder.log.addHandler(self)
        return self

    def __exit__(self, *what: object) -> None:
        recorder.log.removeHandler(self)
        self.release()

    def release(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # it was released already
            self._other.execute("ROLLBACK")
        self._other.close()


async def begin(made: Recorder) -> None:
    context = Context(model=scripted(), workspace="work")
    await made.on_start(RUN, resolve_settings(context, "t"), context)


async def kinds(store: Store) -> list[str]:
    """Return what happened in the thread, as a page is told."""
    async for events in store.journal.follow("t", 0, 60):
        return [json.loads(text)["type"] for _, text in events or ()]
    raise AssertionError


async def status(store: Store) -> str:
    found = await store.find("t")
    assert found is not None
    return found.status


async def test_an_end_that_a_locked_database_refused_is_written_when_it_is_free(
    store: Store,
) -> None:
    made = Recorder(store)
    await begin(made)
    assert await status(store) == "running"
    with Locked(store):
        await made.on_end(RUN, None)
    assert not store.journal.is_running("t")
    assert await status(store) == "finished"
    assert (await kinds(store))[-1] == "final"


async def test_a_run_that_could_not_even_begin_is_written_down_as_failed(store: Store) -> None:
    made = Recorder(store)
    with Locked(store), pytest.raises(UnavailableError) as refused:
        await begin(made)
    with Locked(store):
        await made.on_end(RUN, refused.value)
    assert not store.journal.is_running("t")
    assert await status(store) == "failed"
    assert await kinds(store) == ["run_start", "final"]


async def test_an_end_that_was_never_written_is_written_by_the_next_server(store: Store) -> None:
    made = Recorder(store)
    await begin(made)
    task: list[asyncio.Task[None]] = []
    with Locked(store, then=lambda: task[0].cancel()):  # the server ends while it waits
        task.append(asyncio.create_task(made.on_end(RUN, None)))
        await asyncio.wait(task)
    assert not store.journal.is_running("t")
    assert await status(store) == "interrupted"
    await store.journal.close()
    again = await open_store()
    await write_missing_ends()
    assert await status(again) == "finished"
    assert (await kinds(again)).count("final") == 1
    await again.journal.close()


async def test_a_run_that_was_cut_off_is_left_to_go_on(store: Store) -> None:
    await begin(Recorder(store))
    await store.journal.release("t")
    await asyncio.to_thread(
        store.threads.begin, "t", "manus", "more", {}, HumanMessage("more", id="not saved yet")
    )
    again = await open_store()
    await write_missing_ends()
    assert (await kinds(again)).count("final") == 0
    await again.journal.close()


async def test_a_server_whose_thread_was_taken_over_writes_nothing_more(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, seen = postgres.database(), set[bool]()
    monkeypatch.setenv(DATABASE_VARIABLE, address)
    settle = PostgresDatabase.settle

    def settle_and_see(database: PostgresDatabase) -> None:
        seen.add(threading.current_thread() is threading.main_thread())
        settle(database)

    monkeypatch.setattr(PostgresDatabase, "settle", settle_and_see)
    other: Any = open_database(DatabaseUrl.parse(f"{address}&application_name=other"))
    async with open_server_saver():
        store = await open_store()
        graph = build_manus_graph(checkpointer=saver())
        await run_graph(graph, "the answer", task=RUN.given, config=CONFIG)
        made = Recorder(store)
        await begin(made)
        await store.journal.save()
        other.run("UPDATE leases SET expires = clock_timestamp() - interval '1 second'")
        await asyncio.to_thread(take_lease, other, "t", 1000.0, "run")
        before = rows_of(address)
        await made.on_end(RUN, None)
        await write_missing_ends()
        assert rows_of(address) == before
        assert not store.journal.is_running("t")
        await asyncio.to_thread(give_back_lease, other, "t", "run")
        await write_missing_ends()
        assert await status(store) == "finished"
        await store.journal.close()
    assert seen == {False}, "no lease is given back on the event loop"
    close_databases()

"""What every storage backend does, on each of them."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from openmanus_graph.backends.persistence.backend import DamagedRowError, Database
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.recording import ModelCallRecords, NewCall
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.backends.snapshots.shared_files import (
    FileLocation,
    find_location,
    record_location,
)
from openmanus_graph.errors import StorageError
from openmanus_graph.state.addresses import DatabaseUrl


@pytest.fixture
def database(each_database: DatabaseUrl) -> Database:
    return open_database(each_database)


def titles(database: Database) -> list[str]:
    return [row[0] for row in database.run("SELECT title FROM titles ORDER BY thread")]


def test_many_rows_are_written_all_or_none(database: Database) -> None:
    insert = "INSERT INTO titles (thread, title) VALUES (?, ?)"
    database.run_many((insert, [("a", "1")]), (insert, [("b", "2")]))
    with pytest.raises(StorageError):
        database.run_many((insert, [("c", "3")]), (insert, [("a", "again")]))
    assert titles(database) == ["1", "2"]


@pytest.mark.parametrize("statement", ["SELECT nothing FROM titles", "SELECT * FROM nowhere", "?"])
async def test_what_the_driver_raises_is_a_storage_error(
    database: Database, statement: str
) -> None:
    with pytest.raises(StorageError):
        database.run(statement)
    with pytest.raises(StorageError):
        await database.arun(statement)


async def test_what_is_written_later_is_there_before_the_next_write(database: Database) -> None:
    ended = list[tuple[Any, BaseException | None]]()
    insert = "INSERT INTO titles (thread, title) VALUES (?, ?) RETURNING title"
    database.run_later(insert, ("a", "1"), lambda rows, error: ended.append((rows, error)))
    assert await database.arun("SELECT title FROM titles") == [("1",)]
    assert ended == [([("1",)], None)]


async def test_the_error_of_a_later_write_is_its_own(database: Database) -> None:
    errors = list[BaseException | None]()
    database.run_later("SELECT * FROM nowhere", (), lambda _, error: errors.append(error))
    assert await database.arun("SELECT 1") == [(1,)]
    assert [isinstance(error, StorageError) for error in errors] == [True]


async def test_settling_waits_for_what_was_asked_for(database: Database) -> None:
    insert = "INSERT INTO titles (thread, title) VALUES ('a', '1')"
    asking = asyncio.create_task(database.arun(insert))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.to_thread(database.settle)
    assert titles(database) == ["1"]


def test_threads_are_found_listed_and_deleted_with_all_their_rows(database: Database) -> None:
    threads, journal = Threads(database), JournalTable(database)
    for name in ("thread-a", "thread-b"):
        threads.begin(name, "manus", f"the task of {name}", {"max_steps": 3}, HumanMessage("go"))
        journal.write(name, [(1, '{"type": "notice", "text": "50% of it"}')], ["50% of it"])
    threads.end("thread-a", "finished")
    threads.rename("thread-b", "Another_title")
    assert [one.id for one in threads.newest(99)] == ["thread-b", "thread-a"]
    assert [one.id for _, one in threads.page(9, None, "ANOTHER_ti")] == ["thread-b"]
    assert threads.beginning_with(["thread-"]) == ["thread-b", "thread-a"]
    assert threads.existing(["thread-a", "no"]) == {"thread-a"}
    found, message = threads.find("thread-a"), threads.newest_message("thread-a")
    assert found is not None
    assert message is not None
    assert (found.status, found.options, message.text) == ("finished", {"max_steps": 3}, "go")
    assert threads.lines(["thread-a", "no"], "50% OF") == {"thread-a": "50% of it", "no": ""}
    threads.delete("thread-a")
    assert threads.find("thread-a") is None
    assert (journal.last("thread-a"), journal.last("thread-b")) == (0, 1)


def test_file_locations_are_recorded_and_damage_is_named(database: Database) -> None:
    location = FileLocation("host", "home", "/work", 7)
    assert find_location(database, "t") is None
    record_location(database, "t", FileLocation("other", "home", "/work"))
    record_location(database, "t", location)
    assert find_location(database, "t") == location
    database.run("UPDATE file_locations SET location = '{\"ho'")
    with pytest.raises(DamagedRowError, match="files of thread t"):
        find_location(database, "t")


async def test_a_recorded_call_is_read_with_the_parts_that_it_shares(database: Database) -> None:
    records, numbers = ModelCallRecords(database), list[Any]()
    parts = [{"role": name} for name in ("model", "tools", "human", "ai")]
    records.add("t", NewCall("think", None, 0, parts[:3], {"step": 1}), numbers.append)
    await records.wait_for_added()
    records.add("t", NewCall("think", numbers[0], 3, parts[3:], {"step": 2}), numbers.append)
    await records.wait_for_added()
    assert [one.request for one in records.of("t")] == [parts[:3], parts]
    assert await records.has("t", numbers[1])
    await records.add_fact("t", "os", {"name": "half \ud800"})
    assert records.facts_of("t") == [("os", {"name": "half \ud800"})]

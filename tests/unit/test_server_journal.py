"""Events of threads: numbered, kept, handed on, whole and in order."""

import asyncio
import contextlib
import gc
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.backends.persistence import sqlite
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.errors import UnavailableError
from openmanus_graph.interfaces.server import journal as journal_module
from openmanus_graph.interfaces.server.journal import Journal
from openmanus_graph.state.addresses import DATABASE, DatabaseUrl
from tests.support.limits import BACKSTOP_S
from tests.support.work import calls_in

THREAD = "t"


@pytest.fixture
async def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JournalTable:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(journal_module, "RETRY_S", 0.01)
    return JournalTable(open_database(DatabaseUrl.in_folder(tmp_path / "home")))


@pytest.fixture
async def journal(table: JournalTable) -> AsyncIterator[Journal]:
    made = Journal(table, asyncio.get_running_loop())
    yield made
    await made.close()


def notice(text: object) -> dict[str, Any]:
    return {"type": "notice", "level": "info", "text": str(text)}


async def past(journal: Journal, after: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for events in journal.follow(THREAD, after, 60):
        if not events:
            break
        found += [json.loads(text) for _, text in events]
    return found


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [event["text"] for event in events]


async def test_a_follower_gets_each_event_once_whenever_it_comes(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_EVENTS_IN_MEMORY", 50)
    await journal.acquire(THREAD)

    async def follow() -> list[str]:
        seen: list[str] = []
        async for events in journal.follow(THREAD, 0, 60):
            seen += [json.loads(text)["text"] for _, text in events or ()]
            if len(seen) == 3000:
                break
        return seen

    expected = [str(number) for number in range(3000)]
    early = asyncio.create_task(follow())
    for number in expected[:1500]:
        journal.add(THREAD, "run", "", notice(number))
        await asyncio.sleep(0)
    late = asyncio.create_task(follow())
    for number in expected[1500:]:
        journal.add(THREAD, "run", "", notice(number))
    assert await early == expected
    assert await late == expected
    await journal.release(THREAD)
    assert texts(await past(journal)) == expected


async def test_tokens_are_sent_live_and_never_kept(
    journal: Journal, table: JournalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "TOKEN_RETENTION_S", 0)
    await journal.acquire(THREAD)
    journal.add(THREAD, "run", "", {"type": "think_start", "step": 1})
    for piece in ("All ", "is ", "well."):
        journal.add(THREAD, "run", "", {"type": "token", "text": piece})
    live = await past(journal)
    assert [event["type"] for event in live] == ["think_start", "token"]
    assert live[1]["text"] == "All is well."
    journal.add(THREAD, "run", "", {"type": "think_end", "step": 1, "text": "All is well."})
    while len(found := await past(journal)) > 2:  # noqa: ASYNC110  # nobody announces it
        await asyncio.sleep(0)
    assert [event["type"] for event in found] == ["think_start", "think_end"]
    await journal.release(THREAD)
    assert "token" not in "".join(text for _, text in table.read(THREAD, 0))


async def test_tokens_of_steps_side_by_side_stay_apart(journal: Journal) -> None:
    await journal.acquire(THREAD)
    for step, piece in (("1", "a"), ("2", "x"), ("1", "b"), ("2", "y")):
        journal.add(THREAD, "run", step, {"type": "token", "text": piece})
    journal.add(THREAD, "run", "1", {"type": "think_start", "step": 2})
    left = await past(journal)
    assert [(event["type"], event["ns"], event.get("text")) for event in left] == [
        ("token", "2", "xy"), ("think_start", "1", None),
    ]  # fmt: skip
    await journal.release(THREAD)


async def test_numbers_go_on_above_what_anybody_has_seen(
    journal: Journal, table: JournalTable
) -> None:
    await journal.acquire(THREAD)
    journal.add(THREAD, "run", "", {"type": "token", "text": "lost in the crash"})
    seen = (await past(journal))[-1]["seq"]
    again = Journal(table, asyncio.get_running_loop())  # as another process has it
    await again.acquire(THREAD)
    again.add(THREAD, "run", "", notice("after"))
    assert (await past(again))[-1]["seq"] > seen
    await again.release(THREAD)
    await again.close()
    await journal.release(THREAD)


async def test_what_another_process_writes_is_found(
    journal: Journal, table: JournalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "POLL_S", 0.01)
    follower = journal.follow(THREAD, 0, 60)
    assert await anext(follower) == []
    table.write(THREAD, [(7, '{"type": "notice", "text": "theirs"}')])
    assert await anext(follower) == [(7, '{"type": "notice", "text": "theirs"}')]
    await follower.aclose()


async def test_a_quiet_thread_pings_and_an_ending_server_lets_go(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "POLL_S", 0.01)
    follower = journal.follow(THREAD, 0, 0.02)
    assert await anext(follower) == []
    assert await anext(follower) is None
    journal.end_followers()
    with pytest.raises(StopAsyncIteration):
        await anext(follower)


@contextlib.contextmanager
def locked(home: Path) -> Generator[None]:
    """Hold the database as another program."""
    path = home / DATABASE
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


async def until_kept(table: JournalTable, expected: list[str]) -> None:
    """Wait until the database has these events."""

    def kept() -> list[str]:
        return [json.loads(text)["text"] for _, text in table.read(THREAD, 0)]

    while kept() != expected:  # noqa: ASYNC110  # nobody announces it
        await asyncio.sleep(0)


async def test_what_a_locked_database_did_not_take_is_written_later_unasked(
    journal: Journal, table: JournalTable, tmp_path: Path
) -> None:
    await journal.acquire(THREAD)
    with locked(tmp_path / "home"):
        journal.add(THREAD, "run", "", notice("first"))
        await journal.release(THREAD)
        assert not journal.is_running(THREAD)
        assert texts(await past(journal)) == ["first"]
    await until_kept(table, ["first"])
    assert texts(await past(journal)) == ["first"]


async def test_a_run_that_begins_meanwhile_takes_nothing_away(
    journal: Journal, table: JournalTable, tmp_path: Path
) -> None:
    await journal.acquire(THREAD)
    with locked(tmp_path / "home"):
        journal.add(THREAD, "run", "", notice("first"))
        await journal.release(THREAD)
        await journal.acquire(THREAD)
        journal.add(THREAD, "run", "", notice("second"))
        assert texts(await past(journal)) == ["first", "second"]
    await until_kept(table, ["first", "second"])
    await journal.release(THREAD)


async def test_what_waits_for_the_disk_is_bounded_and_the_loss_is_told(
    journal: Journal,
    table: JournalTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(journal_module, "MAX_UNSAVED_CHARS", 10_000)
    await journal.acquire(THREAD)
    with locked(tmp_path / "home"):
        for number in range(20):
            journal.add(THREAD, "run", "", notice(f"{number} " + "x" * 1000))
        await journal.release(THREAD)
    while len(kept := table.read(THREAD, 0)) < 9:  # noqa: ASYNC110  # nobody announces it
        await asyncio.sleep(0)
    first, *others = [json.loads(text)["text"] for _, text in kept]
    assert "missing here" in first
    assert [int(text.split()[0]) for text in others] == list(range(20 - len(others), 20))
    assert "are lost" in caplog.text


async def test_what_is_lost_at_the_end_is_told(
    table: JournalTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ending = Journal(table, asyncio.get_running_loop())
    await ending.acquire(THREAD)
    with locked(tmp_path / "home"):
        ending.add(THREAD, "run", "", notice("first"))
        await ending.release(THREAD)
        await ending.close()
    assert "1 events of t are lost" in caplog.text


async def test_a_full_disk_loses_no_event_that_is_in_memory(
    journal: Journal, table: JournalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.acquire(THREAD)

    def full(*_: Any) -> None:
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(table, "write", full)
        journal.add(THREAD, "run", "", notice("first"))
        assert not await journal.save()
        assert texts(await past(journal)) == ["first"]
    journal.add(THREAD, "run", "", notice("second"))
    await journal.release(THREAD)
    assert texts(await past(journal)) == ["first", "second"]


async def test_a_follower_that_is_collected_while_an_event_is_added_blocks_nothing(
    journal: Journal,
) -> None:
    class Collecting:
        def __str__(self) -> str:
            gc.collect()
            return "collected"

    await journal.acquire(THREAD)
    following = journal.follow(THREAD, 0, 60)
    await anext(following)
    cycle: list[object] = [following]
    cycle.append(cycle)
    del following, cycle
    event = {**notice("first"), "value": Collecting()}
    adding = threading.Thread(target=journal.add, args=(THREAD, "run", "", event), daemon=True)
    adding.start()
    await asyncio.to_thread(adding.join, BACKSTOP_S)
    assert not adding.is_alive()
    assert texts(await past(journal)) == ["first"]
    await journal.release(THREAD)
    await asyncio.sleep(0)
    assert not journal.running


def test_an_event_costs_the_same_however_many_were_before(tmp_path: Path) -> None:
    table = JournalTable(open_database(DatabaseUrl.in_folder(tmp_path / "home")))
    with asyncio.Runner() as runner:
        filled = Journal(table, runner.get_loop())

        async def add(count: int, after: int = 0) -> int:
            for number in range(count):
                filled.add(THREAD, "run", "", {"type": "think_start", "step": number})
            async with contextlib.aclosing(filled.follow(THREAD, after, 60)) as following:
                events = await anext(following)
            await filled.save()
            assert events is not None
            assert len(events) == count
            return events[-1][0]

        runner.run(filled.acquire(THREAD))
        seen = runner.run(add(10))
        early = calls_in(lambda: runner.run(add(1, seen)))
        seen = runner.run(add(1500, seen + 1))
        late = calls_in(lambda: runner.run(add(1, seen)))
        runner.run(filled.release(THREAD))
        runner.run(filled.close())
    assert late < 2 * early

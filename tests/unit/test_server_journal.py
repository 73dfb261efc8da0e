"""Events of threads: numbered, kept, handed on, whole and in order."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.persistence.database import open_database
from openmanus_graph.persistence.journal import JournalTable
from openmanus_graph.server import journal as journal_module
from openmanus_graph.server.journal import Journal

THREAD = "t"


@pytest.fixture
async def table(tmp_path: Path) -> JournalTable:
    return JournalTable(open_database(tmp_path / "home"))


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
    monkeypatch.setattr(journal_module, "KEPT_IN_MEMORY", 50)
    await journal.take_up(THREAD)

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
    await journal.let_go(THREAD)
    assert texts(await past(journal)) == expected


async def test_tokens_are_told_live_and_never_kept(
    journal: Journal, table: JournalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "TOKENS_STAY_S", 0)
    await journal.take_up(THREAD)
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
    await journal.let_go(THREAD)
    assert "token" not in "".join(text for _, text in table.read(THREAD, 0))


async def test_tokens_of_steps_side_by_side_stay_apart(journal: Journal) -> None:
    await journal.take_up(THREAD)
    for step, piece in (("1", "a"), ("2", "x"), ("1", "b"), ("2", "y")):
        journal.add(THREAD, "run", step, {"type": "token", "text": piece})
    journal.add(THREAD, "run", "1", {"type": "think_start", "step": 2})
    left = await past(journal)
    assert [(event["type"], event["ns"], event.get("text")) for event in left] == [
        ("token", "2", "xy"), ("think_start", "1", None),
    ]  # fmt: skip
    await journal.let_go(THREAD)


async def test_numbers_go_on_above_what_anybody_has_seen(
    journal: Journal, table: JournalTable
) -> None:
    await journal.take_up(THREAD)
    journal.add(THREAD, "run", "", {"type": "token", "text": "lost in the crash"})
    seen = (await past(journal))[-1]["seq"]
    again = Journal(table, asyncio.get_running_loop())  # as another process has it
    await again.take_up(THREAD)
    again.add(THREAD, "run", "", notice("after"))
    assert (await past(again))[-1]["seq"] > seen
    await again.let_go(THREAD)
    await again.close()
    await journal.let_go(THREAD)


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
    journal.dismiss()
    with pytest.raises(StopAsyncIteration):
        await anext(follower)


async def test_a_full_disk_loses_no_event_that_is_in_memory(
    journal: Journal, table: JournalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    await journal.take_up(THREAD)

    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(table, "write", full)
        journal.add(THREAD, "run", "", notice("first"))
        assert not await journal.save()
        assert texts(await past(journal)) == ["first"]
    journal.add(THREAD, "run", "", notice("second"))
    await journal.let_go(THREAD)
    assert texts(await past(journal)) == ["first", "second"]

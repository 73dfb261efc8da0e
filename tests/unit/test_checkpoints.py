import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from openmanus_graph.backends.persistence.checkpoints import (
    CHECKPOINTS,
    LeanSqliteSaver,
    open_checkpointer,
)

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


async def put(saver: LeanSqliteSaver) -> dict[str, Any]:
    """Write an empty checkpoint and return its configuration."""
    return {**await saver.aput(CONFIG, empty_checkpoint(), {"step": 1}, {})}


async def test_what_is_written_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        stored = await put(saver)
        await saver.aput_writes(cast("RunnableConfig", stored), [("a", 1), ("b", "two")], "task")
        other = sqlite3.connect(tmp_path / CHECKPOINTS)
        assert other.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)
        assert other.execute("SELECT channel FROM writes ORDER BY idx").fetchall() == [
            ("a",),
            ("b",),
        ]
        other.close()


async def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        stored = await put(saver)

        def fail() -> None:
            with saver.cursor() as cursor:
                cursor.execute("DELETE FROM checkpoints")
                cursor.execute("SELECT * FROM nowhere")

        with pytest.raises(sqlite3.Error):
            fail()
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert found.config == stored


async def test_ids_go_on_after_a_checkpoint_from_the_future(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a clock was set back; fails if LangGraph makes ids in another way (ADR 0005)."""
    monkeypatch.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)  # a new process
    async with open_checkpointer(tmp_path) as saver:
        future = empty_checkpoint()
        future["id"] = f"2{future['id'][1:]}"  # its time, centuries later
        await saver.aput(CONFIG, future, {"step": 1}, {})
        assert empty_checkpoint()["id"] < future["id"]
        assert await saver.aget_tuple(CONFIG) is not None
        assert empty_checkpoint()["id"] > future["id"]


async def test_history_and_deletion(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        ids = [(await put(saver))["configurable"]["checkpoint_id"] for _ in range(3)]
        found = [one.checkpoint["id"] async for one in saver.alist(CONFIG)]
        assert found == ids[::-1]
        assert [one.checkpoint["id"] async for one in saver.alist(CONFIG, limit=1)] == ids[-1:]
        await saver.adelete_thread("t")
        assert await saver.aget_tuple(CONFIG) is None


async def test_versions_are_plain_numbers(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        assert saver.get_next_version(None, None) == 1
        assert saver.get_next_version(41, None) == 42

import sqlite3
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from openmanus_graph.persistence.checkpoints import CHECKPOINTS, open_checkpointer

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


async def test_what_is_written_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        stored = await saver.aput(CONFIG, empty_checkpoint(), {"step": 1}, {})
        await saver.aput_writes(stored, [("a", 1), ("b", "two")], "task")
        other = sqlite3.connect(tmp_path / CHECKPOINTS)
        assert other.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)
        assert other.execute("SELECT channel FROM writes ORDER BY idx").fetchall() == [
            ("a",),
            ("b",),
        ]
        other.close()


async def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        stored = await saver.aput(CONFIG, empty_checkpoint(), {"step": 1}, {})

        def fail() -> None:
            with saver.cursor() as cursor:
                cursor.execute("DELETE FROM checkpoints")
                cursor.execute("SELECT * FROM nowhere")

        with pytest.raises(sqlite3.Error):
            fail()
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert found.config == stored


async def test_history_and_deletion(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        stored = CONFIG
        for step in range(3):
            stored = await saver.aput(
                {**stored, "configurable": {**CONFIG["configurable"], **stored["configurable"]}},
                empty_checkpoint(),
                {"step": step},
                {},
            )
        steps = [found.metadata["step"] async for found in saver.alist(CONFIG)]
        assert steps == [2, 1, 0]
        assert [f.metadata["step"] async for f in saver.alist(CONFIG, limit=1)] == [2]
        await saver.adelete_thread("t")
        assert await saver.aget_tuple(CONFIG) is None


async def test_versions_are_plain_numbers(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        assert saver.get_next_version(None, None) == 1
        assert saver.get_next_version(41, None) == 42

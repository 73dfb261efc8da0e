import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import ERROR

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.sqlite_checkpointer import CHECKPOINTS, LeanSqliteSaver
from openmanus_graph.errors import RefusedDataError, StorageError
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.postgres import Postgres

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


async def put(saver: Checkpointer) -> dict[str, Any]:
    """Write an empty checkpoint and return its configuration."""
    return {**await saver.aput(CONFIG, empty_checkpoint(), {"step": 1}, {})}


async def test_what_is_written_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    async with open_checkpointer(DatabaseUrl.in_folder(tmp_path)) as saver:
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
    async with LeanSqliteSaver.opened(DatabaseUrl.in_folder(tmp_path)) as saver:
        stored = await put(saver)

        def fail() -> None:
            with saver.cursor() as cursor:
                cursor.execute("DELETE FROM checkpoints")
                cursor.execute("SELECT * FROM nowhere")

        with pytest.raises(StorageError):
            fail()
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert found.config == stored


async def test_long_values_are_compressed_and_read_as_they_were(
    each_database: DatabaseUrl,
) -> None:
    def is_compressed(text: str) -> bool:
        return "zlib" in StrictSerializer().dumps_typed(text)[0]

    values = ["short", "a long one " * 1000, "".join(map(chr, range(200, 3000)))]
    assert [*map(is_compressed, values)] == [False, True, True]
    assert len(StrictSerializer().dumps_typed(values[1])[1]) < len(values[1]) / 20
    async with open_checkpointer(each_database) as saver:
        stored = await put(saver)
        writes = [(f"channel {number}", [value]) for number, value in enumerate(values)]
        await saver.aput_writes(cast("RunnableConfig", stored), writes, "task")
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert [value for _, _, value in found.pending_writes or ()] == [[one] for one in values]


def test_a_compressed_value_that_is_not_as_it_was_written_is_refused() -> None:
    kind, content = StrictSerializer().dumps_typed("a long one " * 1000)
    for damaged in (content[:-9] + b"damaged!!", content[:20], b""):
        with pytest.raises(RefusedDataError):
            StrictSerializer().loads_typed((kind, damaged))


async def test_ids_go_on_after_a_checkpoint_from_the_future(
    each_database: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a clock was set back; fails if LangGraph makes ids in another way (ADR 0005)."""
    monkeypatch.setattr("langgraph.checkpoint.base.id._last_v6_timestamp", None)  # a new process
    async with open_checkpointer(each_database) as saver:
        future = empty_checkpoint()
        future["id"] = f"2{future['id'][1:]}"  # its time, centuries later
        await saver.aput(CONFIG, future, {"step": 1}, {})
        assert empty_checkpoint()["id"] < future["id"]
        assert await saver.aget_tuple(CONFIG) is not None
        assert empty_checkpoint()["id"] > future["id"]


async def test_history_and_deletion(each_database: DatabaseUrl) -> None:
    async with open_checkpointer(each_database) as saver:
        ids = [(await put(saver))["configurable"]["checkpoint_id"] for _ in range(3)]
        found = [one.checkpoint["id"] async for one in saver.alist(CONFIG)]
        assert found == ids[::-1]
        assert [one.checkpoint["id"] async for one in saver.alist(CONFIG, limit=1)] == ids[-1:]
        await saver.adelete_thread("t")
        assert await saver.aget_tuple(CONFIG) is None


async def test_a_fork_has_all_that_was_before_its_point(each_database: DatabaseUrl) -> None:
    """Values that are kept beside the checkpoints, and writes, go along; later ones do not."""
    async with open_checkpointer(each_database) as saver:
        config, ids = CONFIG, list[str]()
        for number in range(3):
            made = empty_checkpoint()
            version: Any = saver.get_next_version(None, None)
            made["channel_values"], made["channel_versions"] = {"a": [number]}, {"a": version}
            config = await saver.aput(config, made, {"step": number}, {"a": version})
            await saver.aput_writes(config, [("a", [number])], "task")
            ids.append(made["id"])
        await saver.acopy_line("t", ids[1], "fork")
        forked: RunnableConfig = {"configurable": {"thread_id": "fork", "checkpoint_ns": ""}}
        found = [one async for one in saver.alist(forked)]
        assert [one.checkpoint["id"] for one in found] == ids[1::-1]
        assert [one.checkpoint["channel_values"] for one in found] == [{"a": [1]}, {"a": [0]}]
        assert [bool(one.pending_writes) for one in found] == [False, True]
        await saver.acopy_thread("t", "whole")
        await saver.adelete_thread("t")
        whole: RunnableConfig = {"configurable": {"thread_id": "whole", "checkpoint_ns": ""}}
        assert [one.checkpoint["id"] async for one in saver.alist(whole)] == ids[::-1]
        assert await saver.anamespaces("whole") == [""]


async def test_what_runs_left_is_deleted_by_their_ids(each_database: DatabaseUrl) -> None:
    async with open_checkpointer(each_database) as saver:
        for run in ("a", "b", "c"):
            await saver.aput(CONFIG, empty_checkpoint(), {"step": 1, "run_id": run}, {})
        await saver.adelete_for_runs(["a", "c"])
        left: list[Any] = [one.metadata async for one in saver.alist(CONFIG)]
        assert [one["run_id"] for one in left] == ["b"]


async def test_texts_that_postgresql_refuses_are_kept_without_what_it_refuses(
    each_database: DatabaseUrl,
) -> None:
    async with open_checkpointer(each_database) as saver:
        made = empty_checkpoint()
        made["channel_values"] = {"answer": "a\0b\ud800c"}
        version: Any = saver.get_next_version(None, None)
        made["channel_versions"] = {"answer": version}
        await saver.aput(CONFIG, made, {"step": 1}, {"answer": version})
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        text = found.checkpoint["channel_values"]["answer"]
        assert (text[0], text[2], text[-1]) == ("a", "b", "c")


async def test_of_a_task_the_last_error_counts(each_database: DatabaseUrl) -> None:
    async with open_checkpointer(each_database) as saver:
        stored = cast("RunnableConfig", await put(saver))
        await saver.aput_writes(stored, [(ERROR, "first"), (ERROR, "second")], "task")
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert found.pending_writes == [("task", ERROR, "second")]
        await saver.aput_writes(stored, [(ERROR, "third")], "task")
        await saver.aput_writes(stored, [], "task")
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert found.pending_writes == [("task", ERROR, "third")]


async def test_a_damaged_checkpoint_costs_its_thread_only(postgres: Postgres) -> None:
    url = DatabaseUrl.parse(postgres.database())
    other: RunnableConfig = {"configurable": {"thread_id": "other", "checkpoint_ns": ""}}
    async with open_checkpointer(url) as saver:
        for config in (CONFIG, other):
            made = empty_checkpoint()
            version: Any = saver.get_next_version(None, None)
            made["channel_values"], made["channel_versions"] = {"a": [1]}, {"a": version}
            await saver.aput(config, made, {"step": 1}, {"a": version})
        open_database(url).run(
            "UPDATE checkpoint_blobs SET blob = 'x'::bytea || substr(blob, 2) WHERE thread_id = 't'"
        )
        with pytest.raises(RefusedDataError, match="changed after it was written"):
            await saver.aget_tuple(CONFIG)
        found = await saver.aget_tuple(other)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": [1]}
    close_databases()


async def test_versions_are_plain_numbers(tmp_path: Path) -> None:
    async with open_checkpointer(DatabaseUrl.in_folder(tmp_path)) as saver:
        numbers: Any = saver.get_next_version  # LangGraph's type of versions is text
        assert (numbers(None, None), numbers(41, None)) == (1, 42)

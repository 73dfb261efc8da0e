"""What a task writes is stored with the checkpoint that follows it, and never lost on the way."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from openmanus_graph.backends.persistence import database_thread
from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.group_writing import Acting
from tests.support.limits import BACKSTOP_S
from tests.support.task_writes import CONFIG, NEVER_S, PATH, ran, stored_channels

pytestmark = pytest.mark.slow

OTHER: RunnableConfig = {"configurable": {"thread_id": "other", "checkpoint_ns": ""}}


class Refused(Acting):
    """A value that the database does not take at first."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def act(self) -> None:
        """Fail as a full disk does."""
        self.times -= 1
        if self.times >= 0:
            raise OSError("No space left on device")


@pytest.fixture(autouse=True)
def _no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave it to the calls when something is stored."""
    monkeypatch.setattr(database_thread, "LATER_S", NEVER_S)


async def begun(saver: Checkpointer) -> RunnableConfig:
    return await saver.aput(CONFIG, empty_checkpoint(), {"step": 1}, {})


async def next_one(saver: Checkpointer, after: RunnableConfig) -> RunnableConfig:
    return await saver.aput(after, empty_checkpoint(), {"step": 2}, {})


async def written(saver: Checkpointer, at: RunnableConfig) -> list[tuple[str, Any]]:
    found = await saver.aget_tuple(at)
    assert found is not None
    return [(channel, value) for _, channel, value in found.pending_writes or ()]


async def test_they_wait_for_their_checkpoint_and_are_stored_with_it(
    each_database: DatabaseUrl,
) -> None:
    async with open_checkpointer(each_database) as saver:
        first = await begun(saver)
        await saver.aput_writes(first, [("a", 1)], "task", PATH)
        assert stored_channels() == set()
        await next_one(saver, first)
        assert stored_channels() == {"a"}
        assert await written(saver, first) == [("a", 1)]
    if not each_database.is_local:
        with psycopg.connect(each_database.secret.get_secret_value()) as connection:
            newest = "SELECT max(xmin::text::bigint) FROM checkpoint"
            wrote = [connection.execute(f"{newest}{table}".encode()) for table in ("s", "_writes")]
            transactions = {cursor.fetchone() for cursor in wrote}
            assert len(transactions) == 1


async def test_a_reader_of_the_thread_finds_them(each_database: DatabaseUrl) -> None:
    async with open_checkpointer(each_database) as saver:
        first = await begun(saver)
        await saver.aput_writes(first, [("a", 1)], "task", PATH)
        assert await written(saver, first) == [("a", 1)]
        await saver.aput_writes(first, [("b", 2)], "task 2", PATH)
        await saver.acopy_thread("t", "copy")
        copied: RunnableConfig = {"configurable": {"thread_id": "copy", "checkpoint_ns": ""}}
        assert [*await written(saver, copied)] == [("a", 1), ("b", 2)]
        await saver.aput_writes(first, [("c", 3)], "task 3", PATH)
        await saver.adelete_thread("t")
    assert stored_channels() == {"a", "b"}, "those of the copy; what was deleted does not come back"


@pytest.mark.parametrize("channel", ["__interrupt__", "__error__", "__resume__"])
async def test_what_no_checkpoint_follows_is_stored_at_once(
    each_database: DatabaseUrl, channel: str
) -> None:
    async with open_checkpointer(each_database) as saver:
        first = await begun(saver)
        await saver.aput_writes(first, [("a", 1)], "task 1", PATH)
        await saver.aput_writes(first, [(channel, "which?")], "task 2", PATH)
        assert stored_channels() == {"a", channel}, "and what was there before it"
        await saver.aput_writes(first, [("b", 1)], "task 3", PATH)
        assert stored_channels() == {"a", channel, "b"}, "the superstep does not end"
        second = await next_one(saver, first)
        await saver.aput_writes(second, [("c", 1)], "task 4", PATH)
        assert stored_channels() == {"a", channel, "b"}, "the next one may"
        await saver.aput_writes(second, [("d", 1)], "outside of tasks")
        assert stored_channels() == {"a", channel, "b", "c", "d"}


async def test_if_they_fail_their_checkpoint_does(each_database: DatabaseUrl) -> None:
    async with open_checkpointer(each_database) as saver:
        first = await begun(saver)
        await saver.aput_writes(first, [("a", object())], "task", PATH)
        with pytest.raises(ConfigError):
            await next_one(saver, first)
        newest = await saver.aget_tuple(CONFIG)
        assert newest is not None
        assert newest.config == first, "no checkpoint lacks what led to it"


async def test_if_their_checkpoint_fails_they_are_stored_all_the_same(
    each_database: DatabaseUrl,
) -> None:
    async with open_checkpointer(each_database) as saver:
        first = await begun(saver)
        await saver.aput_writes(first, [("a", 1)], "task", PATH)
        bad = empty_checkpoint()
        bad["channel_values"] = {"value": object()}
        with pytest.raises(ConfigError):
            await saver.aput(first, bad, {"step": 2}, {"value": 1})
        await saver.aput(OTHER, empty_checkpoint(), {"step": 1}, {})
        assert stored_channels() == {"a"}


async def test_a_late_failure_is_raised_by_the_next_call_for_the_thread(
    each_database: DatabaseUrl,
) -> None:
    async with open_checkpointer(each_database) as saver:
        first = await begun(saver)
        await saver.aput_writes(first, [("a", object())], "task", PATH)
        await saver.aput(OTHER, empty_checkpoint(), {"step": 1}, {})  # takes them along
        for _ in range(2):
            with pytest.raises(ConfigError):
                await saver.aget_tuple(first)
        with pytest.raises(ConfigError):
            await next_one(saver, first)
        assert await written(saver, first) == [], "it was told"


async def test_a_late_failure_is_raised_when_the_saver_is_closed(
    each_database: DatabaseUrl,
) -> None:
    with pytest.raises(ConfigError):
        async with open_checkpointer(each_database) as saver:
            await saver.aput_writes(await begun(saver), [("a", object())], "task", PATH)


async def test_what_failed_late_is_stored_by_the_next_call_if_it_can_be(
    each_database: DatabaseUrl,
) -> None:
    async with open_checkpointer(each_database) as saver:
        first, with_others_and_alone = await begun(saver), 2
        await saver.aput_writes(first, [("a", Refused(with_others_and_alone))], "task", PATH)
        await saver.aput(OTHER, empty_checkpoint(), {"step": 1}, {})
        assert stored_channels() == set()
        await next_one(saver, first)
        assert stored_channels() == {"a"}


async def test_closing_stores_what_waits(each_database: DatabaseUrl) -> None:
    async with open_checkpointer(each_database) as saver:
        await saver.aput_writes(await begun(saver), [("a", 1)], "task", PATH)
    assert stored_channels() == {"a"}


def play(scene: str) -> "subprocess.CompletedProcess[str]":
    """Play a scene in this test's folder."""
    command = [sys.executable, "-m", "tests.support.task_writes", scene]
    return subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
        timeout=BACKSTOP_S,
        check=False,
    )


async def test_a_kill_between_writes_and_checkpoint_leaves_neither(
    each_database: DatabaseUrl,
) -> None:
    assert play("checkpoint_fails_to_be_written").returncode == -9
    assert stored_channels() == set()
    async with open_checkpointer(each_database) as saver:
        assert len([one async for one in saver.alist(CONFIG)]) == 1


@pytest.mark.usefixtures("each_database")
def test_a_task_that_ended_beside_one_that_is_killed_does_not_run_again() -> None:
    assert play("task_has_ended").returncode == -9
    resumed = play("task_has_ended")
    assert resumed.stdout == "{'quick': ['done'], 'slow': 'done'}\n"
    assert ran() == ["quick", "slow", "slow"]


@pytest.mark.usefixtures("each_database")
def test_a_task_that_ended_after_a_question_does_not_run_again() -> None:
    """The run has paused when it is killed, so all that was said of it stands."""
    assert play("task_asks").returncode == -9
    assert stored_channels() >= {"__interrupt__", "quick"}
    resumed = play("task_asks")
    assert resumed.stdout == "{'quick': ['done'], 'slow': 'this'}\n"
    assert ran() == ["slow"]

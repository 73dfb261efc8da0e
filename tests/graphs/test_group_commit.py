"""Writes that wait together are one transaction, and nobody is answered before its commit."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.persistence import (
    database_thread,
    postgres,
    sqlite,
)
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database_thread import Write
from openmanus_graph.backends.persistence.ledger import EffectKey, LedgerEntry, open_ledger
from openmanus_graph.backends.persistence.steering import open_steering
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import add, calls, run_graph
from tests.support.group_writing import WRITERS, put_together
from tests.support.limits import BACKSTOP_S

pytestmark = pytest.mark.slow

STEPS = 6
AGENTS = 20
HAND_OVERS_OF_A_STEP = 5
"""The outcome of its call, the checkpoints of its three nodes, the intent of the next call."""
COMMITS_OF_A_STEP = {True: 7, False: 5}
"""In SQLite's two files (records and steering messages are not in that of the checkpoints), or in
PostgreSQL."""
SHARED_BY_CHANCE = 2
"""Jobs at the begin and end of a run that share a group or do not, as they happen to meet."""
ACKNOWLEDGED = 300


class Counted:
    """Counts groups and their writes, and how often a thread has handed over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[int] = []
        self.hand_overs = 0
        for owner in (postgres.PostgresDatabase, sqlite.SqliteDatabase):
            monkeypatch.setattr(owner, "_commit", self._counted(vars(owner)["_commit"]))
        deliver = vars(database_thread)["_deliver"]

        def delivered(done: Any) -> None:
            self.hand_overs += 1
            deliver(done)

        monkeypatch.setattr(database_thread, "_deliver", delivered)

    def _counted(self, commit: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def counted(owner: Any, writes: list[Write]) -> list[Any]:
            self.groups.append(len(writes))
            return commit(owner, writes)

        return counted


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


async def threads_of(url: DatabaseUrl) -> set[str]:
    async with open_checkpointer(url) as saver:
        found = saver.alist(None)
        return {one.config.get("configurable", {})["thread_id"] async for one in found}


async def test_what_waits_together_is_one_transaction(
    each_database: DatabaseUrl, counted: Counted
) -> None:
    names = [f"t{number}" for number in range(5)]
    async with open_checkpointer(each_database) as saver:
        await put_together(saver, *((name, None) for name in names))
    assert counted.groups == [1, 5]
    assert await threads_of(each_database) == {"first", *names}
    if not each_database.is_local:
        with psycopg.connect(each_database.secret.get_secret_value()) as connection:
            wrote = "SELECT DISTINCT xmin::text, cmin::text FROM checkpoints"
            found = connection.execute(wrote).fetchall()
            assert len({transaction for transaction, _ in found}) == 2, "one for each group"
            assert len(found) == 2, "one statement for each group"


async def test_a_write_that_fails_costs_no_other_one(
    each_database: DatabaseUrl, counted: Counted
) -> None:
    unstorable = object()
    async with open_checkpointer(each_database) as saver:
        with pytest.raises(ConfigError):
            await put_together(saver, ("a", None), ("bad", unstorable), ("b", None))
    assert counted.groups == [1, 3, 1, 1, 1], "the group, and then each by itself"
    assert await threads_of(each_database) == {"first", "a", "b"}


async def test_statements_that_wait_together_get_their_own_rows(each_database: DatabaseUrl) -> None:
    steering = open_steering(each_database)
    names = [f"t{number}" for number in range(30)]
    await asyncio.gather(*(steering.add(name, f"to {name}") for name in names))
    found = await asyncio.gather(*map(steering.of, names))
    assert [[one.text for one in of_thread] for of_thread in found] == [
        [f"to {name}"] for name in names
    ]


async def test_a_call_is_looked_up_and_begun_by_one_statement(
    each_database: DatabaseUrl, counted: Counted
) -> None:
    ledger, key = open_ledger(each_database), EffectKey("t", "b", "pay", '{"eur":5}', 0)
    assert await ledger.begin(key, {"eur": 5}, "c") is None
    assert (counted.groups, counted.hand_overs) == ([1], 1)
    known = LedgerEntry("intent", None, {"eur": 5}, 1)
    assert await ledger.begin(key, {"eur": 6}, "c2") == known
    assert await ledger.find(key) == known, "it is as it was"


def start(scene: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.support.group_writing", scene]
    return subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    )


async def test_a_process_killed_between_two_writes_of_a_group_leaves_none_of_them(
    each_database: DatabaseUrl,
) -> None:
    with start("between") as process:
        said, _ = process.communicate(timeout=BACKSTOP_S)
    assert process.returncode == -9
    assert said.split()[:1] == ["acknowledged"]
    assert await threads_of(each_database) == {"acknowledged", "first"}, "none of the killed group"


async def test_what_was_acknowledged_is_there_after_a_kill(each_database: DatabaseUrl) -> None:
    with start("many") as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(ACKNOWLEDGED)]
        process.kill()
        said += process.stdout.read().split("\n")[:-1]  # the last line may be cut off
    found = await threads_of(each_database)
    assert len({*said}) >= ACKNOWLEDGED > WRITERS
    assert {*said} <= found


async def test_commits_and_hand_overs_of_a_step(
    each_database: DatabaseUrl, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs cost beside their begin and end: alone, and with others at the same time."""
    # On a busy machine a checkpoint may follow too late for the writes that wait for it.
    monkeypatch.setattr(database_thread, "LATER_S", 1.0)

    async def cost(agents: int, steps: int) -> tuple[int, int]:
        before = len(counted.groups), counted.hand_overs
        replies = [calls(("add", {"a": number, "b": 1})) for number in range(steps)]
        async with open_checkpointer(each_database) as saver:
            graph = build_manus_graph(tools=[add], checkpointer=saver)
            await asyncio.gather(*(
                run_graph(graph, *replies, "done", config=thread(f"{agents}-{steps}-{number}"))
                for number in range(agents)
            ))  # fmt: skip
        return len(counted.groups) - before[0], counted.hand_overs - before[1]

    for agents, shared_by in ((1, 1), (AGENTS, 2)):
        few, many = await cost(agents, 1), await cost(agents, 1 + STEPS)
        commits, hand_overs = (
            (b - a - SHARED_BY_CHANCE * agents) / STEPS / agents
            for a, b in zip(few, many, strict=True)
        )
        assert commits <= COMMITS_OF_A_STEP[each_database.is_local] / shared_by, agents
        assert hand_overs <= HAND_OVERS_OF_A_STEP / shared_by, agents

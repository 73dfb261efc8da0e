"""Whose run works next on the server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from math import inf

import pytest

from openmanus_graph.interfaces.server import turns
from openmanus_graph.interfaces.server.turns import Turns


class Runs:
    """Runs that wait for their turns, and work until they are told to end."""

    def __init__(self, jobs: float) -> None:
        self.turns, self.begun = Turns(jobs), list[str]()
        self.ends = dict[str, asyncio.Event]()

    def start(self, owner: str, name: str, most: float = inf) -> "asyncio.Task[None]":
        self.ends[name] = asyncio.Event()

        async def run() -> None:
            async with self.turns.turn(owner, most):
                self.begun.append(name)
                await self.ends[name].wait()

        return asyncio.create_task(run())


async def settled(condition: Callable[[], bool] = lambda: True) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    assert condition()


async def test_a_users_hundred_runs_do_not_starve_another_users_one() -> None:
    runs = Runs(jobs=2)
    tasks = [runs.start("ada", f"ada {number}") for number in range(100)]
    tasks.append(runs.start("bob", "bob"))
    await settled(lambda: runs.begun == ["ada 0", "ada 1"])
    runs.ends["ada 0"].set()
    runs.ends["ada 1"].set()
    await settled()
    assert "bob" in runs.begun[:4]
    for end in runs.ends.values():
        end.set()
    await asyncio.gather(*tasks)
    assert [name for name in runs.begun if name != "bob"] == [f"ada {n}" for n in range(100)]
    assert (runs.turns.running.total(), runs.turns.waiting) == (0, {})


async def test_a_quota_of_runs_holds_back_its_user_and_nobody_else() -> None:
    runs = Runs(jobs=inf)
    tasks = [runs.start("ada", name, most=1) for name in ("first", "second")]
    tasks.append(runs.start("bob", "bob", most=1))
    tasks.append(runs.start("", "the machine's own"))
    await settled(lambda: runs.begun == ["first", "bob", "the machine's own"])
    for end in runs.ends.values():
        end.set()
    await asyncio.gather(*tasks)
    assert runs.begun[-1] == "second"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_run_that_is_cancelled_gives_back_its_place(waits: bool) -> None:
    runs = Runs(jobs=1)
    tasks = [runs.start("ada", "works"), runs.start("ada", "waits")]
    await settled(lambda: runs.begun == ["works"])
    tasks[waits].cancel()
    await settled()
    assert runs.begun == (["works"] if waits else ["works", "waits"])
    tasks[not waits].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (runs.turns.running.total(), runs.turns.waiting) == (0, {})


async def test_a_run_cancelled_as_its_turn_comes_gives_back_its_place() -> None:
    runs = Runs(jobs=1)
    tasks = [runs.start("ada", "works"), runs.start("bob", "waits"), runs.start("bob", "next")]
    await settled(lambda: runs.begun == ["works"])
    tasks[0].cancel()
    tasks[1].cancel()
    await settled(lambda: runs.begun == ["works", "next"])
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert runs.turns.running.total() == 0


async def test_a_new_run_wakes_the_queue_that_waits_for_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Queue:
        """LangGraph's, as far as it counts: it waits before it looks."""

        pending = list[str]()

        @staticmethod
        async def put(name: str) -> str:
            Queue.pending.append(name)
            return name

        @staticmethod
        async def next(wait: bool, limit: int = 1) -> AsyncIterator[str]:
            if wait:
                await asyncio.Event().wait()
            for name in Queue.pending[:limit]:
                Queue.pending.remove(name)
                yield name

    monkeypatch.setattr(turns, "LOOK_S", inf)
    turns.begin_at_once(Queue)

    async def taken() -> list[str]:
        return [name async for name in Queue.next(True)]

    waiting = asyncio.create_task(taken())
    await settled(lambda: not waiting.done())
    assert await Queue.put("a run") == "a run"
    assert await waiting == ["a run"]
    waiting = asyncio.create_task(taken())
    await settled(lambda: not waiting.done())  # it waits again
    waiting.cancel()

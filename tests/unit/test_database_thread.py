import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from openmanus_graph.backends.persistence import database_thread
from openmanus_graph.backends.persistence.database_thread import DatabaseThread, Write
from tests.support.limits import BACKSTOP_S


async def test_jobs_run_in_order_in_one_thread_of_their_own() -> None:
    thread = DatabaseThread("test")
    done: list[tuple[int, str]] = []

    def job(number: int) -> int:
        done.append((number, threading.current_thread().name))
        return number * number

    results = await asyncio.gather(*(thread.do(job, number) for number in range(50)))
    thread.close()
    assert results == [number * number for number in range(50)]
    assert done == [(number, "test") for number in range(50)]


async def test_the_caller_gets_the_error_and_later_jobs_run() -> None:
    thread = DatabaseThread("test")

    def fail() -> None:
        raise ValueError("no")

    failed, fine = await asyncio.gather(thread.do(fail), thread.do(int), return_exceptions=True)
    thread.close()
    assert isinstance(failed, ValueError)
    assert fine == 0


async def test_a_cancelled_callers_job_is_done_all_the_same() -> None:
    thread = DatabaseThread("test")
    go, done = threading.Event(), threading.Event()

    def job() -> None:
        assert go.wait(BACKSTOP_S)
        done.set()

    asking = asyncio.create_task(thread.do(job))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go.set()
    assert await thread.do(done.is_set)
    thread.close()


async def test_closing_finishes_what_was_asked_for_and_then_refuses() -> None:
    thread = DatabaseThread("test")
    asked = [asyncio.create_task(thread.do(int, number)) for number in range(5)]
    await asyncio.sleep(0)
    await asyncio.to_thread(thread.close)
    assert await asyncio.gather(*asked) == list(range(5))
    with pytest.raises(RuntimeError, match="closed"):
        await thread.do(int)


async def test_a_job_that_comes_while_it_closes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = DatabaseThread("test")
    loop = asyncio.get_running_loop()
    make = loop.create_future

    def close_first() -> asyncio.Future[int]:  # called between being asked and taking the job
        thread.close()
        return make()

    monkeypatch.setattr(loop, "create_future", close_first)
    with pytest.raises(RuntimeError, match="closed"):
        await thread.do(int)


def test_a_loop_that_has_ended_does_not_stop_the_worker() -> None:
    thread = DatabaseThread("test")
    go = threading.Event()

    async def leave_early() -> None:
        asking = asyncio.create_task(thread.do(go.wait, BACKSTOP_S))
        await asyncio.sleep(0)
        asking.cancel()

    asyncio.run(leave_early())
    go.set()
    assert asyncio.run(thread.do(int, 7)) == 7
    thread.close()


def ignore(*end: Any) -> None:
    """Have nothing to do at the end."""


class Log:
    """A database that keeps what is written to it, by transaction."""

    def __init__(self) -> None:
        self.transactions: list[list[Any]] = []

    def commit(self, writes: Sequence[Write]) -> list[Any]:
        self.transactions.append([write.execute()() for write in writes])
        return self.transactions[-1]

    def write(self, value: Any, *, is_checkpoint: bool = False) -> Write:
        return Write.of(lambda: value, self.commit, is_checkpoint=is_checkpoint)


@pytest.fixture
def _no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_thread, "LATER_S", 3600.0)


@pytest.mark.usefixtures("_no_timer")
async def test_what_nobody_waits_for_is_done_with_what_is_asked_for_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, log, hand_overs = DatabaseThread("test"), Log(), list[int]()
    deliver = vars(database_thread)["_deliver"]

    def counted(done: list[Any]) -> None:
        hand_overs.append(len(done))
        deliver(done)

    monkeypatch.setattr(database_thread, "_deliver", counted)
    ended = list[tuple[Any, BaseException | None]]()
    for number in range(3):
        thread.write_later(log.write(number), lambda answer, error: ended.append((answer, error)))
    assert not log.transactions
    assert await thread.write(log.write("now")) == "now"
    assert log.transactions == [[0, 1, 2, "now"]]
    assert ended == [(0, None), (1, None), (2, None)], "before the one who waits goes on"
    assert hand_overs == [4]
    thread.close()


async def test_what_nothing_follows_is_done_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_thread, "LATER_S", 0.0)
    thread, log, ended = DatabaseThread("test"), Log(), asyncio.Event()
    thread.write_later(log.write(0), ignore)
    thread.write_later(log.write(1), lambda answer, error: ended.set())
    await ended.wait()
    assert log.transactions == [[0, 1]]
    thread.close()


@pytest.mark.usefixtures("_no_timer")
def test_what_a_loop_that_has_ended_left_is_done_by_the_next_or_at_the_end() -> None:
    thread, log = DatabaseThread("test"), Log()

    async def leave(value: str) -> None:
        thread.write_later(log.write(value), ignore)

    asyncio.run(leave("a"))
    assert asyncio.run(thread.do(log.transactions.copy)) == [["a"]]
    asyncio.run(leave("b"))
    thread.settle()
    assert log.transactions == [["a"], ["b"]]
    asyncio.run(leave("c"))
    thread.close()
    assert log.transactions == [["a"], ["b"], ["c"]]


async def test_a_loop_has_a_timer_although_another_one_that_has_ended_had_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, log = DatabaseThread("test"), Log()

    ended = asyncio.Event()

    async def leave() -> None:
        thread.write_later(log.write("a"), ignore)

    monkeypatch.setattr(database_thread, "LATER_S", 3600.0)
    await asyncio.to_thread(asyncio.run, leave())
    monkeypatch.setattr(database_thread, "LATER_S", 0.0)
    thread.write_later(log.write("b"), lambda answer, error: ended.set())
    await ended.wait()
    assert log.transactions == [["a", "b"]]
    thread.close()


@pytest.mark.usefixtures("_no_timer")
async def test_checkpoints_are_committed_after_what_they_refer_to() -> None:
    thread, records, checkpoints = DatabaseThread("test"), Log(), Log()
    order: list[Any] = []
    records.transactions = checkpoints.transactions = order
    for number in range(2):
        thread.write_later(checkpoints.write(f"checkpoint {number}", is_checkpoint=True), ignore)
        thread.write_later(records.write(f"record {number}"), ignore)
    await thread.do(int)
    assert order == [["record 0", "record 1"], ["checkpoint 0", "checkpoint 1"]]
    thread.close()


async def test_the_error_of_what_nobody_waits_for_is_nobody_elses() -> None:
    thread, log = DatabaseThread("test"), Log()
    ended = list[BaseException | None]()

    def fail() -> None:
        raise ValueError("no")

    thread.write_later(Write.of(fail, log.commit), lambda _, error: ended.append(error))
    assert await thread.write(log.write("now")) == "now"
    thread.close()
    assert [type(error) for error in ended] == [ValueError]


async def test_a_shared_thread_ends_when_nobody_uses_it_any_more() -> None:
    first, second = DatabaseThread.shared("both"), DatabaseThread.shared("both")
    assert first is second
    await asyncio.to_thread(first.close)
    assert await second.do(int, 7) == 7
    await asyncio.to_thread(second.close)
    with pytest.raises(RuntimeError, match="closed"):
        await second.do(int)
    third = DatabaseThread.shared("both")
    assert await third.do(int, 7) == 7
    await asyncio.to_thread(third.close)

import asyncio
import threading

import pytest

from openmanus_graph.backends.persistence.database_thread import DatabaseThread
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

"""What the garbage collector sees while agents run, and that it sees all again afterwards."""

import asyncio
import gc
from collections.abc import Iterator

import pytest
from langchain_core.tools import tool

from openmanus_graph import build_manus_graph
from tests.support.graphs import calls, run_graph


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """What froze the process before this test is not what it is about."""
    gc.unfreeze()
    yield
    gc.unfreeze()


def many() -> list[list[int]]:
    """Objects that the collector looks at."""
    return [[number] for number in range(50_000)]


async def test_what_there_was_before_a_run_is_set_aside_until_its_end() -> None:
    seen: list[int] = []
    there = many()

    @tool
    async def look() -> str:
        """Look."""
        seen.append(gc.get_freeze_count())
        return "looked"

    await run_graph(build_manus_graph(tools=[look]), calls(("look", {})), "done")
    assert seen[0] >= len(there)
    assert gc.get_freeze_count() == 0


async def test_it_is_taken_back_when_the_last_of_several_runs_ends_even_by_cancellation() -> None:
    there, waiting, released = many(), asyncio.Event(), asyncio.Event()
    counts: list[int] = []

    @tool
    async def wait() -> str:
        """Wait."""
        waiting.set()
        await released.wait()
        return "waited"

    @tool
    async def nothing() -> str:
        """Do nothing."""
        return "done"

    long = asyncio.create_task(
        run_graph(build_manus_graph(tools=[wait]), calls(("wait", {})), "never")
    )
    await waiting.wait()
    await run_graph(build_manus_graph(tools=[nothing]), calls(("nothing", {})), "done")
    counts.append(gc.get_freeze_count())
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert counts[0] >= len(there)
    assert gc.get_freeze_count() == 0


async def test_a_process_that_froze_its_objects_itself_is_left_alone() -> None:
    @tool
    async def nothing() -> str:
        """Do nothing."""
        return "done"

    there = many()
    gc.freeze()
    await run_graph(build_manus_graph(tools=[nothing]), calls(("nothing", {})), "done")
    assert gc.get_freeze_count() >= len(there)

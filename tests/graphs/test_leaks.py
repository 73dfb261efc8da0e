"""Embedding: runs and their ends leave nothing behind, and graphs share nothing by accident."""

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from openmanus_graph import Context, build_manus_graph, close, open_session
from openmanus_graph.runtime.session_registry import close_all, find_session
from openmanus_graph.tools import default_tools
from tests.support.awkward_site import awkward_site
from tests.support.cli import until
from tests.support.graphs import calls, run_graph, scripted

pytestmark = pytest.mark.slow

PYTHON = ("python_execute", {"code": "x = 1; print(x)"})
JOB = ("bash", {"command": "sleep 1000 & echo started"})


@dataclass(frozen=True)
class Held:
    """What this process holds."""

    children: frozenset[int]
    descriptors: tuple[str, ...]
    """What they lead to."""
    threads: frozenset[str]

    def within(self, other: "Held") -> bool:
        """Say whether it is no more than another: what tests before left may go meanwhile."""
        fewer = len(self.descriptors) <= len(other.descriptors) and self.threads <= other.threads
        return fewer and self.children <= other.children


def is_alive(child: psutil.Process) -> bool:
    try:
        return child.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(child: psutil.Process) -> list[psutil.Process]:
    try:
        return child.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def held(but: frozenset[int] = frozenset()) -> Held:
    """Return what this process holds, but the given children, whose own come and go."""
    gc.collect()
    ours = [child for child in psutil.Process().children() if child.pid not in but]
    children = [*ours, *(below for child in ours for below in descendants(child))]
    alive = frozenset(child.pid for child in children if is_alive(child))
    # asyncio's own pool keeps its threads; how many there are depends on what ran at once.
    threads = {thread.name for thread in threading.enumerate() if "asyncio_" not in thread.name}
    descriptors = tuple(sorted(os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()))
    return Held(alive, descriptors, frozenset(threads))


async def complete() -> None:
    """Run to the end, on a thread that nobody owns."""
    async with AsyncSqliteSaver.from_conn_string("threads.db") as saver:
        graph = build_manus_graph(checkpointer=saver)
        made = calls(PYTHON, JOB)
        await run_graph(graph, made, "done", config=thread("complete"))


async def cancelled() -> None:
    """Cancel while calls are under way."""
    graph = build_manus_graph(checkpointer=InMemorySaver())
    wait = "import time; open('begun', 'w').close(); time.sleep(1000)"
    made = calls(JOB, ("python_execute", {"code": wait}))
    run = asyncio.ensure_future(run_graph(graph, made, config=thread("cancelled")))
    begun = Path("work/begun")
    await asyncio.to_thread(until, begun.exists)
    await asyncio.to_thread(begun.unlink)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def left() -> None:
    """Stop listening to a run in its middle."""
    graph: Any = build_manus_graph(checkpointer=InMemorySaver())
    context = Context(model=scripted(calls(JOB), "done"), workspace="work")
    given = {"messages": [("user", "x")]}
    stream = graph.astream(given, thread("left"), context=context, stream_mode="custom")
    async for event in stream:
        if event["type"] == "tool_start":
            break
    await stream.aclose()


async def browsing() -> None:
    """Use the browser."""
    graph = build_manus_graph(checkpointer=InMemorySaver())
    with awkward_site() as site:
        opened = calls(("browser_use", {"action": "go_to_url", "url": f"{site}/article"}))
        host = site.removeprefix("http://")
        ran = await run_graph(
            graph, opened, "done", config=thread("web"), allow_hosts=(host,), policy="auto"
        )
    assert "The tower" in ran.results()[0]


async def threadless() -> None:
    """Run without any thread, and without a checkpointer."""
    await run_graph(build_manus_graph(), calls(JOB), "done")


@pytest.fixture(scope="module", autouse=True)
def others() -> frozenset[int]:
    """Let go of what tests before these left open; the children that are not ours to count."""
    close_all()
    return held().children


def thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


@pytest.mark.parametrize("use", [complete, cancelled, left, browsing, threadless])
async def test_nothing_is_left_after_closing(
    use: Callable[[], Awaitable[None]], others: frozenset[int]
) -> None:
    await use()
    await close()
    await asyncio.to_thread(until, lambda: not held(others).children)
    before = held(others)
    await use()
    await close()
    with contextlib.suppress(AssertionError):  # it may still be ending
        await asyncio.to_thread(until, lambda: held(others).within(before))
    after = held(others)
    assert after.within(before), f"{after} is more than {before}"


@pytest.mark.parametrize(("made", "stays"), [((), False), ((calls(PYTHON),), True)])
async def test_only_a_session_with_something_open_outlives_its_run(
    made: tuple[Any, ...], stays: bool
) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    timers = sum(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    await run_graph(graph, *made, "done", config=thread("idle"))
    now = sum(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    assert (find_session("idle") is not None, now - timers) == (stays, int(stays))
    await close()


async def test_a_thread_that_is_owned_or_runs_keeps_what_it_has(others: frozenset[int]) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    more = calls(("python_execute", {"code": "print(x + 1)"}), prefix="d")
    model = scripted(calls(PYTHON), "done", more, "done")
    async with open_session("t"):
        await run_graph(graph, model=model, config=thread("t"))
        await close()
        ran = await run_graph(graph, model=model, config=thread("t"))
        assert held(others).children
    assert ran.results()[-1] == "2"
    await asyncio.to_thread(until, lambda: not held(others).children)


async def test_two_graphs_on_threads_of_one_name_share_nothing_while_they_run() -> None:
    async def count(number: int) -> list[str]:
        graph = build_manus_graph(checkpointer=InMemorySaver())
        made = [
            calls(("python_execute", {"code": f"x = {number}"})),
            calls(("python_execute", {"code": "print(x)"}), ("bash", {"command": "pwd"})),
        ]
        ran = await run_graph(
            graph, *made, "done", config=thread("same"), workspace=f"work{number}"
        )
        return ran.results()

    found = await asyncio.gather(count(1), count(2))
    assert [results[1] for results in found] == ["1", "2"]
    assert [Path(results[2]).name for results in found] == ["work1", "work2"]
    await close()


def test_two_graphs_have_tools_and_prompts_of_their_own() -> None:
    mine = [tool for tool in default_tools() if tool.name == "bash"]
    first = build_manus_graph(tools=mine, prompts={"system": "one"}, name="first")
    second = build_manus_graph(name="second")
    assert first.name != second.name
    assert first.nodes is not second.nodes
    assert first.config != second.config

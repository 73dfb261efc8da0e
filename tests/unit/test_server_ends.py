"""What hangs in a server keeps neither its other work waiting, nor its process from ending."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolRuntime

from openmanus_graph import build_manus_graph
from openmanus_graph.interfaces.server import files
from openmanus_graph.runtime.session_registry import close_all_at_once
from openmanus_graph.runtime.tool_runtime import call_runtime
from tests.support.graphs import calls, run_graph
from tests.support.limits import BACKSTOP_S

HANGING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from openmanus_graph.interfaces.service.http import end_in_time
for _ in range(3):
    ThreadPoolExecutor().submit(threading.Event().wait)
end_in_time(0.2)
"""
"""Python itself waits at its end for threads of a pool."""


def test_a_process_with_hanging_threads_ends_in_time() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], check=False, timeout=BACKSTOP_S)
    assert done.returncode == 1


async def test_uploads_and_other_work_do_not_wait_for_each_other() -> None:
    go_on = threading.Event()
    try:
        uploads = [files.for_uploads(go_on.wait) for _ in range(50)]
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "other work"), BACKSTOP_S)
        go_on.set()
        await asyncio.gather(*uploads)
        go_on.clear()
        others = [asyncio.create_task(asyncio.to_thread(go_on.wait)) for _ in range(50)]
        assert await asyncio.wait_for(files.for_uploads(lambda: "an upload"), BACKSTOP_S)
        go_on.set()
        await asyncio.gather(*others)
    finally:
        go_on.set()


class Meeting:
    """A handle that is closed once all others are being closed, too."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self.barrier = barrier

    def close(self) -> None:
        self.barrier.wait(BACKSTOP_S)

    def handle_state(self) -> str:
        return ""


async def test_all_sessions_are_closed_at_once(tmp_path: Path) -> None:
    barrier = threading.Barrier(20)

    @tool
    def meet(runtime: ToolRuntime[Any, Any]) -> str:
        """Open a handle."""
        call_runtime(runtime).session.handle("meeting", lambda: Meeting(barrier))
        return "open"

    graph = build_manus_graph(tools=[meet], checkpointer=InMemorySaver())
    for number in range(20):
        config: Any = {"configurable": {"thread_id": f"t{number}"}}
        await run_graph(graph, calls(("meet", {})), "done", config=config)
    await close_all_at_once()
    assert not barrier.broken

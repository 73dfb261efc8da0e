"""What the replay of a run takes, beside the run itself."""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from bench.subjects import TEXT
from openmanus_graph import Context, build_manus_graph, close, manus_tool
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.recording import read_recording
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import database_url
from openmanus_graph.runtime.limits import RECURSION_LIMIT
from openmanus_graph.testing import ScriptedChatModel, replay

THREAD = "t"
T = TypeVar("T")


@manus_tool(effect="workspace")
def note(n: int, text: str) -> str:
    """Note a text."""
    return f"noted {n} {TEXT} {len(text)}"


def measure_replays(*, quick: bool) -> list[list[str]]:
    """Return a row for each number of steps: seconds and CPU seconds of the run and its replay."""
    return [asyncio.run(_row(steps)) for steps in ((10,) if quick else (50, 300))]


async def _row(steps: int) -> list[str]:
    before = os.environ.get("OPENMANUS_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPENMANUS_HOME"] = folder
        try:
            _, run_s = await _timed(_run(steps, Path(folder, "work")))
            await close()
            url = database_url()
            known = Thread(THREAD, "manus", "go", {}, "finished", "", "")
            record, read_s = await _timed(read_recording(url, known))
            context = Context(model=_model(0), max_steps=steps, workspace=str(Path(folder, "work")))
            graph = build_manus_graph(tools=[note], checkpointer=InMemorySaver())
            found, replay_s = await _timed(replay(record, graph, context))
            if not found.is_equal:
                raise RuntimeError(found.first_difference())
        finally:
            os.environ.pop("OPENMANUS_HOME")
            if before is not None:
                os.environ["OPENMANUS_HOME"] = before
    both = tuple(map(sum, zip(read_s, replay_s, strict=True)))
    return [str(steps), *(f"{wall:.1f} ({cpu:.1f})" for wall, cpu in (run_s, both))]


async def _run(steps: int, workspace: Path) -> None:
    config: RunnableConfig = {
        "configurable": {"thread_id": THREAD},
        "recursion_limit": RECURSION_LIMIT,
    }
    context = Context(model=_model(steps), max_steps=steps, workspace=str(workspace))
    async with open_checkpointer(database_url()) as saver:
        graph: Any = build_manus_graph(tools=[note], checkpointer=saver)
        given = {"messages": [HumanMessage("go")]}
        await graph.ainvoke(given, config, context=context, durability="sync")


def _model(steps: int) -> ScriptedChatModel:
    made = [
        AIMessage(
            f"step {n}",
            tool_calls=[tool_call(name="note", args={"n": n, "text": "x" * 700}, id=f"call_{n}")],
        )
        for n in range(steps - 1)
    ]
    return ScriptedChatModel([*made, "done"])


async def _timed(work: Awaitable[T]) -> tuple[T, tuple[float, float]]:
    began, cpu = time.perf_counter(), time.process_time()
    result = await work
    return result, (time.perf_counter() - began, time.process_time() - cpu)

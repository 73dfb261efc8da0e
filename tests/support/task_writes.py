"""Processes that are killed while tasks' writes are on their way to the database.

`python -m tests.support.task_writes SCENE`; resumed in the same way, without being killed again.
"""

import asyncio
import contextlib
import operator
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from openmanus_graph.backends.persistence import database_thread
from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.sqlite_checkpointer import checkpoints_file
from openmanus_graph.config.resolve import database_url
from tests.support.group_writing import Acting

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
PATH = "~__pregel_pull, node"
"""Of a task that a graph runs."""
NEVER_S = 3600.0


def kill() -> None:
    """End the process as nothing else does."""
    os.kill(os.getpid(), signal.SIGKILL)


def note(name: str) -> None:
    """Write down, beside the database, that a node ran."""
    with Path("ran.log").open("a") as ran:
        ran.write(f"{name}\n")


def ran() -> list[str]:
    """Return the nodes that ran, in order."""
    return Path("ran.log").read_text().split()


def stored_channels() -> set[str]:
    """Return the channels of which another connection finds writes."""
    url = database_url()
    if url.is_local:
        with contextlib.closing(sqlite3.connect(checkpoints_file(url))) as connection:
            return {row[0] for row in connection.execute("SELECT channel FROM writes")}
    import psycopg

    with psycopg.connect(url.secret.get_secret_value()) as connection:
        found = connection.execute("SELECT channel FROM checkpoint_writes")
        return {row[0] for row in found.fetchall()}


class State(TypedDict, total=False):
    """Of the graph with two nodes side by side."""

    quick: Annotated[list[str], operator.add]
    slow: str


def two_nodes(saver: Checkpointer, quick: Any, slow: Any) -> Any:
    """Return a graph whose two nodes run at the same time."""
    graph = StateGraph(State)
    for name, node in (("quick", quick), ("slow", slow)):
        graph.add_node(name, node)
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph.compile(checkpointer=saver)


async def checkpoint_fails_to_be_written(saver: Checkpointer) -> None:
    """Be killed when a task's writes are executed, and its checkpoint is not yet."""
    stored = await saver.aput(CONFIG, empty_checkpoint(), {"step": 1}, {})
    await saver.aput_writes(stored, [("quick", 1)], "task", PATH)
    killing = empty_checkpoint()
    killing["channel_values"] = {"value": Acting()}
    await saver.aput(stored, killing, {"step": 2}, {"value": 1})


async def task_has_ended(saver: Checkpointer) -> None:
    """Be killed by a task, once another one's writes are stored."""

    async def quick(state: State) -> State:
        note("quick")
        return {"quick": ["done"]}

    async def slow(state: State) -> State:
        note("slow")
        if ran().count("slow") == 1:
            while "quick" not in await asyncio.to_thread(stored_channels):
                pass
            kill()
        return {"slow": "done"}

    await run_or_resume(two_nodes(saver, quick, slow))


async def task_asks(saver: Checkpointer) -> None:
    """Be killed when the run has paused: one task asks, and the other ends after that."""
    database_thread.LATER_S = NEVER_S
    asked = asyncio.Event()

    async def quick(state: State) -> State:
        asked.set()
        return {"slow": interrupt("Which?")}

    async def slow(state: State) -> State:
        note("slow")
        await asked.wait()
        await asyncio.sleep(0)  # the question is on its way
        return {"quick": ["done"]}

    graph = two_nodes(saver, quick, slow)
    if await saver.aget_tuple(CONFIG) is not None:
        asked.set()
        await say(await graph.ainvoke(Command(resume="this"), CONFIG, durability="sync"))
        return
    await graph.ainvoke({}, CONFIG, durability="sync")
    kill()


async def run_or_resume(graph: Any) -> None:
    """Begin the thread, or go on with it, and print its end."""
    found = await graph.aget_state(CONFIG)
    given = None if found.next else {"slow": ""}
    await say(await graph.ainvoke(given, CONFIG, durability="sync"))


async def say(state: Any) -> None:
    """Print how it ended."""
    sys.stdout.write(f"{state}\n")


SCENES = {
    scene.__name__: scene for scene in (checkpoint_fails_to_be_written, task_has_ended, task_asks)
}


async def main(scene: str) -> None:
    """Play a scene."""
    async with open_checkpointer(database_url()) as saver:
        await SCENES[scene](saver)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

"""A process that writes in groups until it is killed.

`python -m tests.support.group_writing SCENE`; each line that it prints names the thread of a
checkpoint that it was told is written.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from typing_extensions import override

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.config.resolve import database_url

WRITERS = 20


class Acting(list[Any]):
    """A list that does something when it is written, in the midst of its group."""

    @override
    def __iter__(self) -> Iterator[Any]:
        """Is called by our serializer."""
        self.act()
        return iter(())

    def act(self) -> None:
        """End the process as nothing else does."""
        os.kill(os.getpid(), signal.SIGKILL)


class Waiting(Acting):
    """Keeps the writer until others wait for it."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def act(self) -> None:
        """Wait."""
        self.begun.set()
        self.go.wait()


async def put(saver: Checkpointer, thread: str, value: Any = None) -> None:
    """Write a checkpoint, and say so once that is answered."""
    config: RunnableConfig = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"value": value}
    await saver.aput(config, checkpoint, {"step": 1}, {"value": 1})
    sys.stdout.write(f"{thread}\n")
    sys.stdout.flush()


async def put_together(saver: Checkpointer, *writes: tuple[str, Any]) -> None:
    """Write checkpoints that wait for the writer together."""
    first = Waiting()
    tasks = [asyncio.create_task(put(saver, "first", first))]
    await asyncio.to_thread(first.begun.wait)
    tasks += [asyncio.create_task(put(saver, *write)) for write in writes]
    await asyncio.sleep(0)
    first.go.set()
    await asyncio.gather(*tasks)


async def die_between(saver: Checkpointer) -> None:
    """Be killed between the writes of one group."""
    await put(saver, "acknowledged")
    await put_together(saver, ("before", None), ("killing", Acting()), ("after", None))


async def go_on(saver: Checkpointer) -> None:
    """Write with many at once until somebody else kills this process."""

    async def writer(name: int) -> None:
        for number in count():
            await put(saver, f"{name}-{number}")

    await asyncio.gather(*map(writer, range(WRITERS)))


async def main(scene: str) -> None:
    """Play a scene."""
    async with open_checkpointer(database_url()) as saver:
        await {"between": die_between, "many": go_on}[scene](saver)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

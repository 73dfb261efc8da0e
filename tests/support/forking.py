"""A process that forks while it holds things open: `python -m tests.support.forking WHAT FOLDER`.

The child uses them and ends as programs end; then the parent does. Both write what they found.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.config.resolve import database_url
from tests.support.graphs import calls, run_graph
from tests.support.mcp_servers import raw

THREAD: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def in_both(use: Callable[[str], Any]) -> None:
    """Fork, and use something in the child and afterwards in the parent."""
    child = os.fork()
    if not child:
        carried = [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()]
        assert not [name for name in carried if ".db" in name], "SQLite forbids that"
    else:
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the child ended with {status}"
    who = "parent" if child else "child"
    sys.stdout.write(json.dumps({who: use(who)}) + "\n")
    sys.stdout.flush()


def fork_with_database(home: Path) -> None:
    """Write to the table of threads, by the call that blocks and by the one that does not."""
    database = open_database(database_url())
    threads = Threads(database)

    def use(who: str) -> Any:
        threads.begin(who, "manus", "task", {}, None)
        return asyncio.run(database.arun("SELECT id FROM threads ORDER BY rowid"))

    use("before")
    in_both(use)


def fork_with_checkpoints(home: Path) -> None:
    """Write a checkpoint with a saver that was opened before."""
    opened = AsyncExitStack()
    # Neither closed, which would end the saver, nor used again: the child shares its epoll.
    loop = asyncio.new_event_loop()
    saver = loop.run_until_complete(opened.enter_async_context(open_checkpointer(database_url())))

    def use(who: str) -> int:
        async def write_and_count() -> int:
            await saver.aput(THREAD, empty_checkpoint(), {"step": 1}, {})
            return len([one async for one in saver.alist(THREAD)])

        return asyncio.run(write_and_count())

    use("before")
    in_both(use)
    asyncio.run(opened.aclose())


def fork_with_tools(folder: Path) -> None:
    """Go on with a thread whose agent has a browser, an MCP server, a shell and a kernel."""
    graph = build_manus_graph(extra_tools=[raw(approval=False)], checkpointer=InMemorySaver())
    look = (
        ("browser_use", {"action": "get_state"}),
        ("bash", {"command": "echo shell $IN_SHELL"}),
        ("python_execute", {"code": "print('kernel', globals().get('x'))"}),
        ("mcp_raw_pay", {"text": "1"}),
    )
    begin = (
        ("browser_use", {"action": "go_to_url", "url": f"{os.environ['SITE']}/forms.html"}),
        ("bash", {"command": "IN_SHELL=set"}),
        ("python_execute", {"code": "x = 1"}),
        ("mcp_raw_pay", {"text": "1"}),
    )

    def use(*made: tuple[str, dict[str, Any]]) -> list[str]:
        async def run() -> list[str]:
            answers = [calls(one) for one in made]
            more: dict[str, Any] = {"allow_hosts": ("127.0.0.1",), "policy": "auto"}
            ran = await run_graph(
                graph, *answers, "done", config=THREAD, workspace=str(folder), **more
            )
            return ran.results()[-len(made) :]

        return asyncio.run(run())

    sys.stdout.write(json.dumps({"before": use(*begin)}) + "\n")
    sys.stdout.flush()  # else the child writes it, too
    in_both(lambda who: use(*look))


SCENES = {
    "database": fork_with_database,
    "checkpoints": fork_with_checkpoints,
    "tools": fork_with_tools,
}

if __name__ == "__main__":
    SCENES[sys.argv[1]](Path(sys.argv[2]))

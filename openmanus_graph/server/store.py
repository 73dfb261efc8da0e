"""What the routes know of threads: the tables, and the state of a thread's graph."""

import asyncio
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from langgraph.types import StateSnapshot

from openmanus_graph.agents import agent_names, build_agent
from openmanus_graph.cli.failures import prepare_home
from openmanus_graph.cli.lock import is_running
from openmanus_graph.config import resolve_settings
from openmanus_graph.config.resolve import openmanus_home
from openmanus_graph.persistence.database import open_database
from openmanus_graph.persistence.journal import JournalTable
from openmanus_graph.persistence.threads import Thread, Threads
from openmanus_graph.server.checkpoints import saver
from openmanus_graph.server.journal import Journal
from openmanus_graph.server.options import context_of
from openmanus_graph.state.context import Context
from openmanus_graph.workspace import Workspace


@dataclass(frozen=True)
class Store:
    """The home folder's threads and their events."""

    home: Path
    threads: Threads
    journal: Journal

    async def find(self, thread: str) -> Thread | None:
        """Return a thread as it stands, None if it never ran."""
        found = await asyncio.to_thread(self.threads.find, thread)
        return None if found is None else await self.as_it_stands(found)

    async def as_it_stands(self, thread: Thread) -> Thread:
        """Tell a run that was cut off from one that goes on."""
        if thread.status != "running" or self.journal.is_running(thread.id):
            return thread
        running = await asyncio.to_thread(is_running, self.home, thread.id)
        return thread if running else replace(thread, status="interrupted")

    async def is_held_elsewhere(self, thread: str) -> bool:
        """Say whether another process works on a thread."""
        if self.journal.is_running(thread):
            return False
        return await asyncio.to_thread(is_running, self.home, thread)

    async def workspace(self, thread: str) -> Workspace:
        """Return a thread's folder. ConfigError if the configuration is wrong."""
        return await asyncio.to_thread(self._workspace, thread)

    def _workspace(self, thread: str) -> Workspace:
        known = self.threads.find(thread)
        context = Context(**context_of(known.options)) if known else Context()
        settings = resolve_settings(context, thread)
        return Workspace(settings.workspace, settings.protected)


_open: list[Store] = []


async def open_store() -> Store:
    """Open the store for as long as the server runs. ConfigError if the home cannot be written."""

    def tables() -> tuple[Path, Threads, JournalTable]:
        home = openmanus_home()
        prepare_home(home)
        database = open_database(home)
        return home, Threads(database), JournalTable(database)

    home, threads, events = await asyncio.to_thread(tables)
    _open[:] = [Store(home, threads, Journal(events, asyncio.get_running_loop()))]
    return _open[0]


def store() -> Store:
    """Return the server's store."""
    return _open[0]


async def state_of(thread: str, agent: str) -> StateSnapshot | None:
    """Read a thread's state; None for an agent that is not ours, or whose package is gone."""
    graph = await graph_of(agent)
    if graph is None:
        return None
    state: StateSnapshot = await graph.aget_state({"configurable": {"thread_id": thread}})
    return state


async def graph_of(agent: str) -> Any:
    """Return an agent's graph over the server's checkpoints, None if there is none."""
    if agent not in agent_names():
        return None
    return await asyncio.to_thread(_built, agent, saver())


@cache
def _built(agent: str, checkpointer: Any) -> Any:
    return build_agent(agent, checkpointer=checkpointer)

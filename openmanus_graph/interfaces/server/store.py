"""Access of the routes to threads: the database's tables, and the state of a thread's graph."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from langgraph.types import StateSnapshot
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.config import resolve_settings
from openmanus_graph.config.declared import declared
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import context_field, database_url
from openmanus_graph.graphs.catalog import agent_names, build_agent
from openmanus_graph.interfaces.server.checkpoints import saver
from openmanus_graph.interfaces.server.journal import Journal
from openmanus_graph.interfaces.service.failures import prepare_home
from openmanus_graph.interfaces.service.final_event import agents_within, final_event
from openmanus_graph.interfaces.service.lock import is_running
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.runner import options_to_keep
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

_OPTION_OF = {
    name: one.setting.option.lstrip("-").replace("-", "_")
    for one in declared().values()
    if one.setting.option and (name := context_field(one)) is not None
}
"""The options by the fields of the context, where those are declared."""
_FIELD_OF = {option: name for name, option in _OPTION_OF.items()}
_CONTEXT = {field.name for field in fields(Context)}
_KEPT = {field.name for field in fields(RunOptions)} - {"secret"}


def options_of(context: Context | None, settings: Settings) -> dict[str, Any]:
    """Return the options of a run's context to store: no keys, no passwords, no live objects."""
    kept: dict[str, Any] = {}
    for field in fields(Context):
        value, option = getattr(context, field.name, None), _OPTION_OF.get(field.name, field.name)
        if value is not None and option in _KEPT:
            kept[option] = [*value] if option == "allow_host" else value
    if not isinstance(kept.get("model"), str):
        kept.pop("model", None)
    return options_to_keep(kept, settings)


def context_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a thread's options as the fields of a run's context."""
    named = {_FIELD_OF.get(option, option): value for option, value in options.items()}
    return {name: value for name, value in named.items() if name in _CONTEXT and value is not None}


@dataclass(frozen=True)
class Store:
    """The home folder's threads and their events."""

    home: Path
    threads: Threads
    journal: Journal

    async def find(self, thread: str) -> Thread | None:
        """Return a thread with its current status, None if it never ran."""
        found = await asyncio.to_thread(self.threads.find, thread)
        return None if found is None else await self.with_live_status(found)

    async def with_live_status(self, thread: Thread) -> Thread:
        """Return a thread whose status is `interrupted` where its run has died."""
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
        return Workspace.of(await self.settings(thread))

    async def settings(self, thread: str) -> Settings:
        """Return a thread's settings but for its model. ConfigError if one is wrong."""
        return await asyncio.to_thread(self._settings, thread)

    def _settings(self, thread: str) -> Settings:
        known = self.threads.find(thread)
        context = Context(**context_of(known.options)) if known else Context()
        return resolve_settings(context, thread, without_model=True)


_open: list[Store] = []


async def open_store() -> Store:
    """Open the store for as long as the server runs. ConfigError if the home cannot be written."""

    def tables() -> tuple[Path, Threads, JournalTable]:
        home = openmanus_home()
        prepare_home(home)
        database = open_database(database_url())
        return home, Threads(database), JournalTable(database)

    home, threads, events = await asyncio.to_thread(tables)
    _open[:] = [Store(home, threads, Journal(events, asyncio.get_running_loop()))]
    return _open[0]


def store() -> Store:
    """Return the server's store."""
    return _open[0]


async def state_of(thread: str, agent: str) -> StateSnapshot | None:
    """Read a thread's state; None for an agent that is not registered (any more)."""
    graph = await graph_of(agent)
    if graph is None:
        return None
    state: StateSnapshot = await graph.aget_state({"configurable": {"thread_id": thread}})
    return state


async def read_final_event(
    thread: str, agent: str, state: StateSnapshot, *, cancelled: bool
) -> dict[str, Any]:
    """Return the `final` event of a thread's last run, read off its state."""
    agents = await agents_within(agent, thread, state, saver())
    return final_event(state, agents=agents, cancelled=cancelled)


async def graph_of(agent: str) -> Any:
    """Return an agent's graph over the server's checkpoints, None if there is none."""
    if agent not in agent_names():
        return None
    return await asyncio.to_thread(_build, agent, saver())


@cache
def _build(agent: str, checkpointer: Any) -> Any:
    return build_agent(agent, checkpointer=checkpointer)


@dataclass(frozen=True)
class OwnServer:
    """What routes need to know of the server."""

    connect: Callable[[], LangGraphClient]
    """Returns a client of its API, with the token."""
    is_alone: bool
    """Whether one process does all runs, those on one thread in order. Where several do, a second
    run on a thread is refused, and what works on it is seen by its lease."""


_servers = [OwnServer(get_client, is_alone=True)]
"""LangGraph's SDK finds LangGraph's own server in the process."""


def own_server() -> OwnServer:
    """Return the server."""
    return _servers[0]


def own_api() -> LangGraphClient:
    """Return a client of the server's own API."""
    return own_server().connect()


def set_own_server(server: OwnServer) -> None:
    """Name the server, where it is not LangGraph's."""
    _servers[:] = [server]

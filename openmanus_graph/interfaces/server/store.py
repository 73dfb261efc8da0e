"""Access of the routes to threads: tables, checkpoints, the state of a thread's graph."""

import asyncio
import contextlib
import math
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import httpx
from fastapi.responses import StreamingResponse
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint import base
from langgraph.types import StateSnapshot
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from typing_extensions import override

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import checkpointer_class
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.backends.persistence.sqlite_checkpointer import LeanSqliteSaver
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.config.files import declared_fields
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url, resolve_settings, server_settings
from openmanus_graph.graphs.catalog import agent_names, build_agent
from openmanus_graph.interfaces.server.journal import Journal
from openmanus_graph.interfaces.server.turns import Turns
from openmanus_graph.interfaces.service import accounts
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.own_process import prepare_home
from openmanus_graph.interfaces.service.run_view import agents_within, final_event
from openmanus_graph.interfaces.service.runner import options_to_keep
from openmanus_graph.interfaces.service.threads import forget_thread, is_running
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.session_registry import close_session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import Context
from openmanus_graph.state.server_settings import ServerSettings
from openmanus_graph.state.settings import Settings

VERSION_DIGITS = 32
DEFAULT_JOBS = 8
OPENAI_PREFIX = "/v1"
OWNER_KEY = "owner"
"""Of a thread's metadata in LangGraph's server."""
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error"}
_SERVER_ERROR = 500
_OPTION_OF = {
    one.context: one.option
    for one in declared_fields()
    if one.option and one.context not in (None, "mcp_servers")
}
"""The options by the fields of the context. MCP servers are not kept."""
_FIELD_OF = {option: name for name, option in _OPTION_OF.items()}
_CONTEXT = [field.name for field in fields(Context)]
_KEPT = {field.name for field in fields(RunOptions)} - {"secret"}
_THREAD_NAME = re.compile(r"[^\x00-\x1f/\\]{1,200}")


def openai_error(refusal: Refused) -> dict[str, Any]:
    """Return the body of a refusal in OpenAI's protocol."""
    usual = "server_error" if refusal.status >= _SERVER_ERROR else "invalid_request_error"
    kind = _OPENAI_TYPES.get(refusal.status, usual)
    error = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}
    return {"error": error}


def event_stream(chunks: AsyncGenerator[str]) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(chunks, media_type="text/event-stream", headers=headers)


class ServerSaver(Checkpointer):
    """Our saver for the server, which deletes and copies whole threads with it.

    Used as the first base of a class, before a saver's.
    """

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await super().adelete_thread(thread_id)
        await self.database.off_loop(partial(forget_thread, thread_id))
        await asyncio.to_thread(close_session, thread_id)

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await super().acopy_thread(source_thread_id, target_thread_id)
        # The copy can go back to the files of the original.
        snapshots = SnapshotStore(await asyncio.to_thread(openmanus_home))
        await asyncio.to_thread(snapshots.share, str(source_thread_id), str(target_thread_id))
        owners = await asyncio.to_thread(accounts.accounts)
        owner = await asyncio.to_thread(owners.owner_of, str(source_thread_id))
        await asyncio.to_thread(owners.claim, str(target_thread_id), owner or "")


class SqliteServerSaver(ServerSaver, LeanSqliteSaver):
    """The saver of SQLite for the server.

    The server uses long strings as channel versions, our own runs use numbers. The file has
    numbers, so that both can resume a thread.
    """

    @override
    async def aget_tuple(self, config: RunnableConfig) -> base.CheckpointTuple | None:
        found = await super().aget_tuple(config)
        return None if found is None else _with_text_versions(found)

    @override
    async def alist(
        self, config: RunnableConfig | None, **options: Any
    ) -> AsyncIterator[base.CheckpointTuple]:
        async for found in super().alist(config, **options):
            yield _with_text_versions(found)

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: base.Checkpoint,
        metadata: base.CheckpointMetadata,
        new_versions: base.ChannelVersions,
    ) -> RunnableConfig:
        numbered = _convert_versions(checkpoint, _as_number)
        return await super().aput(config, numbered, metadata, new_versions)


def _with_text_versions(found: base.CheckpointTuple) -> base.CheckpointTuple:
    def as_text(version: str | int | float) -> str:
        return f"{_as_number(version):0{VERSION_DIGITS}}.0"

    return found._replace(checkpoint=_convert_versions(found.checkpoint, as_text))


def _as_number(version: str | int | float) -> int:
    return int(str(version).partition(".")[0])


def _convert_versions(
    checkpoint: base.Checkpoint, convert: Callable[[Any], Any]
) -> base.Checkpoint:
    seen = {
        node: {name: convert(version) for name, version in known.items()}
        for node, known in checkpoint["versions_seen"].items()
    }
    versions = {name: convert(version) for name, version in checkpoint["channel_versions"].items()}
    changed = {**checkpoint, "channel_versions": versions, "versions_seen": seen}
    return cast("base.Checkpoint", changed)


_savers: list[ServerSaver] = []


@contextlib.asynccontextmanager
async def open_server_saver() -> AsyncGenerator[ServerSaver]:
    """Open the saver while the server runs; langgraph.json names this function."""
    home, url = await asyncio.to_thread(openmanus_home), await asyncio.to_thread(database_url)
    await asyncio.to_thread(prepare_home, home)
    kind: type[ServerSaver] = SqliteServerSaver
    if not url.is_local:
        kind = type("PostgresServerSaver", (ServerSaver, checkpointer_class(url)), {})
    async with kind.opened(url) as saver:
        _savers.append(saver)
        try:
            yield saver
        finally:
            _savers.remove(saver)


def saver() -> ServerSaver:
    return _savers[-1]


@contextlib.asynccontextmanager
async def open_server_store() -> AsyncGenerator[DatabaseStore]:
    """Open the long-term store while the server runs; langgraph.json names this function."""
    yield await asyncio.to_thread(long_term_store)


@cache
def long_term_store() -> DatabaseStore:
    """Return the long-term store. Blocks the first time: it reads the configuration."""
    return DatabaseStore(database_url())


def options_of(context: Context | None, settings: Settings) -> dict[str, Any]:
    """Return the options of a run's context to store: no keys, no passwords, no live objects."""
    kept: dict[str, Any] = {}
    for name in _CONTEXT:
        value, option = getattr(context, name, None), _OPTION_OF.get(name, name)
        if value is not None and option in _KEPT:
            kept[option] = [*value] if option == "allow_host" else value
    if not isinstance(kept.get("model"), str):
        kept.pop("model", None)
    return options_to_keep(kept, settings)


def context_of(options: Mapping[str, Any]) -> dict[str, Any]:
    named = {_FIELD_OF.get(option, option): value for option, value in options.items()}
    return {name: value for name, value in named.items() if name in _CONTEXT and value is not None}


@dataclass(frozen=True)
class Store:
    home: Path
    threads: Threads
    journal: Journal
    server: ServerSettings
    turns: Turns

    async def find(self, thread: str) -> Thread | None:
        """Return a thread with its current status; None if it never ran."""
        found = await asyncio.to_thread(self.threads.find, thread)
        return None if found is None else await self.with_live_status(found)

    async def with_live_status(self, thread: Thread) -> Thread:
        """Return a thread, with the status `interrupted` if its run has died."""
        if thread.status != "running" or await self.is_running(thread.id):
            return thread
        return replace(thread, status="interrupted")

    async def is_running(self, thread: str) -> bool:
        """Return True if a run works on the thread, in this process or another one."""
        if self.journal.is_running(thread):
            return True
        return await asyncio.to_thread(is_running, self.home, thread)

    async def is_held_elsewhere(self, thread: str) -> bool:
        return not self.journal.is_running(thread) and await self.is_running(thread)

    async def workspace(self, thread: str) -> Workspace:
        return Workspace.of(await self.settings(thread))

    async def settings(self, thread: str) -> Settings:
        """Return a thread's settings except its model. ConfigError if one is wrong."""

        def resolve() -> Settings:
            known = self.threads.find(thread)
            context = Context(**context_of(known.options)) if known else Context()
            return resolve_settings(context, thread, without_model=True)

        return await asyncio.to_thread(resolve)


_open: list[Store] = []


async def open_store() -> Store:
    """Open the store while the server runs. ConfigError if the home cannot be written."""
    loop = asyncio.get_running_loop()

    def opened() -> Store:
        home = openmanus_home()
        prepare_home(home)
        database = open_database(database_url())
        journal, server = Journal(JournalTable(database), loop), server_settings()
        turns = Turns(server.jobs or (DEFAULT_JOBS if own_server.is_alone else math.inf))
        return Store(home, Threads(database), journal, server, turns)

    _open[:] = [await asyncio.to_thread(opened)]
    return _open[0]


def current() -> Store:
    return _open[0]


async def graph_of(agent: str) -> Any:
    if agent not in agent_names():
        return None
    return await asyncio.to_thread(_built_agent, agent, checkpointer=saver())


_built_agent = cache(build_agent)


async def state_of(thread: str, agent: str) -> StateSnapshot | None:
    graph = await graph_of(agent)
    config = {"configurable": {"thread_id": thread}}
    return None if graph is None else await graph.aget_state(config)


async def read_final_event(
    thread: str, agent: str, state: StateSnapshot, *, cancelled: bool
) -> dict[str, Any]:
    agents = await agents_within(agent, thread, state, saver())
    return final_event(state, agents=agents, cancelled=cancelled)


async def open_questions(thread: str, agent: str) -> list[dict[str, Any]]:
    """Return a thread's open questions as `interrupt` events."""
    state = await state_of(thread, agent)
    questions: list[dict[str, Any]] = []
    for waiting in () if state is None else state.interrupts:
        reviews: Any = None
        if isinstance(waiting.value, Mapping):  # a third-party graph may have anything there
            reviews = cast("Mapping[str, Any]", waiting.value).get("review_configs")
        allowed = reviews[0].get("allowed_decisions", []) if reviews else ["respond"]
        questions.append({**interrupt_event(waiting), "allowed": allowed})
    return questions


@dataclass
class OwnServer:
    connect: Callable[[], LangGraphClient]
    """Returns a client of its API, which needs no token."""
    is_alone: bool
    """Whether one process does all runs, those on one thread in order. If several processes do, a
    second run on a thread is refused, and a lease shows that a run works on it."""


own_server = OwnServer(get_client, is_alone=True)
"""LangGraph's own server, which its SDK finds in the process. Another one changes the fields."""


async def new_thread() -> str:
    """Create a thread of the current user. It is listed after its first run has started."""
    thread = str(uuid.uuid4())
    await ensure_thread(thread)
    return thread


async def ensure_thread(thread: str) -> None:
    """Create a thread in LangGraph's server unless it is there. Refused as `claim`."""
    await accounts.claim(thread)
    metadata = {OWNER_KEY: accounts.current_user().identity}
    threads = own_server.connect().threads
    await threads.create(thread_id=thread, metadata=metadata, if_exists="do_nothing")


async def delete_from_server(thread: str) -> None:
    """Delete a thread from the server's own list."""
    if is_startable(thread):
        client = own_server.connect()
        await client.threads.create(thread_id=thread, if_exists="do_nothing")
        await client.threads.delete(thread)


async def require_thread(thread: str) -> None:
    """Refused (404) unless there is a thread of the current user."""
    if not _THREAD_NAME.fullmatch(thread):
        raise Refused(404, "There is no such thread.")
    await accounts.authorize("read", thread)
    if await asyncio.to_thread(current().threads.find, thread) is not None:
        return
    with contextlib.suppress(httpx.HTTPStatusError):
        if is_startable(thread):  # LangGraph's server also lists threads without runs
            await own_server.connect().threads.get(thread)
            return
    raise Refused(404, f"There is no thread {thread}.")


def is_startable(thread: str) -> bool:
    """Return True if LangGraph's server can run a thread of this name: it takes only UUIDs."""
    try:
        return str(uuid.UUID(thread)) == thread
    except ValueError:
        return False


def as_uuid(thread: str) -> str:
    """Return a thread's name in the usual form of UUIDs, if it is one in any form."""
    with contextlib.suppress(ValueError):
        return str(uuid.UUID(thread))
    return thread

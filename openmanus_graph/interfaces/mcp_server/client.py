"""The state of one connected client: its own thread with kernel, shell and browser, and plans."""

import asyncio
import contextlib
import itertools
import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import mcp_types as types
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from openmanus_graph.config import resolve_settings
from openmanus_graph.interfaces.mcp_server.calling import QUESTIONS_KEY
from openmanus_graph.interfaces.service.session_leases import SessionLeases
from openmanus_graph.runtime.session_registry import open_session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import Artifact, PendingCall
from openmanus_graph.state.plan import Plans, no_plans
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.questions import Questions

T = TypeVar("T")


@dataclass
class Client:
    """One client, from its connection to its end."""

    graph: Any
    context: Context
    thread: str
    workspace: Workspace
    plans: Plans = field(default_factory=no_plans)
    workspaces: dict[str, Workspace] = field(default_factory=dict[str, Workspace])
    """Of its runs' threads, whose files it may read."""
    files: dict[str, list[Artifact]] = field(default_factory=dict[str, list[Artifact]])
    """What its runs have made, by thread."""
    log_level: types.LoggingLevel | None = None
    """From which level on it wants log messages; None: it has asked for none."""
    leases: SessionLeases = field(default_factory=SessionLeases)
    """Of its runs' threads."""
    _locks: weakref.WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=lambda: weakref.WeakValueDictionary[str, asyncio.Lock]()
    )
    """Of the resources that calls use or wait for."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def call(
        self, tool: BaseTool, args: dict[str, Any], questions: Questions
    ) -> ToolMessage | None:
        """Run a tool; calls that share a resource (one shell, say) run in the order they came."""
        number = next(self._numbers)
        call = PendingCall(
            id=f"mcp-{number}", name=tool.name, args=args, occurrence=number, problem=None
        )
        resource = _resource(tool, args)
        turn = self._locks.setdefault(resource, asyncio.Lock()) if resource else asyncio.Lock()
        async with turn:
            return await run_shielded(self._run(call, questions))

    async def _run(self, call: PendingCall, questions: Questions) -> ToolMessage | None:
        configurable = {"thread_id": self.thread, QUESTIONS_KEY: questions}
        before = self.plans
        done: Mapping[str, Any] = await self.graph.ainvoke(
            {"call": call, "plans": before},
            {"configurable": configurable},
            context=self.context,
        )
        if done.get("plans", before) != before:  # other tools return them unchanged
            self.plans = done["plans"]
        return done.get("result")


@contextlib.asynccontextmanager
async def connected(graph: Any, context: Context) -> AsyncGenerator[Client]:
    """Open a client's session, and close it however the connection ends."""
    thread = f"mcp-{secrets.token_hex(8)}"
    settings = await asyncio.to_thread(resolve_settings, context, thread)
    client = Client(graph, context, thread, Workspace.of(settings))
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(open_session(client.thread))
    stack.push_async_callback(client.leases.close)
    try:
        yield client
    finally:
        # A cancelled scope of anyio cancels every await again; closing takes some.
        with anyio.CancelScope(shield=True):
            await stack.aclose()


async def run_shielded(
    work: Coroutine[Any, Any, T], cancel: Callable[[], object] | None = None
) -> T:
    """Run work that is cancelled once, and can then finish its clean-up.

    Args:
        work: Runs in a task of its own.
        cancel: Cancels the work; by default its task is cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        (cancel or task.cancel)()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
        raise


def _resource(tool: BaseTool, args: Mapping[str, Any]) -> str | None:
    try:
        return traits_of(tool).resource_of(args)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # wrong arguments, which the validation reports

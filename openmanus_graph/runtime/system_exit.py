"""Keeps `sys.exit()` in users' tools and graphs from ending the process.

A `SystemExit` inside an asyncio task stops the event loop before it can be caught, so it is
turned into an ordinary error where it is raised.
"""

import asyncio
import contextlib
import copy
import functools
import inspect
import signal
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar, cast

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.constants import START
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

Graph = TypeVar("Graph", bound=Pregel[Any, Any, Any, Any])
Function = Callable[..., Any] | None


def guard_tool_system_exit(tool: BaseTool) -> BaseTool:
    """Return a tool whose `sys.exit()` is an error of that call."""
    if not isinstance(tool, StructuredTool):
        return tool
    return tool.model_copy(
        update={
            "func": _with_exit_as_error(tool.func),
            "coroutine": _with_async_exit_as_error(tool.coroutine),
        }
    )


def guard_system_exit(graph: Graph) -> Graph:
    """Return a graph in which `sys.exit()` is an error of the node, or of the tool, that calls it.

    Graphs that a node invokes by itself are not covered.
    """
    # A graph's start runs no function; LangGraph would take a guarded one for one, and call it.
    nodes = {
        name: node if name == START else node.copy({"bound": _guarded_node(node.bound)})
        for name, node in graph.nodes.items()
    }
    return graph.copy({"nodes": nodes})


def _guarded_node(node: Any) -> Any:
    if isinstance(node, Pregel):  # a node may be any graph
        return guard_system_exit(cast("Pregel[Any, Any, Any, Any]", node))
    if not hasattr(node, "afunc"):  # no function that LangGraph made a node of
        return node
    guarded = copy.copy(node)
    if isinstance(node, ToolNode):  # its tools run in tasks of their own
        guarded._tools_by_name = {
            k: guard_tool_system_exit(t) for k, t in node.tools_by_name.items()
        }
        guarded.func, guarded.afunc = guarded._func, guarded._afunc
    else:
        guarded.func = _with_exit_as_error(node.func)
        guarded.afunc = _with_async_exit_as_error(node.afunc)
    return guarded


def _with_exit_as_error(function: Function) -> Function:
    if function is None:
        return None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    return call


def _with_async_exit_as_error(function: Function) -> Function:
    if function is None:
        return None

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    return call


ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_held() -> Generator[None]:
    """Start processes from this OS thread meanwhile: they begin with these signals blocked.

    A session of their own is not enough, since a process gets it a moment after its start. Whoever
    is to be ended by signals unblocks them, as `launch.py` does.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


Closer = Callable[[], Awaitable[None] | None]
"""Closes one kind of thing: a coroutine function, or a function that may block."""

_closers: list[Closer] = []
_last: list[Closer] = []


def register_closer(closer: Closer, *, last: bool = False) -> None:
    """Register a closer for `close`; modules do so when they are loaded.

    Args:
        closer: Does nothing where nothing is open; may be called again.
        last: Call it after the others, which may still write to it: databases.
    """
    (_last if last else _closers).append(closer)


async def close() -> None:
    """Close everything: kernels, shells, browsers, connections, databases, their threads.

    For an app that shuts down, or does not use its graphs for now: the next run opens what it
    needs again. Owned threads (`open_session`) and running runs keep their sessions; while there
    are any, shared resources stay open, too. Not needed in a process that simply ends.

    Connections to models belong to an event loop, and are closed for the one this is called in.
    """
    from openmanus_graph.runtime.session_registry import close_unused  # which is heavy

    if not await asyncio.to_thread(close_unused):
        return
    for closer in (*_closers, *_last):
        if inspect.iscoroutinefunction(closer):
            await closer()
        else:
            await asyncio.to_thread(closer)

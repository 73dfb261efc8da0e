"""Turns `sys.exit()` in users' tools and graphs into an error, so that the process continues.

A `SystemExit` inside an asyncio task would stop the event loop before it could be caught.
"""

import copy
import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
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
    """Return a graph in which `sys.exit()` is an error of the node or tool that calls it.

    Graphs that a node invokes by itself are not covered.
    """
    # A graph's start runs no function, but LangGraph would call a guarded one.
    nodes = {
        name: node if name == START else node.copy({"bound": _guarded_node(node.bound)})
        for name, node in graph.nodes.items()
    }
    return graph.copy({"nodes": nodes})


def _guarded_node(node: Any) -> Any:
    if isinstance(node, Pregel):  # a node may be any graph
        return guard_system_exit(cast("Pregel[Any, Any, Any, Any]", node))
    if not hasattr(node, "afunc"):  # not a function that LangGraph made into a node
        return node
    guarded = copy.copy(node)
    if isinstance(node, ToolNode):  # its tools run in separate tasks
        guarded._tools_by_name = {
            k: guard_tool_system_exit(t) for k, t in node.tools_by_name.items()
        }
        guarded.func, guarded.afunc = guarded._func, guarded._afunc
    else:
        guarded.func = _with_exit_as_error(node.func)
        guarded.afunc = _with_async_exit_as_error(node.afunc)
    return guarded


def _with_exit_as_error(function: Function) -> Function:
    return None if function is None else _exit_as_error()(function)


def _with_async_exit_as_error(function: Function) -> Function:
    if function is None:
        return None

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with _exit_as_error():
            return await function(*args, **kwargs)

    return call


@contextmanager
def _exit_as_error() -> Generator[None]:
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error

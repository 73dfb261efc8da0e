"""Keeping other people's tools and graphs from ending the process.

A `SystemExit` inside an asyncio task stops the event loop before anybody can catch it, so it is
turned into an ordinary error where it is raised.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

Graph = TypeVar("Graph", bound=Pregel[Any, Any, Any, Any])
Function = Callable[..., Any] | None


def contained_tool(tool: BaseTool) -> BaseTool:
    """Return a tool whose `sys.exit()` is an error of that call."""
    if not isinstance(tool, StructuredTool):
        return tool
    return tool.model_copy(
        update={"func": _without_exit(tool.func), "coroutine": _without_async_exit(tool.coroutine)}
    )


def contained_graph(graph: Graph) -> Graph:
    """Return a graph in which `sys.exit()` is an error of the node, or of the tool, that calls it.

    What nodes run on their own, a graph they invoke say, is out of reach.
    """
    nodes = {
        name: node.copy({"bound": _contained_node(node.bound)})
        for name, node in graph.nodes.items()
    }
    return graph.copy({"nodes": nodes})


def _contained_node(node: Any) -> Any:
    if isinstance(node, Pregel):
        return contained_graph(cast("Pregel[Any, Any, Any, Any]", node))  # a node may be any graph
    if not hasattr(node, "afunc"):  # no function that LangGraph made a node of
        return node
    contained = copy.copy(node)
    if isinstance(node, ToolNode):  # its tools run in tasks of their own
        contained._tools_by_name = {k: contained_tool(t) for k, t in node.tools_by_name.items()}
        contained.func, contained.afunc = contained._func, contained._afunc
    else:
        contained.func = _without_exit(node.func)
        contained.afunc = _without_async_exit(node.afunc)
    return contained


def _without_exit(function: Function) -> Function:
    if function is None:
        return None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    return call


def _without_async_exit(function: Function) -> Function:
    if function is None:
        return None

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    return call

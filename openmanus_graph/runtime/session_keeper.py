"""What our graphs add around each run (`SessionKeeper`) and each node (`graph_node`).

`guard_system_exit` is for users' tools and graphs: a `SystemExit` inside an asyncio task would stop
the event loop before it could be caught.
"""

import contextlib
import copy
import inspect
import uuid
from collections.abc import Awaitable, Callable, Generator
from functools import wraps
from typing import Any, TypeVar, cast

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.config import get_config
from langgraph.constants import START
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.runtime import Runtime
from langgraph.types import Command
from typing_extensions import override

from openmanus_graph.runtime import events, session_registry
from openmanus_graph.runtime.session_registry import RunLocation, locations, tool_calls
from openmanus_graph.runtime.traces import RunSpan, is_tracing
from openmanus_graph.state.context import Context

N = TypeVar("N", bound=Callable[..., Awaitable[Any]])
Graph = TypeVar("Graph", bound=Pregel[Any, Any, Any, Any])
Function = Callable[..., Any] | None


class SessionKeeper(AsyncCallbackHandler):
    """Creates a graph run's session entry, and releases it when the run has ended."""

    run_inline = True  # in order with the run, so that no node starts before its entry exists

    @property
    def ignore_llm(self) -> bool:
        """Ignore model calls, for which LangChain would serialise each conversation."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        return True

    async def on_chain_start(  # LangChain's
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: uuid.UUID,
        parent_run_id: uuid.UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if run_id in locations:
            return  # registered already, by the keeper of an outer graph
        known = metadata or {}
        worker = str(known.get(session_registry.WORKER_KEY, ""))
        around = None
        if parent_run_id is not None:
            # A graph that a tool runs belongs to the run around the tool if it is a worker's, as
            # subagents are. Any other graph is a run by itself.
            in_tool = tool_calls.get(parent_run_id) if worker else None
            around = locations.get(parent_run_id) or in_tool
        if around is not None and around.worker == worker:
            locations[run_id] = around
            return
        key = session_registry.register_run(run_id, around, worker, known, inputs)
        if around is not None:
            answered = around.answered
        elif parent_run_id is not None:
            answered = True  # a run in others' graphs may be resumed with an answer
        else:
            is_command = isinstance(inputs, Command)
            answered = is_command and cast("Command[Any]", inputs).resume is not None
        span, agent = None, str(kwargs.get("name") or "")
        if is_tracing():
            thread = str(known.get("thread_id") or "")
            span = RunSpan(agent, thread, str(known.get(events.PLAN_STEP_KEY, "")))
        locations[run_id] = RunLocation(run_id, key, worker, answered, span, agent)

    async def on_chain_end(self, outputs: Any, *, run_id: uuid.UUID, **kwargs: Any) -> None:
        await _end(run_id, None, outputs)

    async def on_chain_error(  # LangChain's
        self, error: BaseException, *, run_id: uuid.UUID, **kwargs: Any
    ) -> None:
        await _end(run_id, error)

    async def on_tool_start(  # LangChain's
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: uuid.UUID,
        parent_run_id: uuid.UUID | None = None,
        **kwargs: Any,
    ) -> None:
        around = locations.get(parent_run_id) if parent_run_id else None
        if around is not None:
            tool_calls[run_id] = around

    async def on_tool_end(self, output: Any, *, run_id: uuid.UUID, **kwargs: Any) -> None:
        tool_calls.pop(run_id, None)

    async def on_tool_error(  # LangChain's
        self, error: BaseException, *, run_id: uuid.UUID, **kwargs: Any
    ) -> None:
        tool_calls.pop(run_id, None)


async def _end(run_id: uuid.UUID, error: BaseException | None, outputs: Any = None) -> None:
    location = locations.pop(run_id, None)
    if location is None or location.run != run_id:
        return
    if location.span is not None:
        location.span.end(outputs, error)
    for call in [call for call, around in tool_calls.items() if around.run == run_id]:
        del tool_calls[call]  # it was cancelled
    await session_registry.release_run(location, error)


def graph_node(node: N) -> N:
    """Make a function a node of our graphs.

    The observer gets its events even if the stream is not read.
    """

    @wraps(node)
    async def wrapped_node(state: Any, runtime: Runtime[Context]) -> Any:
        if events.run_observer() is not None:
            runtime = runtime.override(stream_writer=_observed_writer(runtime))
        location = session_registry.find_location(get_config()) if is_tracing() else None
        span = location.span if location is not None else None
        with span.entered() if span is not None else contextlib.nullcontext():
            return await node(state, runtime)

    return cast("N", wrapped_node)


def _observed_writer(runtime: Runtime[Context]) -> Callable[[Any], None]:
    """Return a stream writer that also passes the graph's events to the observer."""
    config, observer = get_config(), events.run_observer()
    run_and_thread = session_registry.observed_run(config)
    plan_step = events.plan_step_of(config)

    def write(event: Any) -> None:
        runtime.stream_writer(event)
        # A user's tool may write anything to the stream.
        if observer is None or run_and_thread is None or not isinstance(event, dict):
            return
        graph_event = cast("dict[str, Any]", event)
        if graph_event.get("type") in events.GRAPH_EVENTS and not (
            plan_step and graph_event["type"] == "limit"
        ):
            observer.on_event(*run_and_thread, plan_step, graph_event)

    return write


class GraphRouter(Runnable[Any, Any]):
    """Makes a function a conditional edge of our graphs.

    For a plain function, LangGraph would make a separate run with a task and callbacks. `route`
    takes the state, and the node's `config` if it has a parameter of that name.
    """

    def __init__(self, route: Callable[..., Any]) -> None:
        self.name, self._route = None, route
        self._takes_config = "config" in inspect.signature(route).parameters

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if inspect.iscoroutinefunction(self._route):
            raise TypeError("The graphs are asynchronous: use ainvoke, astream or aupdate_state.")
        return self._found(input, config)

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        found = self._found(input, config)
        return await found if inspect.isawaitable(found) else found

    def _found(self, state: Any, config: RunnableConfig | None) -> Any:
        given = {"config": config or {}} if self._takes_config else {}
        return self._route(state, **given)


def guard_tool_system_exit(tool: BaseTool) -> BaseTool:
    """Return a tool whose `sys.exit()` is an error of that call."""
    if not isinstance(tool, StructuredTool):
        return tool
    guarded = {"func": _guarded(tool.func), "coroutine": _async_guarded(tool.coroutine)}
    return tool.model_copy(update=guarded)


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
            name: guard_tool_system_exit(tool) for name, tool in node.tools_by_name.items()
        }
        guarded.func, guarded.afunc = guarded._func, guarded._afunc
    else:
        guarded.func, guarded.afunc = _guarded(node.func), _async_guarded(node.afunc)
    return guarded


def _guarded(function: Function) -> Function:
    return None if function is None else _exit_as_error()(function)


def _async_guarded(function: Function) -> Function:
    if function is None:
        return None

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with _exit_as_error():
            return await function(*args, **kwargs)

    return call


@contextlib.contextmanager
def _exit_as_error() -> Generator[None]:
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error

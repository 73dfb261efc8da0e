"""The loop of every single agent: think -> act -> stuck_check -> terminate."""

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore

from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_tools, default_executors
from openmanus_graph.model_calls.budget import with_external_usage
from openmanus_graph.nodes.act import act
from openmanus_graph.nodes.stuck_check import (
    route_after_stuck_check,
    route_after_terminate,
    stuck_check,
    terminate,
)
from openmanus_graph.nodes.think import begin, route_after_reply, route_after_think, think
from openmanus_graph.runtime.middleware import NodeHook, with_hook
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.session_keeper import GraphRouter, SessionKeeper, graph_node
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusInput, ManusOutput, ManusState
from openmanus_graph.tool_calls.agent import Agent, ToolLike, with_tools
from openmanus_graph.tools import optional_tools
from openmanus_graph.tools.closing import structured_completion

if TYPE_CHECKING:
    from openmanus_graph.runtime.middleware import Middleware

AgentGraph = CompiledStateGraph[ManusState, Context, ManusInput, ManusOutput]
G = TypeVar("G", bound=CompiledStateGraph[Any, Any, Any, Any])
Node = Callable[..., Any]
"""Takes the state, and optionally LangGraph's `Runtime`; returns an update. Async or not."""


def compile_loop(
    agent: Agent,
    checkpointer: BaseCheckpointSaver[str] | None,
    store: BaseStore | None,
    after_act: Sequence[Node],
    stored_types: Iterable[type[Any]],
) -> AgentGraph:
    """Compile an agent's graph. Cheap, without any I/O."""
    serializer = getattr(checkpointer, "serde", None)
    if isinstance(serializer, StrictSerializer):
        serializer.allow(stored_types)
    schemas: tuple[type[Any], type[Any], type[Any]] = (ManusState, ManusInput, ManusOutput)
    if agent.middleware:
        from openmanus_graph.nodes.hooks import schemas_of

        schemas = schemas_of(agent.middleware)
    state, given, result = schemas
    builder = StateGraph[Any, Context, Any, Any](
        state, context_schema=Context, input_schema=given, output_schema=result
    )
    builder.add_node("think", graph_node(partial(think, agent=agent)))
    builder.add_node("act", graph_node(partial(act, agent=agent)))
    builder.add_node("stuck_check", graph_node(stuck_check))
    builder.add_node("terminate", graph_node(terminate))
    start = before_model = "think"
    end, after_model = "terminate", ""
    if agent.middleware:
        start, before_model, after_model, end = add_hooks(builder, agent)
    builder.add_edge(START, start)
    route = route_after_reply if after_model else partial(route_after_think, agent=agent)
    targets: dict[Hashable, str] = {"stuck_check": "stuck_check", "terminate": end}
    targets |= {"replied": after_model} if after_model else {"act": "act"}
    builder.add_conditional_edges("think", GraphRouter(route), targets)
    builder.add_edge(add_after_act(builder, after_act), "stuck_check")
    builder.add_conditional_edges(
        "stuck_check",
        GraphRouter(partial(route_after_stuck_check, agent=agent)),
        {"think": before_model, "act": "act", "terminate": end},
    )
    builder.add_conditional_edges(
        "terminate", GraphRouter(route_after_terminate), {"new_message": start, "end": END}
    )

    transformers = dict.fromkeys(made for one in agent.middleware for made in one.transformers)
    compiled = builder.compile(
        checkpointer=checkpointer,
        store=store,
        name=agent.name,
        transformers=list(transformers) or None,
    )
    return compiled.with_config(callbacks=[SessionKeeper()])


def served(graph: G, *shown: str) -> G:
    """Return a graph whose clients see its output and these keys; its checkpoints hold all."""
    return graph.copy({"stream_channels": [*graph.output_channels, "step_count", *shown]})


def add_hooks(
    builder: StateGraph[Any, Context, Any, Any], agent: Agent
) -> tuple[str, str, str, str]:
    """Add a node for each hook that a middleware has, and the edges between them.

    Returns:
        The nodes that the loop's own edges lead to: at the start, before the model, for a new reply
        (empty without such a hook), and at the end.
    """
    from openmanus_graph.nodes.hooks import HOOKS, jumps_of, route_after_hook, run_hook

    hooks = {hook: with_hook(agent.middleware, hook) for hook in HOOKS}
    hooks["after_model"].reverse()
    hooks["after_agent"].reverse()
    first = {hook: f"{found[0].name}.{hook}" if found else "" for hook, found in hooks.items()}
    before_model, end = first["before_model"] or "think", first["after_agent"] or "terminate"
    start = before_model
    if hooks["before_agent"] or hooks["before_model"]:
        start, first_node = "begin", first["before_agent"] or before_model
        node = partial(begin, agent=agent, first_node=first_node, loop_entry=before_model)
        destinations = tuple(dict.fromkeys([first_node, before_model]))
        builder.add_node("begin", graph_node(node), destinations=destinations)

    def add_hook(middleware: "Middleware", hook: NodeHook, name: str, then: str) -> None:
        """Add one node; `then` comes next, and is empty after a reply, whose calls decide."""
        node = graph_node(partial(run_hook, middleware=middleware, hook=hook, agent=agent))
        builder.add_node(name, node, trace_policy=middleware.trace_policy)
        targets = _hook_targets(jumps_of(middleware, hook), hook, then, before_model, end)
        if list(targets) == ["next"]:
            builder.add_edge(name, then)
            return
        route = GraphRouter(partial(route_after_hook, agent=agent, decides=not then))
        builder.add_conditional_edges(name, route, cast("Any", targets))

    last = (before_model, "think", "", "terminate")
    for hook, after in zip(HOOKS, last, strict=True):
        names = [f"{one.name}.{hook}" for one in hooks[hook]]
        for one, name, then in zip(hooks[hook], names, [*names, after][1:], strict=True):
            add_hook(one, hook, name, then)
    return start, before_model, first["after_model"], end


def _hook_targets(
    jumps: Sequence[str], hook: NodeHook, then: str, before_model: str, end: str
) -> dict[str, str]:
    """Return the nodes that may follow a hook, by what its route returns."""
    targets = {"next": then} if then else {}
    if "end" in jumps:
        targets["end"] = "terminate" if hook == "after_agent" else end
    if "model" in jumps:
        targets["model"] = before_model
    if "tools" in jumps or not then:
        targets |= {"act": "act", "stuck_check": "stuck_check", "terminate": end}
    return targets


def add_after_act(builder: StateGraph[Any, Context, Any, Any], nodes: Sequence[Node]) -> str:
    """Add the caller's nodes after `act`, and return the last one's name.

    ConfigError: something is not a function with a name, or the name is taken.
    """
    last = "act"
    for node in nodes:
        name = getattr(node, "__name__", "")
        if not name or name in builder.nodes:
            raise ConfigError(
                f"after_act takes functions with different names, not {node!r}. Taken are: "
                f"{', '.join(builder.nodes)}."
            )
        builder.add_node(name, with_external_usage(node))
        builder.add_edge(last, name)
        last = name
    return last


class AgentBuilder:
    """Builds one agent's graph. Cheap, without any I/O; each run's settings come with `Context`."""

    def __init__(
        self,
        agent: str,
        purpose: str,
        system: str,
        ending: str,
        *,
        takes_configured: bool = False,
        needs_servers: bool = False,
        needed_tool: str = "",
        text: str = "",
    ) -> None:
        """Define the agent; `text` takes the place of the prompt `system`."""
        self._agent = Agent(
            agent,
            system,
            ending,
            takes_configured=takes_configured,
            needs_servers=needs_servers,
            needed_tool=needed_tool,
            structured_tool=structured_completion,
            optional=optional_tools,
            subagents=default_executors,
            text=text,
        )
        self.__name__ = f"build_{agent}_graph"
        arguments = (inspect.getdoc(AgentBuilder.__call__) or "").partition("\n\n")[2]
        self.__doc__ = f"{purpose}\n\n{arguments}"

    def __call__(
        self,
        *,
        tools: Iterable[ToolLike] | None = None,
        extra_tools: Iterable[ToolLike] = (),
        prompts: Mapping[str, str] | None = None,
        checkpointer: BaseCheckpointSaver[str] | None = None,
        store: BaseStore | None = None,
        name: str = "",
        middleware: Iterable["Middleware"] = (),
        after_act: Sequence[Node] = (),
        stored_types: Iterable[type[Any]] = (),
    ) -> AgentGraph:
        """Build it.

        Args:
            tools: The tools instead of the default ones.
            extra_tools: Further tools: LangChain tools, documented functions, MCP servers.
            prompts: Texts instead of the agent's own: `system`, `next_step`.
            checkpointer: Keeps threads, and with them the ledger, questions and resuming.
            store: LangGraph's long-term store, handed to tools that ask for it.
            name: Of the compiled graph; by default the agent's.
            middleware: LangChain's `AgentMiddleware`s, the outermost first (docs/middleware.md).
            after_act: Your own nodes between `act` and `stuck_check`, in this order.
            stored_types: Your own types that the state may hold: pydantic models, dataclasses,
                enums and named tuples. Other types are neither stored nor read.

        Raises:
            ConfigError: Something is not a tool, two tools share a name, a prompt is unknown, or a
                middleware cannot work in this graph.
        """
        around, types = tuple(middleware), tuple(stored_types)
        if around:
            from openmanus_graph.nodes.hooks import check_middleware

            check_middleware(around)
        agent = replace(
            self._agent,
            name=name or self._agent.name,
            middleware=around,
            serializer=StrictSerializer(types),
        )
        chosen = agent_tools(self._agent.name) if tools is None else tools
        agent = with_tools(agent, [*chosen, *extra_tools], prompts)
        return compile_loop(agent, checkpointer, store, after_act, types)

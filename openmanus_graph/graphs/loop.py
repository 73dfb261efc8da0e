"""The loop that every single agent is: think -> act -> stuck_check -> terminate."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore

from openmanus_graph.agent import Agent, ToolLike, define_agent
from openmanus_graph.nodes.act import act
from openmanus_graph.nodes.stuck_check import route_after_stuck_check, stuck_check
from openmanus_graph.nodes.terminate import terminate
from openmanus_graph.nodes.think import route_after_think, think
from openmanus_graph.prompts import SystemPrompt
from openmanus_graph.registry import SessionKeeper
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusInput, ManusOutput, ManusState
from openmanus_graph.watching import watched

AgentGraph = CompiledStateGraph[ManusState, Context, ManusInput, ManusOutput]


def compile_loop(
    agent: Agent,
    *,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
) -> AgentGraph:
    """Compile an agent's graph. Cheap, without any I/O.

    Args:
        agent: Its name, tools and prompts.
        checkpointer: Keeps threads, and with them the ledger, questions and resuming.
        store: LangGraph's long-term store, handed to tools that ask for it.
    """
    builder = StateGraph(
        ManusState, context_schema=Context, input_schema=ManusInput, output_schema=ManusOutput
    )
    builder.add_node("think", watched(partial(think, agent=agent)))
    builder.add_node("act", watched(partial(act, agent=agent)))
    builder.add_node("stuck_check", watched(stuck_check))
    builder.add_node("terminate", watched(terminate))

    builder.add_edge(START, "think")
    builder.add_conditional_edges(
        "think", partial(route_after_think, agent=agent), ["act", "stuck_check", "terminate"]
    )
    builder.add_edge("act", "stuck_check")
    builder.add_conditional_edges("stuck_check", route_after_stuck_check, ["think", "terminate"])
    builder.add_edge("terminate", END)

    compiled = builder.compile(checkpointer=checkpointer, store=store, name=agent.name)
    return compiled.with_config(callbacks=[SessionKeeper()])


class AgentBuilder(Protocol):
    """Builds one agent's graph. Cheap, without any I/O; each run's settings come with `Context`."""

    def __call__(
        self,
        *,
        tools: Iterable[ToolLike] | None = None,
        extra_tools: Iterable[ToolLike] = (),
        prompts: Mapping[str, str] | None = None,
        checkpointer: BaseCheckpointSaver[str] | None = None,
        store: BaseStore | None = None,
        name: str = ...,
    ) -> AgentGraph:
        """Build it.

        Args:
            tools: The tools instead of the default ones.
            extra_tools: Tools beside them: LangChain tools, documented functions, MCP servers.
            prompts: Texts instead of the agent's own: `system`, `next_step`.
            checkpointer: Keeps threads, and with them the ledger, questions and resuming.
            store: LangGraph's long-term store, handed to tools that ask for it.
            name: Of the compiled graph.

        Raises:
            ConfigError: Something is no tool, two tools share a name, or a prompt is unknown.
        """
        ...


def agent_builder(
    agent: str,
    purpose: str,
    default_tools: Callable[[], Sequence[BaseTool]],
    system: SystemPrompt,
    *,
    takes_configured: bool = False,
    needs_servers: bool = False,
) -> AgentBuilder:
    """Make the builder of an agent.

    Args:
        agent: Its name.
        purpose: What it builds: the builder's docstring.
        default_tools: Returns what the agent works with.
        system: Its system prompt.
        takes_configured: Whether it uses the configured MCP servers.
        needs_servers: Whether it has nothing to do without any.
    """

    def build(
        *,
        tools: Iterable[ToolLike] | None = None,
        extra_tools: Iterable[ToolLike] = (),
        prompts: Mapping[str, str] | None = None,
        checkpointer: BaseCheckpointSaver[str] | None = None,
        store: BaseStore | None = None,
        name: str = agent,
    ) -> AgentGraph:
        chosen = default_tools() if tools is None else tools
        defined = define_agent(
            name,
            [*chosen, *extra_tools],
            prompts,
            system,
            takes_configured=takes_configured,
            needs_servers=needs_servers,
        )
        return compile_loop(defined, checkpointer=checkpointer, store=store)

    build.__name__ = build.__qualname__ = f"build_{agent}_graph"
    arguments = (inspect.getdoc(AgentBuilder.__call__) or "").partition("\n\n")[2]
    build.__doc__ = f"{purpose}\n\n{arguments}"
    return build

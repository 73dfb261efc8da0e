"""The manus graph: a general agent with every tool."""

from collections.abc import Iterable, Mapping

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from openmanus_graph.agent import ToolLike, define_agent
from openmanus_graph.graphs.loop import AgentGraph, compile_loop
from openmanus_graph.prompts import manus_system_prompt
from openmanus_graph.tools import default_tools


def build_manus_graph(
    *,
    tools: Iterable[ToolLike] | None = None,
    extra_tools: Iterable[ToolLike] = (),
    prompts: Mapping[str, str] | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
    name: str = "manus",
) -> AgentGraph:
    """Build the agent. Cheap, without any I/O; each run's settings come with its `Context`.

    Args:
        tools: The tools instead of the default ones.
        extra_tools: Tools beside them: LangChain tools, functions with a docstring, MCP servers.
        prompts: Texts instead of the agent's own: `system`, `next_step`.
        checkpointer: Keeps threads, and with them the ledger, questions and resuming.
        store: LangGraph's long-term store, handed to tools that ask for it.
        name: Of the compiled graph.

    Raises:
        ConfigError: Something is no tool, two tools share a name, or a prompt is unknown.
    """
    chosen = default_tools() if tools is None else tools
    agent = define_agent(
        name, [*chosen, *extra_tools], prompts, manus_system_prompt, takes_configured=True
    )
    return compile_loop(agent, checkpointer=checkpointer, store=store)


graph = build_manus_graph()

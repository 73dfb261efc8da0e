"""The planner graph: one agent that keeps a plan and works it off by itself."""

from collections.abc import Iterable, Mapping

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from openmanus_graph.agent import ToolLike, define_agent
from openmanus_graph.graphs.loop import AgentGraph, compile_loop
from openmanus_graph.prompts import planner_system_prompt
from openmanus_graph.tools import planner_tools


def build_planner_graph(
    *,
    tools: Iterable[ToolLike] | None = None,
    extra_tools: Iterable[ToolLike] = (),
    prompts: Mapping[str, str] | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
    name: str = "planner",
) -> AgentGraph:
    """Build the agent that plans with the `planning` tool; each call is linked to its step.

    Takes what `build_manus_graph` takes, and raises what it raises.
    """
    chosen = planner_tools() if tools is None else tools
    agent = define_agent(
        name, [*chosen, *extra_tools], prompts, planner_system_prompt, takes_configured=True
    )
    return compile_loop(agent, checkpointer=checkpointer, store=store)


graph = build_planner_graph()

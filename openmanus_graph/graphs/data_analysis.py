"""The data analysis graph: an agent that turns data into charts and a report."""

from collections.abc import Iterable, Mapping

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from openmanus_graph.agent import ToolLike, define_agent
from openmanus_graph.graphs.loop import AgentGraph, compile_loop
from openmanus_graph.prompts import data_analysis_system_prompt
from openmanus_graph.tools import data_analysis_tools


def build_data_analysis_graph(
    *,
    tools: Iterable[ToolLike] | None = None,
    extra_tools: Iterable[ToolLike] = (),
    prompts: Mapping[str, str] | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
    name: str = "data_analysis",
) -> AgentGraph:
    """Build the data analyst: Python, charts by a declarative grammar, reports.

    Takes what `build_manus_graph` takes, and raises what it raises.
    """
    chosen = data_analysis_tools() if tools is None else tools
    agent = define_agent(name, [*chosen, *extra_tools], prompts, data_analysis_system_prompt)
    return compile_loop(agent, checkpointer=checkpointer, store=store)


graph = build_data_analysis_graph()

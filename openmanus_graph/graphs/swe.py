"""The swe graph: an agent that mends and extends software."""

from collections.abc import Iterable, Mapping

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from openmanus_graph.agent import ToolLike, define_agent
from openmanus_graph.graphs.loop import AgentGraph, compile_loop
from openmanus_graph.prompts import swe_system_prompt
from openmanus_graph.tools import swe_tools


def build_swe_graph(
    *,
    tools: Iterable[ToolLike] | None = None,
    extra_tools: Iterable[ToolLike] = (),
    prompts: Mapping[str, str] | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
    name: str = "swe",
) -> AgentGraph:
    """Build the software agent: a shell and an editor; find, reproduce, fix, test.

    Takes what `build_manus_graph` takes, and raises what it raises.
    """
    chosen = swe_tools() if tools is None else tools
    agent = define_agent(name, [*chosen, *extra_tools], prompts, swe_system_prompt)
    return compile_loop(agent, checkpointer=checkpointer, store=store)


graph = build_swe_graph()

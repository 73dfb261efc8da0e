"""The browser graph: an agent that works on the web."""

from collections.abc import Iterable, Mapping

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from openmanus_graph.agent import ToolLike, define_agent
from openmanus_graph.graphs.loop import AgentGraph, compile_loop
from openmanus_graph.prompts import browser_system_prompt
from openmanus_graph.tools import browser_tools


def build_browser_graph(
    *,
    tools: Iterable[ToolLike] | None = None,
    extra_tools: Iterable[ToolLike] = (),
    prompts: Mapping[str, str] | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
    name: str = "browser",
) -> AgentGraph:
    """Build the web agent: browser, search and page reading, without Python or a shell.

    Takes what `build_manus_graph` takes, and raises what it raises.
    """
    chosen = browser_tools() if tools is None else tools
    agent = define_agent(name, [*chosen, *extra_tools], prompts, browser_system_prompt)
    return compile_loop(agent, checkpointer=checkpointer, store=store)


graph = build_browser_graph()

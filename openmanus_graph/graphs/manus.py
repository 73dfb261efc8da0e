"""The manus graph: think -> act -> stuck_check -> terminate."""

from collections.abc import Iterable, Mapping
from functools import partial

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore

from openmanus_graph.agent import ToolLike, define_agent
from openmanus_graph.nodes.act import act
from openmanus_graph.nodes.stuck_check import route_after_stuck_check, stuck_check
from openmanus_graph.nodes.terminate import terminate
from openmanus_graph.nodes.think import route_after_think, think
from openmanus_graph.registry import SessionKeeper
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusInput, ManusOutput, ManusState
from openmanus_graph.tools import default_tools

ManusGraph = CompiledStateGraph[ManusState, Context, ManusInput, ManusOutput]


def build_manus_graph(
    *,
    tools: Iterable[ToolLike] | None = None,
    extra_tools: Iterable[ToolLike] = (),
    prompts: Mapping[str, str] | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
    name: str = "manus",
) -> ManusGraph:
    """Build the agent. Cheap, without any I/O; each run's settings come with its `Context`.

    Args:
        tools: The tools instead of the default ones.
        extra_tools: Tools beside them: LangChain tools, or functions with a docstring.
        prompts: Texts instead of the agent's own: `system`, `next_step`.
        checkpointer: Keeps threads, and with them the ledger, questions and resuming.
        store: LangGraph's long-term store, handed to tools that ask for it.
        name: Of the compiled graph.

    Raises:
        ConfigError: Something is no tool, two tools share a name, or a prompt is unknown.
    """
    chosen = default_tools() if tools is None else tools
    agent = define_agent(name, [*chosen, *extra_tools], prompts)

    builder = StateGraph(
        ManusState, context_schema=Context, input_schema=ManusInput, output_schema=ManusOutput
    )
    builder.add_node("think", partial(think, agent=agent))
    builder.add_node("act", partial(act, agent=agent))
    builder.add_node("stuck_check", stuck_check)
    builder.add_node("terminate", terminate)

    builder.add_edge(START, "think")
    builder.add_conditional_edges(
        "think", partial(route_after_think, agent=agent), ["act", "stuck_check", "terminate"]
    )
    builder.add_edge("act", "stuck_check")
    builder.add_conditional_edges("stuck_check", route_after_stuck_check, ["think", "terminate"])
    builder.add_edge("terminate", END)

    compiled = builder.compile(checkpointer=checkpointer, store=store, name=name)
    return compiled.with_config(callbacks=[SessionKeeper()])


graph = build_manus_graph()

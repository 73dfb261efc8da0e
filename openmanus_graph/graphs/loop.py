"""The loop that every single agent is: think -> act -> stuck_check -> terminate."""

from functools import partial

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore

from openmanus_graph.agent import Agent
from openmanus_graph.nodes.act import act
from openmanus_graph.nodes.stuck_check import route_after_stuck_check, stuck_check
from openmanus_graph.nodes.terminate import terminate
from openmanus_graph.nodes.think import route_after_think, think
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

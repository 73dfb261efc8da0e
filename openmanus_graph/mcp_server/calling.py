"""Running one tool call of a client, by way of `run_call` as every other."""

from dataclasses import replace
from typing import Any, NotRequired, cast

from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from openmanus_graph.agent import Agent
from openmanus_graph.limits import Progress
from openmanus_graph.mcp_server.window import shows_window, with_window
from openmanus_graph.registry import SessionKeeper, enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.state.plan import Plans
from openmanus_graph.state.reducers import no_usage
from openmanus_graph.tools.questions import Questions
from openmanus_graph.tools.run_call import run_call
from openmanus_graph.tools.scope import open_scope
from openmanus_graph.tools.toolset import Toolset

QUESTIONS_KEY = "openmanus_questions"
"""Where a call finds who answers its questions."""


class CallState(TypedDict):
    """One call, and what came of it."""

    call: PlannedCall
    plans: Plans
    """The client's."""
    result: NotRequired[ToolMessage]


def build_call_graph(agent: Agent) -> Any:
    """Compile the graph that runs one call: only a graph's run has a session to run it in."""

    async def call_tool(state: CallState, runtime: Runtime[Context]) -> dict[str, Any]:
        session = await enter_session(runtime)
        scope = await open_scope(
            session,
            session.cached((agent, "call_tool"), lambda: Toolset(agent.tools, None)),
            runtime.stream_writer,
            branch="",
            progress=Progress(0, no_usage(), 0.0),
            plans=state["plans"],
            held={},
        )
        questions: Questions = get_config().get("configurable", {})[QUESTIONS_KEY]
        scope = replace(scope, questions=questions)
        call = state["call"]
        result = await run_call(call, scope)
        if shows_window(call):
            result = await with_window(result, session)
        return {"result": result, "plans": scope.book.plans}

    builder = StateGraph(CallState, context_schema=Context)
    builder.add_node("call_tool", call_tool)
    builder.add_edge(START, "call_tool")
    builder.add_edge("call_tool", END)
    # LangGraph's own type of a compiled graph has lost the state's by now.
    return cast("Any", builder.compile(name="call_tool").with_config(callbacks=[SessionKeeper()]))

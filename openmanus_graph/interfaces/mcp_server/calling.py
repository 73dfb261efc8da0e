"""The graph that runs one tool call of a client through `run_call`, with screenshots."""

import asyncio
import base64
from typing import Any, NotRequired, cast

from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_keeper import SessionKeeper
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.plan import Plans
from openmanus_graph.state.reducers import no_usage
from openmanus_graph.tool_calls.agent import Agent
from openmanus_graph.tool_calls.context import open_call_context
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools.browser_use import browser_use

QUESTIONS_KEY = "openmanus_questions"
"""Key in `configurable` of the `Questions` that ask the client's person."""


def asks_for_screenshot(call: PendingCall) -> bool:
    """Say whether a call asks the browser for its state, which includes a screenshot."""
    return call["name"] == browser_use.name and call["args"].get("action") == "get_state"


async def with_screenshot(message: ToolMessage, session: Session) -> ToolMessage:
    """Add a screenshot of the browser to a result, unless there is none that may be shown."""
    from openmanus_graph.backends.browser.observation import (
        state_for_request,  # the call has loaded it
    )

    _, picture = await state_for_request(session, picture=True)
    if picture is None or message.status == "error":
        return message
    data = base64.b64decode(picture.partition(",")[2])
    kept = await asyncio.to_thread(session.workspace.keep, data, ".jpg")
    extra: dict[str, Any] = message.artifact or {}
    images = [*extra.get("images", ()), session.workspace.relative(kept)]
    return message.model_copy(update={"artifact": {**extra, "images": images}})


class CallState(TypedDict):
    """One call and its result."""

    call: PendingCall
    plans: Plans
    """The client's."""
    result: NotRequired[ToolMessage]


def build_call_graph(agent: Agent) -> Any:
    """Compile the graph that runs one call: only a graph's run has a session to run it in."""

    async def call_tool(state: CallState, runtime: Runtime[Context]) -> dict[str, Any]:
        session = await enter_session(runtime)
        context = await open_call_context(
            session,
            session.cached((agent, "call_tool"), lambda: Toolset(agent.tools, None)),
            runtime.stream_writer,
            branch="",
            progress=Progress(0, no_usage(), 0.0),
            plans=state["plans"],
            handle_state={},
            for_our_model=False,  # the client's may well see pictures
        )
        context.questions = cast("Questions", get_config().get("configurable", {})[QUESTIONS_KEY])
        call = state["call"]
        result = await run_call(call, context)
        if asks_for_screenshot(call):
            result = await with_screenshot(result, session)
        return {"result": result, "plans": context.plans}

    builder = StateGraph(CallState, context_schema=Context)
    builder.add_node("call_tool", call_tool)
    builder.add_edge(START, "call_tool")
    builder.add_edge("call_tool", END)
    # LangGraph's own type of a compiled graph has lost the state's by now.
    return cast("Any", builder.compile(name="call_tool").with_config(callbacks=[SessionKeeper()]))

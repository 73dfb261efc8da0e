"""What calls are given of a run's time and of the model's window."""

import time
from typing import Annotated, Any

import pytest
from langchain_core.language_models import ModelProfile
from langchain_core.tools import StructuredTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.runtime import Runtime
from pydantic import BaseModel
from typing_extensions import TypedDict

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session_keeper import SessionKeeper
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.safety.unquoted_text import without_mark
from openmanus_graph.state.manus import no_usage
from openmanus_graph.tool_calls.context import open_call_context
from openmanus_graph.tool_calls.toolset import Toolset
from tests.support.graphs import calls, run_graph, scripted


async def test_tools_are_given_the_state_in_each_way_that_langgraph_has() -> None:
    @tool
    def by_state(n: int, state: Annotated[Any, InjectedState]) -> str:
        """Tell of the state."""
        return f"{state['messages'][0].text} {n}"

    @tool
    def by_field(n: int, said: Annotated[Any, InjectedState("messages")]) -> str:
        """Tell of a field of the state."""
        return f"{said[0].text} {n}"

    @tool
    def by_runtime(n: int, runtime: ToolRuntime[Any, Any]) -> str:
        """Tell of the runtime's state."""
        return f"{runtime.state['messages'][0].text} {n}"

    def outside_the_schema(n: int, runtime: ToolRuntime[Any, Any]) -> str:
        return f"{runtime.state['messages'][0].text} {n}"

    class Arguments(BaseModel):
        n: int

    described = StructuredTool.from_function(
        outside_the_schema, name="by_schema", description="Tell.", args_schema=Arguments
    )

    @tool
    def plain(n: int) -> str:
        """Tell of the arguments alone."""
        return f"nothing {n}"

    tools: list[Any] = [by_state, by_field, by_runtime, described, plain]
    made = [(one.name, {"n": number}) for number, one in enumerate(tools)]
    done = await run_graph(build_manus_graph(tools=tools), calls(*made), "done")
    assert [without_mark(text) for text in done.results()] == [
        "the task 0", "the task 1", "the task 2", "the task 3", "nothing 4",
    ]  # fmt: skip


class Nothing(TypedDict, total=False):
    """A state without a key."""


@pytest.mark.parametrize(
    ("for_our_model", "max_chars", "time_s"), [(True, 80_000, 90), (False, 7000, 100)]
)
async def test_length_and_time_are_by_our_own_models_limits_only(
    for_our_model: bool, max_chars: int, time_s: int
) -> None:
    seen: list[float] = []

    async def open_context(state: Nothing, runtime: Runtime[Context]) -> None:
        session = await enter_session(runtime)
        before = time.monotonic()
        context = await open_call_context(
            session,
            Toolset({}, None),
            runtime.stream_writer,
            Progress(0, no_usage(), 0.0),
            for_our_model=for_our_model,
        )
        assert context.deadline is not None
        assert context.for_our_model is for_our_model
        assert before <= context.deadline - time_s <= time.monotonic()
        seen.append(session.max_observation_chars)

    builder = StateGraph(Nothing, context_schema=Context)
    builder.add_node("open", open_context)
    builder.add_edge(START, "open")
    builder.add_edge("open", END)
    model = scripted()
    model.profile = ModelProfile(max_input_tokens=10**6)
    graph: Any = builder.compile().with_config(callbacks=[SessionKeeper()])
    await graph.ainvoke({}, context=Context(model=model, timeout_s=100))
    assert seen == [max_chars]

"""What calls are given of a run's time and of the model's window."""

import time
from typing import Any

import pytest
from langchain_core.language_models import ModelProfile
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from openmanus_graph import Context
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session_keeper import SessionKeeper
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.plan import no_plans
from openmanus_graph.state.reducers import no_usage
from openmanus_graph.tool_calls.context import open_call_context
from openmanus_graph.tool_calls.toolset import Toolset
from tests.support.graphs import scripted


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
            branch="",
            progress=Progress(0, no_usage(), 0.0),
            plans=no_plans(),
            handle_state={},
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

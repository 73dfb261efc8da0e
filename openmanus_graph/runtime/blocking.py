"""`invoke`: a graph's run for callers that cannot await."""

import os
import threading
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph

from openmanus_graph.runtime.event_loop_thread import EventLoopThread
from openmanus_graph.state.context import Context

CANCEL_S = 10
"""Seconds that a cancelled run is waited for: it writes down what it began."""
run_loop = EventLoopThread("openmanus runs")
"""One for all calls, so that kernels, shells and browsers live on between them."""
os.register_at_fork(after_in_child=run_loop.forget)


def invoke(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    given: Any,
    config: RunnableConfig | None = None,
    *,
    context: Context | None = None,
) -> dict[str, Any]:
    """Run a graph and block until it ends or waits: `graph.ainvoke` for code that cannot await.

    Works in scripts, and in notebooks and servers whose event loop runs already (which it blocks).

    Args:
        graph: Made by one of the builders, or one of yours that holds one of them.
        given: The graph's input, a `Command`, or None to go on.
        config: As for `graph.ainvoke`.
        context: Settings of this run.

    Returns:
        The state's values; the questions it waits with are in `__interrupt__`.
    """
    ended = threading.Event()

    async def run() -> dict[str, Any]:
        try:
            return await graph.ainvoke(given, config, context=context)
        finally:
            ended.set()

    try:
        return run_loop.call(run)
    except KeyboardInterrupt:  # the run is cancelled now, and leaves a thread that can go on
        ended.wait(CANCEL_S)
        raise

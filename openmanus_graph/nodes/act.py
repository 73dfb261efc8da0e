"""`act`: one chain of tool calls, in call order."""

import functools
import time
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime

from openmanus_graph.agent import Agent
from openmanus_graph.lost import changes
from openmanus_graph.limits import Progress
from openmanus_graph.persistence.ledger import Ledger, open_ledger
from openmanus_graph.registry import enter_session, saved_thread
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput
from openmanus_graph.state.reducers import Usage, add_usage, no_usage
from openmanus_graph.tools.questions import Questions
from openmanus_graph.tools.run_call import CallScope, run_call
from openmanus_graph.tools.toolset import run_tools


async def act(chain: ActInput, runtime: Runtime[Context], *, agent: Agent) -> dict[str, Any]:
    """Run the chain's calls and answer each with a tool message."""
    started = time.monotonic()
    session = await enter_session(runtime)
    settings = session.settings
    # Without a checkpointer there is nothing to resume, and no ledger.
    thread = saved_thread(get_config())
    ledger = None
    if thread is not None:
        ledger = await session.cached_off_loop(Ledger, lambda: open_ledger(settings.home))
    scope = CallScope(
        session=session,
        toolset=run_tools(agent, session),
        config=get_config(),
        emit=runtime.stream_writer,
        branch=session.on_line(chain["branch"]),
        thread=thread,
        ledger=ledger,
        questions=Questions(ledger),
        progress=Progress(0, chain["usage"], chain["elapsed_s"]),
        deadline=None
        if settings.timeout_s is None
        else started + settings.timeout_s - chain["elapsed_s"],
        held=dict(chain["held"]),
    )
    messages = [await run_call(call, scope) for call in chain["calls"]]
    held = changes(chain["held"], scope.held)
    return {
        "messages": messages,
        "branch": scope.branch,
        "elapsed_s": chain["elapsed_s"] + time.monotonic() - started,
        "usage": spent_by(messages),
    } | ({"held": held} if held else {})


def spent_by(messages: Sequence[ToolMessage]) -> Usage:
    """Add up what tools' own questions to the model cost."""
    spent = (
        message.artifact["usage"] for message in messages if "usage" in (message.artifact or ())
    )
    return functools.reduce(add_usage, spent, no_usage())

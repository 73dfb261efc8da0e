"""`act`: one chain of tool calls, in call order."""

import time
from typing import Any

from langgraph.config import get_config
from langgraph.runtime import Runtime

from openmanus_graph.agent import Agent
from openmanus_graph.lost import changes
from openmanus_graph.persistence.ledger import Ledger, open_ledger
from openmanus_graph.registry import enter_session, saved_thread
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ActInput
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
    } | ({"held": held} if held else {})

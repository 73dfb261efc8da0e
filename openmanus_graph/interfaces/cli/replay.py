"""`openmanus replay`: a thread's runs again from its record, to see what would differ now."""

import asyncio
import sys

from openmanus_graph.backends.models.build import close_models
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.replay import Replayed, replay_thread
from openmanus_graph.interfaces.service.run_setup import to_context
from openmanus_graph.interfaces.service.threads import whole_thread
from openmanus_graph.runtime.output import printable


def replay(thread: str) -> int:
    """Replay a thread, print the first difference, and return the exit code: 1 if there is one."""
    known = whole_thread(thread)
    context = to_context(RunOptions().over(known.options))

    async def replay_and_close_models() -> Replayed:
        try:
            return await replay_thread(known, context)
        finally:
            await close_models()

    found = asyncio.run(replay_and_close_models())
    if found.differences:
        sys.stdout.write(printable(found.differences[0].diff()) + "\n")
    sys.stderr.write(f"{printable(_summary(found))}\n")
    return 0 if found.is_equal else 1


def _summary(found: Replayed) -> str:
    if found.is_equal:
        return f"All {found.model_calls} requests are as they were recorded."
    told = [found.ended] if found.ended else []
    if found.differences:
        first = found.differences[0]
        told.insert(
            0,
            f"{len(found.differences)} of {found.model_calls} requests differ. The first one is "
            f"model call {first.position}, of step {first.call.facts['step']}.",
        )
    return " ".join(told)

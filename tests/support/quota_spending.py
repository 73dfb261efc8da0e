"""A process that makes model calls within a quota: `python -m tests.support.quota_spending CALLS`.

It prints `begun` after each reservation, and is killed after the last one if CALLS is 0.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.usage import CountedCall, RunUsage
from openmanus_graph.config.resolve import database_url
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.state.manus import Usage

DAY = "2026-01-31"


def tokens(number: int) -> Usage:
    """Return the usage of one call."""
    return Usage(
        input_tokens=number, cached_tokens=0, output_tokens=0, model_calls=1, cost_usd=0.01
    )


def counter(thread: str = "t", owner: str = "ada", **quotas: float) -> RunUsage:
    """Return the counter of a new run of a user with these quotas."""
    database = open_database(database_url())
    given: dict[str, float] = quotas
    return RunUsage(database, (thread, "manus", "api"), owner, given)  # type: ignore[arg-type]  # names of quotas


async def make_call(
    run: RunUsage, number: int, day: str = DAY, then: Callable[[], None] = lambda: None
) -> None:
    """Make a call of so many tokens. LimitReached: a quota forbids it. `then` is its work."""
    async with run.counted(CountedCall("model", tokens(number), day)):
        then()


async def spend(calls: int) -> None:
    """Make calls of 10 tokens until the quota of 1,000 forbids one."""
    run = counter(f"t{os.getpid()}", tokens_per_day=1000)

    def work() -> None:
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        if not calls:
            os.kill(os.getpid(), signal.SIGKILL)

    with contextlib.suppress(LimitReached):
        for _ in range(calls or 1):
            await make_call(run, 10, then=work)
    await asyncio.to_thread(open_database(database_url()).settle)


if __name__ == "__main__":
    asyncio.run(spend(int(sys.argv[1])))

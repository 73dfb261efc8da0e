"""The lease of a run: taken before its files or its ledger are used, given back at its end."""

import asyncio
import time
from functools import partial
from typing import Any

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.runtime.session import WORKER_SEPARATOR, Session
from openmanus_graph.state.storage_urls import DatabaseUrl

LEASE_GRACE_S, LEASE_POLL_S = 5.0, 0.5
"""How much longer than its time another worker's lease is waited for, and between two tries."""
_LEASE = "lease"
"""What gives it back when the run has ended, among the session's closers."""


async def hold_run_lease(session: Session, thread: str) -> None:
    """Have the run be the thread's worker, if this process is not that yet.

    A server that starts the runs of a dead one does so before its lease has ended: it is waited
    for. Raises ThreadInUseError if the other worker lives.
    """
    settings = session.settings
    if settings.database.is_local or _LEASE in session.closers_of_run:
        return
    from openmanus_graph.backends.persistence.leases import (  # needs an extra
        ThreadInUseError,
        give_back_lease,
        take_lease,
    )

    database: Any = await asyncio.to_thread(open_database, settings.database)
    lease_s = settings.storage.lease_s
    until = time.monotonic() + lease_s + LEASE_GRACE_S
    while _LEASE not in session.closers_of_run:
        give_back = partial(give_back_lease, database, thread, session)
        taking = asyncio.ensure_future(
            asyncio.to_thread(take_lease, database, thread, lease_s, session)
        )
        try:
            await asyncio.shield(taking)
        except ThreadInUseError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(LEASE_POLL_S)
        except asyncio.CancelledError:  # nobody would give back what is still being taken
            await asyncio.wait({taking})
            await asyncio.to_thread(give_back)
            raise
        else:
            session.closers_of_run[_LEASE] = give_back


async def require_run_lease(session: Session) -> None:
    """Raise LeaseLostError if another worker has taken over a run's thread: nothing more is paid.

    A process that was paused goes on with its next step before it hears of that.
    """
    thread = session.key.partition(WORKER_SEPARATOR)[0]
    if not session.settings.database.is_local:
        await asyncio.to_thread(require_lease, session.settings.database, thread)


def require_lease(database: DatabaseUrl, thread: str) -> None:
    """Raise LeaseLostError if another worker has taken over a thread of this process. Blocks.

    Asks the server only after a pause. StorageError: it cannot be reached.
    """
    if database.is_local:
        return
    from openmanus_graph.backends.persistence.leases import require_leases  # needs an extra

    require_leases(thread)

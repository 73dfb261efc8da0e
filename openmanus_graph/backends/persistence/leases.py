"""Leases: a thread in a shared database has one worker at a time, on whichever machine.

A worker takes a thread's lease before it works, renews it meanwhile, and gives it back. If it dies
the lease lasts until its time is over, by the server's clock. Then another worker takes it over and
gets a higher number. Each write for the thread is fenced by that number in its own transaction
(`worker_of`), so that a worker that was paused or cut off, and continues later, changes nothing.

A dead worker of the same machine is noticed at once.
"""

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from openmanus_graph.backends.persistence.backend import Database, LeaseLostError
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.errors import StorageError
from openmanus_graph.state.addresses import DatabaseUrl

if TYPE_CHECKING:
    from openmanus_graph.runtime.session import Session

RENEWALS = 3
"""Within a lease's time."""
log = logging.getLogger(__name__)

_TAKE = """
    WITH ended AS MATERIALIZED (
        SELECT pg_terminate_backend(pid) AS done FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE relation = 'leases'::regclass AND mode = 'RowShareLock' AND wait_event = 'ClientRead'
        AND clock_timestamp() - xact_start > make_interval(secs => ?)
    )
    INSERT INTO leases (thread, token, holder, expires)
    SELECT ?, nextval('lease_tokens'), ?, clock_timestamp() + make_interval(secs => ?)
    FROM (SELECT count(done) FROM ended) AS first
    ON CONFLICT (thread) DO UPDATE
    SET token = excluded.token, holder = excluded.holder, expires = excluded.expires
    WHERE leases.expires < clock_timestamp() OR leases.holder IN ('', ?) RETURNING token
"""
"""Takes a lease, if it is over or its holder dead, and returns its number.

First it ends the transactions of workers that were paused or cut off in the middle of a fenced
write: such a transaction would keep its rows, and the lease's, locked. It is younger than half a
lease's time as long as its worker lives.
"""
_RENEW = """
    UPDATE leases SET expires = clock_timestamp() + make_interval(secs => ?)
    WHERE thread = ? AND token = ? RETURNING 1
"""
_GIVE_BACK = """
    UPDATE leases SET holder = '', expires = clock_timestamp() WHERE thread = ? AND token = ?
"""
_HOLDER = """
    SELECT holder, extract(epoch FROM expires - clock_timestamp())::float FROM leases
    WHERE thread = ? AND holder != '' AND expires > clock_timestamp()
"""


@dataclass(frozen=True)
class Holder:
    name: str
    """Host, process and what distinguishes it from others with that number."""
    left_s: float
    """Seconds until the lease ends, if it is not renewed."""

    @property
    def _parts(self) -> Sequence[str]:
        return (self.name.split("/") + [""] * 4)[:4]

    @property
    def description(self) -> str:
        """The host and process, for people."""
        host, process, *_ = self._parts
        return f"process {process} on {host}"

    @property
    def is_dead(self) -> bool:
        """Whether it has surely ended: it was a process of this machine."""
        _, process, started, machine = self._parts
        if machine != _machine() or not machine:
            return False
        return _began(process) != started


@dataclass
class _Lease:
    database: Database
    thread: str
    token: int
    lease_s: float
    renewed: float
    """When the server was last asked for it, by a clock that runs while the process is paused.

    Not when the answer was read: the process may be paused before that.
    """
    users: dict[Any, Callable[[], None]] = field(default_factory=dict[Any, Callable[[], None]])
    """The users of the lease in this process, with what each wants called when it is lost."""
    alone: Any = None
    """The user that took it with `alone`."""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def is_overdue(self) -> bool:
        """Whether another worker may have it by now."""
        return time.monotonic() - self.renewed >= self.lease_s


_leases: dict[tuple[int, str], _Lease] = {}
"""The leases of this process, by database and thread."""
_lock = threading.Lock()
"""Guards `_locks`."""
_locks: WeakValueDictionary[tuple[int, str], threading.Lock] = WeakValueDictionary()
"""For taking and giving back each lease, which may wait for the database."""


class ThreadInUseError(StorageError):
    def __init__(self, thread: str, holder: Holder) -> None:
        super().__init__(
            f"Thread {thread} is in use by {holder.description}. Wait for it, or stop it first; if "
            f"it has died, its lease ends in {holder.left_s:.0f} s."
        )


def take_lease(
    database: Database,
    thread: str,
    lease_s: float,
    user: Any,
    on_loss: Callable[[], None] = lambda: None,
    *,
    alone: bool = False,
) -> None:
    """Take a thread's lease for a user, or share the one that this process has. Blocks.

    Args:
        lease_s: Seconds after which another worker takes over from one that died.
        user: Identifies who gives it back. If it has the lease already nothing changes.
        on_loss: Called in another OS thread when the lease is lost.
        alone: No other user of this process may have it with this flag.

    Raises:
        ThreadInUseError: Another worker has it, or both users want to be alone.
        StorageError: The database cannot be reached.
    """
    key = (id(database), thread)
    with _lock_of(key):
        lease = _leases.get(key)
        if lease is None:
            lease = _leases[key] = _take(database, thread, lease_s)
        elif alone and lease.alone is not None:
            raise ThreadInUseError(thread, Holder(own_name(), lease_s))
        lease.users[user] = on_loss
        lease.alone = user if alone else lease.alone


def give_back_lease(database: Database, thread: str, user: Any) -> None:
    """Give back a thread's lease, once its last user does. Blocks, and never raises."""
    key = (id(database), thread)
    with _lock_of(key):
        lease = _leases.get(key)
        if lease is None or lease.users.pop(user, None) is None:
            return
        lease.alone = None if lease.alone is user else lease.alone
        if not lease.users:
            del _leases[key]
            _give_back(lease)


def holder_of(database: Database, thread: str) -> Holder | None:
    """Return the worker that has a thread, if one has and lives. Blocks."""
    rows = database.run(_HOLDER, (thread,))
    holder = Holder(rows[0][0], rows[0][1]) if rows else None
    return None if holder is None or holder.is_dead else holder


def _lock_of(key: tuple[int, str]) -> threading.Lock:
    with _lock:
        return _locks.setdefault(key, threading.Lock())


def _take(database: Database, thread: str, lease_s: float) -> _Lease:
    dead, asked = "", time.monotonic()
    while not (taken := database.run(_TAKE, (lease_s / 2, thread, own_name(), lease_s, dead))):
        rows = database.run(_HOLDER, (thread,))
        holder = Holder(*rows[0]) if rows else None
        if holder is not None and not holder.is_dead:
            raise ThreadInUseError(thread, holder)
        dead, asked = holder.name if holder is not None else "", time.monotonic()
    lease = _Lease(database, thread, taken[0][0], lease_s, asked)
    database.tokens[thread] = lease.token
    threading.Thread(target=_renew, args=(lease,), name=f"lease of {thread}", daemon=True).start()
    return lease


def _renew(lease: _Lease) -> None:
    while not lease.over.wait(lease.lease_s / RENEWALS):
        asked = time.monotonic()
        try:
            if lease.database.run(_RENEW, (lease.lease_s, lease.thread, lease.token)):
                lease.renewed = asked
                continue
        except StorageError as error:
            if not lease.is_overdue:
                log.warning("The lease of thread %s waits to be renewed: %s", lease.thread, error)
                continue
        if lease.over.is_set():
            return
        log.error("%s", LeaseLostError(lease.thread))
        for report in list(lease.users.values()):
            report()
        return


def _give_back(lease: _Lease) -> None:
    lease.over.set()
    try:
        # Writes of the run without a waiting caller are fenced as well.
        lease.database.settle()
        lease.database.tokens.pop(lease.thread, None)
        lease.database.run(_GIVE_BACK, (lease.thread, lease.token))
    except StorageError as error:  # it will expire
        log.warning("The lease of thread %s is not given back: %s", lease.thread, error)


def own_name() -> str:
    """Name this process: host, number, when it began, and the machine that counts its processes."""
    own = str(os.getpid())
    return f"{socket.gethostname().replace('/', '-')}/{own}/{_began(own)}/{_machine()}"


def _began(process: str) -> str:
    """Return when a process began, in ticks since the machine did; empty if unknown.

    Unlike a time of day it stays the same when the clock is set.
    """
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def _machine() -> str:
    """Identify the set of processes that see each other's numbers; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _reset_after_fork() -> None:
    """Begin without leases in a forked child: the parent has and renews them."""
    global _lock
    _lock = threading.Lock()
    _locks.clear()
    for lease in _leases.values():
        lease.database.tokens.pop(lease.thread, None)
    _leases.clear()


os.register_at_fork(after_in_child=_reset_after_fork)


LEASE_GRACE_S, LEASE_POLL_S = 5.0, 0.5
"""How much longer than its time to wait for another worker's lease, and between two attempts."""
_LEASE = "lease"
"""Among the session's closers, the one that gives the lease back when the run has ended."""


async def hold_run_lease(session: "Session", thread: str) -> None:
    """Make the run the thread's worker, if this process is not that yet.

    A server that restarts the runs of a dead worker does so before its lease has ended, so this
    waits for the end. Raises ThreadInUseError if the other worker lives.
    """
    settings = session.settings
    if settings.database.is_local or _LEASE in session.closers_of_run:
        return
    database = await asyncio.to_thread(open_database, settings.database)
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
        except asyncio.CancelledError:  # nothing else gives back a lease that is still being taken
            await asyncio.wait({taking})
            await asyncio.to_thread(give_back)
            raise
        else:
            session.closers_of_run[_LEASE] = give_back


async def require_run_lease(session: "Session") -> None:
    """Raise LeaseLostError if another worker has taken over a run's thread: nothing more is paid.

    A process that was paused could continue with its next step before it learns of that.
    """
    from openmanus_graph.runtime.session import WORKER_SEPARATOR  # heavy, and loaded with a session

    thread = session.key.partition(WORKER_SEPARATOR)[0]
    if not session.settings.database.is_local:
        await asyncio.to_thread(require_lease, session.settings.database, thread)


def require_lease(database: DatabaseUrl, thread: str) -> None:
    """Raise LeaseLostError if another worker has taken over a thread of this process. Blocks.

    It asks the server only if a lease was not renewed in time: the process was paused or cut off.
    StorageError: it cannot be reached.
    """
    if database.is_local:
        return
    for lease in list(_leases.values()):
        if lease.thread == thread and lease.is_overdue:
            lease.database.run("SELECT 1", worker_of=thread)

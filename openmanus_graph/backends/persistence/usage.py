"""What model calls and runs have used, by user and day, and the quotas of users.

The rows stay when their thread is deleted. The row of a run holds its totals so far, calls under
way included as they are expected, so that it can be written again. If a process is killed, such a
call stays counted: its provider may charge for it.
"""

import asyncio
import contextlib
import datetime
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langgraph.config import get_config
from typing_extensions import override

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.accounts import REMOVED
from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import DEMO
from openmanus_graph.config.resolve import server_settings
from openmanus_graph.errors import StorageError
from openmanus_graph.runtime.checkpoint_lineage import checkpointed_thread
from openmanus_graph.runtime.limits import Limit, LimitReached
from openmanus_graph.runtime.session import WORKER_SEPARATOR, Session
from openmanus_graph.runtime.session_registry import find_location, find_session
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.manus import Usage, no_usage
from openmanus_graph.state.server_settings import QuotaKind

Quotas = Mapping[QuotaKind, float]
_COUNT = """
    INSERT INTO call_usage (owner, day, run, model, thread, agent, trigger, calls, input, cached,
        output, dollars, seconds)
    SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE {allowed}
    ON CONFLICT (owner, day, run, model) DO UPDATE SET calls = excluded.calls,
        input = excluded.input, cached = excluded.cached, output = excluded.output,
        dollars = excluded.dollars, seconds = excluded.seconds
"""
_COUNTED = (
    "model_calls", "input_tokens", "cached_tokens", "output_tokens", "cost_usd", "seconds"
)  # fmt: skip
_USED = "(SELECT COALESCE(SUM({}), 0) FROM call_usage WHERE owner = ? AND day >= ? AND day <= ?)"
_LOCK = (
    "INSERT INTO quotas (owner, kind, most) VALUES (?, '', 0)"
    " ON CONFLICT (owner, kind) DO UPDATE SET most = 0"
)
"""Makes the processes that reserve for one user take turns."""
_FILES_OF = "FROM workspace_sizes WHERE thread IN (SELECT thread FROM owners WHERE owner = ?)"
_SET_FILES = (
    "INSERT INTO workspace_sizes (thread, bytes) VALUES (?, ?)"
    " ON CONFLICT (thread) DO UPDATE SET bytes = excluded.bytes"
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quota(Limit):
    """A quota that forbids the next model call."""

    sum: str = ""
    """What is used of it, as an expression for a user and its first and last day."""
    days: tuple[str, str] = ("", "")
    resets: str = ""
    """The day (UTC) on which it starts again; empty if it does not."""

    @override
    def text(self, steps: str = "steps") -> str:
        most, used, ahead = map(self._amount, (self.most, self.used, self.next_call), [steps] * 3)
        period, higher = self.setting.rpartition("_")[2], "ask an administrator for a higher quota"
        why = f"per {period}: {used} are used, and the next model call takes about {ahead}"
        then = f"The quota starts again on {self.resets} at 00:00 UTC. Continue then, or {higher}"
        if not self.resets:
            why = f"for files: your threads hold {used}"
            then = f"Delete what you do not need, or {higher}. Then continue the thread"
        return f"The run stopped at your quota of {most} {why}. {then}."


@dataclass(eq=False)
class CountedCall:
    model: str
    usage: Usage
    """What it is expected to use, until it is known."""
    day: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date().isoformat())

    def quota(self, kind: str, most: float) -> Quota:
        """Return a quota of dollars or tokens, and what the call takes of it."""
        first, usage = datetime.date.fromisoformat(self.day), self.usage
        last, resets = first, first + datetime.timedelta(days=1)
        if kind.endswith("month"):
            resets = (first.replace(day=28) + datetime.timedelta(days=4)).replace(day=1)
            first, last = first.replace(day=1), resets - datetime.timedelta(days=1)
        unit, needed, used = "$", usage["cost_usd"], _USED.format("dollars")
        if kind.startswith("tokens"):
            unit, used = "tokens", _USED.format("input + output")
            needed = float(usage["input_tokens"] + usage["output_tokens"])
        days = first.isoformat(), last.isoformat()
        return Quota("budget", kind, unit, most, 0, needed, 0, used, days, resets.isoformat())


@dataclass(eq=False)
class RunUsage:
    """Counts the model calls of one run on a thread, within its user's quotas."""

    database: Database | None = None
    """Without one nothing is counted."""
    place: Sequence[str] = ("", "", "")
    """The thread, the agent and the trigger."""
    owner: str = ""
    quotas: Quotas = field(default_factory=dict[QuotaKind, float])
    reached: Quota | None = None
    """The quota that forbade the newest call."""

    def __post_init__(self) -> None:
        self._run, self._reserving = uuid.uuid4().hex, asyncio.Lock()
        self._rows = defaultdict[tuple[str, str], defaultdict[str, float]](lambda: defaultdict(int))
        """Sums of `_COUNTED`, by day and model."""
        self._full: Quota | None = None

    @contextlib.asynccontextmanager
    async def counted(self, call: CountedCall) -> AsyncGenerator[None]:
        """Reserve a call, and count it by its `usage` at the end of the block.

        One that fails costs nothing; one that is cut off counts as expected. LimitReached: it does
        not fit into a quota. ModelError: the user was removed.
        """
        await self._reserving.acquire()
        expected, began = call.usage, time.monotonic()
        self._sum_up(call, expected, 1)
        try:
            try:
                self.reached = self._full or await self._exceeded(call)
            finally:
                self._reserving.release()
            if self.reached is not None:
                raise LimitReached(self.reached)
            yield
        except (LimitReached, ModelError) as error:
            call.usage = {**no_usage(), "model_calls": int(isinstance(error, ModelError))}
            raise
        finally:
            self._sum_up(call, expected, -1)
            self.add(call, time.monotonic() - began)

    def add(self, call: CountedCall, seconds: float = 0.0) -> None:
        """Count a call that has ended: its row is written together with the next checkpoint."""
        self._sum_up(call, {**call.usage, "seconds": seconds}, 1)
        if self.database is not None:
            self.database.run_later(
                _COUNT.format(allowed="TRUE"),
                self._values(call),
                lambda _, error: log.info("Usage was not recorded: %s", error) if error else None,
                worker_of=self.place[0],
            )

    async def _exceeded(self, call: CountedCall) -> Quota | None:
        """Write a call's row if it fits, whatever other processes do; else return the quota."""
        of_calls = {kind: most for kind, most in self.quotas.items() if "_per_" in kind}
        if (database := self.database) is None or not self.owner:
            return None
        removed = "SELECT 1 FROM users WHERE name = ? AND role = ?"
        if await database.arun(removed, (self.owner, REMOVED)):
            raise ModelError("auth", f"The user {self.owner} was removed, so this run ends.")
        if not of_calls:
            return None
        limits = [call.quota(kind, most) for kind, most in of_calls.items()]
        allowed = " AND ".join(f"{quota.sum} + ? <= ?" for quota in limits)
        spans = [(self.owner, *quota.days) for quota in limits]
        bounds = [(*span, one.next_call, one.most) for span, one in zip(spans, limits, strict=True)]
        values = *self._values(call), *sum(bounds, ())

        def write() -> Any:
            with database.writing(self.place[0]) as transaction:
                transaction.execute(_LOCK, (self.owner,))
                return transaction.execute(_COUNT.format(allowed=allowed), values)

        if (await database.write(write, self.place[0])).rowcount:
            return None
        used = f"SELECT {', '.join(quota.sum for quota in limits)}"
        (sums,) = await database.arun(used, sum(spans, ()))
        found = [replace(one, used=float(used)) for one, used in zip(limits, sums, strict=True)]
        return max(found, key=lambda quota: (quota.used + quota.next_call) / (quota.most or 1e-9))

    def _values(self, call: CountedCall) -> tuple[Any, ...]:
        """Return the row of a call's day and model."""
        counts = map(self._rows[call.day, call.model].__getitem__, _COUNTED)
        return (self.owner, call.day, self._run, call.model, *self.place, *counts)

    def _sum_up(self, call: CountedCall, counts: Mapping[str, Any], sign: int) -> None:
        row = self._rows[call.day, call.model]
        for name, number in counts.items():
            row[name] += sign * number

    def note_files(self, size: int) -> None:
        """Note the workspace's size. If it grew beyond the quota, no call may follow. Blocks."""
        most, thread = self.quotas.get("workspace_mb"), self.place[0]
        if self.database is None or most is None:
            return
        rows = self.database.run(f"SELECT thread, bytes {_FILES_OF}", (self.owner,))
        known: dict[str, int] = dict(rows)
        before = known.pop(thread, 0)
        self.database.run(_SET_FILES, (thread, size), worker_of=thread)
        total = (sum(known.values()) + size) / (1 << 20)
        full = Quota("budget", "workspace_mb", "MB", most, total, 0, 0)
        self._full = full if size > before and total > most else None


async def run_usage(session: Session) -> RunUsage:
    """Return the counter of a session's run, which the runs inside it share."""
    root, config = find_session(session.key.partition(WORKER_SEPARATOR)[0]), get_config()
    thread, at = checkpointed_thread(config), find_location(config)  # None in a tool
    opened = partial(_opened, session.settings.database, thread, at.agent if at else "")
    return await (root or session).cached_off_loop(RunUsage, opened)


def _opened(url: DatabaseUrl, thread: str | None, agent: str) -> RunUsage:
    if thread is None:
        return RunUsage()
    try:
        database = open_database(url)
        begun = database.run(
            "SELECT agent, trigger FROM run_usage WHERE thread = ? AND status = 'running'",
            (thread,),
        )
        owner, quotas = quotas_of(database, thread)
    except StorageError as error:  # a run does not end for this; its checkpoints may be elsewhere
        log.info("Usage of thread %s is not recorded: %s", thread, error)
        return RunUsage()
    place = (thread, *(begun[0] if begun else (agent, "app")))
    return RunUsage(None if place[2] == DEMO else database, place, owner, quotas)


def quotas_of(database: Database, thread: str) -> tuple[str, Quotas]:
    """Return whose a thread is, and his quotas; the machine's own user ("") has none. Blocks."""
    rows = database.run("SELECT owner FROM owners WHERE thread = ?", (thread,))
    return (rows[0][0], quotas_of_user(database, rows[0][0])) if rows and rows[0][0] else ("", {})


def quotas_of_user(database: Database, owner: str) -> Quotas:
    """Return a user's quotas: his own, or those of the settings. Blocks."""
    own = database.run("SELECT kind, most FROM quotas WHERE owner = ? AND kind <> ''", (owner,))
    return {**server_settings().quotas, **dict(own)}


def room_for_files(database: Database, thread: str) -> float:
    """Return how many bytes a thread's user may still upload. Blocks."""
    owner, quotas = quotas_of(database, thread)
    ((used,),) = database.run(f"SELECT COALESCE(SUM(bytes), 0) {_FILES_OF}", (owner,))
    return max(0, quotas.get("workspace_mb", float("inf")) * (1 << 20) - float(used))


def add_file(database: Database, thread: str, size: int) -> None:
    """Add an uploaded file to the size of a thread's workspace. Blocks."""
    added = _SET_FILES.replace("bytes = ", "bytes = workspace_sizes.bytes + ")
    database.run(added, (thread, size))

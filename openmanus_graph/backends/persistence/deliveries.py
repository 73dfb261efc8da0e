"""Events that start runs, each once: what arrived, the run it started, and where its answer is.

A delivery is `claimed` when it is stored, `running` from the start of its run, `done` when the run
has an answer, and `delivered` when that was sent. `skipped`, `dead` and `unknown_outcome` are ends
that a person can replay. Its thread's id is made from its key, so that all workers find one run.
The lock of that thread decides who works on it. The rows stay when the thread is deleted.

All methods block; call them off the event loop.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from openmanus_graph.backends.persistence.backend import Database, Row, read_object, write_json
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.triggers import Overlap

State = Literal["claimed", "running", "done", "delivered", "skipped", "dead", "unknown_outcome"]
Settled = Literal["delivered", "skipped"]
_THREADS = uuid.UUID("6c1f2b0e-6f3c-5e0a-9a39-6a5d0c9b7f11")
_COLUMNS = (
    "number, trigger, key, thread, event, state, attempts, result, sending, asked, reason, received"
)
_OPEN = "state IN ('claimed', 'running', 'done')"
FORGET_DELIVERY = (
    f"UPDATE deliveries SET event = '{{}}', result = '',"
    f" state = CASE WHEN {_OPEN} THEN 'dead' ELSE state END,"
    f" reason = CASE WHEN {_OPEN} THEN 'Its thread was deleted.' ELSE reason END WHERE thread = ?"
)
"""The key stays, so that the event starts no other run."""
_INSERT = (
    "INSERT INTO deliveries (trigger, key, thread, event, state, reason, received)"
    " SELECT ?, ?, ?, ?, ?, ?, ? WHERE {} ON CONFLICT (trigger, key) DO NOTHING"
)
_OTHERS = (
    "SELECT 1 FROM deliveries AS other WHERE other.trigger = deliveries.trigger"
    " AND other.state IN ('claimed', 'running', 'done') AND other.number <> deliveries.number AND"
)
_IS_FREE: Mapping[Overlap, str] = {
    "queue": f"NOT EXISTS ({_OTHERS} (other.state = 'running' OR"
    " (other.state = 'claimed' AND other.number < deliveries.number)))",
    "skip": f"NOT EXISTS ({_OTHERS} other.state = 'running')",
    "parallel": "TRUE",
    "thread": f"NOT EXISTS ({_OTHERS} other.thread = deliveries.thread"
    " AND other.number < deliveries.number)",
}
"""Whether a claimed delivery may begin."""


@dataclass(frozen=True)
class Event:
    """Something that starts a run."""

    key: str
    """Tells it from all others of its trigger, however often it arrives."""
    fields: Mapping[str, Any]
    """What the task's template can name."""
    state: State = "claimed"
    reason: str = ""
    """Why it is skipped, if it is."""
    thread: str = ""
    """The thread of its conversation. Default: one of its own, made from the key."""


@dataclass(frozen=True)
class Delivery:
    number: int
    trigger: str
    key: str
    thread: str
    event: Mapping[str, Any]
    state: State
    attempts: int
    result: Mapping[str, Any]
    """The end of its run; empty until there is one."""
    sending: bool
    """Whether the answer may have been sent, without a record of it."""
    asked: Sequence[str]
    """Ids of the questions that were sent."""
    reason: str
    received: float

    @property
    def full_key(self) -> str:
        return f"trigger/{self.trigger}/{self.key}"


class Deliveries:
    """The tables of deliveries and of triggers' states."""

    def __init__(self, database: Database) -> None:
        self.database, self._run = database, database.run

    def receive(self, trigger: str, event: Event, now: float) -> Delivery:
        """Store an event unless it is known, and return its delivery. It is on disk then."""
        self._run(_INSERT.format("TRUE"), _row(trigger, event, now))
        return self._where("trigger = ? AND key = ?", trigger, event.key)[0]

    def advance(
        self, trigger: str, before: str, after: dict[str, Any], events: Sequence[Event], now: float
    ) -> None:
        """Move a trigger's mark, and store the events up to it, in one transaction.

        Nothing is stored if another worker has moved the mark meanwhile.
        """
        mark = json.dumps({**after, "turn": uuid.uuid4().hex})
        moved = "EXISTS (SELECT 1 FROM trigger_states WHERE name = ? AND mark = ?)"
        rows = [(*_row(trigger, event, now), trigger, mark) for event in events]
        self.database.run_many(
            ("UPDATE trigger_states SET mark = ? WHERE name = ? AND mark = ?",
             [(mark, trigger, before)]),
            (_INSERT.format(moved), rows),
        )  # fmt: skip

    def mark(self, trigger: str) -> str:
        """Return up to where a trigger has looked: empty, or JSON."""
        found = self._run("SELECT mark FROM trigger_states WHERE name = ?", (trigger,))
        if not found:
            new = "INSERT INTO trigger_states (name) VALUES (?) ON CONFLICT (name) DO NOTHING"
            self._run(new, (trigger,))
        return str(found[0][0]) if found else ""

    def pause(self, trigger: str, *, on: bool) -> None:
        self.mark(trigger)
        self._run("UPDATE trigger_states SET paused = ? WHERE name = ?", (int(on), trigger))

    def paused(self) -> set[str]:
        rows = self._run("SELECT name FROM trigger_states WHERE paused = 1")
        return {row[0] for row in rows}

    def due(self, trigger: str, overlap: Overlap, now: float, limit: int) -> list[Delivery]:
        """Return a trigger's open deliveries whose time has come, oldest first.

        With `queue` only the oldest one may begin, with `skip` no other one beside it is kept.
        """
        if overlap == "skip":
            self._run(
                "UPDATE deliveries SET state = 'skipped', reason = ? WHERE trigger = ?"
                f" AND state = 'claimed' AND EXISTS ({_OTHERS} other.state = 'running')",
                ("An earlier run was not finished.", trigger),
            )
        time = "(next_try <= ? OR next_try > ? + 7200)"  # later than any: the clock was set back
        may_begin = f"(state <> 'claimed' OR {_IS_FREE[overlap]})"
        return self._where(
            f"{_OPEN} AND trigger = ? AND {time} AND {may_begin} ORDER BY number LIMIT ?",
            trigger, now, now, limit,
        )  # fmt: skip

    def begin(self, one: Delivery, overlap: Overlap) -> bool:
        """Count an attempt to run a delivery. False: it may not run now. Hold its thread."""
        before = self.find(one.number)
        self.mark(one.trigger)
        self.database.run_many(
            # Makes the workers that begin deliveries of one trigger take turns.
            ("UPDATE trigger_states SET mark = mark WHERE name = ?", [(one.trigger,)]),
            ("UPDATE deliveries SET state = 'running', attempts = attempts + 1 WHERE number = ? AND"
             f" (state = 'running' OR state = 'claimed' AND {_IS_FREE[overlap]})", [(one.number,)]),
        )  # fmt: skip
        return self.find(one.number).attempts > before.attempts

    def change(self, one: Delivery, **columns: Any) -> None:
        """Set columns of a delivery that has not ended."""
        names = ", ".join(f"{name} = ?" for name in columns)
        change = f"UPDATE deliveries SET {names} WHERE number = ? AND {_OPEN}"
        self._run(change, (*columns.values(), one.number))

    def replay(self, number: int, end: Settled | None = None) -> None:
        """Open a delivery again that has ended without its effect, or note how a person ends it.

        ConfigError: it has not ended so.
        """
        one = self.find(number)
        state = end or ("done" if one.result else "claimed")
        reason = "A person dismissed it." if end == "skipped" else ""
        is_unknown = one.state == "unknown_outcome" or end != "delivered"
        if not is_unknown or not self._run(
            "UPDATE deliveries SET state = ?, attempts = 0, next_try = 0, sending = 0,"
            " asked = '', reason = ? WHERE number = ? AND event <> '{}'"
            " AND state IN ('skipped', 'dead', 'unknown_outcome') RETURNING number",
            (state, reason, number),
        ):
            raise ConfigError(
                f"Delivery {number} is {one.state}. One that is dead, skipped or of unknown outcome"
                " can be replayed while its event is kept. Only an unknown one can have arrived."
            )

    def find(self, number: int) -> Delivery:
        """Return a delivery. ConfigError: there is none of this number."""
        found = self._where("number = ?", number)
        if not found:
            raise ConfigError(f"There is no delivery {number}. See: openmanus triggers history")
        return found[0]

    def asking(self, *, thread: str = "", question: str = "") -> Delivery | None:
        """Return the delivery whose run asked last on a thread, or asked this question."""
        which = "(' ' || asked || ' ') LIKE ?" if question else "thread = ?"
        found = self._where(
            f"state = 'running' AND asked <> '' AND {which} ORDER BY number DESC LIMIT 1",
            f"% {question} %" if question else thread,
        )
        return found[0] if found else None

    def history(self, trigger: str | None, limit: int, *states: State) -> list[Delivery]:
        """Return the newest deliveries, of one trigger or (None) of all, in these states or all."""
        marks = ", ".join("?" * len(states)) or "state"
        return self._where(
            f"(trigger = ? OR ?) AND state IN ({marks}) ORDER BY number DESC LIMIT ?",
            trigger or "", trigger is None, *states, limit,
        )  # fmt: skip

    def spent(self, trigger: str, day: str) -> float:
        """Return the dollars that a trigger's runs have used on a day, whoever continued them."""
        ((dollars,),) = self._run(
            "SELECT COALESCE(SUM(dollars), 0) FROM call_usage WHERE day = ? AND thread IN"
            " (SELECT thread FROM deliveries WHERE trigger = ?)",
            (day, trigger),
        )
        return float(dollars)

    def _where(self, condition: str, *values: Any) -> list[Delivery]:
        rows = self._run(f"SELECT {_COLUMNS} FROM deliveries WHERE {condition}", values)
        return list(map(_delivery, rows))


def thread_of(trigger: str, name: str) -> str:
    """Return the thread of an event, or of a conversation, by its key or name."""
    return str(uuid.uuid5(_THREADS, f"trigger/{trigger}/{name}"))


def open_deliveries() -> Deliveries:
    """Return the deliveries of the configured database. Blocks."""
    return Deliveries(open_database(database_url()))


def _row(trigger: str, event: Event, now: float) -> tuple[Any, ...]:
    thread = event.thread or thread_of(trigger, event.key)
    return trigger, event.key, thread, write_json(event.fields), event.state, event.reason, now


def _delivery(row: Row) -> Delivery:
    number, trigger, key, thread, event, state, attempts, result, sending, asked, reason, at = row
    return Delivery(
        number, trigger, key, thread, read_object(event) or {}, state, attempts,
        read_object(result) or {} if result else {}, bool(sending), asked.split(), reason, at,
    )  # fmt: skip

"""The threads of a home folder: what they were asked, with which options, and how they stand."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openmanus_graph.persistence.database import Database

_SCHEMA = """
CREATE TABLE IF NOT EXISTS threads (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, task TEXT NOT NULL, options TEXT NOT NULL,
    status TEXT NOT NULL, created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)
"""


@dataclass(frozen=True)
class Thread:
    """One conversation."""

    id: str
    agent: str
    task: str
    """The newest user message."""
    options: dict[str, Any]
    """The run's options as given, never keys."""
    status: str
    """`running` while a run goes on, and after a crash."""
    created: str
    updated: str


class Threads:
    """The table of threads. All methods block; call them off the event loop."""

    def __init__(self, database: Database) -> None:
        self._run = database.run
        self._run(_SCHEMA)

    def begin(self, thread: str, agent: str, task: str, options: Mapping[str, Any]) -> None:
        """Record a run's beginning."""
        self._run(
            "INSERT INTO threads (id, agent, task, options, status) VALUES (?, ?, ?, ?, 'running')"
            " ON CONFLICT (id) DO UPDATE SET agent = excluded.agent, task = excluded.task,"
            " options = excluded.options, status = 'running', updated = CURRENT_TIMESTAMP",
            (thread, agent, task, json.dumps(options)),
        )

    def end(self, thread: str, status: str) -> None:
        """Record how a run stands."""
        self._run(
            "UPDATE threads SET status = ?, updated = CURRENT_TIMESTAMP WHERE id = ?",
            (status, thread),
        )

    def find(self, thread: str) -> Thread | None:
        """Return a thread."""
        return next(iter(self._select("WHERE id = ?", thread)), None)

    def all(self) -> list[Thread]:
        """Return all threads, newest first."""
        return self._select("ORDER BY updated DESC, rowid DESC")

    def delete(self, thread: str) -> None:
        """Forget a thread."""
        self._run("DELETE FROM threads WHERE id = ?", (thread,))

    def _select(self, rest: str, *values: str) -> list[Thread]:
        rows = self._run(
            f"SELECT id, agent, task, options, status, created, updated FROM threads {rest}",
            values,
        )
        return [
            Thread(row[0], row[1], row[2], json.loads(row[3]), row[4], row[5], row[6])
            for row in rows
        ]

"""The threads of a database: what they were asked, with which options, and how they stand."""

import datetime
import json
import shlex
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from openmanus_graph.backends.persistence.database import Database
from openmanus_graph.backends.persistence.rows import DamagedRowError, read_json
from openmanus_graph.backends.persistence.stored_options import believed, signed

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, HumanMessage

_TITLE = "(SELECT title FROM titles WHERE thread = threads.id)"
_COLUMNS = f"id, agent, task, options, status, created, updated, {_TITLE}"
_ASKED_AT_ONCE = 500
DAMAGED = "damaged"
"""Status of a thread whose row is damaged; its readable columns are returned."""


@dataclass(frozen=True)
class Thread:
    """One conversation."""

    id: str
    agent: str
    task: str
    """The newest user message."""
    options: dict[str, Any]
    """The run's options as given, never keys; of those that others may have written, what can do
    no harm."""
    status: str
    """`running` while a run goes on, and after a crash; or `DAMAGED`."""
    created: str
    updated: str
    title: str = ""
    """The first task, unless a person chose another one."""
    unused: tuple[str, ...] = ()
    """Names of stored options that do not count, as others may have written them."""


class Threads:
    """The table of threads. All methods block; call them off the event loop."""

    def __init__(self, database: Database) -> None:
        self._run = database.run

    def begin(
        self,
        thread: str,
        agent: str,
        task: str,
        options: Mapping[str, Any],
        message: "HumanMessage | None",
        *,
        title: str = "",
    ) -> None:
        """Record a run's beginning.

        Args:
            thread: Its id.
            agent: Who works.
            task: The newest user message, as the person wrote it.
            options: As given.
            message: What the run begins with, whole; None for one that goes on. It is kept here
                because a crash may come before the first checkpoint, or take that away.
            title: Of a thread that has none yet; the task if it is empty.
        """
        if message is not None:
            from langchain_core.messages import message_to_dict  # a list of threads needs none

            self._run(
                "INSERT INTO user_messages (thread, message) VALUES (?, ?)"
                " ON CONFLICT (thread) DO UPDATE SET message = excluded.message",
                (thread, json.dumps(message_to_dict(message))),
                worker_of=thread,
            )
        self._run(  # of a thread without one, which an earlier version began: its newest task
            "INSERT INTO titles (thread, title)"
            " VALUES (?, coalesce((SELECT task FROM threads WHERE id = ?), ?))"
            " ON CONFLICT (thread) DO NOTHING",
            (thread, thread, title or task),
            worker_of=thread,
        )
        self._run(
            # A new number, so that the newest has the greatest whatever the clock says.
            "INSERT INTO threads (id, agent, task, options, status) VALUES (?, ?, ?, ?, 'running')"
            " ON CONFLICT (id) DO UPDATE SET rowid = excluded.rowid, agent = excluded.agent,"
            " task = excluded.task, options = excluded.options, status = 'running',"
            " updated = CURRENT_TIMESTAMP",
            (thread, agent, task, json.dumps(signed(thread, options))),
            worker_of=thread,
        )

    def end(self, thread: str, status: str) -> None:
        """Record the status of a run."""
        self._run(
            "UPDATE threads SET status = ?, updated = CURRENT_TIMESTAMP WHERE id = ?",
            (status, thread),
            worker_of=thread,
        )

    def rename(self, thread: str, title: str) -> None:
        """Give a thread another title."""
        self._run(
            "INSERT INTO titles (thread, title) VALUES (?, ?)"
            " ON CONFLICT (thread) DO UPDATE SET title = excluded.title",
            (thread, title),
        )

    def find(self, thread: str) -> Thread | None:
        """Return a thread, also if the index over their ids is damaged."""
        found = self._select("WHERE id = ?", thread) or self._select("WHERE id || '' = ?", thread)
        return found[0] if found else None

    def existing(self, threads: Sequence[str]) -> set[str]:
        """Return which of these threads there are, or have files: graphs of an app list none."""
        found = set[str]()
        for start in range(0, len(threads), _ASKED_AT_ONCE):
            some = threads[start : start + _ASKED_AT_ONCE]
            marks = ", ".join("?" * len(some))
            rows = self._run(
                f"SELECT id FROM threads WHERE id IN ({marks})"
                f" UNION SELECT thread FROM places WHERE thread IN ({marks})",
                (*some, *some),
            )
            found.update(row[0] for row in rows)
        return found

    def newest_message(self, thread: str) -> "BaseMessage | None":
        """Return the user message that the thread's newest run began with.

        Raises:
            DamagedRowError: It cannot be read.
        """
        from langchain_core.messages import messages_from_dict

        rows = self._run("SELECT message FROM user_messages WHERE thread = ?", (thread,))
        try:
            return messages_from_dict([read_json(rows[0][0])])[0] if rows else None
        except Exception as error:  # damaged fields may make the message's class raise anything
            raise DamagedRowError(
                f"The newest message of thread {thread} is damaged: its row cannot be read. Say it "
                f"again with: openmanus run --thread {shlex.quote(thread)} TASK."
            ) from error

    def all(self) -> list[Thread]:
        """Return all threads, newest first."""
        return self._select("ORDER BY rowid DESC")

    def page(
        self, limit: int, before: int | None, query: str, also: Collection[str] = ()
    ) -> list[tuple[int, Thread]]:
        """Return threads with their numbers, newest first.

        Args:
            limit: How many at most.
            before: Only those with a smaller number.
            query: Part of the title, the task or the id; empty for all.
            also: Ids of threads that are listed although the query is part of none of these.
        """
        pattern = "".join(f"\\{c}" if c in "%_\\" else c for c in query)
        rows = self._run(
            f"SELECT {_COLUMNS}, rowid FROM threads WHERE rowid < ?"
            " AND (lower(task) LIKE lower(?) ESCAPE '\\' OR lower(id) LIKE lower(?) ESCAPE '\\'"
            f" OR lower({_TITLE}) LIKE lower(?) ESCAPE '\\'"
            f" OR id IN ({', '.join('?' * len(also)) or 'NULL'}))"
            " ORDER BY rowid DESC LIMIT ?",
            (before or (1 << 62), *[f"%{pattern}%"] * 3, *also, limit),
        )
        return [(row[-1], _thread(row)) for row in rows]

    def beginning_with(self, beginnings: Sequence[str]) -> list[str]:
        """Return the ids that begin with one of these texts, newest first."""
        lengths = sorted({len(beginning) for beginning in beginnings})
        marks = ", ".join("?" * len(beginnings))
        tests = " OR ".join(f"substr(id, 1, {length}) IN ({marks})" for length in lengths)
        values = [*beginnings] * len(lengths)
        found = f"SELECT id FROM threads WHERE {tests or 'FALSE'} ORDER BY rowid DESC"
        return [_readable(row[0]) for row in self._run(found, values)]

    def delete(self, thread: str) -> None:
        """Forget a thread."""
        for table, column in (("user_messages", "thread"), ("titles", "thread"), ("threads", "id")):
            self._run(f"DELETE FROM {table} WHERE {column} = ?", (thread,), worker_of=thread)

    def _select(self, rest: str, *values: str) -> list[Thread]:
        rows = self._run(f"SELECT {_COLUMNS} FROM threads {rest}", values)
        return [_thread(row) for row in rows]


def _thread(row: Sequence[Any]) -> Thread:
    texts, options = list(map(_readable, row[:7])), _options(row[3])
    title = _readable(row[7]) or texts[2]
    if options is None or texts != list(row[:7]) or not all(map(_is_time, row[5:7])):
        options, texts[4] = options or {}, DAMAGED
    options, unused = believed(texts[0], options)
    return Thread(
        texts[0], texts[1], texts[2], options, texts[4], texts[5], texts[6], title, unused
    )


def _readable(value: Any) -> str:
    """Return a column as text; a damaged one may hold anything."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _options(stored: Any) -> dict[str, Any] | None:
    try:
        found = read_json(stored)
    except sqlite3.DatabaseError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True

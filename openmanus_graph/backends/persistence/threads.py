"""The threads of a database: their tasks, the options that count, their status and events."""

import datetime
import hmac
import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from openmanus_graph.backends.persistence.backend import DamagedRowError, Database, read_json
from openmanus_graph.config.secret_values import KEY_VARIABLE, hmac_of, key_file, options_key
from openmanus_graph.errors import StorageError
from openmanus_graph.state.settings import MAX_COST_USD, Settings

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, HumanMessage

SIGNATURE = "_hmac"
"""The key of the HMAC among the options."""
_MAX_TOKENS = 1_000_000
_MAX_TIMEOUT_S = 3600.0
"""Most that others may choose of the limits that have no default."""
_MAX_NAME_CHARS = 200
_SHOWN = 12
"""How many options a message names."""


def signed(thread: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with their HMAC, if there is a key, as they are stored. Blocks.

    ConfigError: the environment's key is too short.
    """
    plain = {name: value for name, value in options.items() if name != SIGNATURE}
    key = options_key(make=True)
    return plain if key is None else {**plain, SIGNATURE: hmac_of(key, [thread, plain])}


def believed(thread: str, stored: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options of a row that count, and the names of those that do not. Blocks.

    ConfigError: the environment's key is too short.
    """
    plain = {name: value for name, value in stored.items() if name != SIGNATURE}
    given, key = stored.get(SIGNATURE), options_key(make=False)
    if isinstance(given, str) and key is not None:
        with suppress(RecursionError):  # of what somebody nested deeply
            right = hmac_of(key, [thread, plain]).encode()
            if hmac.compare_digest(given.encode("utf-8", "replace"), right):
                return plain, ()
    kept = harmless(plain)
    return kept, tuple(name for name in plain if name not in kept)


def harmless(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that anyone may choose: they start, open and reach nothing. Blocks."""
    return {
        name: value
        for name, value in options.items()
        if name in _HARMLESS and _HARMLESS[name](value)
    }


def describe_unused(thread: str, names: Sequence[str], given: Collection[str] = ()) -> str:
    """Describe which options do not count, except those that are `given` again; empty if all do."""
    left = [name[:_MAX_NAME_CHARS] for name in names if name not in given]
    if not left:
        return ""
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    why = "they carry no valid signature of yours"
    if options_key(make=False) is None:
        why = f"nothing shows that you chose them ({key_file()} holds no key, or is not writable)"
    return (
        f"These stored options of thread {thread} are not used, as {why}: "
        f"{', '.join(left[:_SHOWN])}{more}. Give the ones that you want again. For a database "
        f"that machines share, set the same {KEY_VARIABLE} on each."
    )


def _up_to(most: float, *kinds: type[Any]) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds and 0 < value <= most


def _is_inside(value: Any) -> bool:
    """Return True for a folder within the working folder, none of its hidden ones."""
    if not isinstance(value, str):
        return False
    try:
        inside = Path(value).resolve().relative_to(Path.cwd().resolve())
    except (OSError, ValueError, RuntimeError):  # elsewhere, or no path at all
        return False
    return bool(inside.parts) and not any(part.startswith(".") for part in inside.parts)


_HARMLESS: Mapping[str, Callable[[Any], bool]] = {
    "model": lambda value: isinstance(value, str) and "://" not in value,
    "workspace": _is_inside,
    "max_steps": _up_to(Settings.max_steps, int),
    "max_cost_usd": _up_to(MAX_COST_USD, int, float),
    "max_tokens": _up_to(_MAX_TOKENS, int),
    "timeout": _up_to(_MAX_TIMEOUT_S, int, float),
    # only values that are stricter than any setting of the user
    "network": lambda value: value is False,
    "policy": lambda value: value == "never",
    "review_plan": lambda value: value is True,
}


_TITLE = "(SELECT title FROM titles WHERE thread = threads.id)"
_OWNER = "COALESCE((SELECT owner FROM owners WHERE thread = threads.id), '')"
_COLUMNS = f"id, agent, task, options, status, created, updated, {_TITLE}"
_ASKED_AT_ONCE = 500
_TABLES_OF_THREAD = (
    *("ledger", "questions", "first_sights", "steering", "events", "file_locations"),
    *("model_calls", "recorded_facts", "user_messages", "titles", "shares", "owners"),
)
DAMAGED = "damaged"
"""Status of a thread whose row is damaged; its readable columns are returned."""


@dataclass(frozen=True)
class Thread:
    id: str
    agent: str
    task: str
    """The newest user message."""
    options: dict[str, Any]
    """The run's options as given, never keys. Of options that others may have written, only the
    harmless ones."""
    status: str
    """`running` during a run and after a crash; or `DAMAGED`."""
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
        """Record the start of a run.

        Args:
            task: The newest user message, as the person wrote it.
            message: The whole message that starts the run; None for one that is resumed. It is
                kept here because a crash may come before the first checkpoint.
            title: Of a new thread; the task if it is empty.
        """
        if message is not None:
            from langchain_core.messages import message_to_dict  # a list of threads needs none

            self._run(
                "INSERT INTO user_messages (thread, message) VALUES (?, ?)"
                " ON CONFLICT (thread) DO UPDATE SET message = excluded.message",
                (thread, json.dumps(message_to_dict(message))),
                worker_of=thread,
            )
        self._run(
            "INSERT INTO titles (thread, title) VALUES (?, ?) ON CONFLICT (thread) DO NOTHING",
            (thread, title or task),
            worker_of=thread,
        )
        self._run(
            # With a new row number: the newest thread has the greatest, whatever the clock says.
            "INSERT INTO threads (id, agent, task, options, status) VALUES (?, ?, ?, ?, 'running')"
            " ON CONFLICT (id) DO UPDATE SET rowid = excluded.rowid, agent = excluded.agent,"
            " task = excluded.task, options = excluded.options, status = 'running',"
            " updated = CURRENT_TIMESTAMP",
            (thread, agent, task, json.dumps(signed(thread, options))),
            worker_of=thread,
        )

    def end(self, thread: str, status: str) -> None:
        self._run(
            "UPDATE threads SET status = ?, updated = CURRENT_TIMESTAMP WHERE id = ?",
            (status, thread),
            worker_of=thread,
        )

    def rename(self, thread: str, title: str) -> None:
        self._run(
            "INSERT INTO titles (thread, title) VALUES (?, ?)"
            " ON CONFLICT (thread) DO UPDATE SET title = excluded.title",
            (thread, title),
        )

    def find(self, thread: str) -> Thread | None:
        """Return a thread, also if the index over their ids is damaged."""
        # Without the index, if that is damaged.
        found = self._select("WHERE id = ?", thread) or self._select("WHERE id || '' = ?", thread)
        return found[0] if found else None

    def existing(self, threads: Sequence[str]) -> set[str]:
        """Return which of these threads exist or have files: an app's graphs are not listed."""
        found = set[str]()
        for start in range(0, len(threads), _ASKED_AT_ONCE):
            some = threads[start : start + _ASKED_AT_ONCE]
            marks = ", ".join("?" * len(some))
            rows = self._run(
                f"SELECT id FROM threads WHERE id IN ({marks})"
                f" UNION SELECT thread FROM file_locations WHERE thread IN ({marks})",
                (*some, *some),
            )
            found.update(row[0] for row in rows)
        return found

    def newest_message(self, thread: str) -> "BaseMessage | None":
        """Return the user message of the thread's newest run. DamagedRowError: it is unreadable."""
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
        self,
        limit: int,
        before: int | None,
        query: str,
        also: Collection[str] = (),
        owner: str | None = None,
    ) -> list[tuple[int, Thread]]:
        """Return threads with their numbers, newest first.

        Args:
            before: Only those with a smaller number.
            query: Part of the title, the task or the id; empty for all.
            also: Ids of further threads, whether they match the query or not.
            owner: Only threads of this user; None: of all.
        """
        pattern = "".join(f"\\{c}" if c in "%_\\" else c for c in query)
        owned = () if owner is None else (owner,)
        rows = self._run(
            f"SELECT {_COLUMNS}, rowid FROM threads WHERE rowid < ?"
            " AND (lower(task) LIKE lower(?) ESCAPE '\\' OR lower(id) LIKE lower(?) ESCAPE '\\'"
            f" OR lower({_TITLE}) LIKE lower(?) ESCAPE '\\'"
            f" OR id IN ({', '.join('?' * len(also)) or 'NULL'}))"
            + (f" AND {_OWNER} = ?" if owner is not None else "")
            + " ORDER BY rowid DESC LIMIT ?",
            (before or (1 << 62), *[f"%{pattern}%"] * 3, *also, *owned, limit),
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
        """Delete all rows of a thread. The last one lists it, so that it can be deleted again."""
        for table in _TABLES_OF_THREAD:
            self._run(f"DELETE FROM {table} WHERE thread = ?", (thread,), worker_of=thread)
        self._run("DELETE FROM threads WHERE id = ?", (thread,), worker_of=thread)

    def _select(self, rest: str, *values: str) -> list[Thread]:
        rows = self._run(f"SELECT {_COLUMNS} FROM threads {rest}", values)
        return [_thread(row) for row in rows]


def _thread(row: Sequence[Any]) -> Thread:
    texts, options = list(map(_readable, row[:7])), _read_object(row[3])
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


def _read_object(stored: Any) -> dict[str, Any] | None:
    """Return a JSON object; None if its row is damaged."""
    try:
        found = read_json(stored)
    except StorageError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


BATCH = 1000
"""The most events that one reading returns."""
SNIPPET_CHARS = 120
_TEXT_FIELDS = ("task", "text", "args", "output", "question", "answer")
"""Fields of events in which a person may look for words."""
_MAX_SEQ = 1 << 62
"""Above all numbers. SQLite sorts damaged ones, which are texts or bytes, above this."""

Numbered = tuple[int, str]
"""An event's number in its thread, and the event as JSON."""


class JournalTable:
    """The table of events. All methods block; call them off the event loop."""

    def __init__(self, database: Database) -> None:
        self._run, self._run_many = database.run, database.run_many

    def last(self, thread: str) -> int:
        """Return the number of a thread's newest event, 0 if there is none."""
        newest = "SELECT max(seq) FROM events WHERE thread = ? AND seq <= ?"
        return int(self._run(newest, (thread, _MAX_SEQ))[0][0] or 0)

    def write(self, thread: str, events: Sequence[Numbered]) -> None:
        self._run_many(
            "INSERT INTO events (thread, seq, event) VALUES (?, ?, ?)"
            " ON CONFLICT (thread, seq) DO UPDATE SET event = excluded.event",
            [(thread, seq, event) for seq, event in events],
            worker_of=thread,
        )

    def read(self, thread: str, after: int, to: int | None = None) -> list[Numbered]:
        """Return the next events after a number, and up to one, in order.

        A damaged event is replaced by a notice that reports it.
        """
        rows = self._run(
            "SELECT seq, event FROM events WHERE thread = ? AND seq > ? AND seq <= ?"
            " ORDER BY seq LIMIT ?",
            (thread, after, _MAX_SEQ if to is None else to, BATCH),
        )
        return [
            (seq, event if _read_object(event) is not None else _damaged_event(thread, seq))
            for seq, event in rows
            if isinstance(seq, int)
        ]

    def search(self, words: str) -> dict[str, str]:
        """Return the ids of the threads in which a text was said or shown, each with a line of it.

        ASCII letters are compared case-insensitively.
        """
        written = json.dumps(words)[1:-1]  # events are stored so
        pattern = "".join(f"\\{c}" if c in "%_\\" else c for c in written)
        like = "lower(event) LIKE lower(?) ESCAPE '\\'"
        threads = self._run(f"SELECT DISTINCT thread FROM events WHERE {like}", (f"%{pattern}%",))
        found: dict[str, str] = {}
        for (thread,) in threads:
            rows = self._run(
                f"SELECT event FROM events WHERE thread = ? AND {like} ORDER BY seq LIMIT ?",
                (thread, f"%{pattern}%", BATCH),
            )
            lines = (line_with(words, text) for (event,) in rows for text in _texts_of(event))
            if line := next(filter(None, lines), ""):
                found[thread] = line
        return found


def line_with(words: str, text: str) -> str:
    """Return the part of a line that contains a text, with what surrounds it; else ""."""
    at = text.lower().find(words.lower())
    if at < 0:
        return ""
    begin = max(text.rfind("\n", 0, at) + 1, at - SNIPPET_CHARS // 3)
    end = text.find("\n", at + len(words))
    return text[begin : begin + SNIPPET_CHARS if end < 0 else min(end, begin + SNIPPET_CHARS)]


def _texts_of(stored: Any) -> Iterator[str]:
    event = _read_object(stored) or {}
    for value in map(event.get, _TEXT_FIELDS):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            texts = cast("dict[str, Any]", value).values()
            yield from (one for one in texts if isinstance(one, str))


def _damaged_event(thread: str, seq: int) -> str:
    text = "An event is missing here: its row in the database is damaged."
    notice = {"type": "notice", "level": "warning", "text": text}
    return json.dumps({**notice, "seq": seq, "run": "", "ns": "", "thread": thread, "ts": ""})

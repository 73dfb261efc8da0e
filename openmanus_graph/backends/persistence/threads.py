"""The threads of a database: their tasks, the options that count, their status and files."""

import datetime
import hmac
import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
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
    """Describe which stored options do not count, and what to do; empty if all do.

    Args:
        names: Of the options that do not count.
        given: Names of those that were given again.
    """
    left = [name[:_MAX_NAME_CHARS] for name in names if name not in given]
    if not left:
        return ""
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    why = "they carry no valid signature of yours"
    if options_key(make=False) is None:
        why = f"nothing shows that you chose them ({key_file()} holds no key, or is not writable)"
    return (
        f"These stored options of thread {thread} are not used, as {why}: "
        f"{', '.join(left[:_SHOWN])}{more}. Give those again that you want; for a database that "
        f"machines share, set the same {KEY_VARIABLE} on each."
    )


def _up_to(most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and 0 < value <= most


def _up_to_whole(most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and 0 < value <= most


def _is_model(value: Any) -> bool:
    """Return True for `PROVIDER:NAME`, but not for an address."""
    return isinstance(value, str) and "://" not in value


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
    "model": _is_model,
    "workspace": _is_inside,
    "max_steps": _up_to_whole(Settings.max_steps),
    "max_cost_usd": _up_to(MAX_COST_USD),
    "max_tokens": _up_to_whole(_MAX_TOKENS),
    "timeout": _up_to(_MAX_TIMEOUT_S),
    # only values that are stricter than any setting of the user
    "network": lambda value: value is False,
    "policy": lambda value: value == "never",
    "review_plan": lambda value: value is True,
}


_TITLE = "(SELECT title FROM titles WHERE thread = threads.id)"
_COLUMNS = f"id, agent, task, options, status, created, updated, {_TITLE}"
_ASKED_AT_ONCE = 500
_TABLES_OF_THREAD = (
    *("ledger", "questions", "first_sights", "steering", "events", "file_locations"),
    *("model_calls", "recorded_facts", "user_messages", "titles"),
)
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
        self, limit: int, before: int | None, query: str, also: Collection[str] = ()
    ) -> list[tuple[int, Thread]]:
        """Return threads with their numbers, newest first.

        Args:
            before: Only those with a smaller number.
            query: Part of the title, the task or the id; empty for all.
            also: Ids of further threads, whether they match the query or not.
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
        """Delete all rows of a thread. The last one lists it, so that it can be deleted again."""
        for table in _TABLES_OF_THREAD:
            self._run(f"DELETE FROM {table} WHERE thread = ?", (thread,), worker_of=thread)
        self._run("DELETE FROM threads WHERE id = ?", (thread,), worker_of=thread)

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
    except StorageError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class FileLocation:
    """Where a thread's files are."""

    host: str
    """Name of the machine, for people."""
    home: str
    """Identifies the home folder of the worker that had them last."""
    root: str
    """The workspace there."""
    inode: int = 0
    """Of that folder, by which other machines know it if they share its disk."""
    outputs: str = ""
    """The folder of long outputs there, as the conversation names it."""
    store: str = ""
    """`workspace_url`, if the files were put there."""
    files: str = ""
    """Digest of the workspace in the store."""
    private: str = ""
    """Digest of the private folder in the store."""
    behind: bool = False
    """Whether the files on the machine are newer than those in the store, which failed."""


class FileLocationsTable:
    """The table of file locations. Its methods block."""

    def __init__(self, database: Database) -> None:
        self._run = database.run

    def find(self, thread: str) -> FileLocation | None:
        """Return where a thread's files are; None if it never had any."""
        rows = self._run("SELECT location FROM file_locations WHERE thread = ?", (thread,))
        try:
            return FileLocation(**read_json(rows[0][0])) if rows else None
        except (StorageError, TypeError) as error:
            raise DamagedRowError(
                f"The row that says where the files of thread {thread} are is damaged: {error}."
            ) from error

    def record(self, thread: str, location: FileLocation) -> None:
        """Record where the files are. LeaseLostError: another worker has the thread."""
        self._run(
            "INSERT INTO file_locations (thread, location) VALUES (?, ?)"
            " ON CONFLICT (thread) DO UPDATE SET location = excluded.location",
            (thread, json.dumps(asdict(location))),
            worker_of=thread,
        )

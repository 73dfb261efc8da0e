"""The threads of a database: their tasks, the options that count, their status and events."""

import datetime
import hmac
import json
import logging
import shlex
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from openmanus_graph.backends.persistence import backend
from openmanus_graph.backends.persistence.deliveries import FORGET_DELIVERY
from openmanus_graph.backends.persistence.text_index import DELETE_TEXTS, INDEX_THREAD
from openmanus_graph.backends.persistence.texts import PIECE_CHARS, wanted, words_of
from openmanus_graph.config.secret_values import KEY_VARIABLE, hmac_of, key_file, options_key
from openmanus_graph.state.settings import MAX_COST_USD, Settings

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, HumanMessage

log = logging.getLogger(__name__)
SIGNATURE = "_hmac"
"""The key of the HMAC among the options."""
BATCH = "batch"
"""The trigger of runs of `batch` and `eval`."""
_IN_BATCH = "id IN (SELECT thread FROM run_usage WHERE trigger = ?)"
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
    given = stored.get(SIGNATURE)
    if isinstance(given, str) and (key := options_key(make=False)) is not None:
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
    "network": lambda value: value in (False, "off"),
    "policy": lambda value: value == "never",
    "review_plan": lambda value: value is True,
}


_TITLE = "(SELECT title FROM titles WHERE thread = threads.id)"
_OWNER = "COALESCE((SELECT owner FROM owners WHERE thread = threads.id), '')"
_COLUMNS = f"id, agent, task, options, status, created, updated, {_TITLE}, pinned, archived"
_TITLED = "INSERT INTO titles (thread, title, words) VALUES (?, ?, ?) ON CONFLICT (thread)"
_PINNED = 1 << 62
"""Added to the place of a pinned thread in the list: it is above all numbers of rows."""
_ASKED_AT_ONCE = 500
TABLES_OF_THREAD: Mapping[str, str] = {
    **dict.fromkeys(("ledger", "questions", "first_sights"), "ledger"),
    **dict.fromkeys(("model_calls", "recorded_facts"), "recordings"),
    "events": "events",
    **dict.fromkeys(("steering", "file_locations", "user_messages", "titles", "shares"), "threads"),
    **dict.fromkeys(("indexed_threads", "workspace_sizes"), "threads"),
}
"""The tables whose rows are deleted with their thread, and what their bytes are counted as.

What must outlive a thread, such as its usage, or the keys of deliveries that started it, is in a
table that is not listed here. So are the owners: nobody else may create a thread whose workspace
is left.
"""
_EXPIRED = """
    SELECT id FROM threads WHERE status = ? AND updated < ? AND updated >= '2000-01-01'
    AND pinned = 0 AND (? = '' OR id = ?) AND NOT EXISTS (
        SELECT 1 FROM ledger
        WHERE thread = threads.id AND threads.status = 'running' AND stage = 'waiting'
    ) ORDER BY rowid
"""
DEMO = "demo"
"""The trigger of runs with recorded models, which are no usage."""
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
    pinned: bool = False
    archived: bool = False


class Threads:
    """The table of threads. All methods block; call them off the event loop."""

    def __init__(self, database: backend.Database) -> None:
        self.database, self._run = database, database.run
        self.lines = database.texts.lines

    def begin(
        self,
        thread: str,
        agent: str,
        task: str,
        options: Mapping[str, Any],
        message: "HumanMessage | None",
        *,
        title: str = "",
        trigger: str = "terminal",
    ) -> None:
        """Record the start of a run.

        Args:
            task: The newest user message, as the person wrote it.
            message: The whole message that starts the run; None for one that is resumed. It is
                kept here because a crash may come before the first checkpoint.
            title: Of a new thread; the task if it is empty.
            trigger: What started it, for its usage.
        """
        if message is not None:
            from langchain_core.messages import message_to_dict  # a list of threads needs none

            self._run(
                "INSERT INTO user_messages (thread, message) VALUES (?, ?)"
                " ON CONFLICT (thread) DO UPDATE SET message = excluded.message",
                (thread, json.dumps(message_to_dict(message))),
                worker_of=thread,
            )
        self.database.run_many(
            (f"{_TITLED} DO NOTHING", [_titled(thread, title or task)]),
            (INDEX_THREAD, [(thread,)]),
            *self.database.texts.adding(thread, [task] if message else []),
            worker_of=thread,
        )
        self._run(
            # With a new row number: the newest thread has the greatest, whatever the clock says.
            "INSERT INTO threads (id, agent, task, options, status) VALUES (?, ?, ?, ?, 'running')"
            " ON CONFLICT (id) DO UPDATE SET rowid = excluded.rowid, agent = excluded.agent,"
            " task = excluded.task, options = excluded.options, status = 'running', archived = 0,"
            " updated = CURRENT_TIMESTAMP",
            (thread, agent, task, json.dumps(signed(thread, options))),
            worker_of=thread,
        )
        self._end_run(thread, "interrupted")  # one whose process was killed
        trigger = DEMO if str(options.get("model", "")).startswith(f"{DEMO}:") else trigger
        now = datetime.datetime.now(tz=datetime.UTC)
        run = (uuid.uuid4().hex, thread, now.date().isoformat(), thread, agent, trigger)
        self._run(
            "INSERT INTO run_usage (id, owner, day, thread, agent, trigger, status, began)"
            " SELECT ?, COALESCE((SELECT owner FROM owners WHERE thread = ?), ''), ?, ?, ?, ?,"
            " 'running', ? WHERE TRUE ON CONFLICT (id) DO NOTHING",
            (*run, now.timestamp()),
            worker_of=thread,
        )

    def add_text_later(self, thread: str, text: str) -> None:
        """Make a thread be found by a text, in the next transaction. A failure costs no run."""

        def note(_: Any, error: BaseException | None) -> None:
            if error is not None:
                log.info("thread %s will not be found by its newest text: %s", thread, error)

        for statement, rows in self.database.texts.adding(thread, [text]):
            for row in rows:
                self.database.run_later(statement, row, note, worker_of=thread)

    def end(self, thread: str, status: str) -> None:
        self._end_run(thread, status)  # first: after a crash the thread is ended again
        self._run(
            "UPDATE threads SET status = ?, updated = CURRENT_TIMESTAMP WHERE id = ?",
            (status, thread),
            worker_of=thread,
        )

    def _end_run(self, thread: str, status: str) -> None:
        """Write how the run that works on a thread has ended, for its usage, if there is one."""
        now = datetime.datetime.now(tz=datetime.UTC).timestamp()
        self._run(
            "UPDATE run_usage SET status = ?,"
            " seconds = CASE WHEN began < ? AND ? <> 'interrupted' THEN ? - began ELSE 0 END"
            " WHERE thread = ? AND status = 'running'",
            (status, now, status, now, thread),
            worker_of=thread,
        )

    def rename(self, thread: str, title: str) -> None:
        changed = "DO UPDATE SET title = excluded.title, words = excluded.words"
        self._run(f"{_TITLED} {changed}", _titled(thread, title))

    def mark(self, thread: str, mark: Literal["pinned", "archived"], *, on: bool) -> None:
        self._run(f"UPDATE threads SET {mark} = ? WHERE id = ?", (int(on), thread))

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
            return messages_from_dict([backend.read_json(rows[0][0])])[0] if rows else None
        except Exception as error:  # damaged fields may make the message's class raise anything
            raise backend.DamagedRowError(
                f"The newest message of thread {thread} is damaged: its row cannot be read. Say it "
                f"again with: openmanus run --thread {shlex.quote(thread)} TASK."
            ) from error

    def outlines(self) -> list[Thread]:
        """Return all threads, newest first, without what takes time: task, options and title."""
        columns = "id, agent, '', '{}', status, created, updated, '', pinned, archived"
        rows = self._run(f"SELECT {columns} FROM threads ORDER BY rowid DESC")
        return [_thread(row) for row in rows]

    def of_status(self, status: str, limit: int, owner: str | None = None) -> list[Thread]:
        """Return the newest threads of a status, without those of `batch`. `owner`: `page`."""
        own, values = ("", ()) if owner is None else (f"AND {_OWNER} = ?", (owner,))
        where = f"WHERE status = ? AND NOT {_IN_BATCH} {own} ORDER BY rowid DESC LIMIT ?"
        return self._select(where, status, BATCH, *values, limit)

    def newest(self, limit: int, owner: str | None = None) -> list[Thread]:
        """Return the newest threads, also archived ones; those of `batch` last. `owner`: `page`."""
        own, values = ("", ()) if owner is None else (f"WHERE {_OWNER} = ?", (owner,))
        order = f"{own} ORDER BY {_IN_BATCH}, rowid DESC LIMIT ?"
        return self._select(order, *values, BATCH, limit)

    def page(
        self,
        limit: int,
        before: int | None = None,
        query: str = "",
        *,
        owner: str | None = None,
        archived: bool | None = None,
        batch: bool | None = None,
    ) -> list[tuple[int, Thread]]:
        """Return threads with their places: the pinned ones first, then the newest.

        A thread that gets a new place in the meantime is not on later pages, but on the first one.

        Args:
            before: Only those after the thread with this place.
            query: Words, or their beginnings, that a thread has to have in texts or its title.
            owner: Only threads of this user; '' is the machine's own. None: everybody's.
            archived: Only archived threads, or only others. None: both.
            batch: Only threads of `batch` and `eval`, or only others. None: both.
        """
        pinned, number = (1, _PINNED) if before is None else divmod(before, _PINNED)
        values: list[Any] = [pinned, number]
        conditions = ["(pinned, rowid) < (?, ?)"]
        if archived is not None:
            conditions.append("archived = ?")
            values.append(int(archived))
        if batch is not None:
            conditions.append(_IN_BATCH if batch else f"NOT {_IN_BATCH}")
            values.append(BATCH)
        if owner is not None:
            conditions.append(f"{_OWNER} = ?")
            values.append(owner)
        for part, words in wanted(query):
            condition, more = self.database.texts.finding(part, words)
            conditions.append(f"({condition})")
            values += more
        rows = self._run(
            f"SELECT {_COLUMNS}, rowid FROM threads WHERE {' AND '.join(conditions)}"
            " ORDER BY pinned DESC, rowid DESC LIMIT ?",
            (*values, limit),
        )
        found = [(row[-1], _thread(row)) for row in rows]
        return [(thread.pinned * _PINNED + number, thread) for number, thread in found]

    def beginning_with(self, beginnings: Sequence[str]) -> list[str]:
        """Return the ids that begin with one of these texts, newest first."""
        lengths = sorted({len(beginning) for beginning in beginnings})
        marks = ", ".join("?" * len(beginnings))
        tests = " OR ".join(f"substr(id, 1, {length}) IN ({marks})" for length in lengths)
        values = [*beginnings] * len(lengths)
        found = f"SELECT id FROM threads WHERE {tests or 'FALSE'} ORDER BY rowid DESC"
        return [_readable(row[0]) for row in self._run(found, values)]

    def delete(self, thread: str) -> None:
        """Delete all rows of a thread, or none."""
        self._end_run(thread, "interrupted")
        self.database.run_many(
            (DELETE_TEXTS, [(thread, thread)]),
            (FORGET_DELIVERY, [(thread,)]),
            *((f"DELETE FROM {table} WHERE thread = ?", [(thread,)]) for table in TABLES_OF_THREAD),
            ("DELETE FROM threads WHERE id = ?", [(thread,)]),
            worker_of=thread,
        )

    def touch(self, thread: str) -> None:
        """Count a thread as used now: a run of it waits to start."""
        self._run("UPDATE threads SET updated = CURRENT_TIMESTAMP WHERE id = ?", (thread,))

    def expired(self, keep_s: Mapping[str, float], only: str = "") -> list[str]:
        """Return the threads, or this one, that are older than their status is kept.

        Never those that are pinned, wait for a person, or whose row is damaged.
        """
        found: list[str] = []
        for status, seconds in keep_s.items():
            before = datetime.datetime.now(tz=datetime.UTC) - datetime.timedelta(seconds=seconds)
            values = (status, f"{before:%Y-%m-%d %H:%M:%S}", only, only)
            found += [_readable(row[0]) for row in self._run(_EXPIRED, values)]
        return found

    def workspaces(self) -> Counter[str]:
        """Return how many threads work in each folder or in one below it."""
        used = Counter[str]()
        for (stored,) in self._run("SELECT options FROM threads"):
            folder = (backend.read_object(stored) or {}).get("workspace")
            if isinstance(folder, str):
                used.update([folder, *map(str, Path(folder).parents)])
        return used

    def _select(self, rest: str, *values: str | int) -> list[Thread]:
        rows = self._run(f"SELECT {_COLUMNS} FROM threads {rest}", values)
        return [_thread(row) for row in rows]


def _titled(thread: str, title: str) -> tuple[str, str, str]:
    return thread, title, words_of(title[:PIECE_CHARS])


def _thread(row: Sequence[Any]) -> Thread:
    texts, options = list(map(_readable, row[:7])), backend.read_object(row[3])
    title = _readable(row[7]) or texts[2]
    if options is None or texts != list(row[:7]) or not all(map(_is_time, row[5:7])):
        options, texts[4] = options or {}, DAMAGED
    options, unused = believed(texts[0], options)
    return Thread(
        texts[0], texts[1], texts[2], options, texts[4], texts[5], texts[6], title, unused,
        pinned=row[8] == 1, archived=row[9] == 1,
    )  # fmt: skip


def _readable(value: Any) -> str:
    """Return a column as text; a damaged one may hold anything."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True

"""The notes that agents keep across threads, in LangGraph's long-term store.

A note has a path under `/memories`. Those under `/memories/user` are the person's and hold in every
project of the database; all others are the project's. Each change is made while nobody else makes
one, so that of several processes none loses another's.
"""

import asyncio
import contextlib
import getpass
import hashlib
import re
import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock, Timeout
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result, SearchOp
from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.sqlite import BUSY_TIMEOUT_S, SqliteDatabase
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.settings import StorageSettings

T = TypeVar("T")
Batch = Callable[[Iterable[Op]], list[Result]]
"""Executes operations, all or none."""
_LOCK = 0x6F6D73746F7265
"""Of PostgreSQL's server, by which exclusive jobs follow one another."""


class DatabaseStore(BaseStore):
    """A store whose tables are made when it is first used: most runs never do.

    Its methods raise `sqlite3.Error` where the database cannot be used.
    """

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._has_tables = False

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        database: Any = open_database(self._url)  # by the address, one of these two
        if isinstance(database, SqliteDatabase):
            return self._in_sqlite(database, list(ops))
        return self._in_postgres(database, list(ops))

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def exclusively(self, job: Callable[[Batch], T]) -> T:
        """Run a job while no other thread or process runs one here. Blocks.

        What it reads by the function that it is given still holds when it writes. PostgreSQL does
        it once more where a connection was lost.
        """
        database: Any = open_database(self._url)
        if isinstance(database, SqliteDatabase):
            with _locked(self._url.file):
                return job(lambda ops: self._in_sqlite(database, list(ops)))
        return self._in_transaction(database, job)

    def _in_sqlite(self, database: SqliteDatabase, ops: list[Op]) -> list[Result]:
        from langgraph.store.sqlite import SqliteStore  # loads an extension's package

        with database.connection() as connection:
            return SqliteStore(connection).batch(ops)

    def _in_postgres(self, database: Any, ops: list[Op]) -> list[Result]:
        from langgraph.store.postgres import PostgresStore  # needs an extra

        def execute() -> list[Result]:
            with database.connection() as connection:
                return PostgresStore(connection).batch(ops)

        self._require_tables(database)
        return cast("list[Result]", database.repeated(execute))

    def _in_transaction(self, database: Any, job: Callable[[Batch], T]) -> T:
        from langgraph.store.postgres import PostgresStore

        def execute() -> T:
            with database.connection() as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                return job(PostgresStore(connection).batch)

        self._require_tables(database)
        return cast("T", database.repeated(execute))

    def _require_tables(self, database: Any) -> None:
        if not self._has_tables:
            database.make_tables(_make_tables)
            self._has_tables = True


@contextlib.contextmanager
def _locked(file: Path) -> Generator[None]:
    """Hold the lock beside a SQLite file: LangGraph's store begins transactions of its own."""
    try:
        with FileLock(file.with_name(f"{file.name}.store.lock"), timeout=BUSY_TIMEOUT_S):
            yield
    except Timeout as error:
        raise sqlite3.OperationalError("database is locked") from error


def _make_tables(connection: Any) -> None:
    from langgraph.store.postgres import PostgresStore

    PostgresStore(connection).setup()


ROOT = "/memories"
USER_FOLDER = f"{ROOT}/user"
MAX_NOTES = 500
"""Of a project, and of a person."""
MAX_NOTE_CHARS = 16_000
MAX_PATH_CHARS = 200
_MOST_READ = 100_000
"""Notes that are read of one place, which an earlier version may have let grow."""
_NAME = re.compile(r"\w[\w .,@+()-]*")


@dataclass(frozen=True)
class Note:
    """One note."""

    path: str
    text: str
    untrusted: bool
    """Something foreign was read before it was written: it is information, never an instruction."""
    changed: datetime
    written_by: str = ""
    """The key of the call that wrote it last; empty if a person did."""

    def apply(self, function: Callable[[str], T]) -> T:
        """Return what a function makes of the text. Its ToolError may show parts of that."""
        try:
            return function(self.text)
        except ToolError as error:
            raise error if self.untrusted else TrustedToolError(str(error)) from error


class Memory:
    """The notes of a person and of a project. All methods block; call them off the event loop.

    They raise `TrustedToolError` where a note or its path cannot be what is wanted, and
    `sqlite3.Error` where the database cannot be used.
    """

    def __init__(self, store: DatabaseStore, user: str, project: str) -> None:
        self._store = store
        self._namespaces = {True: _namespace("user", user), False: _namespace("project", project)}
        """By whether a note is the person's."""

    def notes(self, folder: str = ROOT) -> list[Note]:
        """Return the notes in a folder and those below it, the newest change first."""
        within = f"{note_path(folder)}/"
        namespaces = [
            namespace
            for of_user, namespace in self._namespaces.items()
            if of_user or not within.startswith(f"{USER_FOLDER}/")
        ]
        searches = [SearchOp(namespace, limit=_MOST_READ) for namespace in namespaces]
        found = [note for items in self._store.batch(searches) for note in _read_all(items)]
        found = [note for note in found if note.path.startswith(within)]
        return sorted(found, key=lambda note: (note.changed, note.path), reverse=True)

    def find(self, path: str) -> Note | None:
        """Return a note; None if there is none."""
        return self._get(self._store.batch, note_path(path))

    def create(self, path: str, text: str, *, untrusted: bool, key: str = "") -> Note:
        """Add a note.

        Args:
            path: Of the note; there must be none.
            text: Of the note.
            untrusted: Whether untrusted content was read before it was written.
            key: Of the call. One that a crash cut off behind its writing finds its own note.
        """
        path = _path_of_note(path)

        def job(batch: Batch) -> Note:
            known = self._get(batch, path)
            if known is not None and not (key and known.written_by == key):
                raise TrustedToolError(
                    f"There is a note {path} already; it was not changed. View it, and change it "
                    "by str_replace or insert, or choose another path."
                )
            if known is None and len(self._read(batch, path)) >= MAX_NOTES:
                raise TrustedToolError(
                    f"{_owner(path)} has {MAX_NOTES} notes, which is the limit; nothing was "
                    "written. Delete what is out of date, or add to a note that is there."
                )
            self._put(batch, path, text, untrusted=untrusted, key=key)
            return self._require(batch, path)

        return self._store.exclusively(job)

    def edit(
        self, path: str, change: Callable[[str], str], *, untrusted: bool | None, key: str = ""
    ) -> Note:
        """Change a note's text.

        Args:
            path: Of the note.
            change: Makes the new text of the one that is there. It may be called twice.
            untrusted: As for `create`: an untrusted note stays one. None: it has been until now.
            key: As for `create`.
        """
        path = _path_of_note(path)

        def job(batch: Batch) -> Note:
            note = self._require(batch, path)
            if key and note.written_by == key:
                return note
            text = note.apply(change)
            self._put(batch, path, text, untrusted=note.untrusted or bool(untrusted), key=key)
            return self._require(batch, path)

        return self._store.exclusively(job)

    def trust(self, path: str, text: str | None) -> Note:
        """Keep that a person confirms a note with this text: nothing in it is foreign now."""
        path = _path_of_note(path)

        def job(batch: Batch) -> Note:
            if self._require(batch, path).text != text:
                raise TrustedToolError(f"{path} was changed meanwhile. Look at it again.")
            self._put(batch, path, str(text), untrusted=False, key="")
            return self._require(batch, path)

        return self._store.exclusively(job)

    def rename(self, old: str, new: str, *, untrusted: bool, key: str = "") -> None:
        """Give a note another path, at which there must be none."""
        old, new = _path_of_note(old), _path_of_note(new)

        def job(batch: Batch) -> None:
            note, known = self._get(batch, old), self._get(batch, new)
            if note is None and known is not None and key and known.written_by == key:
                return
            note = self._require(batch, old)
            if known is not None:
                raise TrustedToolError(
                    f"There is a note {new} already; nothing was renamed. Choose another path."
                )
            if _is_user(old) != _is_user(new) and len(self._read(batch, new)) >= MAX_NOTES:
                raise TrustedToolError(
                    f"{_owner(new)} has {MAX_NOTES} notes, which is the limit; nothing was renamed."
                )
            value = _value(note.text, untrusted=note.untrusted or untrusted, key=key)
            batch([PutOp(self._place(new), new, value), PutOp(self._place(old), old, None)])

        self._store.exclusively(job)

    def delete(self, path: str) -> None:
        """Delete a note."""
        path = _path_of_note(path)

        def job(batch: Batch) -> None:
            self._require(batch, path)
            batch([PutOp(self._place(path), path, None)])

        self._store.exclusively(job)

    def _place(self, path: str) -> tuple[str, ...]:
        return self._namespaces[_is_user(path)]

    def _read(self, batch: Batch, path: str) -> list[Note]:
        """Return all notes of the person or project that a path belongs to."""
        return _read_all(batch([SearchOp(self._place(path), limit=_MOST_READ)])[0])

    def _get(self, batch: Batch, path: str) -> Note | None:
        (item,) = batch([GetOp(self._place(path), path)])
        return None if item is None else _read_note(cast("Item", item))

    def _require(self, batch: Batch, path: str) -> Note:
        note = self._get(batch, path)
        if note is None:
            raise TrustedToolError(
                f"There is no note {path}. View {ROOT} to see which there are; create makes one."
            )
        return note

    def _put(self, batch: Batch, path: str, text: str, *, untrusted: bool, key: str) -> None:
        if len(text) > MAX_NOTE_CHARS:
            raise TrustedToolError(
                f"{path} would have {len(text)} characters; the limit is {MAX_NOTE_CHARS}. Nothing "
                "was written. Write less, or divide it into several notes."
            )
        batch([PutOp(self._place(path), path, _value(text, untrusted=untrusted, key=key))])


def open_memory(url: DatabaseUrl, storage: StorageSettings) -> Memory:
    """Return the notes of the person and the project that the settings name."""
    project = storage.memory_project or str(Path.cwd())
    return Memory(DatabaseStore(url), storage.memory_user or _login_name(), project)


def note_path(path: str) -> str:
    """Return a path under `/memories` as we write it. TrustedToolError: it is none."""
    parts = path.strip().strip("/").split("/")
    if not path.strip().startswith("/"):
        parts = ["", *parts]  # relative to what?
    refused = parts[0] != ROOT[1:] or not all(_NAME.fullmatch(part) for part in parts)
    if refused or len(path) > MAX_PATH_CHARS:
        raise TrustedToolError(
            f"{path[:MAX_PATH_CHARS]!r} is no path of a note. It begins with {ROOT}/ and has at "
            f"most {MAX_PATH_CHARS} letters, digits, spaces and -_.,@+(), no part of it beginning "
            f"with a dot: {ROOT}/conventions.md, say, or {USER_FOLDER}/preferences.md."
        )
    return f"/{'/'.join(parts)}"


def _path_of_note(path: str) -> str:
    """Return the path of a note. TrustedToolError: it is none, or names a folder of ours."""
    known = note_path(path)
    if known in (ROOT, USER_FOLDER):
        raise TrustedToolError(f"{known} is a folder. Name a note in it: {known}/NAME.md.")
    return known


def _is_user(path: str) -> bool:
    return path.startswith(f"{USER_FOLDER}/")


def _owner(path: str) -> str:
    return USER_FOLDER if _is_user(path) else "This project"


def _namespace(kind: str, owner: str) -> tuple[str, ...]:
    """Return a namespace of its own for an owner, whatever characters the name has."""
    return ("memories", kind, hashlib.sha256(owner.encode("utf-8", "replace")).hexdigest()[:32])


def _value(text: str, *, untrusted: bool, key: str) -> dict[str, Any]:
    storable = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return {"text": storable, "untrusted": untrusted, "written_by": key}


def _read_all(items: Any) -> list[Note]:
    return [_read_note(item) for item in cast("list[Item]", items)]


def _read_note(item: Item) -> Note:
    """Return the note in an item of the store; what we did not write counts as foreign."""
    value = item.value
    untrusted = value.get("untrusted") is not False
    text, key = str(value.get("text", "")), str(value.get("written_by", ""))
    return Note(item.key, text, untrusted, item.updated_at, key)


def _login_name() -> str:
    with suppress(OSError, KeyError, ImportError):  # a container's user may have no name
        return getpass.getuser()
    return "user"

"""The notes that agents keep across threads, in LangGraph's long-term store.

A note has a path under `/memories`. Notes under `/memories/user` belong to the person and are seen
in every project of the database; all others belong to the project. Changes are made one at a time,
so that processes do not overwrite each other's changes.
"""

import asyncio
import getpass
import hashlib
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result, SearchOp
from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.server_settings import StorageSettings

T = TypeVar("T")
Batch = Callable[[Iterable[Op]], list[Result]]
"""Executes operations, all or none."""


class DatabaseStore(BaseStore):
    """The long-term store of a database. Most runs never use it, so it is opened on first use."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        given = list(ops)
        return open_database(self._url).with_store(lambda store: store.batch(given))

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def exclusively(self, job: Callable[[Batch], T]) -> T:
        """Run a job while no other thread or process runs one here. Blocks.

        What it reads with the given function is still valid when it writes. The job may run again
        if a connection was lost.
        """
        return open_database(self._url).with_store(lambda store: job(store.batch), alone=True)


USERS = "users"
"""The beginning of the namespaces of a server's named users."""
ROOT = "/memories"
USER_FOLDER = f"{ROOT}/user"
MAX_NOTES = 500
"""Limit for a project, and for a person."""
MAX_NOTE_CHARS = 16_000
MAX_PATH_CHARS = 200
_MOST_READ = 100_000
"""Above `MAX_NOTES`: LangGraph's search returns 10 by default."""
_NAME = re.compile(r"\w[\w .,@+()-]*")


@dataclass(frozen=True)
class Note:
    path: str
    text: str
    untrusted: bool
    """Untrusted content was read before it was written: it is information, never an instruction."""
    changed: datetime
    written_by: str = ""
    """The key of the call that wrote it last; empty for a person."""

    def apply(self, function: Callable[[str], T]) -> T:
        """Apply a function to the text. Its ToolError may show parts of the text."""
        try:
            return function(self.text)
        except ToolError as error:
            raise error if self.untrusted else TrustedToolError(str(error)) from error


class Memory:
    """The notes of a person and of a project. All methods block; call them off the event loop.

    They raise `TrustedToolError` if a note or its path is not possible as wanted, and
    `StorageError` if the database cannot be used.
    """

    def __init__(self, store: DatabaseStore, user: str, project: str, owner: str = "") -> None:
        self._store, of_owner = store, user_namespace(owner)
        self._namespaces = {
            True: (*of_owner, *_namespace("user", user)),
            False: (*of_owner, *_namespace("project", project)),
        }
        """By whether a note belongs to the person."""

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
        return self._get(self._store.batch, note_path(path))

    def create(self, path: str, text: str, *, untrusted: bool, key: str = "") -> Note:
        """Add a note at a path where there is none.

        `untrusted`: untrusted content was read before. `key`: of the call. A call that is repeated
        after a crash finds its own note.
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

        `change` returns the new text for the present one, and may be called twice. `untrusted` and
        `key` are as for `create`; None: no untrusted content was read. An untrusted note stays
        untrusted.
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
        """Record that a person confirms a note with this text, which makes it trusted."""
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
                f"There is no note {path}. View {ROOT} to see the notes; create makes one."
            )
        return note

    def _put(self, batch: Batch, path: str, text: str, *, untrusted: bool, key: str) -> None:
        if len(text) > MAX_NOTE_CHARS:
            raise TrustedToolError(
                f"{path} would have {len(text)} characters; the limit is {MAX_NOTE_CHARS}. Nothing "
                "was written. Write less, or divide it into several notes."
            )
        batch([PutOp(self._place(path), path, _value(text, untrusted=untrusted, key=key))])


def open_memory(url: DatabaseUrl, storage: StorageSettings, owner: str = "") -> Memory:
    """Return the notes of the person and the project that the settings name.

    `owner` is a named user of the server, whose notes are separate.
    """
    project = storage.memory_project or str(Path.cwd())
    user = owner or storage.memory_user or _login_name()
    return Memory(DatabaseStore(url), user, project, owner)


def user_namespace(owner: str) -> tuple[str, ...]:
    """Return the beginning of all namespaces of a named user; empty for the machine's own."""
    return (USERS, _namespace("", owner)[-1]) if owner else ()


def note_path(path: str) -> str:
    """Return a path under `/memories` in its normal form. TrustedToolError: it is not one."""
    parts = path.strip().strip("/").split("/")
    if not path.strip().startswith("/"):
        parts = ["", *parts]  # a relative path is refused
    refused = parts[0] != ROOT[1:] or not all(_NAME.fullmatch(part) for part in parts)
    if refused or len(path) > MAX_PATH_CHARS:
        raise TrustedToolError(
            f"{path[:MAX_PATH_CHARS]!r} is not a path of a note. It begins with {ROOT}/ and has at "
            f"most {MAX_PATH_CHARS} letters, digits, spaces and -_.,@+(), no part of it beginning "
            f"with a dot: {ROOT}/conventions.md, say, or {USER_FOLDER}/preferences.md."
        )
    return f"/{'/'.join(parts)}"


def _path_of_note(path: str) -> str:
    """Return the path of a note. TrustedToolError: it is not one, or names a folder of ours."""
    known = note_path(path)
    if known in (ROOT, USER_FOLDER):
        raise TrustedToolError(f"{known} is a folder. Name a note in it: {known}/NAME.md.")
    return known


def _is_user(path: str) -> bool:
    return path.startswith(f"{USER_FOLDER}/")


def _owner(path: str) -> str:
    return USER_FOLDER if _is_user(path) else "This project"


def _namespace(kind: str, owner: str) -> tuple[str, ...]:
    """Return a separate namespace for an owner, whatever characters the name has."""
    return ("memories", kind, hashlib.sha256(owner.encode("utf-8", "replace")).hexdigest()[:32])


def _value(text: str, *, untrusted: bool, key: str) -> dict[str, Any]:
    storable = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return {"text": storable, "untrusted": untrusted, "written_by": key}


def _read_all(items: Any) -> list[Note]:
    return [_read_note(item) for item in cast("list[Item]", items)]


def _read_note(item: Item) -> Note:
    """Return the note in an item of the store. What others wrote counts as untrusted."""
    value = item.value
    untrusted = value.get("untrusted") is not False
    text, key = str(value.get("text", "")), str(value.get("written_by", ""))
    return Note(item.key, text, untrusted, item.updated_at, key)


def _login_name() -> str:
    with suppress(OSError, KeyError, ImportError):  # a container's user may have no name
        return getpass.getuser()
    return "user"

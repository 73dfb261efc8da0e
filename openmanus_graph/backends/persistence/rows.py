"""What holds for rows of any database: the errors that reading them raises, and checksums."""

import json
import sqlite3
import zlib
from typing import Any


class StorageError(sqlite3.DatabaseError):
    """A database's fault, in words for people that name the database and no password.

    PostgreSQL's are raised as this. A `sqlite3.Error`, by which callers know databases' faults.
    """


class UnavailableError(StorageError, sqlite3.OperationalError):
    """A database cannot be reached, is full or cannot be written: for now, it may be."""


class LeaseLostError(StorageError):
    """This process may no longer be a thread's worker: it writes nothing more for it."""

    def __init__(self, thread: str) -> None:
        super().__init__(
            f"Thread {thread} may have been taken over by another worker, as this one had not been "
            "heard of for too long: it was paused, or the database was out of reach. Nothing more "
            "was written here."
        )


class DamagedRowError(StorageError):
    """One row cannot be read; its words say which, and what to do."""


def read_json(text: str | bytes) -> Any:
    """Read what we wrote. sqlite3.DatabaseError if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise sqlite3.DatabaseError(f"a row cannot be read ({error})") from error


def write_json(value: Any) -> str:
    """Return what `read_json` reads again, half characters that models write included."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=str)
    return text


def crc32(*columns: Any) -> int:
    """Return a checksum of columns, as text or its bytes."""
    parts = (one if isinstance(one, bytes) else str(one or "").encode() for one in columns)
    return zlib.crc32(b"\0".join(parts))

"""Errors that end a command with one line on stderr instead of a traceback."""

import errno
import sqlite3
import tempfile
from pathlib import Path
from typing import TypeGuard

from openmanus_graph.config.homes import make_folder, overlook
from openmanus_graph.errors import ConfigError, RefusedDataError

_DISK_ERRNOS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV,
    errno.ENOENT,
}  # fmt: skip
_MAKE_ROOM = "Make room there, or bring the disk back."


class RunError(RuntimeError):  # LangGraph's API shows its text, as that of `ConfigError`
    """The run cannot start or continue now; exit code 1."""


class ReportedError(RunError):
    """A `RunError` that the `final` event has reported already."""


def prepare_home(home: Path) -> None:
    """Create the home folder, which git ignores. ConfigError if it cannot be written."""
    try:
        make_folder(home)
        overlook(home)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise ConfigError(
            f"{home} cannot be written ({error.strerror}). Set OPENMANUS_HOME to another folder."
        ) from error


def is_storage_fault(error: Exception) -> TypeGuard[sqlite3.Error | OSError]:
    return isinstance(error, sqlite3.Error) or (
        isinstance(error, OSError) and error.errno in _DISK_ERRNOS
    )


def describe_failure(error: Exception, home: Path) -> str:
    if is_storage_fault(error):
        return describe_storage_failure(error, home)
    return f"{type(error).__name__}: {error}"


def describe_storage_failure(error: sqlite3.Error | OSError, home: Path) -> str:
    """Describe what is wrong with the disk or the databases of a home folder, and what to do."""
    # Not loaded for `--help`.
    from openmanus_graph.backends.persistence.database_thread import StorageError

    if isinstance(error, OSError):
        return f"{error.filename or home} cannot be used: {error.strerror}. {_MAKE_ROOM}"
    if isinstance(error, StorageError | RefusedDataError):
        return str(error)
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_FULL"):
        return f"The disk of {home} is full. {_MAKE_ROOM}"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "is locked" in str(error):
        return (
            f"Another program holds the database in {home}. Let it finish, or stop it "
            f"(`fuser {home}/*.db` names it)."
        )
    # All our statements are correct: one that SQLite cannot understand means a damaged schema.
    if isinstance(error, sqlite3.OperationalError) and name != "SQLITE_ERROR":
        return (
            f"The database in {home} cannot be used: {error}. Check that its disk is there, can be "
            "written, and is not full."
        )
    return (
        f"The database in {home} is damaged: {error}. Move {home} away to start again; "
        "`sqlite3 FILE .recover` may save its threads."
    )

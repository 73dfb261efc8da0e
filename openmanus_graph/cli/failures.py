"""What ends a command with one line on stderr instead of a traceback."""

import errno
import os
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import TextIO, TypeGuard

from openmanus_graph.errors import ConfigError

_DISK_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.ESTALE,
    errno.ENODEV,
    errno.ENOENT,
}
_MAKE_ROOM = "Make room there, or bring the disk back."


class RunError(RuntimeError):  # whose words LangGraph's API tells, as `ConfigError`'s
    """The run cannot be done now; exit code 1."""


class ToldError(RunError):
    """The same, and the `final` event has said so."""


def prepare_home(home: Path) -> None:
    """Create the home folder. ConfigError when it cannot be written."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise ConfigError(
            f"{home} cannot be written ({error.strerror}). Set OPENMANUS_HOME to another folder."
        ) from error


def is_storage_fault(error: Exception) -> TypeGuard[sqlite3.Error | OSError]:
    """Say whether it is the disk, or what lies on it, that failed."""
    return isinstance(error, sqlite3.Error) or (
        isinstance(error, OSError) and error.errno in _DISK_ERRNOS
    )


def complaint_of(error: Exception, home: Path) -> str:
    """Say what ended a run: a fault of the disk, or a bug."""
    if is_storage_fault(error):
        return storage_complaint(error, home)
    return f"{type(error).__name__}: {error}"


def storage_complaint(error: sqlite3.Error | OSError, home: Path) -> str:
    """Say what is wrong with the disk or the databases of a home folder, and what to do."""
    if isinstance(error, OSError):
        return f"{error.filename or home} cannot be used: {error.strerror}. {_MAKE_ROOM}"
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_FULL"):
        return f"The disk of {home} is full. {_MAKE_ROOM}"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "is locked" in str(error):
        return (
            f"Another program holds the database in {home}. Let it finish, or stop it "
            f"(`fuser {home}/*.db` names it)."
        )
    if isinstance(error, sqlite3.OperationalError):
        return (
            f"The database in {home} cannot be used: {error}. Check that its disk is there, can be "
            "written, and is not full."
        )
    return (
        f"The database in {home} is damaged: {error}. Move {home} away to start afresh; "
        "`sqlite3 FILE .recover` may save its threads."
    )


def silence(stream: TextIO) -> None:
    """Let go of a pipe whose reader went away, so that nothing fails when it is flushed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def write_out(text: str) -> None:
    """Write to stdout at once; a reader that went away does not end the run."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)

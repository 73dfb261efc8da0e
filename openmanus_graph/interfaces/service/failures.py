"""Errors that end a command with one line on stderr instead of a traceback."""

import errno
import tempfile
from pathlib import Path
from typing import TypeGuard

from openmanus_graph.config.homes import make_folder, overlook
from openmanus_graph.errors import ConfigError, StorageError

_DISK_ERRNOS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV,
    errno.ENOENT,
}  # fmt: skip


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


def is_storage_fault(error: Exception) -> TypeGuard[StorageError | OSError]:
    return isinstance(error, StorageError) or (
        isinstance(error, OSError) and error.errno in _DISK_ERRNOS
    )


def describe_failure(error: Exception, home: Path) -> str:
    if is_storage_fault(error):
        return describe_storage_failure(error, home)
    return f"{type(error).__name__}: {error}"


def describe_storage_failure(error: StorageError | OSError, home: Path) -> str:
    """Describe what is wrong with the disk or the databases of a home folder, and what to do."""
    if isinstance(error, OSError):
        return (
            f"{error.filename or home} cannot be used: {error.strerror}. Make room there, or bring "
            "the disk back."
        )
    return str(error)

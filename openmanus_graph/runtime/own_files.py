"""Writing files of our own into a person's folders: reports, results, exports.

A folder that was cloned may bring links, pipes and folders that lead elsewhere, by the names that
we write to. None of them is followed. What a person names outside of the working folder is his own
choice.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.atomic_files import replace_file, status
from openmanus_graph.safety.open_beneath import (
    OPEN_FOLDER,
    UnsafeFileError,
    located,
    open_entry,
    require_regular,
)

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")
"""Folders of what a shell names for streams, such as /dev/stdout."""


def write_own_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, or leave what was there. Blocks. A link at its place is replaced.

    Args:
        path: As the user wrote it, or beside a file of his.
        content: The whole; a text is written as UTF-8.

    Raises:
        ConfigError: It cannot be written, or leads out of the working folder.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    with _as_config_error(path), _folder_of(path) as folder:
        name, existing = Path(path).name, status(folder, Path(path).name)
        if existing is not None and stat.S_ISLNK(existing.st_mode):
            if os.path.dirname(os.path.abspath(path)) in _STREAMS:  # noqa: PTH100, PTH120  # unresolved
                Path(path).write_bytes(data)
                return
            os.unlink(name, dir_fd=folder)
            existing = None
        if existing is not None:
            if stat.S_ISCHR(existing.st_mode) and os.fspath(path) == os.devnull:
                return
            require_regular(os.fspath(path), existing)
        replace_file(folder, name, data, existing)


def open_own_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file that we add to, and make it if there is none; return its descriptor. Blocks.

    A link at its place is refused.

    Args:
        path: As for `write_own_file`.
        flags: How to open it.

    Raises:
        ConfigError: As `write_own_file`.
    """
    with _as_config_error(path), _folder_of(path) as folder:
        name = Path(path).name
        if status(folder, name) is None:
            return os.open(name, flags | _NEW, 0o666, dir_fd=folder)
        return open_entry(folder, name, os.fspath(path), flags=flags)


@contextmanager
def _folder_of(path: str | os.PathLike[str]) -> Generator[int]:
    """Open the folder of a file; beneath the working folder no link leads out of that."""
    here, place = Path.cwd(), Path(os.path.abspath(path))  # noqa: PTH100  # it follows no links
    root = here.resolve() if place.is_relative_to(here) else Path("/")
    inside = place.parent.relative_to(here if root != Path("/") else root)
    with located(root, inside) as parent:
        folder = os.open(parent.name, OPEN_FOLDER, dir_fd=parent.folder)
        try:
            yield folder
        finally:
            os.close(folder)


@contextmanager
def _as_config_error(path: str | os.PathLike[str]) -> Generator[None]:
    try:
        yield
    except UnsafeFileError as error:
        raise ConfigError(f"{os.fspath(path)} is not written: {error}") from error
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be written: {error.strerror}.") from error

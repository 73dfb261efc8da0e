"""Writes files completely or not at all, by descriptors of their folders."""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.open_beneath import (
    OPEN_FOLDER,
    UnsafeFileError,
    located,
    open_entry,
    open_to_read,
    require_regular,
)

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_NEW = os.O_WRONLY | _NEW
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Errors of file systems that have no hard links."""
_PART = re.compile(r"\.[0-9a-f]{16}\.part")


def status(folder: int, name: str) -> os.stat_result | None:
    """Return the status of an entry without following a link; None if there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def change_mode(folder: int, name: str, mode: int) -> None:
    """Set the permissions of a file or folder, even an unreadable one, but never of a link."""
    if not hasattr(os, "O_PATH"):  # macOS
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    finally:
        os.close(descriptor)


def replace_file(
    folder: int,
    name: str,
    data: bytes,
    like: os.stat_result | None,
    scratch: int | None = None,
    *,
    mode: int = 0o666,
    synced: bool = True,
) -> None:
    """Replace a file atomically, or leave everything unchanged and raise OSError.

    Args:
        like: The file to replace, for owner and permissions. None: the file must not exist.
        scratch: Descriptor of a folder for the temporary file, which stays if we are killed.
        mode: Of a file that did not exist, less the umask.
        synced: Whether to call fsync, so that the file survives a power failure.
    """
    temporary = part_name()
    source_folder = folder if scratch is None else scratch
    try:
        with os.fdopen(os.open(temporary, OPEN_NEW, mode, dir_fd=source_folder), "wb") as file:
            file.write(data)
            file.flush()
            if like:
                _copy_owner_and_mode(file.fileno(), like)
            if synced:
                os.fsync(file.fileno())
        move_into_place(source_folder, temporary, folder, name, replace=like is not None)
    finally:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=source_folder)
    with suppress(OSError):  # some file systems cannot; the content itself is safe by now
        os.fsync(folder)


def rewrite_file(folder: int, name: str, data: bytes, like: os.stat_result) -> None:
    """Overwrite a file in place, hard links included, or restore it and raise OSError.

    Not atomic: readers, and a crash, may see mixed content. The caller keeps the old content.
    `like` is the status of the expected file.
    """
    descriptor = open_entry(folder, name, name, flags=os.O_RDWR)
    with os.fdopen(descriptor, "rb") as file:
        if not os.path.samestat(os.fstat(descriptor), like):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        before = file.read()
        try:
            _write_over(descriptor, data, len(before))
        except OSError:
            with suppress(OSError):
                _write_over(descriptor, before, len(before))
            raise


def _write_over(descriptor: int, data: bytes, size: int) -> None:
    """Write the part beyond the old end first: if it does not fit, nothing is lost."""
    for start, part in ((size, data[size:]), (0, data[:size])):
        view = memoryview(part)
        while view:
            done = os.pwrite(descriptor, view, start)
            start, view = start + done, view[done:]
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


def part_name() -> str:
    """Return a new name for a file that is being written."""
    return f".{secrets.token_hex(8)}.part"


def is_part(name: str) -> bool:
    """Return True if a file was being written when its process was killed."""
    return _PART.fullmatch(name) is not None


def move_into_place(
    source_folder: int, temporary: str, folder: int, name: str, *, replace: bool
) -> None:
    """Rename a finished file. From another disk, it is first copied to a hidden file next to it.

    `source_folder` and `folder` are descriptors. With `replace`, an existing file is replaced.
    """
    try:
        if replace:
            os.replace(temporary, name, src_dir_fd=source_folder, dst_dir_fd=folder)
        else:
            _rename_to_new(source_folder, temporary, folder, name)
    except OSError as error:
        if error.errno != errno.EXDEV or source_folder == folder:
            raise
        beside = part_name()
        try:
            _copy_file(source_folder, temporary, folder, beside)
            move_into_place(folder, beside, folder, name, replace=replace)
        finally:
            with suppress(OSError):
                os.unlink(beside, dir_fd=folder)


def _copy_file(source_folder: int, name: str, folder: int, copy: str) -> None:
    with (
        open_to_read(source_folder, name, name) as source,
        os.fdopen(os.open(copy, OPEN_NEW, 0o666, dir_fd=folder), "wb") as target,
    ):
        shutil.copyfileobj(source, target)
        target.flush()
        _copy_owner_and_mode(target.fileno(), os.fstat(source.fileno()))
        os.fsync(target.fileno())


def _rename_to_new(source_folder: int, temporary: str, folder: int, name: str) -> None:
    """Rename without replacing what another process created meanwhile."""
    try:
        os.link(temporary, name, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if status(folder, name):
            raise FileExistsError(errno.EEXIST, "File exists", name) from error
        os.replace(temporary, name, src_dir_fd=source_folder, dst_dir_fd=folder)


def _copy_owner_and_mode(descriptor: int, like: os.stat_result) -> None:
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        with suppress(PermissionError):  # only root can give a file away
            os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


_STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")
"""Folders of what a shell names for streams, such as /dev/stdout."""


def write_own_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, or leave the old one unchanged. Blocks. A link at its path is replaced.

    Args:
        path: As the user wrote it, or next to a file of theirs.
        content: The whole content; a text is written as UTF-8.

    Raises:
        ConfigError: It cannot be written, or leads out of the working folder.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    with _folder_of(path) as folder:
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
    """Open a file for adding to it, create it if needed, and return its descriptor. Blocks.

    A link at its path is refused. Path and errors are as for `write_own_file`.
    """
    with _folder_of(path) as folder:
        name = Path(path).name
        if status(folder, name) is None:
            return os.open(name, flags | _NEW, 0o666, dir_fd=folder)
        return open_entry(folder, name, os.fspath(path), flags=flags)


@contextmanager
def _folder_of(path: str | os.PathLike[str]) -> Generator[int]:
    """Open the folder of a file. Below the working folder, no link may lead out of it.

    Raises:
        ConfigError: The folder cannot be opened, or the block raised an OSError.
    """
    try:
        here, place = Path.cwd(), Path(os.path.abspath(path))  # noqa: PTH100  # it follows no links
        root = here.resolve() if place.is_relative_to(here) else Path("/")
        inside = place.parent.relative_to(here if root != Path("/") else root)
        with located(root, inside) as parent:
            folder = os.open(parent.name, OPEN_FOLDER, dir_fd=parent.folder)
            try:
                yield folder
            finally:
                os.close(folder)
    except UnsafeFileError as error:
        raise ConfigError(f"{os.fspath(path)} is not written: {error}") from error
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be written: {error.strerror}.") from error

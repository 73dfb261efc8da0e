"""Writes files completely or not at all, copies and removes folders: all by descriptors.

Whatever happens to their paths meanwhile, nothing else is read or changed.
"""

import errno
import os
import re
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from openmanus_graph.errors import ConfigError
from openmanus_graph.safety import open_beneath as opening
from openmanus_graph.safety.folder_walk import TooDeepError, walk

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
    descriptor = opening.open_entry(folder, name, name, flags=os.O_RDWR)
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
        opening.open_to_read(source_folder, name, name) as source,
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
    """Write a file of the user as UTF-8, or leave the old one unchanged. Blocks.

    A link at its path is replaced.

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
            opening.require_regular(os.fspath(path), existing)
        replace_file(folder, name, data, existing)


def open_own_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file for adding to it, create it if needed, and return its descriptor. Blocks.

    A link at its path is refused. Path and errors are as for `write_own_file`.
    """
    with _folder_of(path) as folder:
        name = Path(path).name
        if status(folder, name) is None:
            return os.open(name, flags | _NEW, 0o666, dir_fd=folder)
        return opening.open_entry(folder, name, os.fspath(path), flags=flags)


@contextmanager
def _folder_of(path: str | os.PathLike[str]) -> Generator[int]:
    """Open the folder of a file. Below the working folder, no link may lead out of it.

    ConfigError: The folder cannot be opened, or the block raised an OSError.
    """
    try:
        here, place = Path.cwd(), Path(os.path.abspath(path))  # noqa: PTH100  # it follows no links
        root = here.resolve() if place.is_relative_to(here) else Path("/")
        inside = place.parent.relative_to(here if root != Path("/") else root)
        with opening.located(root, inside) as parent:
            folder = os.open(parent.name, opening.OPEN_FOLDER, dir_fd=parent.folder)
            try:
                yield folder
            finally:
                os.close(folder)
    except opening.UnsafeFileError as error:
        raise ConfigError(f"{os.fspath(path)} is not written: {error}") from error
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be written: {error.strerror}.") from error


_PIECE = 1 << 20
LeftOut = Callable[[str, os.stat_result], bool]
"""Returns True for what is not copied, by its path below the copied entry and its status."""


def copy_entry(
    folder: int, name: str, target: Path, left_out: LeftOut = lambda path, found: False
) -> None:
    """Copy a file, a link or a folder with its content; other kinds of entries are not copied.

    `folder` is the descriptor of its parent. Only we write at the target, whose parent exists.
    `left_out` is also called for the entry itself, with an empty path.

    OSError: Something cannot be read or written. What vanished meanwhile is not an error.
    """
    folders = dict[str, os.stat_result]()
    if not _copy(folder, name, target, "", left_out, folders):
        return
    top = os.open(name, opening.OPEN_FOLDER, dir_fd=folder)
    try:
        for below in walk(top, _raise_unless_gone):
            for inside in sorted(os.listdir(below.descriptor)):  # noqa: PTH208  # a descriptor
                path = f"{below.path}/{inside}".lstrip("/")
                with suppress(FileNotFoundError):
                    if _copy(below.descriptor, inside, target / path, path, left_out, folders):
                        below.below.append(inside)
    finally:
        os.close(top)
    for path, found in reversed(folders.items()):  # they may forbid to write in them
        _copy_status(found, target / path)


def _raise_unless_gone(path: str, error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, TooDeepError)):
        raise error


def _copy(
    folder: int,
    name: str,
    target: Path,
    path: str,
    left_out: LeftOut,
    folders: dict[str, os.stat_result],
) -> bool:
    """Copy a file or a link, or make a folder; return True for a folder to walk into."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if left_out(path, found):
        return False
    if stat.S_ISLNK(found.st_mode):
        target.symlink_to(os.readlink(name, dir_fd=folder))
    elif stat.S_ISREG(found.st_mode):
        with opening.open_to_read(folder, name, path or name) as source, target.open("xb") as copy:
            _copy_content(source, copy)
        _copy_status(found, target)
    elif stat.S_ISDIR(found.st_mode):
        target.mkdir()
        folders[path] = found
        return True
    return False


def remove_tree(folder: int, name: str) -> None:
    """Remove a folder with its content, at any depth, even without rights in it. Blocks.

    What cannot be removed stays, without an error. `folder` is the descriptor of its parent.
    """
    with suppress(OSError):
        change_mode(folder, name, 0o700)
        top = os.open(name, opening.OPEN_FOLDER, dir_fd=folder)
        try:
            waiting = deque([""])
            while waiting:  # each folder moves to the top: no path, and no stack, gets long
                with suppress(OSError):
                    _empty(top, waiting.popleft(), waiting)
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=folder)


def _empty(top: int, name: str, waiting: deque[str]) -> None:
    """Remove a folder of the top one, or all files of the top one, and queue the folders in it."""
    below = os.open(name or ".", opening.OPEN_FOLDER, dir_fd=top)
    try:
        for inside in os.listdir(below):  # noqa: PTH208  # a descriptor
            with suppress(OSError):
                if not stat.S_ISDIR(os.stat(inside, dir_fd=below, follow_symlinks=False).st_mode):
                    os.unlink(inside, dir_fd=below)
                    continue
                change_mode(below, inside, 0o700)
                moved = part_name() if name else inside
                if name:
                    os.rename(inside, moved, src_dir_fd=below, dst_dir_fd=top)
                waiting.append(moved)
    finally:
        os.close(below)
    if name:
        os.rmdir(name, dir_fd=top)


def _copy_content(source: BinaryIO, copy: BinaryIO) -> None:
    """Copy a file with its holes: a small program can create one of many terabytes."""
    done, size = 0, os.fstat(source.fileno()).st_size
    while done < size:
        try:
            done = source.seek(os.lseek(source.fileno(), done, os.SEEK_DATA))
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is a hole at the end
                break
            raise
        copy.seek(done)
        done += copy.write(piece := source.read(_PIECE))
        if not piece:
            break
    copy.truncate(size)


def _copy_status(found: os.stat_result, target: Path) -> None:
    target.chmod(stat.S_IMODE(found.st_mode))
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))

"""Copies and removes files and folders by descriptors, whatever happens to their paths."""

import errno
import os
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from openmanus_graph.runtime.atomic_files import change_mode, part_name
from openmanus_graph.safety.folder_walk import TooDeepError, walk
from openmanus_graph.safety.open_beneath import OPEN_FOLDER, open_to_read

_PIECE = 1 << 20
LeftOut = Callable[[str, os.stat_result], bool]
"""Returns True for what is not copied, by its path below the copied entry and its status."""


def copy_entry(
    folder: int, name: str, target: Path, left_out: LeftOut = lambda path, found: False
) -> None:
    """Copy a file, a link or a folder with its content; other kinds of entries are not copied.

    Args:
        folder: Descriptor of the folder that contains it.
        target: Its new path, where only we write; the folder above it exists.
        left_out: Also called for the entry itself, with an empty path.

    Raises:
        OSError: Something cannot be read or written. What vanished meanwhile is not an error.
    """
    folders = dict[str, os.stat_result]()
    if not _copy(folder, name, target, "", left_out, folders):
        return
    top = os.open(name, OPEN_FOLDER, dir_fd=folder)
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
        with open_to_read(folder, name, path or name) as source, target.open("xb") as copy:
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
        top = os.open(name, OPEN_FOLDER, dir_fd=folder)
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
    below = os.open(name or ".", OPEN_FOLDER, dir_fd=top)
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

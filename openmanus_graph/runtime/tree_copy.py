"""Copies files and folders by descriptors, whatever somebody does to their paths meanwhile."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from openmanus_graph.safety.open_beneath import OPEN_FOLDER, open_to_read

_PIECE = 1 << 20
LeftOut = Callable[[str, os.stat_result], bool]
"""Says by path from the copied entry and status what is not copied."""


def copy_entry(
    folder: int, name: str, target: Path, left_out: LeftOut = lambda path, found: False
) -> None:
    """Copy a file, a link or a folder with all that is in it; of other kinds nothing is copied.

    Args:
        folder: Descriptor of its folder.
        name: Its name there.
        target: Its new path, where nobody else writes; the folder above it exists.
        left_out: Also asked about the entry itself, with an empty path.

    Raises:
        OSError: Something cannot be read or written. What vanished meanwhile is no error.
    """
    _copy(folder, name, target, "", left_out)


def _copy(folder: int, name: str, target: Path, path: str, left_out: LeftOut) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if left_out(path, found):
        return
    if stat.S_ISLNK(found.st_mode):
        target.symlink_to(os.readlink(name, dir_fd=folder))
    elif stat.S_ISREG(found.st_mode):
        with open_to_read(folder, name, path or name) as source, target.open("xb") as copy:
            _copy_content(source, copy)
        _copy_status(found, target)
    elif stat.S_ISDIR(found.st_mode):
        target.mkdir()
        below = os.open(name, OPEN_FOLDER, dir_fd=folder)
        try:
            for inside in sorted(os.listdir(below)):  # noqa: PTH208  # a descriptor
                try:
                    _copy(below, inside, target / inside, f"{path}/{inside}".lstrip("/"), left_out)
                except FileNotFoundError:
                    continue
        finally:
            os.close(below)
        _copy_status(found, target)


def _copy_content(source: BinaryIO, copy: BinaryIO) -> None:
    """Copy a file with its holes: a small program can make one of many terabytes."""
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

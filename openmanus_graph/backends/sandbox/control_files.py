"""The files by which we and the programs in a sandbox work together.

They lie in the thread's own folder, which programs may write: one could put a link to any file of
the host in a file's place, or in its folder's. Nothing here follows a link.
"""

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import BinaryIO

from openmanus_graph.runtime.atomic_files import OPEN_NEW, part_name
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.safety.open_beneath import open_entry, open_to_read

MOST_BYTES = 64 << 20
"""Of a file that is read; the largest name pictures with their content."""
_APPEND = os.O_WRONLY | os.O_APPEND
_READ_AND_APPEND = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC


class ControlFiles:
    """The files below the thread's own folder. Its methods raise OSError, and block."""

    def __init__(self, scratch: Path) -> None:
        self._folder = Workspace(scratch, scratch)

    def opened(self, folder: Path) -> AbstractContextManager[int]:
        """Open a folder, which is created if need be, and give its descriptor."""
        return opened_folder(self._folder, folder, create=True)

    def write(self, path: Path, data: bytes, mode: int = 0o666) -> None:
        """Put a file, in the place of whatever there was."""
        temporary = part_name()
        with self.opened(path.parent) as folder:
            try:
                with os.fdopen(os.open(temporary, OPEN_NEW, mode, dir_fd=folder), "wb") as file:
                    file.write(data)
                os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)

    def read(self, path: Path) -> bytes:
        """Return a file's content; nothing if it is not there, too large, or no plain file."""
        with (
            suppress(OSError),
            opened_folder(self._folder, path.parent) as folder,
            open_to_read(folder, path.name, path.name, limit=MOST_BYTES) as file,
        ):
            return file.read()
        return b""

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there and in a folder of ours."""
        with suppress(OSError), opened_folder(self._folder, path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)

    def append(self, path: Path, data: bytes) -> None:
        """Add to a file that `create` has made."""
        with opened_folder(self._folder, path.parent) as folder:
            descriptor = open_entry(folder, path.name, path.name, flags=_APPEND)
        with os.fdopen(descriptor, "ab") as file:
            file.write(data)

    def create(self, path: Path) -> BinaryIO:
        """Create a file that is read here, and that programs append to."""
        with self.opened(path.parent) as folder:
            descriptor = os.open(path.name, _READ_AND_APPEND, 0o666, dir_fd=folder)
        return os.fdopen(descriptor, "rb+")

"""Opens files beneath a folder safely, even if links on the way are swapped at the same time.

A path is never checked and then opened by its name. It is walked once, by descriptors: by the
kernel (`openat2`) if no part of it is a link, else part by part, with links read and walked by
hand. A link that leads out of the folder is refused, and so is anything but a regular file.
"""

import errno
import io
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Callable, Container, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_AT_ONCE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BUFFER_BYTES = 1 << 17
_MOST_LINKS = 40
"""Links and `..` in one path, as many as the kernel allows."""
MOST_PARTS = 200
"""Parts of a path. Folders can be nested without end, and each takes time to walk."""
_MOST_PATH_BYTES = 4096

_QUOTED = re.compile(r"\$'(?=[^']*\\)(?:[^'\\]|\\.)*'")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))")

Identity = tuple[int, int] | None
"""Device and inode of a file or folder; None if it does not exist."""


class UnsafeFileError(OSError):
    """An entry that is not opened. Its text is a sentence that says why."""

    def __str__(self) -> str:
        return str(self.strerror)


class Place(NamedTuple):
    """An entry of an opened folder. It may be a link, or missing."""

    folder: int
    """Descriptor of its folder, for use as `dir_fd`."""
    name: str
    """Its name there. `.` is the folder itself."""
    path: str
    """Its path from the root, without links. Empty for the root."""


@contextmanager
def located(
    root: Path,
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    follow: bool = True,
    hidden: Container[Identity] = (),
) -> Generator[Place]:
    """Open the folder of an entry beneath a root.

    Args:
        root: Path of an existing folder. It is opened by its name and must not be a link.
        path: Relative to the root, or absolute.
        create: Whether to create missing folders of the entry.
        follow: Whether links that stay beneath the root are followed, also if the entry is one.
        hidden: Files and folders that are out of reach, with all that they hold.

    Raises:
        UnsafeFileError: The path leads out of the root, or to something hidden.
        OSError: A folder of the path is missing, or cannot be opened.
    """
    place = _Walk(root, os.fspath(path), create, follow, hidden).place()
    try:
        yield place
    finally:
        os.close(place.folder)


def open_beneath(
    root: Path,
    path: str | os.PathLike[str],
    *,
    limit: int | None = None,
    follow: bool = True,
) -> BinaryIO:
    """Open a regular file beneath a root for reading, without waiting. See `located`.

    `limit` is the largest size in bytes; None if the reader itself limits how much it reads. Raises
    UnsafeFileError if it is not a regular file or too large, too.
    """
    with located(root, path, follow=follow) as place:
        return open_to_read(place.folder, place.name, os.fspath(path), limit=limit)


def open_to_read(
    folder: int, name: str, path: str, *, limit: int | None = None, hidden: Container[Identity] = ()
) -> BinaryIO:
    """Open a regular file of an opened folder as `open_beneath` does. `path` names it in errors.

    What is added to it from now on is not read, because a program may write faster than we read.
    """
    file = _AsItWas(open_entry(folder, name, path, hidden=hidden))
    if limit is not None and file.size > limit:
        file.close()
        raise _too_large(path, file.size, limit)
    return io.BufferedReader(file, _BUFFER_BYTES)


class _AsItWas(io.FileIO):
    """A file of which only the size at its opening is read."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb")
        self.size = os.fstat(descriptor).st_size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        return super().readinto(view[: max(0, self.size - self.tell())]) or 0

    def readall(self) -> bytes:
        return self.read(max(0, self.size - self.tell())) or b""


def read_beneath(
    root: Path, path: str | os.PathLike[str], limit: int, *, follow: bool = True
) -> bytes:
    """Return the content of a file of at most `limit` bytes. Raises as `open_beneath`."""
    with open_beneath(root, path, follow=follow) as file:
        return read_whole(file, os.fspath(path), limit)


def read_whole(file: BinaryIO, path: str, limit: int) -> bytes:
    """Return the content of a file that is opened at its beginning.

    Raises UnsafeFileError, which names the `path`, if there is or becomes more than the limit.
    """
    size = os.fstat(file.fileno()).st_size
    data = file.read(limit + 1) if size <= limit else b""
    if max(size, len(data)) > limit:
        raise _too_large(path, size, limit)
    return data


def open_entry(
    folder: int, name: str, path: str, *, flags: int = os.O_RDONLY, hidden: Container[Identity] = ()
) -> int:
    """Return the descriptor of a regular file; a link is not followed. `path` is for errors."""
    # Checked before: opening a device can have effects, and opening a socket fails oddly.
    require_regular(path, os.stat(name, dir_fd=folder, follow_symlinks=False))
    descriptor = os.open(name, flags | _AT_ONCE, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        require_regular(path, found)
        _check_hidden(found, path, hidden)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def identity(path: Path) -> Identity:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def kind(mode: int) -> str:
    tests = (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
    )
    return next((name for test, name in tests if test(mode)), "device")


def require_regular(path: str, found: os.stat_result) -> None:
    """Raise UnsafeFileError unless an entry is a regular file."""
    if not stat.S_ISREG(found.st_mode):
        what = kind(found.st_mode)
        raise UnsafeFileError(
            errno.EINVAL, f"{shown(path)} is a {what}, not a file; it cannot be used here."
        )


def shown(name: str) -> str:
    """Return a printable name. Control characters and broken UTF-8 are quoted as in bash."""
    if name.isprintable():
        return name
    quoted = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}
    for char in set(name) - quoted.keys():
        if "\udc80" <= char <= "\udcff":
            quoted[char] = f"\\x{ord(char) - 0xDC00:02x}"
        elif not char.isprintable():
            codes = char.encode("utf-8", "surrogatepass")
            quoted[char] = "".join(f"\\x{byte:02x}" for byte in codes)
    return f"$'{''.join(quoted.get(char, char) for char in name)}'"


def named(path: str) -> str:
    """Return the path that a text names, in which parts may be quoted as `shown` does."""
    return _QUOTED.sub(_unquoted, path)


def _unquoted(quoted: re.Match[str]) -> str:
    signs = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}

    def byte(escape: re.Match[bytes]) -> bytes:
        return bytes([int(escape[1], 16)]) if escape[1] else signs.get(escape[2], escape[2])

    data = quoted[0][2:-1].encode("utf-8", "surrogateescape")
    name = _ESCAPE.sub(byte, data).decode("utf-8", "surrogateescape")
    return name if shown(name) == quoted[0] else quoted[0]  # no second way to write other names


def size_text(size: int) -> str:
    if size < 1024:
        return f"{size} bytes"
    power = min((size.bit_length() - 1) // 10, 4)
    return f"{size / 1024**power:.1f} {('', 'KB', 'MB', 'GB', 'TB')[power]}"


def _too_large(path: str, size: int, limit: int) -> UnsafeFileError:
    has = f"has {size_text(size)}" if size > limit else "keeps growing"
    text = f"{shown(path)} {has}; at most {size_text(limit)} can be read here."
    return UnsafeFileError(errno.EFBIG, text)


def _check_hidden(found: os.stat_result, path: str, hidden: Container[Identity]) -> None:
    if (found.st_dev, found.st_ino) in hidden:
        text = f"{shown(path)} belongs to OpenManus itself and is out of reach."
        raise UnsafeFileError(errno.EACCES, text)


def _split(text: str) -> list[str]:
    return [part for part in text.split("/") if part not in ("", ".")]


def _link_target(folder: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


@dataclass
class _Walk:
    """The way from a root to an entry. Arguments are as for `located`."""

    root: Path
    path: str
    create: bool
    follow: bool
    hidden: Container[Identity]

    def place(self) -> Place:
        parts = self._named_parts()
        if parts and ".." not in parts:
            # Fast, but only right if nothing on the way is a link. Else it is walked by hand.
            folder = _open_link_free(self.root, "/".join(parts[:-1]) or ".")
            if folder is not None and self.follow and _link_target(folder, parts[-1]) is not None:
                os.close(folder)
            elif folder is not None:
                if self.hidden:
                    self._require_shown(folder, len(parts) - 1)
                return Place(folder, parts[-1], "/".join(parts))
        return self._walked(parts)

    def _named_parts(self) -> list[str]:
        """Return the parts of the path beneath the root. UnsafeFileError if no file can have it."""
        try:
            encoded = os.fsencode(self.path)
        except UnicodeEncodeError:
            encoded = b"\0"
        if b"\0" in encoded:
            raise UnsafeFileError(
                errno.EINVAL, f"No file can have the name {self.path!r}. Give another one."
            )
        if len(encoded) > _MOST_PATH_BYTES:
            raise self._too_long()
        parts = self._absolute(self.path) if self.path.startswith("/") else _split(self.path)
        if len(parts) > MOST_PARTS:
            raise self._too_long()
        return parts

    def _walked(self, parts: list[str]) -> Place:
        waiting, names, turns = deque(parts), list[str](), 0
        folder = os.open(self.root, OPEN_FOLDER)
        try:
            while waiting:
                name = waiting.popleft()
                target = _way_up(folder, name, waiting)
                if target is None:
                    below = self._open_below(folder, name) if waiting else None
                    if below is not None:
                        os.close(folder)
                        folder = below
                        names.append(name)
                        continue
                    target = _link_target(folder, name) if self.follow else None
                if target is None and not waiting:
                    return Place(folder, name, "/".join((*names, name)))
                turns += 1
                if target is None or turns > _MOST_LINKS:
                    number = errno.ENOTDIR if target is None else errno.ELOOP
                    raise OSError(number, os.strerror(number), self.path)
                if self._turn(names, waiting, target):
                    above = os.open(self.root, OPEN_FOLDER)
                    os.close(folder)
                    folder, names = above, []
            return Place(folder, ".", "/".join(names))
        except BaseException:
            os.close(folder)
            raise

    def _turn(self, names: list[str], waiting: deque[str], target: str) -> bool:
        """Put a link's target before the waiting parts. Return True to restart at the root.

        So it is for `..`, because the folder above the opened one may have been moved out of the
        root.
        """
        if target != "..":
            ahead = self._absolute(target) if target.startswith("/") else _split(target)
        elif names:
            ahead = names[:-1]
        else:
            ahead = self._absolute("/".join((os.fspath(self.root), "..", *waiting)))
            waiting.clear()
        waiting.extendleft(reversed(ahead))
        if len(names) + len(waiting) > MOST_PARTS:
            raise self._too_long()
        return target == ".." or target.startswith("/")

    def _absolute(self, text: str) -> list[str]:
        """Return the parts beneath the root of an absolute path, which may name it by links."""
        inside = os.path.join(self.root, "")  # noqa: PTH118  # with one slash at its end, `/` has it already
        for way in (os.fspath, os.path.realpath):
            known = way(text)
            if ".." not in known.split("/") and f"{known}/".startswith(inside):
                return _split(known[len(os.fspath(self.root)) :])
        raise UnsafeFileError(
            errno.EXDEV,
            f"{shown(self.path)} is outside of {self.root}. Only files below that folder can be "
            "reached; use a path relative to it.",
        )

    def _too_long(self) -> UnsafeFileError:
        text = (
            f"The path {shown(self.path[:80])}... is too long: at most {_MOST_PATH_BYTES:,} bytes "
            f"and {MOST_PARTS} folders can be used here. Move what it names to a folder less deep."
        )
        return UnsafeFileError(errno.ENAMETOOLONG, text)

    def _require_shown(self, folder: int, depth: int) -> None:
        """Close a folder and raise if it, or one of so many above it, is hidden."""
        above = os.dup(folder)
        try:
            for _ in range(depth):
                _check_hidden(os.fstat(above), self.path, self.hidden)
                below, above = above, os.open("..", OPEN_FOLDER, dir_fd=above)
                os.close(below)
        except UnsafeFileError:
            os.close(folder)
            raise
        finally:
            os.close(above)

    def _open_below(self, folder: int, name: str) -> int | None:
        """Open a folder of a folder; None if it is something else."""
        try:
            below = os.open(name, OPEN_FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not self.create:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            below = os.open(name, OPEN_FOLDER, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                return None
            raise
        try:
            _check_hidden(os.fstat(below), self.path, self.hidden)
        except UnsafeFileError:
            os.close(below)
            raise
        return below


def _way_up(folder: int, name: str, waiting: deque[str]) -> str | None:
    """Return `..`, or the rest of a path that goes back from a missing folder; else None."""
    if name == "..":
        return ".."
    if ".." in waiting:
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            left = os.path.normpath("/".join((name, *waiting)))
            waiting.clear()
            return left
    return None


_OPENAT2 = 437
_BENEATH, _NO_LINKS, _NO_MAGIC_LINKS = 0x08, 0x04, 0x02


def _open_link_free(root: Path, path: str) -> int | None:
    """Open a folder beneath a root if no part of its path is a link; else None."""
    openat2 = _openat2()
    if openat2 is None:
        return None
    base = os.open(root, OPEN_FOLDER)
    try:
        return openat2(base, os.fsencode(path))
    finally:
        os.close(base)


@cache
def _openat2() -> Callable[[int, bytes], int | None] | None:
    """Return a function for the kernel's `openat2`; None on other systems.

    It returns None for a path with a link, and where the call is missing (Linux before 5.6).
    """
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # it costs what a small command needs to start

    how = (ctypes.c_uint64 * 3)(OPEN_FOLDER, 0, _BENEATH | _NO_LINKS | _NO_MAGIC_LINKS)
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]

    def open_folder(base: int, path: bytes) -> int | None:
        opened: int = call(_OPENAT2, base, path, how, ctypes.sizeof(how))
        return opened if opened >= 0 else None

    return open_folder

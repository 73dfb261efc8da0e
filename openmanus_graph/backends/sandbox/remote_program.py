"""The program on the other machine, which serves one sandbox over its standard input.

It keeps the sandbox's folder, receives and sends files, and reads the output of programs. It ends
all of them when its input ends, because the connection is then gone. Standard library only.

A request is a line of JSON (`do`, and its arguments) followed by `body` bytes. So is an answer; its
`error` is the reason of a failure. Names are relative to the sandbox's folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import stat
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

GREETING = b"\x1eopenmanus\n"
"""Printed first. Output of the account's start files may come before it."""
MARKER = "OPENMANUS_TREE"
"""The variable that marks a program and all that it starts. Its value begins with the sandbox's
name."""
FOLDERS = ("workspace", "run", "home", "tmp", "python")
LAUNCHER = "launch.py"
_MOST_GROWTH = 4 << 20
"""Bytes of one file's growth in one answer."""
_KEPT_S = 7 * 86400
"""Seconds after which an abandoned folder is removed."""
_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def signature(path: str | Path, folder: int | None = None) -> list[Any] | None:
    """Return the state of an entry of a folder's descriptor; None if missing or a special file.

    Kind (`d`, `f` or `l`), permissions, size, time of change in ns, target of a link.
    """
    try:
        found = os.stat(path, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return ["l", 0, 0, 0, os.readlink(path, dir_fd=folder)]
    except OSError:
        return None
    mode = found.st_mode & 0o777
    if stat.S_ISDIR(found.st_mode):
        return ["d", mode, 0, 0, ""]
    if stat.S_ISREG(found.st_mode):
        return ["f", mode, found.st_size, found.st_mtime_ns, ""]
    return None


def entries(top: Path) -> Iterator[tuple[str, list[Any]]]:
    """List all entries below a folder, each folder before its content.

    Raises OSError if a folder cannot be read: its content must not count as removed.
    """
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            found = sorted(folder.iterdir())
        except FileNotFoundError:
            if folder == top:
                raise
            continue  # removed meanwhile
        for path in found:
            now = signature(path)
            if now is not None:
                yield str(path.relative_to(top)), now
                if now[0] == "d":
                    waiting.append(path)


def contents(opened: contextlib.AbstractContextManager[IO[bytes]], size: int) -> Iterator[bytes]:
    """Read exactly `size` bytes of a file; zeros replace bytes that it has lost meanwhile."""
    with contextlib.suppress(OSError), opened as file:
        while size and (piece := file.read(min(size, _CHUNK))):
            size -= len(piece)
            yield piece
    while size:
        piece = bytes(min(size, _CHUNK))
        size -= len(piece)
        yield piece


def put_entry(
    folder: int, name: str, wanted: list[Any], expected: list[Any] | None, data: Iterable[bytes]
) -> list[Any] | None:
    """Create an entry with the signature `wanted`; return its new signature. Raises OSError.

    An existing entry that is not as `expected` is kept in the same folder under another name.
    """
    kind, mode, _, time_ns, target = wanted
    found = signature(name, folder)
    if found is not None and expected is not None and (found[0] == "d") != (kind == "d"):
        remove_entry(folder, name, expected)
        found = signature(name, folder)
    in_the_way = found is not None and (found[0] == "d") != (kind == "d")
    changed = kind != "d" and found not in (None, wanted, expected)
    if in_the_way or changed:
        os.rename(name, _free_name(folder, name), src_dir_fd=folder, dst_dir_fd=folder)
        found = None
    if kind == "d":
        if found is None:
            os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            os.fchmod(below, mode & 0o777 | stat.S_IRWXU)
        finally:
            os.close(below)
        return signature(name, folder)
    part = f".{secrets.token_hex(8)}.part"
    try:
        if kind == "l":
            os.symlink(target, part, dir_fd=folder)
        else:
            with os.fdopen(os.open(part, _NEW, 0o600, dir_fd=folder), "wb") as file:
                file.writelines(data)
                os.fchmod(file.fileno(), mode & 0o777)
            os.utime(part, ns=(time_ns, time_ns), dir_fd=folder, follow_symlinks=False)
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
    return signature(name, folder)


def remove_entry(folder: int, name: str, expected: list[Any]) -> None:
    """Remove an entry if it is as expected; a folder only if it is empty."""
    with contextlib.suppress(OSError):
        if expected[0] == "d":
            os.rmdir(name, dir_fd=folder)
        elif signature(name, folder) == expected:
            os.unlink(name, dir_fd=folder)


def _free_name(folder: int, name: str) -> str:
    """Return a name for another version of an entry."""
    number = 1
    while signature(beside := f"{name}.other-{number}", folder) is not None:
        number += 1
    return beside


class Server:
    """Answers requests about one sandbox."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers
        self._root, self._name = Path(), ""
        self._unread = 0
        """Bytes of the request's body that are still to come."""

    def serve(self) -> None:
        """Answer until the input ends."""
        self._answers.write(GREETING)
        self._answers.flush()
        try:
            for line in iter(self._requests.readline, b""):
                request = json.loads(line)
                self._unread = request["body"]
                try:
                    answer, body = getattr(self, request["do"])(request)
                except Exception as error:  # noqa: BLE001  # the other side reports it
                    answer, body = {"error": f"{type(error).__name__}: {error}"}, ()
                while self._unread:
                    self._take(min(self._unread, _CHUNK))
                self._answers.write(json.dumps(answer).encode() + b"\n")
                self._answers.writelines(body)
                self._answers.flush()
        finally:
            if self._name:
                self._end(self._name)

    def _take(self, size: int) -> bytes:
        data = self._requests.read(size)
        if len(data) < size:
            sys.exit(1)  # the connection is gone
        self._unread -= size
        return data

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._take(min(size, _CHUNK))
            size -= len(piece)
            yield piece

    def open(self, request: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        """Create the sandbox's folder, or take it over from a broken connection."""
        base = Path(request["base"]).expanduser().resolve()
        self._root, self._name = base / request["name"], request["name"]
        new = not self._root.exists()
        for name in FOLDERS:
            (self._root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = (self._root / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # the earlier program has not noticed yet that its connection is gone
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self._root / "lock").read_text()), signal.SIGKILL)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._end(self._name)
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        (self._root / LAUNCHER).write_bytes(self._take(request["body"]))
        _remove_abandoned(base)
        return {"root": str(self._root), "python": sys.executable, "new": new}, ()

    def scan(self, request: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        return {"entries": list(entries(self._root / request["folder"]))}, ()

    def put(self, request: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        """Create `entries` (name, signature, replaced signature); remove `gone` if unchanged."""
        top, now = self._root / request["folder"], dict[str, Any]()
        for name, expected in request["gone"]:
            with _opened((top / name).parent) as folder:
                remove_entry(folder, Path(name).name, expected)
        for name, wanted, expected in request["entries"]:
            data = self._pieces(wanted[2] if wanted[0] == "f" else 0)
            with _opened((top / name).parent) as folder:
                now[name] = put_entry(folder, Path(name).name, wanted, expected, data)
        return {"now": now}, ()

    def get(self, request: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        top = self._root / request["folder"]
        found = [(name, signature(top / name)) for name in request["names"]]
        given = [(name, now) for name, now in found if now is not None]
        files = ((_reading(top / name), now[2]) for name, now in given if now[0] == "f")
        pieces = (piece for file, size in files for piece in contents(file, size))
        return {"entries": given, "body": sum(now[2] for _, now in given)}, pieces

    def look(self, request: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        """Send the growth of files, remove other logs, and measure the programs."""
        grown: list[tuple[str, int, int]] = []
        body: list[bytes] = []
        for log in (self._root / "run").rglob("*.log"):
            if str(log.relative_to(self._root)) not in request["logs"]:
                log.unlink()
        for name, start in request["logs"].items():
            with contextlib.suppress(OSError), (self._root / name).open("rb") as file:
                file.seek(start)
                body.append(file.read(_MOST_GROWTH))
                grown.append((name, len(body[-1]), os.fstat(file.fileno()).st_size))
        processes, memory = _usage(self._name)
        disk = os.statvfs(self._root)
        free = disk.f_bavail * disk.f_frsize
        measured = {"processes": processes, "memory": memory, "free": free}
        return {"grown": grown, **measured, "body": sum(map(len, body))}, body

    def used(self, request: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        return {"used": sum(now[2] for _, now in entries(self._root))}, ()

    def end(self, request: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        """End the programs whose marker begins with that text."""
        self._end(request["marker"])
        return {}, ()

    def close(self, request: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        self._end(self._name)
        _remove_folder(self._root)
        return {}, ()

    def _end(self, marker: str) -> None:
        """Stop all before killing all, so that none can start others."""
        for _ in range(100):
            found = list(_marked(marker))
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in found:
                    with contextlib.suppress(OSError):
                        os.kill(process, number)
            if not found:
                return
            time.sleep(0.01)


def _marked(marker: str) -> Iterator[int]:
    """List the processes with a marker. Daemons keep their environment."""
    start = f"{MARKER}={marker}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(start) for variable in variables):
                yield int(folder.name)


def _usage(marker: str) -> tuple[int, int]:
    """Return how many processes there are, and their memory in bytes."""
    processes, pages = 0, 0
    for process in _marked(marker):
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
            processes += 1
    return processes, pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def _reading(path: Path) -> Generator[IO[bytes]]:
    with path.open("rb") as file:  # only now: the one before has been read
        yield file


@contextlib.contextmanager
def _opened(folder: Path) -> Generator[int]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_abandoned(base: Path) -> None:
    for lock in base.glob("*/lock"):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            if time.time() - lock.stat().st_mtime > _KEPT_S:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_folder(lock.parent)


def _remove_folder(folder: Path) -> None:
    """Remove a folder, even if programs have removed permissions."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(path).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    Server(sys.stdin.buffer, sys.stdout.buffer).serve()

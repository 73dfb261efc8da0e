"""Keeps a folder here and its copy on another machine the same, at defined moments.

Both sides are held against what they were when they were last the same. What changed on one side
is brought to the other. Where both changed one file, both versions are kept: the one that comes
takes the place, and what it finds there is kept beside it as `NAME.other-1`.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from openmanus_graph.backends.sandbox.remote_program import (
    put_entry,
    remove_entry,
    signature,
)
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.workspace import Workspace, names_in, opened_folder
from openmanus_graph.safety.open_beneath import open_to_read

_CHUNK = 1 << 18
Signature = list[Any]
"""As `remote_program.signature` gives it."""


class OtherSide(Protocol):
    """The other machine's program, as far as it is needed here."""

    def ask(
        self, request: dict[str, Any], body: Iterable[bytes] = (), size: int = 0
    ) -> dict[str, Any]:
        """Send a request and return the answer. Raises ToolError."""
        ...

    def read(self, size: int) -> Iterator[bytes]:
        """Yield the next bytes of the last answer's body. Raises ToolError."""
        ...


@dataclass
class Mirror:
    """One folder. Its methods block, and raise ToolError."""

    here: Workspace
    """Its root is the folder; what is protected stays here, and nothing comes in its place."""
    there: str
    """Its name in the sandbox's folder of the other machine."""
    most_bytes: int
    """That one call may bring from one side to the other."""
    fetched: bool = True
    """Whether changes come back."""
    left_out: Callable[[str], bool] = lambda name: False
    """Says which names are no part of it."""
    _same: dict[str, tuple[Signature, Signature]] = field(
        default_factory=dict[str, tuple[Signature, Signature]]
    )
    """Signatures here and there when both sides were last the same, by name."""

    def send(self, other: OtherSide) -> None:
        """Bring what has changed here to the other side."""
        now = self._entries()
        changed = [name for name, mark in now.items() if mark != self._mark(name, 0)]
        gone = sorted((name for name in self._same if name not in now), reverse=True)
        if not changed and not gone:
            return
        size = sum(now[name][2] for name in changed)
        if size > self.most_bytes:
            raise ToolError(
                f"Nothing was run: {size >> 20} MB of {self.here.root} would have to be sent to "
                f"the other machine, more than disk_mb of [sandbox] allows "
                f"({self.most_bytes >> 20} MB). Work in a folder with less in it."
            )
        request = {
            "do": "put",
            "folder": self.there,
            "entries": [(name, now[name], self._mark(name, 1)) for name in changed],
            "gone": [(name, self._mark(name, 1)) for name in gone],
        }
        pieces = (
            piece
            for name in changed
            if now[name][0] == "f"
            for piece in self._content(name, now[name][2])
        )
        answer = other.ask(request, pieces, size)
        for name in gone:
            del self._same[name]
        for name in changed:
            self._same[name] = (now[name], answer["now"][name])

    def fetch(self, other: OtherSide) -> None:
        """Bring what has changed on the other side here."""
        if not self.fetched:
            return
        listed = other.ask({"do": "scan", "folder": self.there})["entries"]
        there = {name: mark for name, mark in listed if not self._is_left_out(name)}
        changed = [name for name, mark in there.items() if mark != self._mark(name, 1)]
        size = sum(there[name][2] for name in changed)
        if size > self.most_bytes:
            raise ToolError(
                f"The programs' files were not fetched: {size >> 20} MB are new or changed, and "
                f"disk_mb of [sandbox] allows {self.most_bytes >> 20} MB."
            )
        for name in sorted((name for name in self._same if name not in there), reverse=True):
            with self._folder_of(name) as folder:
                remove_entry(folder, Path(name).name, self._same.pop(name)[0])
        if changed:
            self._take(other, changed)

    def forget(self) -> None:
        """Take the other side for empty."""
        self._same.clear()

    def _entries(self) -> dict[str, Signature]:
        found, waiting = dict[str, Signature](), [self.here.root]
        while waiting:
            place = waiting.pop()
            try:
                with opened_folder(self.here, place) as folder:
                    marks = {name: signature(name, folder) for name in sorted(names_in(folder))}
            except OSError as error:  # what is in it must not count as removed
                if isinstance(error, FileNotFoundError) and place != self.here.root:
                    continue
                raise ToolError(
                    f"Nothing was run: the folder {place} cannot be read, which would be sent "
                    f"to the other machine: {error.strerror}."
                ) from error
            for name, mark in marks.items():
                path = self.here.relative(place / name)
                if mark is not None and not self._is_left_out(path):
                    found[path] = mark
                    waiting += [place / name] if mark[0] == "d" else []
        return found

    def _content(self, name: str, size: int) -> Iterator[bytes]:
        """Read exactly so many bytes of a file; zeros stand for what it has lost meanwhile."""
        with (
            contextlib.suppress(OSError),
            self._folder_of(name) as folder,
            open_to_read(folder, Path(name).name, name) as file,
        ):
            while size and (piece := file.read(min(size, _CHUNK))):
                size -= len(piece)
                yield piece
        while size:
            piece = bytes(min(size, _CHUNK))
            size -= len(piece)
            yield piece

    def _take(self, other: OtherSide, names: list[str]) -> None:
        answer = other.ask({"do": "get", "folder": self.there, "names": names})
        asked = set(names)
        for name, mark in answer["entries"]:
            if name not in asked:  # it could lead anywhere
                raise ToolError(f"The other machine gave {name!r}, which it was not asked for.")
            data = other.read(mark[2] if mark[0] == "f" else 0)
            try:
                with self._folder_of(name) as folder:
                    here = put_entry(folder, Path(name).name, mark, self._mark(name, 0), data)
                    self._same[name] = (here or mark, mark)
            except OSError as error:
                raise ToolError(
                    f"The programs' files could not be fetched: {name}: {error.strerror}. "
                    "The next call tries again."
                ) from error

    @contextlib.contextmanager
    def _folder_of(self, name: str) -> Generator[int]:
        """Open the folder that an entry is in; no link on the way there is followed."""
        with opened_folder(self.here, (self.here.root / name).parent, create=True) as folder:
            yield folder

    def _mark(self, name: str, side: int) -> Signature | None:
        return self._same[name][side] if name in self._same else None

    def _is_left_out(self, name: str) -> bool:
        """Refuse names that lead elsewhere, too: the other side is not trusted."""
        path = Path(os.path.normpath(self.here.root / name))
        return (
            path == self.here.root
            or not path.is_relative_to(self.here.root)
            or any(path.is_relative_to(place) for place in self.here.protected)
            or self.left_out(name)
        )

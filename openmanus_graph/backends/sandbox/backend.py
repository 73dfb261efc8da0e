"""What a kind of sandbox has to offer, so that others plug in.

All that bash, Python and the tools for files need is `Backend`. See docs/sandbox.md.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from openmanus_graph.runtime.atomic_files import OPEN_NEW, part_name
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.safety.open_beneath import open_entry, open_to_read
from openmanus_graph.state.settings import SandboxSettings

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


LAUNCHER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")))
"""Starts every program of this machine; it is given a specification, and the command."""


@dataclass(frozen=True)
class Layout:
    """The places on the host that one thread's programs may use."""

    workspace: Workspace
    scratch: Path
    """The thread's own folder, removed when the thread is closed."""
    python: Path
    """The interpreter programs run with: the thread's own environment."""
    prefixes: tuple[Path, ...] = ()
    """Folders of that interpreter and its packages, read-only."""
    readable: tuple[Path, ...] = ()
    """Certificates and local package indices, read-only; only with the network."""
    read_only: bool = False
    """Whether programs may change nothing outside of the scratch folder."""

    @property
    def tmp(self) -> Path:
        """Temporary files, shared by kernel and shell."""
        return self.scratch / "tmp"

    @property
    def home(self) -> Path:
        """HOME of the programs."""
        return self.scratch / "home"

    @property
    def run(self) -> Path:
        """Sockets and control files between us and the programs."""
        return self.scratch / "run"

    @property
    def files(self) -> ControlFiles:
        """How the files in these folders are read and written here."""
        return ControlFiles(self.scratch)


@dataclass(frozen=True)
class Launch:
    """How a program is started on the host."""

    argv: tuple[str, ...]
    confine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Read by `launch.py`, which applies it to itself before it becomes the program."""
    kill: Callable[[], object] | None = None
    """Ends the program, with all that it has started, where killing our process does not."""


@dataclass(frozen=True)
class Measured:
    """What the programs of a sandbox use on another machine."""

    processes: int
    memory: int
    """In bytes."""
    free: int
    """Bytes that are free on the disk with their files."""


class Backend(Protocol):
    """One kind of sandbox for one thread."""

    @property
    def name(self) -> str:
        """As in the settings."""
        ...

    @property
    def holds_processes(self) -> bool:
        """Whether everything inside dies with the program that was started."""
        ...

    @property
    def python(self) -> str:
        """Path of the interpreter as programs see it."""
        ...

    @property
    def path(self) -> Sequence[str]:
        """Folders of programs beside the system's and the interpreter's."""
        ...

    def inside(self, path: Path) -> str:
        """Show a path of the host (workspace or scratch) as programs see it."""
        ...

    def launch(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        *,
        terminal: bool,
        output: int,
    ) -> Launch:
        """Make the command on this machine that runs a program inside.

        The command's input is the program's, and its end too. So is its output, unless the backend
        brings that to `output` by `fetch`.

        Args:
            program: With its arguments.
            environment: All that the program gets.
            terminal: Whether the command gets a terminal, which must be the program's.
            output: File descriptor for what the program prints.
        """
        ...

    def reach(self, socket: Path) -> Path:
        """Return where a Unix socket that programs open in the run folder is reached from here."""
        ...

    def send(self) -> None:
        """Show programs what has changed here. Called before they start and before each call.

        Raises ToolError: the programs cannot be reached.
        """
        ...

    def fetch(self) -> None:
        """Bring here what programs have printed and changed by now. Called after each call.

        Raises ToolError: as `send`, and the call's program is ended.
        """
        ...

    def measure(self) -> Measured | None:
        """Measure the programs, and bring here what they have printed; None if they run here.

        Called often while a call runs. Raises ToolError as `send`.
        """
        ...

    def used_bytes(self) -> int:
        """Return the size of all files of programs on another machine; called rarely.

        Raises ToolError as `send`.
        """
        ...

    def close(self) -> None:
        """Remove what there is of the sandbox elsewhere. All programs have been ended."""
        ...


class OnThisMachine:
    """What all backends share whose programs see the same folders as we do."""

    def reach(self, socket: Path) -> Path:
        """Sockets are where they are."""
        return socket

    def send(self) -> None:
        """Programs see the same files."""

    def fetch(self) -> None:
        """So do we."""

    def measure(self) -> None:
        """Our own processes are measured."""

    def used_bytes(self) -> int:
        """Nothing is elsewhere."""
        return 0

    def close(self) -> None:
        """Nothing is elsewhere."""


class BackendFactory(Protocol):
    """Makes a backend for a thread."""

    def __call__(self, layout: Layout, settings: SandboxSettings) -> Backend:
        """Only look, start nothing."""
        ...


@dataclass(frozen=True)
class Probe:
    """Whether a kind of sandbox works on this machine."""

    name: str
    works: bool
    detail: str
    fix: str = ""
    """The command that mends it."""

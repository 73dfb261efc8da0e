"""The interface of a kind of sandbox, for bash, Python and the file tools. See docs/sandbox.md."""

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from openmanus_graph.backends.sandbox.worktree import Worktree
from openmanus_graph.runtime.atomic_files import OPEN_NEW, part_name
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.safety.open_beneath import open_entry, open_to_read
from openmanus_graph.state.settings import SandboxSettings

MOST_BYTES = 64 << 20
"""The limit for a file that is read. The largest files hold the pictures of a cell."""
_APPEND = os.O_WRONLY | os.O_APPEND
_READ_AND_APPEND = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC


class ControlFiles:
    """Reads and writes files below the thread's own folder. Methods raise OSError, and block."""

    def __init__(self, scratch: Path) -> None:
        self._folder = Workspace(scratch, scratch)

    def opened(self, folder: Path) -> AbstractContextManager[int]:
        """Open a folder, create it if it is missing, and yield its descriptor."""
        return opened_folder(self._folder, folder, create=True)

    def write(self, path: Path, data: bytes, mode: int = 0o666) -> None:
        """Write a file. It replaces what has its name."""
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
        """Return a file's content; nothing if it is missing, too large, or no regular file."""
        with (
            suppress(OSError),
            opened_folder(self._folder, path.parent) as folder,
            open_to_read(folder, path.name, path.name, limit=MOST_BYTES) as file,
        ):
            return file.read()
        return b""

    def remove(self, path: Path) -> None:
        """Remove a file if it exists and is in one of our folders."""
        with suppress(OSError), opened_folder(self._folder, path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file that `create` has created."""
        with opened_folder(self._folder, path.parent) as folder:
            descriptor = open_entry(folder, path.name, path.name, flags=_APPEND)
        with os.fdopen(descriptor, "ab") as file:
            file.write(data)

    def create(self, path: Path) -> BinaryIO:
        """Create a file that we read and that programs append to."""
        with self.opened(path.parent) as folder:
            descriptor = os.open(path.name, _READ_AND_APPEND, 0o666, dir_fd=folder)
        return os.fdopen(descriptor, "rb+")


LAUNCHER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")))
"""Starts every program of this machine. Its arguments are a specification, and the command."""


@dataclass(frozen=True)
class Layout:
    """The folders on the host that one thread's programs may use."""

    workspace: Workspace
    scratch: Path
    """The thread's own folder, removed when the thread is closed."""
    python: Path
    """The interpreter of programs, in the thread's own environment."""
    prefixes: tuple[Path, ...] = ()
    """Folders of that interpreter and its packages, read-only."""
    readable: tuple[Path, ...] = ()
    """Certificates and local package indices, read-only; only with the network."""
    read_only: bool = False
    """Whether programs may change only the scratch folder."""
    worktree: Worktree | None = None
    """The workspace, if it is a git worktree that we have made."""

    @property
    def git(self) -> list[tuple[str, Path, bool]]:
        """What git needs in a worktree: its path inside and here, and if programs may change it."""
        if (tree := self.worktree) is None:
            return []
        link = Path(tree.folder, ".git")
        objects = (tree.objects, Path(tree.objects), False)
        return [objects, (tree.admin, self.scratch / "git", True), (str(link), link, False)]

    @property
    def tmp(self) -> Path:
        """Temporary files, shared by kernel and shell."""
        return self.scratch / "tmp"

    @property
    def home(self) -> Path:
        return self.scratch / "home"

    @property
    def run(self) -> Path:
        """Sockets and control files between us and the programs."""
        return self.scratch / "run"

    @property
    def files(self) -> ControlFiles:
        return ControlFiles(self.scratch)


@dataclass(frozen=True)
class Launch:
    """How a program is started on the host."""

    argv: tuple[str, ...]
    confine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The specification that `launch.py` applies to itself before it becomes the program."""
    kill: Callable[[], object] | None = None
    """Ends the program and all that it has started, if killing our process does not do that."""


@dataclass(frozen=True)
class Measured:
    """The resources that a sandbox's programs use on another machine. Memory and disk in bytes."""

    processes: int
    memory: int
    free: int
    """Free on the disk with their files."""


@dataclass(frozen=True)
class Probe:
    """Whether a kind of sandbox works on this machine."""

    name: str
    works: bool
    detail: str
    fix: str = ""
    """The command that fixes it."""
    undecided: bool = False
    """Whether the machine was too busy to tell. It may work."""


class Backend:
    """One kind of sandbox for one thread. Making it starts nothing.

    By default, programs run on this machine and see the same folders as we do.
    """

    name: ClassVar[str]
    """As in the settings."""
    holds_processes: ClassVar[bool] = False
    """Whether everything inside ends with the program that was started."""
    hides_ports: ClassVar[bool] = False
    """Whether the ports that programs open cannot be reached from here."""
    elsewhere: ClassVar[bool] = False
    """Whether programs run on another machine, which gets nothing of this one's environment."""

    def __init__(self, layout: Layout, settings: SandboxSettings) -> None:
        self._layout, self._settings = layout, settings

    @classmethod
    def probe(cls, settings: SandboxSettings) -> Probe:
        """Check if this kind works here. Blocks for some tens of milliseconds."""
        raise NotImplementedError

    @property
    def warning(self) -> str:
        """A warning for users before programs run; often empty."""
        return ""

    @property
    def python(self) -> str:
        """Path of the interpreter as programs see it."""
        return str(self._layout.python)

    @property
    def path(self) -> Sequence[str]:
        """Folders of programs in addition to the system's and the interpreter's."""
        return ()

    def inside(self, path: Path) -> str:
        """Return a path of the host (workspace or scratch) as programs see it."""
        return str(path)

    def launch(self, argv: Sequence[str], env: Mapping[str, str], output: int | None) -> Launch:
        """Return the command on this machine that runs a program inside.

        The command shares its input and its end with the program. It also shares its output, unless
        the backend copies that to `output` in `fetch`.

        Args:
            argv: The program with its arguments.
            env: All variables of the program.
            output: File descriptor for what the program prints. None if the command's output is
                read at once.
        """
        raise NotImplementedError

    @property
    def shares_network(self) -> bool:
        """Whether programs open their ports on this machine, next to those of others."""
        return True

    def new_socket(self, family: int) -> socket.socket:
        """Return an unconnected TCP socket of the network that programs are in. May block."""
        return socket.socket(family)

    def reach(self, socket: Path) -> Path:
        """Return where we reach a Unix socket that programs open in the run folder."""
        return socket

    def send(self) -> None:
        """Send our changes to the programs. Called before they start and before each call.

        Raises ToolError: the programs cannot be reached.
        """

    def fetch(self) -> None:
        """Fetch what programs have printed and changed. Called after each call.

        Raises ToolError as `send`; the call's program is then ended.
        """

    def measure(self) -> Measured | None:
        """Measure the programs and fetch what they have printed; None if they run here.

        Called often while a call runs. Raises ToolError as `send`.
        """
        return None

    def used_bytes(self) -> int:
        """Return the size of all files of programs on another machine. Called rarely.

        Raises ToolError as `send`.
        """
        return 0

    def close(self) -> None:
        """Remove the sandbox on another machine. All programs have been ended before."""

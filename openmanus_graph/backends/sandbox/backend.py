"""What a kind of sandbox has to offer, so that others plug in.

All that bash, Python and the tools for files need is `Backend`. See docs/sandbox.md.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from openmanus_graph.backends.sandbox.control_files import ControlFiles
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import SandboxSettings

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

"""What a kind of sandbox has to offer, so that others plug in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from openmanus_graph.backends.sandbox.control_files import ControlFiles
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import SandboxSettings


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
    kill: tuple[str, ...] = ()
    """A command that ends the program where killing our process does not."""


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
        self, program: Sequence[str], environment: Mapping[str, str], *, terminal: bool
    ) -> Launch:
        """Make the command that runs a program inside."""
        ...


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

"""The ssh backend: programs run on another machine, on a copy of the workspace."""

import contextlib
import json
import os
import secrets
import shlex
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from openmanus_graph.backends.sandbox import remote_program as remote
from openmanus_graph.backends.sandbox.backend import Backend, Launch, Layout, Measured, Probe
from openmanus_graph.backends.sandbox.process_tree import process_rlimits
from openmanus_graph.backends.sandbox.ssh_link import SshLink, look_at_host
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.workspace import Workspace, names_in, opened_folder
from openmanus_graph.safety.open_beneath import open_to_read
from openmanus_graph.state.settings import SandboxSettings

Signature = list[Any]
"""As `remote_program.signature` gives it."""


@dataclass
class Mirror:
    """One folder. Its methods block, and raise ToolError."""

    here: Workspace
    """Its root is the folder. Protected files are neither sent nor replaced."""
    there: str
    """Its name in the sandbox's folder of the other machine."""
    most_bytes: int
    """The limit for one call and direction."""
    fetched: bool = True
    """Whether remote changes are fetched."""
    left_out: Callable[[str], bool] = lambda name: False
    """Returns True for names that are not part of it."""
    _same: dict[str, tuple[Signature, Signature]] = field(
        default_factory=dict[str, tuple[Signature, Signature]]
    )
    """By name, the signatures here and there when both sides were last the same."""

    def send(self, other: SshLink) -> None:
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
        files = ((self._reading(name), now[name][2]) for name in changed if now[name][0] == "f")
        pieces = (piece for file, length in files for piece in remote.contents(file, length))
        answer = other.ask(request, pieces, size)
        for name in gone:
            del self._same[name]
        for name in changed:
            self._same[name] = (now[name], answer["now"][name])

    def fetch(self, other: SshLink) -> None:
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
                remote.remove_entry(folder, Path(name).name, self._same.pop(name)[0])
        if changed:
            self._take(other, changed)

    def forget(self) -> None:
        """Assume that the other side is empty."""
        self._same.clear()

    def _entries(self) -> dict[str, Signature]:
        found, waiting = dict[str, Signature](), [self.here.root]
        while waiting:
            place = waiting.pop()
            try:
                with opened_folder(self.here, place) as folder:
                    marks = {
                        name: remote.signature(name, folder) for name in sorted(names_in(folder))
                    }
            except OSError as error:  # its content must not count as removed
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

    @contextlib.contextmanager
    def _reading(self, name: str) -> Generator[BinaryIO]:
        with (
            self._folder_of(name) as folder,
            open_to_read(folder, Path(name).name, name) as file,
        ):
            yield file

    def _take(self, other: SshLink, names: list[str]) -> None:
        answer = other.ask({"do": "get", "folder": self.there, "names": names})
        asked = set(names)
        for name, mark in answer["entries"]:
            if name not in asked:  # it could lead anywhere
                raise ToolError(f"The other machine gave {name!r}, which it was not asked for.")
            data = other.read(mark[2] if mark[0] == "f" else 0)
            try:
                with self._folder_of(name) as folder:
                    here = remote.put_entry(
                        folder, Path(name).name, mark, self._mark(name, 0), data
                    )
                    self._same[name] = (here or mark, mark)
            except OSError as error:
                raise ToolError(
                    f"The programs' files could not be fetched: {name}: {error.strerror}. "
                    "The next call tries again."
                ) from error

    def _folder_of(self, name: str) -> contextlib.AbstractContextManager[int]:
        """Open the folder that an entry is in. Links on the way there are not followed."""
        return opened_folder(self.here, (self.here.root / name).parent, create=True)

    def _mark(self, name: str, side: int) -> Signature | None:
        return self._same[name][side] if name in self._same else None

    def _is_left_out(self, name: str) -> bool:
        """Return True also for names that lead out of the folder: the other side is untrusted."""
        path = Path(os.path.normpath(self.here.root / name))
        return (
            path == self.here.root
            or not path.is_relative_to(self.here.root)
            or any(path.is_relative_to(place) for place in self.here.protected)
            or self.left_out(name)
        )


_OLDEST_PYTHON = (3, 9)
_LOG = ".log"
"""Files in the run folder that programs append to: only their new part is fetched."""


@dataclass
class _Printed:
    """The copy of a growing remote file: its file descriptor here, and its bytes so far."""

    copy: int
    read: int = 0


class Ssh(Backend):
    """Runs programs with the account of the login on the other machine."""

    name = "ssh"
    holds_processes = True
    elsewhere = hides_ports = True

    def __init__(self, layout: Layout, settings: SandboxSettings) -> None:
        """Connect. Raises ToolError: the machine cannot be reached."""
        super().__init__(layout, settings)
        self._name = secrets.token_hex(6)
        self._link = SshLink(settings, layout.scratch / "ssh", self._name)
        most_bytes = settings.disk_mb << 20
        run, home, tmp = (
            Workspace(folder, layout.scratch) for folder in (layout.run, layout.home, layout.tmp)
        )
        self._mirrors = (
            Mirror(layout.workspace, "workspace", most_bytes, fetched=not layout.read_only),
            Mirror(run, "run", most_bytes, left_out=lambda name: name.endswith(_LOG)),
            Mirror(home, "home", most_bytes, fetched=False),
            Mirror(tmp, "tmp", most_bytes, fetched=False),
        )
        self._printed: dict[str, _Printed] = {}
        self._launched = 0

    @classmethod
    def probe(cls, settings: SandboxSettings) -> Probe:
        """Look for the program `ssh` and the address of a machine, without connecting."""
        if shutil.which("ssh") is None:
            return Probe("ssh", False, "the program ssh (OpenSSH's client) is not installed")
        if not settings.ssh_host:
            return Probe("ssh", False, "no ssh_host is set under [sandbox]")
        if settings.network == "off":
            return Probe(
                "ssh",
                False,
                "programs there reach that machine's network, so it takes network = true "
                "(--network)",
            )
        return Probe("ssh", True, f"set up for {settings.ssh_host}")

    @property
    def warning(self) -> str:
        return (
            f"Python and shell commands run on {self._settings.ssh_host}: they can read and change "
            "every file of that account and reach that machine's network. A copy of the workspace "
            "is sent there."
        )

    @property
    def python(self) -> str:
        return self._link.python

    @property
    def path(self) -> Sequence[str]:
        """The folder of programs that the thread has installed."""
        return (str(self._link.root / "python" / "bin"),)

    def inside(self, path: Path) -> str:
        layout, root = self._layout, self._link.root
        places = (
            (layout.workspace.root, root / "workspace"),
            (layout.workspace.python, root / "python"),
            (layout.scratch, root),
        )
        for here, there in places:
            if path.is_relative_to(here):
                return str(there / path.relative_to(here))
        return str(path)

    def launch(self, argv: Sequence[str], env: Mapping[str, str], output: int | None) -> Launch:
        """Return the command. The output goes to a file there, unless it is read at once."""
        self._launched += 1
        marker, root = f"{self._name}-{self._launched}.", self._link.root
        packages = str(root / "python")
        added = {remote.MARKER: marker, "PIP_TARGET": packages, "PYTHONPATH": packages}
        spec = json.dumps({"limits": process_rlimits(self._settings)})
        launcher = [self.python, "-I", "-S", str(root / remote.LAUNCHER), spec]
        settings = [f"{name}={value}" for name, value in {**env, **added}.items()]
        line = shlex.join(["env", "-i", *settings, *launcher, *argv])
        if output is not None:
            log = f"run/{marker}log"
            self._printed[log] = _Printed(os.dup(output))
            line += f" >>{shlex.quote(str(root / log))} 2>&1"
        folder = shlex.quote(str(root / "workspace"))
        script = f"cd {folder} && {line}; exit $?"  # of the shell's words, not of a signal
        run = f"exec /bin/sh -c {shlex.quote(script)}"
        return Launch(tuple(self._link.shared(program=run)), kill=lambda: self._end(marker))

    def reach(self, socket: Path) -> Path:
        self._link.forward(socket, Path(self.inside(socket)))
        return socket

    def send(self) -> None:
        """Send local changes. Connect again first if the connection broke."""
        with self._link.lock:
            if not self._link.alive:
                if self._link.connect():  # the folder is new: nothing in it counts as removed
                    for mirror in self._mirrors:
                        mirror.forget()
                else:
                    self.fetch()
            for mirror in self._mirrors:
                mirror.send(self._link)

    def fetch(self) -> None:
        with self._link.lock:
            self._follow()
            for mirror in self._mirrors:
                mirror.fetch(self._link)

    def measure(self) -> Measured:
        """Fetch the output of programs, and measure them."""
        with self._link.lock:
            return self._follow()

    def used_bytes(self) -> int:
        return int(self._link.ask({"do": "used"})["used"])

    def _end(self, marker: str) -> None:
        with contextlib.suppress(ToolError):  # without a connection they have ended there
            self._link.ask({"do": "end", "marker": marker})

    def _follow(self) -> Measured:
        """Copy the growth of files that programs append to, and measure the programs."""
        run, sizes = self._layout.run, dict[str, int]()
        while True:
            shells = {f"run/{log.relative_to(run)}": log for log in run.rglob(f"*{_LOG}")}
            printed = dict(self._printed)
            logs = {name: _size(log) for name, log in shells.items()}
            logs |= {name: copied.read for name, copied in printed.items()}
            answer = self._link.ask({"do": "look", "logs": logs})
            for name, grown, size in answer["grown"]:
                for piece in self._link.read(grown):
                    self._append(shells.get(name), printed.get(name), piece)
                logs[name] = logs.get(name, 0) + grown
                sizes.setdefault(name, size)
            if all(logs[name] >= size for name, size in sizes.items()):
                return Measured(answer["processes"], answer["memory"], answer["free"])

    def _append(self, shells: Path | None, printed: _Printed | None, data: bytes) -> None:
        try:
            if printed is not None:
                printed.read += len(data)
                while data:
                    data = data[os.write(printed.copy, data) :]
            elif shells is not None:
                with contextlib.suppress(FileNotFoundError):  # it was read, and is not needed
                    self._layout.files.append(shells, data)
        except OSError as error:
            why = f"What programs have printed could not be kept: {error.strerror}."
            raise ToolError(why) from error

    def close(self) -> None:
        """Remove everything there, and end the connection."""
        self._link.close()
        for printed in self._printed.values():
            os.close(printed.copy)


def _size(log: Path) -> int:
    try:
        return log.lstat().st_size
    except FileNotFoundError:
        return 0


def examine(settings: SandboxSettings) -> Probe:
    """Connect, and check if the machine meets a sandbox's requirements. Blocks for seconds."""
    host, python, found = settings.ssh_host, settings.ssh_python, Ssh.probe(settings)
    if not found.works:
        return found
    try:
        system, number, has_bash, has_ipykernel = look_at_host(settings)
    except ToolError as error:
        return Probe("ssh", False, str(error))
    version = ".".join(map(str, number))
    missing: list[str] = []
    if system != "Linux":
        missing.append(f"it runs {system}, and a sandbox takes a Linux")
    if number < _OLDEST_PYTHON:
        missing.append(f"its {python} is Python {version}: name one from 3.9 on with ssh_python")
    if not has_bash:
        missing.append("it has no bash: install it there")
    if not has_ipykernel:
        missing.append(
            f"its {python} has no ipykernel, which python_execute takes: run there "
            f"`{python} -m pip install ipykernel`"
        )
    if missing:
        return Probe("ssh", False, f"{host} is reached; {'; '.join(missing)}")
    return Probe("ssh", True, f"{host} is reached: Python {version} with ipykernel, bash")

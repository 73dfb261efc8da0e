"""Chooses the sandbox backend of a thread."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openmanus_graph.backends.sandbox import bwrap, docker, nono, ssh
from openmanus_graph.backends.sandbox.backend import (
    BackendFactory,
    Launch,
    Layout,
    OnThisMachine,
    Probe,
)
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.settings import SandboxSettings

WARNING = (
    "No sandbox: Python and shell commands can read and change every file of this account and "
    "reach the network. `openmanus doctor --fix` installs one."
)


class Unconfined(OnThisMachine):
    """Programs run as the user who started us."""

    name = "none"
    holds_processes = False

    def __init__(self, layout: Layout, settings: SandboxSettings) -> None:
        self.python = str(layout.python)
        self.path: Sequence[str] = [os.environ["PATH"]] if "PATH" in os.environ else []

    def inside(self, path: Path) -> str:
        """Paths are the host's."""
        return str(path)

    def launch(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        *,
        terminal: bool,
        output: int,
    ) -> Launch:
        """Make the command; it is told to die with us, as far as the system can do that."""
        return Launch(tuple(program), {"die_with": os.getpid()})


@dataclass(frozen=True)
class SandboxChoice:
    """A sandbox backend that works here, with its warnings."""

    name: str
    make: BackendFactory
    warning: str = ""
    elsewhere: bool = False
    """Whether programs run on another machine, where nothing of this one's environment holds."""


def reaches_network(name: str, settings: SandboxSettings) -> bool:
    """Say whether programs reach the network in that backend, allowed or not."""
    return settings.network or name == "none"


_BACKENDS: dict[str, BackendFactory] = {
    "bwrap": bwrap.Bwrap,
    "nono": nono.Nono,
    "docker": docker.Docker,
    "ssh": ssh.Ssh,
    "none": Unconfined,
}


def probes(settings: SandboxSettings) -> dict[str, Callable[[], Probe]]:
    """The backends to probe, best first; each probe takes some tens of milliseconds."""
    return {
        "bwrap": bwrap.probe,
        "nono": nono.probe,
        "docker": lambda: docker.probe(settings),
        "ssh": lambda: ssh.probe(settings),
        "none": lambda: Probe("none", True, "always works, and hides nothing"),
    }


def backend_name(settings: SandboxSettings) -> str:
    """Return the backend that the settings name, or for `auto` the best that works. Blocks."""
    if settings.mode != "auto":
        return settings.mode
    tries = probes(settings)
    # A container engine is never taken unasked: its image has other packages.
    return next(name for name in ("bwrap", "nono", "none") if tries[name]().works)


def require_sandbox(settings: SandboxSettings) -> None:
    """Raise ConfigError when a named mode does not work here; `auto` always finds one. Blocks."""
    if settings.mode == "auto":
        return
    found = probes(settings)[settings.mode]()
    if not found.works:
        fix = f"`{found.fix}` or " if found.fix else ""
        raise ConfigError(
            f"sandbox = {settings.mode!r} does not work here: {found.detail}. Run {fix}"
            "`openmanus doctor --fix`, or choose auto, bwrap, nono, docker, ssh or none."
        )


def choose_sandbox(settings: SandboxSettings) -> SandboxChoice:
    """Take the mode the settings name, or the best that works. Blocks.

    Raises ConfigError when a named mode does not work here.
    """
    require_sandbox(settings)
    name = backend_name(settings)
    warnings = {"none": WARNING, "ssh": ssh.WARNING.format(host=settings.ssh_host)}
    return SandboxChoice(name, _BACKENDS[name], warnings.get(name, ""), elsewhere=name == "ssh")


def warning_of(choice: SandboxChoice, layout: Layout) -> str:
    """Return warnings for people before programs run."""
    return nono.warning(layout) if choice.name == "nono" else choice.warning

"""Chooses the sandbox backend of a thread."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
    """Runs programs as the user who started us, without confinement."""

    name = "none"
    holds_processes = False

    def __init__(self, layout: Layout, settings: SandboxSettings) -> None:
        super().__init__(layout, settings)
        self.path = [os.environ["PATH"]] if "PATH" in os.environ else []

    def launch(
        self, program: Sequence[str], environment: Mapping[str, str], *, terminal: bool, output: int
    ) -> Launch:
        """Return the command. It ends when we end, if the system supports that."""
        return Launch(tuple(program), {"die_with": os.getpid()})


@dataclass(frozen=True)
class SandboxChoice:
    """A sandbox backend that works here, with its warnings."""

    name: str
    make: BackendFactory
    warning: str = ""
    elsewhere: bool = False
    """Whether programs run on another machine, which gets nothing of this one's environment."""


def reaches_network(name: str, settings: SandboxSettings) -> bool:
    """Return True if programs of that backend reach the network, allowed or not."""
    return settings.network or name == "none"


_BACKENDS: dict[str, BackendFactory] = {
    "bwrap": bwrap.Bwrap,
    "nono": nono.Nono,
    "docker": docker.Docker,
    "ssh": ssh.Ssh,
    "none": Unconfined,
}


def probes(settings: SandboxSettings) -> dict[str, Callable[[], Probe]]:
    """Return the probes of all backends, best first. Each takes some tens of milliseconds."""
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
    # A container engine is used only if the settings name it: its image has other packages.
    return next(name for name in ("bwrap", "nono", "none") if tries[name]().works)


def require_sandbox(settings: SandboxSettings) -> None:
    """Raise ConfigError if a named mode does not work here. `auto` always finds one. Blocks."""
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
    """Choose the mode that is set, or the best that works. Raises ConfigError. Blocks."""
    require_sandbox(settings)
    name = backend_name(settings)
    warnings = {"none": WARNING, "ssh": ssh.WARNING.format(host=settings.ssh_host)}
    return SandboxChoice(name, _BACKENDS[name], warnings.get(name, ""), elsewhere=name == "ssh")


def warning_of(choice: SandboxChoice, layout: Layout) -> str:
    """Return the warning for users before programs run; often empty."""
    return nono.warning(layout) if choice.name == "nono" else choice.warning

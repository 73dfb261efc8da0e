"""Which sandbox a thread gets."""

from collections.abc import Callable
from dataclasses import dataclass

from openmanus_graph.errors import ConfigError
from openmanus_graph.sandbox import bwrap, docker, nono, unconfined
from openmanus_graph.sandbox.backend import BackendFactory, Layout, Probe
from openmanus_graph.settings import SandboxSettings


@dataclass(frozen=True)
class Choice:
    """A kind of sandbox that works here, and what people should know of it."""

    name: str
    make: BackendFactory
    warning: str = ""


_KINDS: dict[str, BackendFactory] = {
    "bwrap": bwrap.Bwrap,
    "nono": nono.Nono,
    "docker": docker.Docker,
    "none": unconfined.Unconfined,
}


def probes(settings: SandboxSettings) -> dict[str, Callable[[], Probe]]:
    """What can be tried, best first; each call takes some tens of milliseconds."""
    return {
        "bwrap": bwrap.probe,
        "nono": nono.probe,
        "docker": lambda: docker.probe(settings),
        "none": lambda: Probe("none", True, "always works, and hides nothing"),
    }


def choose_sandbox(settings: SandboxSettings) -> Choice:
    """Take the mode the settings name, or the best that works. Blocks.

    Raises ConfigError when a named mode does not work here.
    """
    tries = probes(settings)
    if settings.mode == "auto":
        # A container engine is never taken unasked: its image has other packages.
        name = next(name for name in ("bwrap", "nono", "none") if tries[name]().works)
    else:
        name, found = settings.mode, tries[settings.mode]()
        if not found.works:
            fix = f"`{found.fix}` or " if found.fix else ""
            raise ConfigError(
                f"sandbox = {name!r} does not work here: {found.detail}. Run {fix}"
                "`openmanus doctor --fix`, or choose auto, bwrap, nono, docker or none."
            )
    return Choice(name, _KINDS[name], unconfined.WARNING if name == "none" else "")


def warning_of(choice: Choice, layout: Layout) -> str:
    """Say what people should know before programs run."""
    return nono.warning(layout) if choice.name == "nono" else choice.warning

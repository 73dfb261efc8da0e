"""The backend `none`: limits, but nothing is hidden."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from openmanus_graph.backends.sandbox.backend import Launch, Layout, OnThisMachine
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

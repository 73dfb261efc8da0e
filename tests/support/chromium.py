"""Which Chromium the tests browse with.

Most use its headless shell, as Playwright itself does for whoever has its browsers: the same engine
without the windows around it, for a third of the CPU time. One file in eight, drawn by the seed,
uses the whole Chromium that `openmanus doctor --fix` installs.
"""

import os
import subprocess
from pathlib import Path

from openmanus_graph.interfaces.cli.doctor import install_commands
from tests.support.sampling import chance

_SHELL = Path("/usr/lib/chromium/chromium-headless-shell")
"""Debian's; the command of this name is a script that stays, as one process more."""
_WHOLE = 8
"""One in so many."""


def install_headless_shell() -> None:
    """Install the shell where the system's package tools have one."""
    if not _SHELL.exists():
        for command in install_commands(_SHELL.name):
            subprocess.run(command, shell=True, check=False, capture_output=True)


def with_headless_shell(folder: Path) -> str:
    """Return a PATH on which `chromium` is the shell, if there is one, by a link in this folder."""
    path = os.environ["PATH"]
    if not _SHELL.exists():
        return path
    (folder / "chromium").symlink_to(_SHELL)
    return f"{folder}{os.pathsep}{path}"


def is_drawn(name: str) -> bool:
    """Tell whether the seed draws the whole Chromium for a file, or for what several share."""
    return chance(f"whole Chromium {name}").randrange(_WHOLE) == 0

"""What a desktop needs: programs of the system, and a sandbox that can show one.

No Python package: xdotool presses keys and buttons inside of the sandbox, and the X server keeps
its picture in a file. jwm, since it does not stall when keys get other letters, as openbox does.
Light to import: tools are declared with it.
"""

import shutil
import sys

from openmanus_graph.backends.sandbox.choose import backend_name
from openmanus_graph.state.settings import SandboxSettings

HANDLE = "desktop"
"""The key of the desktop among the session's handles."""
WIDTH, HEIGHT = 1280, 800
"""Of the screen, in pixels: no picture of it has to be scaled, so its places are the screen's."""
PROGRAMS = ("Xvfb", "jwm", "xdotool", "xmodmap")
DEBIAN_PACKAGES = ("xvfb", "jwm", "xdotool", "x11-xserver-utils")
_SANDBOXES = ("bwrap", "none")
"""Those whose programs see the system's, and a socket of each other."""


def missing_programs() -> list[str]:
    """Return which of the programs are not installed. Blocks."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def why_no_desktop(sandbox: SandboxSettings) -> str:
    """Return why there can be no desktop here, as a sentence; empty if there can. Blocks."""
    if sys.platform != "linux":
        return "A desktop needs Linux."
    if missing := missing_programs():
        return f"A desktop needs {', '.join(missing)}: `openmanus doctor --fix` installs them."
    if (name := backend_name(sandbox)) not in _SANDBOXES:
        return f"The sandbox {name} cannot hold a desktop; bubblewrap can."
    return ""

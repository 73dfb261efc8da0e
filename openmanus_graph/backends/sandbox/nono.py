"""The nono backend: Landlock on Linux, Seatbelt on macOS, by the nono-py package.

Both only allow or refuse paths, so programs see the host's folders and processes. Landlock has no
exceptions below an allowed folder: it cannot hide protected files inside the workspace.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openmanus_graph.backends.sandbox.backend import Launch, Layout, OnThisMachine, Probe
from openmanus_graph.backends.sandbox.bwrap import masked, root_needs_powers

_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/alternatives",
    "/etc/fonts", "/etc/libreoffice", "/etc/ssl/certs", "/etc/ld.so.conf.d", "/etc/terminfo",
    "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/System", "/Library/Frameworks",
    "/Library/Fonts", "/Library/Developer", "/opt/homebrew", "/private/var/db",
)  # fmt: skip
_FILES = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd",
    "/etc/group", "/etc/mime.types", "/etc/os-release", "/etc/ssl/openssl.cnf", "/dev/urandom",
    "/dev/random",
)  # fmt: skip
_NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/gai.conf")
_FILE_POWERS = 0b1011
"""CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx")


class Nono(OnThisMachine):
    """Runs programs that may only use the allowed paths."""

    name = "nono"
    holds_processes = False

    def launch(
        self, program: Sequence[str], environment: Mapping[str, str], *, terminal: bool, output: int
    ) -> Launch:
        """Return the command. `launch.py` applies the rules to itself first."""
        layout, workspace = self._layout, self._layout.workspace
        outputs = workspace.readable_outputs()
        own = (workspace.root, workspace.python)
        read, write = (own, ()) if layout.read_only else ((), own)
        folders = [*_FOLDERS, *map(str, (*layout.prefixes, *layout.readable, *outputs, *read))]
        files = [*_FILES, *(_NETWORK_FILES if self._settings.network else ())]
        rules = {
            "package": str(_package()),
            "read": [path for path in (*folders, *files) if Path(path).exists()],
            "write": [
                *(str(path) for path in (*write, layout.scratch)),
                *(path for path in (*_DEVICES, "/dev/shm") if Path(path).exists()),
            ],
            "deny": [str(path) for path in masked(layout)] if sys.platform == "darwin" else [],
            "shown": [str(path) for path in (*outputs, workspace.python)],
            "network": self._settings.network,
        }
        # Landlock protects files only: with all capabilities root could load a kernel module.
        powers = _FILE_POWERS if root_needs_powers(workspace.root) else 0
        confine = {"nono": rules, "no_keys": True, "powers": powers, "die_with": os.getpid()}
        return Launch(tuple(program), confine)


def _package() -> Path | None:
    spec = importlib.util.find_spec("nono_py")
    return Path(spec.origin).parents[1] if spec and spec.origin else None


def probe() -> Probe:
    """Ask the package whether this system supports it."""
    fix = "pip install 'openmanus-graph[nono]'"
    if _package() is None:
        return Probe("nono", False, "the package nono-py is not installed", fix)
    nono_py: Any = importlib.import_module("nono_py")
    supported = bool(nono_py.is_supported())
    return Probe("nono", supported, str(nono_py.support_info().details))


def warning(layout: Layout) -> str:
    """Return the warning about files that this backend does not hide; often empty."""
    hidden = masked(layout)
    if not hidden or sys.platform == "darwin":
        return ""
    names = ", ".join(layout.workspace.relative(path) for path in hidden)
    return f"The nono sandbox cannot hide {names} inside the workspace; bubblewrap can."

"""Becomes a program after taking on its limits: `python -I -S launch.py SPEC PROGRAM ...`.

Runs by itself, before any sandbox and without our package: only the standard library here.
Doing this between fork and exec instead would not be safe in a process with threads.
"""

import contextlib
import fcntl
import importlib
import json
import os
import resource
import signal
import sys
import termios
from collections.abc import Iterable, Mapping
from typing import Any

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Apply the specification to this process and exec the program."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    join_groups(spec.get("groups", ()))
    if spec.get("terminal"):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if spec.get("die_with"):
        _die_with(int(spec["die_with"]))
    if spec.get("nono"):
        _confine(spec["nono"])
    limit(spec.get("limits", {}))
    reset_signals()
    os.execvp(sys.argv[2], sys.argv[2:])


def join_groups(entries: Iterable[str]) -> None:
    """Join control groups by the files that their members write themselves to."""
    for entry in entries:
        with open(entry, "w") as file:  # noqa: PTH123  # pathlib costs a third of the start
            file.write(str(os.getpid()))


def limit(limits: Mapping[str, int]) -> None:
    """Limit this process and those that it starts, by the limits' names in `resource`."""
    for name, value in limits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS knows some of them only by name
            resource.setrlimit(which, (bounded, bounded))


def reset_signals() -> None:
    """Let signals end the program that those who start us in the background have ignored.

    By nohup, say; a shell cannot undo that.
    """
    for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_DFL)


def _die_with(parent: int) -> None:
    """Ask Linux to hang up when the thread that started us ends; bash then ends its jobs too."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _confine(rules: dict[str, Any]) -> None:
    sys.path.append(rules["package"])
    nono_py: Any = importlib.import_module("nono_py")
    allowed = nono_py.CapabilitySet()
    modes = (("read", nono_py.AccessMode.READ), ("write", nono_py.AccessMode.READ_WRITE))
    for key, mode in modes:
        for path in rules[key]:
            allow = allowed.allow_path if os.path.isdir(path) else allowed.allow_file  # noqa: PTH112  # as above
            allow(path, mode)
    for path in rules["deny"]:
        shown = " ".join(f'(require-not (subpath "{shown}"))' for shown in rules["shown"])
        hidden = f'(require-all (subpath "{path}") {shown})'
        allowed.platform_rule(f"(deny file-read* file-write* {hidden})")
    if not rules["network"]:
        allowed.block_network()
    nono_py.apply(allowed)


if __name__ == "__main__":
    main()

"""The thread's own Python environment: where `pip install` goes.

The environment is written by hand, not by `venv`: it takes a millisecond, and needs no pip of
its own, since it sees the packages of the environment that runs us.
"""

import shutil
import sys
from pathlib import Path

from filelock import FileLock

_PIP = '#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n'


def package_folders() -> list[Path]:
    """List the folders our own packages are in."""
    names = ("site-packages", "dist-packages")
    return [Path(path) for path in sys.path if Path(path).name in names and Path(path).is_dir()]


def prefixes() -> tuple[Path, ...]:
    """List the folders a program needs to run our Python, under every name they have."""
    places = [Path(sys.prefix), Path(sys.base_prefix), base_python().parent, *package_folders()]
    found = dict.fromkeys(name for place in places for name in (place, place.resolve()))
    # A folder inside another one of the list needs no mention; the tail of a chain of links does.
    return tuple(p for p in found if not any(p != o and p.is_relative_to(o) for o in found))


def base_python() -> Path:
    """Name the interpreter below our own environment."""
    return Path(getattr(sys, "_base_executable", sys.executable) or sys.executable)


def make_python(folder: Path) -> Path:
    """Create the environment unless it is there; return its interpreter.

    One at a time: the steps of a plan share a workspace, and begin together.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        return _make_python(folder)


def _make_python(folder: Path) -> Path:
    base, version = base_python(), f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / f"python{version}" / "site-packages"
    python = folder / "bin" / "python"
    lines = [f"home = {base.parent}", "include-system-site-packages = false"]
    configuration = "\n".join([*lines, f"version = {sys.version.split()[0]}", ""])
    parents = "".join(
        f"import site; site.addsitedir({str(path)!r})\n" for path in package_folders()
    )
    marker, path = folder / "pyvenv.cfg", packages / "_parent.pth"
    if marker.exists() and marker.read_text() != configuration:
        shutil.rmtree(folder)  # made for another Python, whose packages would not load
    if marker.exists() and path.exists() and path.read_text() == parents and python.exists():
        return python
    packages.mkdir(parents=True, exist_ok=True)
    python.parent.mkdir(exist_ok=True)
    for name in ("python", "python3", f"python{version}"):
        link = python.with_name(name)
        link.unlink(missing_ok=True)
        link.symlink_to(base if name == "python" else "python")
    for name in ("pip", "pip3"):
        script = python.with_name(name)
        script.write_text(_PIP)
        script.chmod(0o755)
    path.write_text(parents)
    marker.write_text(configuration)
    return python

"""Chooses the sandbox backend of a thread, and knows the libraries of its Python."""

import ast
import contextlib
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.machinery import PathFinder
from pathlib import PurePosixPath

from openmanus_graph.backends.sandbox.backend import Backend, Probe
from openmanus_graph.backends.sandbox.local import Bwrap, Docker, Nono, Unconfined
from openmanus_graph.backends.sandbox.scratch import package_folders
from openmanus_graph.backends.sandbox.ssh import Ssh
from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.shell_commands import read_shell_text
from openmanus_graph.state.settings import SandboxSettings

_BACKENDS: dict[str, type[Backend]] = {
    kind.name: kind for kind in (Bwrap, Nono, Docker, Ssh, Unconfined)
}


def probes(settings: SandboxSettings) -> dict[str, Callable[[], Probe]]:
    """Return the probes of all backends, best first. Each takes some tens of milliseconds."""
    return {name: partial(kind.probe, settings) for name, kind in _BACKENDS.items()}


def reaches_network(name: str, settings: SandboxSettings) -> bool:
    """Return True if programs of that backend reach the network, allowed or not."""
    return settings.network or name == "none"


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


def choose_sandbox(settings: SandboxSettings) -> type[Backend]:
    """Choose the mode that is set, or the best that works. Raises ConfigError. Blocks."""
    require_sandbox(settings)
    return _BACKENDS[backend_name(settings)]


_USUAL = (
    "pandas", "numpy", "scipy", "sklearn", "matplotlib", "seaborn", "altair", "tabulate",
    "openpyxl", "docx", "pptx", "pypdf", "reportlab", "PIL", "bs4",
    "requests",
)  # fmt: skip
"""Names of modules: tables, charts, documents, pictures, web."""


def usual_libraries(settings: SandboxSettings) -> tuple[str, ...]:
    """Return the usual modules that can be imported; none if the Python is not ours. Blocks.

    Packages that a thread has installed are left out.
    """
    return () if settings.mode in ("docker", "ssh") else _installed()


@cache
def _installed() -> tuple[str, ...]:
    """Look for the modules' files, without importing any."""
    folders = [str(folder) for folder in package_folders()]
    return tuple(name for name in _USUAL if PathFinder.find_spec(name, folders) is not None)


_PIP = re.compile(r"pip[\d.]*")
_PYTHON = re.compile(r"python[\d.]*")
_NEEDS_NO_NETWORK = frozenset({"--no-index", "--help", "-h"})
_LOCAL = re.compile(r"(?!.*://)(?:[.~/].*|.*/.*|.*\.(?:whl|zip|tar\.gz))")
"""A package that is a path."""
_TAKES_VALUE = frozenset({
    "-c", "--constraint", "-t", "--target", "--prefix", "--root", "--python", "-p",
    "--cache-dir", "-f", "--find-links", "--timeout", "--retries", "--progress-bar", "--proxy",
})  # fmt: skip
_MAGIC = re.compile(r"^[ \t]*(?:%(?=pip\b|uv\b)|!!?)[ \t]*(\S.*)$", re.MULTILINE)
"""A line of a notebook's cell that is a command."""


def install_in_shell(text: str) -> str:
    """Return the first command of a shell text that needs the network to install; else nothing."""
    if "pip" not in text:
        return ""
    found = read_shell_text(text).found
    return next((one for one in found if _needs_network(_pip_arguments(one.split()))), "")


def install_in_cell(code: str) -> str:
    """Do the same for a notebook's cell: its lines that begin with `%` or `!`."""
    lines: list[str] = _MAGIC.findall(code)
    found = next((one for line in lines if (one := install_in_shell(line))), "")
    if found:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            ast.parse(code)
            return ""  # the lines are only text in a string: as commands they are not Python
    return found


def _pip_arguments(words: Sequence[str]) -> Sequence[str]:
    """Return what pip is called with; nothing if the command is not pip."""
    name = PurePosixPath(words[0]).name if words else ""
    if _PIP.fullmatch(name):
        return words[1:]
    if name == "uv" and words[1:2] == ["pip"]:
        return words[2:]
    if _PYTHON.fullmatch(name) and "-m" in words[:-1]:
        at = words.index("-m") + 1
        return words[at + 1 :] if words[at] == "pip" else ()
    return ()


def _needs_network(arguments: Sequence[str]) -> bool:
    """Return True if a call of pip installs something that is not a path."""
    if "install" not in arguments or not _NEEDS_NO_NETWORK.isdisjoint(arguments):
        return False
    after = arguments[arguments.index("install") + 1 :]
    packages = [
        word
        for before, word in zip(("", *after), after, strict=False)
        if not word.startswith("-") and before not in _TAKES_VALUE
    ]
    return not all(map(_LOCAL.fullmatch, packages)) or "-r" in after

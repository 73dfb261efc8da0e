"""The Python libraries that the sandbox has, and the refusal to install more without network."""

import ast
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import PathFinder
from pathlib import PurePosixPath

from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.scratch import package_folders
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.shell_commands import read_shell_text
from openmanus_graph.state.settings import SandboxSettings

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


def refuse_install(session: Session, find: Callable[[str], str], text: str) -> None:
    """Raise TrustedToolError if `text` installs packages but the sandbox has no network. Blocks.

    `find` returns the command of a text that installs from the network, or an empty text.
    """
    settings = session.settings.sandbox
    command = "" if settings.network else find(text)
    if not command or sandbox_of(session).reaches_network:
        return
    there = ", ".join(usual_libraries(settings))
    raise TrustedToolError(
        f"Nothing was run: `{command}` needs the network, which is off for Python and the shell. "
        + (f"Use what is there, such as {there}" if there else "Use what is there")
        + ", or install from files with --no-index. Only the person can switch it on: --network, "
        "or network = true under [sandbox]."
    )


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
    return "" if not found or _is_plain_python(code) else found


def _is_plain_python(code: str) -> bool:
    """Return True if such lines are only text in a string: as commands they are not Python."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


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

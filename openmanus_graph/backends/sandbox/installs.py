"""Finds the commands that install Python packages from the network. Pure."""

import ast
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from openmanus_graph.safety.shell_commands import read_shell_text

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
    """Say whether such lines are only text in a string: as commands they are no Python."""
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
    """Say whether a call of pip installs something that is no path."""
    if "install" not in arguments or not _NEEDS_NO_NETWORK.isdisjoint(arguments):
        return False
    after = arguments[arguments.index("install") + 1 :]
    packages = [
        word
        for before, word in zip(("", *after), after, strict=False)
        if not word.startswith("-") and before not in _TAKES_VALUE
    ]
    return not all(map(_LOCAL.fullmatch, packages)) or "-r" in after

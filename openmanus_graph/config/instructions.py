"""`AGENTS.md`: what the person, the project and its subfolders want of every agent."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from openmanus_graph.config.home_files import config_home
from openmanus_graph.config.trust import is_trusted_content, trust_content
from openmanus_graph.config.workspace import WORKSPACES
from openmanus_graph.errors import ConfigError

AGENTS_FILE = "AGENTS.md"
MAX_INSTRUCTIONS_CHARS = 20_000
"""Of all files together."""
_SKIPPED = frozenset({WORKSPACES, "node_modules"})


def read_instructions(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Read the person's `AGENTS.md`, the working folder's, and those on the way to a folder.

    Each stands under its path, the nearest last. Blocks.

    Args:
        folder: The workspace, resolved. Where it lies outside of the working folder, or is one of
            those that we make, the working folder alone is looked into.

    Returns:
        The text, empty if there are none, and warnings about what is left out.

    Raises:
        ConfigError: A file cannot be read.
    """
    parts: list[str] = []
    warnings: list[str] = []
    left = MAX_INSTRUCTIONS_CHARS
    for path in _files(folder):
        text = _read(path).strip()
        if not text:
            continue
        if len(text) > left:
            warnings.append(
                f"Models read the first {left} characters of {path} only: all {AGENTS_FILE} "
                f"together may have {MAX_INSTRUCTIONS_CHARS}. Shorten it."
            )
        if left:
            parts.append(f"[{path}]\n{text[:left]}")
        left -= min(left, len(text))
    return "\n\n".join(parts), tuple(warnings)


def untrusted_instructions(folder: Path | None = None) -> list[Path]:
    """Return the files that the user has not trusted as they are. Blocks.

    Args:
        folder: As in `read_instructions`. None: all files below the working folder.
    """
    own = config_home() / AGENTS_FILE
    return [
        path
        for path in (_files_below(Path.cwd().resolve()) if folder is None else _files(folder))
        if path != own and _read(path).strip() and not is_trusted_content(*_content(path))
    ]


def trust_instructions(path: Path) -> None:
    """Store that the user trusts a file as it is. Blocks."""
    trust_content(*_content(path))


def _content(path: Path) -> tuple[Path, str, str]:
    """Return the folder that brings a file, and the file's name in it and digest."""
    project = Path.cwd().resolve()
    digest = hashlib.sha256(_read(path).encode("utf-8", "replace")).hexdigest()
    return project, path.relative_to(project).as_posix(), digest


def _files_below(project: Path) -> Iterator[Path]:
    """Yield the files of a folder that some workspace in it would bring."""
    for root, folders, files in os.walk(project):
        folders[:] = sorted(one for one in folders if one[0] != "." and one not in _SKIPPED)
        if AGENTS_FILE in files:
            yield Path(root) / AGENTS_FILE


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files that there are, from the general to the special one."""
    own = config_home() / AGENTS_FILE
    if own.is_file():
        yield own
    project = Path.cwd().resolve()
    if folder.is_relative_to(project / WORKSPACES):
        folder = project  # agents write there: nobody's instructions
    below = folder.relative_to(project).parts if folder.is_relative_to(project) else ()
    for depth in range(len(below) + 1):
        path = project.joinpath(*below[:depth], AGENTS_FILE)
        # A symlink in a cloned folder must not send files from outside it to the model.
        if path.is_file() and path.resolve().is_relative_to(project):
            yield path


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_INSTRUCTIONS_CHARS + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error

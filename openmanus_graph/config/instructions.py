"""`AGENTS.md`: what the person, the project and its subfolders want of every agent."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from openmanus_graph.config.home_files import config_home
from openmanus_graph.config.trust import is_trusted_content, trust_content
from openmanus_graph.config.workspace import WORKSPACES
from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.open_beneath import UnsafeFileError, open_beneath

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
    for path, root in _places(folder):
        try:
            text = _read(path, root).strip()
        except UnsafeFileError as error:
            warnings.append(f"{path} is not read: {error}")
            continue
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
    project = Path.cwd().resolve()
    paths = _files_below(project) if folder is None else (path for path, _ in _places(folder))
    own = config_home().absolute() / AGENTS_FILE
    return [path for path in paths if path != own and not _is_trusted(project, path)]


def trust_instructions(path: Path) -> None:
    """Store that the user trusts a file as it is. Blocks."""
    project = Path.cwd().resolve()
    trust_content(project, path.relative_to(project).as_posix(), _digest(_read(path, project)))


def _is_trusted(project: Path, path: Path) -> bool:
    """Return True if there is nothing to trust, too."""
    try:
        text = _read(path, project)
    except UnsafeFileError:  # no model reads it
        return True
    name = path.relative_to(project).as_posix()
    return not text.strip() or is_trusted_content(project, name, _digest(text))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _files_below(project: Path) -> Iterator[Path]:
    """Yield the files of a folder that some workspace in it would bring."""
    for root, folders, files in os.walk(project):
        folders[:] = sorted(one for one in folders if one[0] != "." and one not in _SKIPPED)
        if AGENTS_FILE in files:
            yield Path(root) / AGENTS_FILE


def _places(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield where files may be, from the general to the special one, and what each must lie in."""
    yield config_home().absolute() / AGENTS_FILE, Path("/")
    project = Path.cwd().resolve()
    if folder.is_relative_to(project / WORKSPACES):
        folder = project  # agents write there: nobody's instructions
    below = folder.relative_to(project).parts if folder.is_relative_to(project) else ()
    for depth in range(len(below) + 1):
        # A link in a cloned folder must not send files from outside it to the model.
        yield project.joinpath(*below[:depth], AGENTS_FILE), project


def _read(path: Path, root: Path) -> str:
    try:
        with open_beneath(root, path) as file:
            # One byte may be a character, and four are the most.
            return file.read(4 * MAX_INSTRUCTIONS_CHARS + 4).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnsafeFileError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error

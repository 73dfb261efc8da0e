"""`AGENTS.md`: what the person, the project and its subfolders want of every agent."""

from collections.abc import Iterator
from pathlib import Path

from openmanus_graph.config.home_files import config_home
from openmanus_graph.config.workspace import WORKSPACES
from openmanus_graph.errors import ConfigError

AGENTS_FILE = "AGENTS.md"
MAX_INSTRUCTIONS_CHARS = 20_000
"""Of all files together."""


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

"""Names the files that a model may have meant, where it named one that is not there."""

import difflib
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

from openmanus_graph.errors import NamesError, ToolError
from openmanus_graph.runtime.workspace import Workspace, find, names_in, opened_folder
from openmanus_graph.safety.open_beneath import shown

_MOST_NAMED = 5
_MOST_COMPARED = 2000
"""Entries of a folder that are compared with the name."""
_CLOSE = 0.6
"""Likeness of a misspelt name; if no name has it, the nearest ones are named."""


@contextmanager
def naming_neighbours(workspace: Workspace, path: str) -> Generator[None]:
    """Have the error on a missing file name those that may be meant.

    Raises:
        NamesError: The block raised a ToolError, there is no such file, and there are others.
    """
    try:
        yield
    except ToolError as error:
        is_missing = isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
        may_be = is_missing or (path.startswith("/") and isinstance(error.__cause__, OSError))
        if not may_be or not (names := near_names(workspace, path)):
            raise
        listed = ", ".join(map(shown, names))
        is_same = path.lower().endswith(names[0].lower())
        meant = f"Did you mean {listed}?" if is_same else f"There is: {listed}."
        raise NamesError(f"{error} {meant}") from error


def near_names(workspace: Workspace, path: str) -> list[str]:
    """Return the files whose paths are most like one that is not there, the likeliest first.

    Args:
        workspace: Its folder.
        path: As the model named it; absolute paths are also looked for beneath the root.
    """
    named = PurePosixPath(os.path.normpath(path))
    if named.is_relative_to(workspace.root):
        named = named.relative_to(workspace.root)
    is_elsewhere, parts = named.is_absolute(), [part for part in named.parts if part != "/"]
    if not parts or ".." in parts or "\0" in path:
        return []
    if is_elsewhere:
        for start in range(min(len(parts), 3)):  # such as /workspace/NAME
            inside = "/".join(parts[start:])
            with suppress(ToolError):
                if find(workspace, inside) is not None:
                    return [inside]
        parts = parts[-1:]
    folder, name = "/".join(parts[:-1]), parts[-1]
    there = _names(workspace, folder)
    if not there and name in _names(workspace, ""):
        return [name]
    found = [one for one in there if one.lower() == name.lower()][:_MOST_NAMED]
    for likeness in (_CLOSE,) if is_elsewhere else (_CLOSE, 0.0):
        compared = there[:_MOST_COMPARED]
        found = found or difflib.get_close_matches(name, compared, _MOST_NAMED, likeness)
    return [f"{folder}/{one}" if folder else one for one in found]


def _names(workspace: Workspace, folder: str) -> list[str]:
    """Return the names in a folder but for hidden ones and our own."""
    place = workspace.root / folder
    with suppress(OSError), opened_folder(workspace, place) as opened:
        names = (one for one in names_in(opened) if not one.startswith("."))
        return [one for one in names if not workspace.hides(place / one)]
    return []

"""Walks through a folder by descriptors. Each folder is opened once, from the one that holds it."""

import errno
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from openmanus_graph.safety.open_beneath import MOST_PARTS, OPEN_FOLDER, UnsafeFileError, shown

_MOST_PATH_BYTES = 3000
"""Of a folder that is walked. A longer path, with the root and a name, opens nothing."""


class TooDeepError(UnsafeFileError):
    """A folder is nested too deep to be walked."""


@dataclass(slots=True)
class Folder:
    descriptor: int
    path: str
    """From the walk's top, whose path is empty."""
    depth: int = 0
    below: list[str] = field(default_factory=list[str])
    """Names of its folders to walk into, filled in by the caller."""


def walk(top: int, failed: Callable[[str, OSError], None] | None = None) -> Generator[Folder]:
    """Yield a folder and those below that the caller names, each before its own ones. Blocks.

    `top` stays open. `failed` receives path and error of what is not opened.
    """
    opened = [Folder(os.dup(top), "")]
    try:
        yield opened[0]
        while opened:
            above = opened[-1]
            if not above.below:
                os.close(opened.pop().descriptor)
                continue
            name = above.below.pop()
            path = f"{above.path}/{name}" if above.path else name
            try:
                descriptor = _open(above, name, path)
            except OSError as error:
                if failed is not None:
                    failed(path, error)
                continue
            if not above.below:  # a long chain of folders takes no more descriptors than one
                os.close(opened.pop().descriptor)
            opened.append(Folder(descriptor, path, above.depth + 1))
            yield opened[-1]
    finally:
        for folder in opened:
            os.close(folder.descriptor)


def _open(above: Folder, name: str, path: str) -> int:
    if above.depth + 2 > MOST_PARTS or len(os.fsencode(path)) > _MOST_PATH_BYTES:
        raise TooDeepError(errno.ENAMETOOLONG, f"{shown(path[:100])}... is nested too deeply.")
    return os.open(name, OPEN_FOLDER, dir_fd=above.descriptor)

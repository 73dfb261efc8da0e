"""What installed packages bring: agents, tools and skills, by entry points."""

import sys
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any


def entry_points_of(group: str) -> EntryPoints:
    """Return the entry points of a group. The packages are looked through once per process."""
    found: EntryPoints = _all_entry_points(tuple(sys.path)).select(group=group)
    return found


@cache
def _all_entry_points(path: tuple[str, ...]) -> Any:
    """Return the entry points of all packages in the folders of `sys.path`.

    They are `EntryPoints`, from Python 3.12 on; in 3.11 a class that is gone since, with `select`.
    """
    return entry_points()

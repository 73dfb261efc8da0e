"""What installed packages bring: agents, tools and skills, by entry points."""

import sys
from functools import cache
from importlib.metadata import EntryPoints, entry_points


def entry_points_of(group: str) -> EntryPoints:
    """Return the entry points of a group. The packages are looked through once per process."""
    return _all_entry_points(tuple(sys.path)).select(group=group)


@cache
def _all_entry_points(path: tuple[str, ...]) -> EntryPoints:
    """Return the entry points of all packages in these folders, which are `sys.path`."""
    return entry_points()

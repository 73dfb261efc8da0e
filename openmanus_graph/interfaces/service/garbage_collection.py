"""Tunes Python's garbage collector in our own processes: the command line and the servers.

A library leaves it to the app, so nothing that an app imports may call this.
"""

import gc

ALLOCATIONS = 50_000
"""Allocations between two collections. Python's default is 700 (2,000 since 3.13), with which it
would scan loaded modules, which stay in memory, hundreds of times."""


def relax_garbage_collection() -> None:
    """Collect garbage less often, and exclude the objects that exist now.

    Called when a process starts, and by a server again when its modules are loaded: a scan of all
    modules takes a tenth of a second, in which no request is served.
    """
    gc.set_threshold(ALLOCATIONS)
    gc.freeze()

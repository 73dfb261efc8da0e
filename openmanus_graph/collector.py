"""Keeping Python's garbage collector from holding the event loop while agents run.

The collector looks through every object of the process now and then, and the modules of an agent
alone make that a tenth of a second. So what there was when a run began is out of its sight until
the last run ends; what runs make is looked at as always. The program around loses nothing: what
became garbage in the meantime is found afterwards.
"""

import gc
import threading
from collections.abc import Hashable

_lock = threading.Lock()
_runs: set[Hashable] = set()
_set_aside = False


def set_aside(run: Hashable) -> None:
    """Take the objects that there are out of the collector's sight until this run is over.

    Does nothing in a process that has frozen its objects itself: they would be thawed at the end.
    """
    global _set_aside
    if run in _runs:
        return
    with _lock:
        if not _runs and not gc.get_freeze_count():
            gc.freeze()
            _set_aside = True
        _runs.add(run)


def take_back(run: Hashable) -> None:
    """Let the collector see all objects again, if this was the last run."""
    global _set_aside
    with _lock:
        _runs.discard(run)
        if _set_aside and not _runs:
            gc.unfreeze()
            _set_aside = False

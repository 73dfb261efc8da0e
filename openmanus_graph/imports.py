"""Loading big libraries a tenth faster."""

import contextlib
import gc
import threading
from collections.abc import Generator

OBJECTS = 20_000
"""That may be made before the collector looks for garbage; Python's own figure is 700."""

_lock = threading.Lock()
_usual: list[tuple[int, int, int]] = []
"""The thresholds to go back to, once for each import that is going on."""


@contextlib.contextmanager
def large_import() -> Generator[None]:
    """Have the collector look less often: modules are made of objects that stay."""
    with _lock:
        _usual.append(_usual[0] if _usual else gc.get_threshold())
        calm(_usual[0])
    try:
        yield
    finally:
        with _lock:
            usual = _usual.pop()
            if not _usual:
                gc.set_threshold(*usual)


def calm(usual: tuple[int, int, int]) -> None:
    """Raise the collector's first threshold, unless it is switched off."""
    if usual[0]:
        gc.set_threshold(max(usual[0], OBJECTS), *usual[1:])

"""Put on `PYTHONPATH`, it sets a process's clock an hour ahead at each SIGUSR1."""

import signal
import time
from typing import Any

_time, _hours = time.time, list[int]()
clock: Any = time
clock.time = lambda: _time() + 3600 * len(_hours)


def _go_on(number: int, frame: object) -> None:
    _hours.append(1)


signal.signal(signal.SIGUSR1, _go_on)

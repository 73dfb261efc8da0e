"""A run's signals, at moments that no other process can choose."""

import asyncio
import signal
import threading
from pathlib import Path

from openmanus_graph.interfaces.service.signals import Signals
from tests.support.cli import until
from tests.support.limits import BACKSTOP_S


class Run:
    """A run that notes when it is asked to end."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def request_drain(self, reason: str) -> None:
        self.asked.set()


def say(**event: object) -> None:
    """Take an event."""


async def test_a_signal_that_interrupts_nothing_wakes_the_loop() -> None:
    run, waits, main = Run(), threading.Event(), threading.get_native_id()

    def sleeps() -> bool:
        stat = Path(f"/proc/self/task/{main}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "S"

    def take() -> None:
        assert waits.wait(BACKSTOP_S)
        until(sleeps)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    taking = threading.Thread(target=take)
    taking.start()
    with Signals(run, say).handled():
        asyncio.get_running_loop().call_soon(waits.set)
        await asyncio.wait_for(run.asked.wait(), BACKSTOP_S)
    taking.join()

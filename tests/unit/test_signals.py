"""A run's signals, at moments that no other process can choose."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from openmanus_graph.interfaces.service.own_process import Signals
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


BUSY = """
import asyncio, os, signal, threading
from openmanus_graph.interfaces.service import own_process

own_process.TERM_GRACE_S = own_process.CUT_OFF_S = own_process.CLOSING_S = 0.1

class Run:
    def request_drain(self, reason):
        DRAIN

async def main():
    never = threading.Event().wait
    handling = own_process.Signals(Run(), lambda **event: None, ends_process=True)
    with handling.handled():
        call = asyncio.create_task(asyncio.to_thread(never))
        await asyncio.sleep(0)
        BODY

asyncio.run(main())
"""
CUT_OFF = """os.kill(os.getpid(), signal.SIGTERM)
        while not call.done():
            try:
                await asyncio.shield(call)
            except asyncio.CancelledError:
                pass
"""


SECOND = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    ("drain", "body", "code"),
    [
        (SECOND, CUT_OFF, 128 + signal.SIGTERM),
        ("pass", CUT_OFF, 128 + signal.SIGTERM),
        ("pass", "handling.exit_code = 3", 3),
    ],
    ids=["two signals", "one signal", "after the run"],
)
def test_a_thread_that_never_ends_does_not_keep_the_process(
    drain: str, body: str, code: int
) -> None:
    program = [sys.executable, "-c", BUSY.replace("DRAIN", drain).replace("BODY", body)]
    done = subprocess.run(program, capture_output=True, timeout=BACKSTOP_S, check=False)
    assert (done.returncode, done.stderr) == (code, b"")


async def test_a_run_that_does_not_end_its_process_leaves_nothing_that_would() -> None:
    before = signal.getsignal(signal.SIGTERM), threading.active_count()
    handling = Signals(Run(), say)
    with handling.handled():
        handling.over, handling.exit_code = True, 3
    assert (signal.getsignal(signal.SIGTERM), threading.active_count()) == before

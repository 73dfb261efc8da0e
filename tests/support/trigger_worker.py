"""A worker of triggers as a process of its own, which kills itself at a named point.

`KILL_AT` names the point, `KILL_TOKEN` is a file: whoever removes it dies, so that each kill
happens once. `CLOCK` is a file with the time that the worker sees.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openmanus_graph.backends.persistence.deliveries import Deliveries
from openmanus_graph.interfaces.service import runner
from openmanus_graph.interfaces.triggers import processing, worker
from openmanus_graph.interfaces.triggers.channels import WebhookChannel
from openmanus_graph.interfaces.triggers.mail_channel import MailChannel
from openmanus_graph.interfaces.triggers.slack import SlackChannel
from openmanus_graph.interfaces.triggers.telegram import TelegramChannel

POINTS = ("stored", "begun", "ended", "done", "sending", "sent")
"""Between receive and start, start and act, act and answer, answer and deliver, and around the
sending. `act` itself is killed by the tool, and the sending in its midst by the receiver."""


def die_at(point: str) -> None:
    """End the process as `kill -9` does, if this is the point and it has not happened yet."""
    token = Path(os.environ.get("KILL_TOKEN", "/nowhere"))
    if os.environ.get("KILL_AT") == point:
        try:
            token.unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def _dying(point: str, function: Any) -> Callable[..., Any]:
    def call(*args: Any, **given: Any) -> Any:
        found = function(*args, **given)
        die_at(point)
        return found

    return call


def install() -> None:
    """Put the points into the functions between which the process may die."""
    patched: Any = Deliveries
    advance, change = patched.advance, patched.change

    def advanced(self: Any, trigger: str, before: str, after: Any, events: Any, now: float) -> None:
        advance(self, trigger, before, after, events, now)
        if events:
            die_at("stored")

    def changed(self: Any, one: Any, **columns: Any) -> None:
        change(self, one, **columns)
        if columns.get("state") == "done":
            die_at("done")
        if columns.get("sending"):
            die_at("sending")

    patched.advance, patched.change = advanced, changed
    patched.begin = _dying("begun", patched.begin)
    patched.receive = _dying("stored", patched.receive)
    run_graph: Any = runner.run_graph

    async def ran(*args: Any, **given: Any) -> int:
        code = await run_graph(*args, **given)
        die_at("ended")
        return int(code)

    runner.run_graph = ran
    kinds: list[Any] = [WebhookChannel, TelegramChannel, SlackChannel, MailChannel]
    for kind in kinds:
        kind.deliver = _sent(kind.deliver)


def _sent(deliver: Any) -> Callable[..., Any]:
    async def delivered(*args: Any) -> None:
        await deliver(*args)
        die_at("sent")

    return delivered


def _time_in(clock: Path) -> float:
    """Return the time that was set in a file, and what has passed since."""
    return float(clock.read_text()) + time.time() - clock.stat().st_mtime


def main() -> None:
    """Work until killed."""
    install()
    worker.FOLDER_LOOK_S = worker.LOOK_S = processing.BUSY_S = 0.05
    clock = os.environ.get("CLOCK")
    works = worker.Worker(first_backoff_s=0.05)
    if clock:
        works.clock = lambda: _time_in(Path(clock))
    asyncio.run(works.serve())

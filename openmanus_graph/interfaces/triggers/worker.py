"""Works on deliveries: looks for events, runs each once, and sends its answer once.

Any number of workers can share a database. What a killed process leaves is continued: the run by
its checkpoints and the ledger, and the answer by what was recorded of sending it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from openmanus_graph.backends.persistence.backend import read_object
from openmanus_graph.backends.persistence.deliveries import (
    Deliveries,
    Delivery,
    Event,
    open_deliveries,
    thread_of,
)
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import server_settings
from openmanus_graph.config.triggers import Automation, read_automation
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.threads import holding_thread
from openmanus_graph.interfaces.triggers import conversations, mail, sources
from openmanus_graph.interfaces.triggers.channels import NotSentError, UncertainError
from openmanus_graph.interfaces.triggers.processing import BUSY_S, WAITS, Processing, Workplace
from openmanus_graph.state.triggers import Trigger

POLLED = ("mail", "channel")
"""Kinds whose looks wait for a server."""
LOOK_S, FOLDER_LOOK_S, READ_CONFIGURATION_S = 1.0, 2.0, 10.0
DEFAULT_JOBS = 4
Poll = Callable[..., Awaitable[Any]]
EventsOf = Callable[..., Iterable[Event]]
T = TypeVar("T", int, str)
log = logging.getLogger(__name__)


@dataclass
class Worker(Workplace):
    """Looks for events, and begins what may begin."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an event was received: the next look is at once."""
    _active: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, "asyncio.Task[None]"])
    _polling: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])
    """Looks that wait for servers, by trigger, so that a slow one delays no other."""
    _next_look: dict[str, float] = field(default_factory=dict[str, float])
    _files: dict[str, sources.Versions] = field(default_factory=dict[str, sources.Versions])
    _problems: dict[str, str] = field(default_factory=dict[str, str])
    _jobs: int = DEFAULT_JOBS

    async def serve(self) -> None:
        """Work until cancelled. Any worker can continue the runs that work then."""
        try:
            while True:
                await self.look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self.wake.wait()
                self.wake.clear()
        finally:
            tasks = [*self._active.values(), *self._polling.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self) -> None:
        """Store what has happened, and begin what may begin."""
        try:
            if self._is_due("configuration", READ_CONFIGURATION_S):
                self.automation = await asyncio.to_thread(read_automation)
                self._jobs = (await asyncio.to_thread(server_settings)).jobs or DEFAULT_JOBS
                self._report("configuration", " ".join(self.automation.problems.values()))
            if self.automation.triggers:
                await self._look_at_all()
            self._report("looking", "")
        except (StorageError, OSError, ConfigError) as error:  # nothing is lost meanwhile
            self._report("looking", str(error))
        except Exception:  # a fault of ours, with one event, must not stop the others
            log.exception("a look at the triggers failed")

    async def _look_at_all(self) -> None:
        table = await asyncio.to_thread(open_deliveries)
        paused = await asyncio.to_thread(table.paused)
        for name, trigger in self.automation.triggers.items():
            if trigger.kind not in POLLED:
                await self._look_once(trigger, table, name in paused)
            elif name not in {*paused, *self._polling} and self._is_due(name, LOOK_S):
                self._start(self._polling, name, self._look_once(trigger, table, False))
            if name not in paused and len(self._active) < self._jobs:
                now = self.clock()
                due = await asyncio.to_thread(table.due, name, trigger.overlap, now, self._jobs)
                for one in due:
                    if one.number not in self._active and len(self._active) < self._jobs:
                        self._start(self._active, one.number, self._process(one, trigger))

    async def _look_once(self, trigger: Trigger, table: Deliveries, is_paused: bool) -> None:
        problem = ""
        try:
            if trigger.kind in POLLED:
                await self._poll(trigger, table)
            else:
                await asyncio.to_thread(self._look_at, trigger, table, is_paused)
        except RunError:
            pass  # another worker polls
        except (ConfigError, StorageError, OSError, NotSentError, UncertainError) as error:
            problem = str(error)
        except Exception:  # a fault of ours, with one event, must not stop the others
            log.exception("a look at %s failed", trigger.name)
            problem = f"A look at {trigger.name} failed."
        self._report(trigger.name, problem)
        if problem and trigger.kind in POLLED:
            await asyncio.sleep(self.first_backoff_s)

    async def _poll(self, trigger: Trigger, table: Deliveries) -> None:
        """Store what came to a mailbox or channel since the last look, as one worker of all."""
        poll, events_of = self._source(trigger, table)
        if poll is None:
            return
        home = await asyncio.to_thread(openmanus_home)
        async with holding_thread(home, thread_of(trigger.name, "poll")):
            mark = await asyncio.to_thread(table.mark, trigger.name)
            known = read_object(mark)
            found, after = await poll(known)
            if known is not None and after.items() <= known.items():
                return  # nothing came
            events, now = await asyncio.to_thread(lambda: [*events_of(found)]), self.clock()
            await asyncio.to_thread(table.advance, trigger.name, mark, after, events, now)

    def _source(self, trigger: Trigger, table: Deliveries) -> tuple[Poll | None, EventsOf]:
        """Return what asks a mailbox or channel (None: it need not), and makes events of that."""
        if trigger.kind == "mail":
            return partial(mail.poll, trigger), partial(mail.events_of, trigger)
        channel = conversations.open_channel(self.automation.channels[trigger.deliver_to])
        events_of = partial(conversations.events_of, channel, trigger.name, table=table)
        return channel.poll if channel.polls else None, events_of

    def _look_at(self, trigger: Trigger, table: Deliveries, is_paused: bool) -> None:
        """Store the events of a trigger. Blocks. ConfigError: it cannot work."""
        now, name = self.clock(), trigger.name
        if trigger.kind == "schedule":
            sources.look_at_schedule(trigger, table, now, paused=is_paused)
        elif trigger.kind == "folder" and not is_paused and self._is_due(name, FOLDER_LOOK_S):
            before = self._files.get(name, {})
            self._files[name] = sources.look_at_folder(trigger, table, now, before)

    def _start(
        self, tasks: dict[T, asyncio.Task[None]], key: T, work: Coroutine[Any, Any, None]
    ) -> None:
        """Do work that ends by itself. The next look is at once then."""

        def ended(_: object) -> None:
            del tasks[key]
            self.wake.set()

        task = tasks[key] = asyncio.create_task(work)
        task.add_done_callback(ended)

    async def _process(self, one: Delivery, trigger: Trigger) -> None:
        try:
            await Processing(self, trigger, one).go()
            return
        except (StorageError, OSError) as error:
            self._report("looking", str(error))
        except Exception:  # a fault of ours must not stop the others
            log.exception("delivery %d failed", one.number)
        await asyncio.sleep(self.first_backoff_s)

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._next_look.get(what, 0):
            return False
        self._next_look[what] = now + every_s
        return True

    def _report(self, what: str, problem: str) -> None:
        """Log a problem when it is new."""
        if problem and self._problems.get(what) != problem:
            log.warning("Triggers: %s", problem)
        self._problems[what] = problem


async def run_now(one: Delivery, trigger: Trigger, automation: Automation) -> Delivery:
    """Work on a delivery until it has ended, or waits for a person; return it."""
    worker, trigger = Worker(automation=automation), replace(trigger, overlap="parallel")
    while one.state in ("claimed", "running", "done"):
        one = await Processing(worker, trigger, one).go()
        if one.reason.startswith(WAITS):
            break
        await asyncio.sleep(BUSY_S if one.reason else 0)
    return one

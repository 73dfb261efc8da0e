"""Works on deliveries: looks for events, runs each once, and sends its answer once.

Any number of workers can share a database. Who works on a delivery holds the lock of its thread,
and decides while holding it. What a killed process leaves is continued: the run where it was, by
its checkpoints and the ledger, and the answer by what was recorded of sending it.
"""

import asyncio
import contextlib
import datetime
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from openmanus_graph.backends.persistence.accounts import MACHINE, User
from openmanus_graph.backends.persistence.backend import write_json
from openmanus_graph.backends.persistence.deliveries import Deliveries, Delivery, open_deliveries
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import server_settings
from openmanus_graph.config.triggers import Automation, read_automation
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.service import run_setup, run_view, runner, runs
from openmanus_graph.interfaces.service.accounts import accounts, acting_as
from openmanus_graph.interfaces.service.own_process import ReportedError, RunError
from openmanus_graph.interfaces.service.threads import find_thread, holding_thread, is_running
from openmanus_graph.interfaces.triggers import channels, sources, tasks
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.state.triggers import Trigger

LOOK_S, FOLDER_LOOK_S, READ_CONFIGURATION_S = 1.0, 2.0, 10.0
DEFAULT_JOBS = 4
BUSY_S = 1.0
"""After which a delivery is looked at again that may not run now."""
ANSWERED_S = 3.0
"""Between two looks whether a waiting run was answered."""
FIRST_BACKOFF_S, MAX_BACKOFF_S = 5.0, 3600.0
_WAITS = "It waits for an answer since"
"""Begins the reason of a delivery whose run waits."""
CUT_OFF = "Sending the answer was cut off, and nobody knows whether it arrived."
_ENDED = ("finished", "stopped")
log = logging.getLogger(__name__)
Watch = Callable[[str], AbstractAsyncContextManager[runs.Show]]
"""Returns what shows the events of a thread's run."""


@dataclass
class Worker:
    watch: Watch = lambda thread: contextlib.nullcontext(lambda event: None)
    clock: Callable[[], float] = time.time
    first_backoff_s: float = FIRST_BACKOFF_S
    automation: Automation = field(default_factory=lambda: Automation({}, {}, {}))
    stops: dict[str, runner.Stop] = field(default_factory=dict[str, runner.Stop])
    """What ends the runs that work now, by thread."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an event was received: the next look is at once."""
    _active: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, "asyncio.Task[None]"])
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
            tasks = list(self._active.values())
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
            problem = ""
            try:
                await asyncio.to_thread(self._look_at, trigger, table, name in paused)
            except ConfigError as error:
                problem = str(error)
            self._report(name, problem)
            if name not in paused and len(self._active) < self._jobs:
                now = self.clock()
                due = await asyncio.to_thread(table.due, name, trigger.overlap, now, self._jobs)
                for one in due:
                    self._begin(one, trigger)

    def _look_at(self, trigger: Trigger, table: Deliveries, is_paused: bool) -> None:
        """Store the events of a trigger. Blocks. ConfigError: it cannot work."""
        now, name = self.clock(), trigger.name
        if trigger.kind == "schedule":
            sources.look_at_schedule(trigger, table, now, paused=is_paused)
        elif trigger.kind == "folder" and not is_paused and self._is_due(name, FOLDER_LOOK_S):
            before = self._files.get(name, {})
            self._files[name] = sources.look_at_folder(trigger, table, now, before)
        elif trigger.kind == "mail" and not is_paused and self._is_due(name, trigger.poll_s):
            from openmanus_graph.interfaces.triggers import mail  # needs an extra

            mail.look(trigger, table, now)

    def _begin(self, one: Delivery, trigger: Trigger) -> None:
        if one.number not in self._active and len(self._active) < self._jobs:
            task = asyncio.create_task(self._process(one, trigger))
            self._active[one.number] = task
            task.add_done_callback(lambda _: self._forget(one.number))

    def _forget(self, number: int) -> None:
        del self._active[number]
        self.wake.set()

    async def _process(self, one: Delivery, trigger: Trigger) -> None:
        try:
            await Processing(self, trigger, one).go()
        except (StorageError, OSError) as error:
            self._report("looking", str(error))
        except Exception:  # a fault of ours must not stop the others
            log.exception("delivery %d failed", one.number)

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


@dataclass
class Processing:
    """Brings one delivery as far as it gets now."""

    worker: Worker
    trigger: Trigger
    one: Delivery

    async def go(self) -> Delivery:
        """Bring the delivery as far as it gets now, and return it."""
        known = self.worker.automation.channels.get(self.trigger.deliver_to)
        self.channel = channels.WebhookChannel(known.name, known) if known else None
        opened = await asyncio.to_thread(lambda: (open_deliveries(), openmanus_home()))
        self.table, self.home = opened
        try:
            if self.one.state in ("claimed", "running"):
                if await asyncio.to_thread(is_running, self.home, self.one.thread):
                    raise RunError("A run works on it.")
                await self._run()
                await self._read_again()
            if self.one.state == "done":
                async with holding_thread(self.home, self.one.thread):
                    await self._read_again()
                    if self.one.state == "done":
                        await self._deliver()
        except RunError as why:  # another worker, or a person, has the thread
            await self._change(next_try=self.worker.clock() + BUSY_S, reason=str(why))
        await self._read_again()
        return self.one

    async def _run(self) -> None:
        thread = self.one.thread
        known = await asyncio.to_thread(find_thread, thread)
        if known is not None and known.status == "waiting":
            await self._ask(known)
        elif known is not None and known.status in _ENDED:  # by whoever continued it
            state = (await run_setup.read_thread_state(thread, known.agent)).state
            await self._end_run(run_view.final_event(state, cancelled=False))
        elif known is not None and known.status == "cancelled" and self.one.asked:
            await self._end_run({"status": "cancelled"})
        else:
            try:
                await self._end_run(await self._attempt(begins=known is None))
            except tasks.EventError as error:
                await self._change(state="dead", reason=str(error))

    async def _end_run(self, final: Mapping[str, Any]) -> None:
        """Record how a run ended."""
        if final["status"] == "waiting":  # the next look sends the question
            await self._change(next_try=0)
        elif final["status"] in _ENDED:
            kept = {name: final[name] for name in ("status", "stop_reason", "answer", "artifacts")}
            result = write_json(kept)
            await self._change(state="done", attempts=0, next_try=0, reason="", result=result)
        elif final["status"] == "cancelled":
            await self._change(state="dead", reason="A person stopped its run.")
        else:
            await self._again(str(final["answer"]))

    async def _again(self, reason: str) -> None:
        """Note that an attempt surely failed, and try again later, or give the delivery up."""
        tried = self.one.attempts + 1
        if tried >= self.trigger.max_attempts:
            await self._change(state="dead", reason=reason, sending=0)
            return
        again = self._next_try()
        await self._change(attempts=tried, next_try=again, reason=reason, sending=0)

    async def _attempt(self, *, begins: bool) -> runs.Final:
        """Start or continue the run; return how it ended.

        RunError: it may not run now, or somebody else works on its thread.
        """
        user = User(self.trigger.user, "user") if self.trigger.user else MACHINE
        stop = self.worker.stops[self.one.thread] = runner.Stop()
        try:
            with acting_as(user):
                run = await asyncio.to_thread(self._planned, begins=begins)
                async with self.worker.watch(self.one.thread) as show:
                    sink = runs.RemoteSink(show)
                    await runner.run_graph(run, sink, runs.NoInput(), stop)
                    return sink.outcome() or run_view.final_without_state(run_view.NO_RESULT)
        except ReportedError as error:
            return run_view.final_without_state(str(error))
        except (RunError, StorageError, tasks.EventError):
            raise
        except Exception as error:  # the history of the trigger shows it
            log.exception("the run of %s failed", self.one.full_key)
            return run_view.final_without_state(f"{type(error).__name__}: {error}")
        finally:
            del self.worker.stops[self.one.thread]

    def _planned(self, *, begins: bool) -> runner.Run:
        """Return the run that starts or continues the delivery. Blocks. EventError: none can."""
        one, trigger = self.one, self.trigger
        options = tasks.options_of(trigger, self._left_today())
        if begins:
            message = tasks.task_of(trigger, one.event)
            if not accounts().claim(one.thread, trigger.user):
                raise ConfigError(f"The thread {one.thread} belongs to another user.")

            def first_input() -> dict[str, Any]:
                whole = replace(message, files=_files_of(trigger, one.event))
                workspace = runs.resolve_workspace(options, one.thread)
                brought = runs.bring_files(whole, workspace)
                return run_setup.user_message(*brought, whole.origin())

            run = run_setup.make_run(one.thread, trigger.agent, trigger.task, options, first_input)
        else:
            run = run_setup.resuming_run(one.thread, run_setup.ResumeAnswer(), options)

        def make_input() -> Any:  # called with the thread locked: nobody else decides now
            if begins and find_thread(one.thread) is not None:
                raise RunError("Another worker has begun it.")
            if not self.table.begin(one, trigger.overlap):
                raise RunError("An earlier delivery of the trigger is not finished.")
            return run.make_input()

        return replace(run, make_input=make_input, trigger=f"trigger/{trigger.name}")

    def _left_today(self) -> float | None:
        """Return what the trigger's runs may still cost today. Blocks. RunError: nothing."""
        if (most := self.trigger.max_usd_per_day) is None:
            return None
        now = datetime.datetime.fromtimestamp(self.worker.clock(), datetime.UTC)
        left = most - self.table.spent(self.trigger.name, now.date().isoformat())
        if left <= 0:
            raise RunError(f"The trigger has used its ${most:g} of today (UTC).")
        return left

    async def _ask(self, thread: Thread) -> None:
        """Send the open questions of a waiting run to the channel, each at most once.

        They are in the inbox in any case.
        """
        since = f"{_WAITS} {thread.updated} (UTC)."
        if self.one.reason != since:
            state = (await run_setup.read_thread_state(thread.id, thread.agent)).state
            async with holding_thread(self.home, thread.id):  # one worker sends them
                await self._read_again()
                questions = [interrupt_event(each) for each in state.interrupts]
                new = [each for each in questions if each["id"] not in self.one.asked]
                asked = [*self.one.asked, *(each["id"] for each in new)]
                await self._change(asked=" ".join(asked))
            for question in new:
                await self._send_question(question)
        await self._change(next_try=self.worker.clock() + ANSWERED_S, reason=since)

    async def _send_question(self, question: Mapping[str, Any]) -> None:
        if self.channel is None:
            return
        command = f"openmanus resume {self.one.thread} --id {question['id']}"
        answers = [f"{command} --approve", f"{command} --reject"]
        details = self._details("waiting", question=question["id"], answer_with=answers)
        key = f"{self.one.full_key}/{question['id']}"
        try:
            await self.channel.deliver(
                channels.Outgoing(key, runs.question_text(question), (), details)
            )
        except Exception:  # of any library
            log.exception("the question %s was not sent", key)

    async def _deliver(self) -> None:
        """Send the answer, once. The caller holds the thread."""
        text = str(self.one.result.get("answer", ""))
        is_silent = self.trigger.silent_if and text.strip() == self.trigger.silent_if
        if is_silent or not self.trigger.deliver_to:
            await self._change(state="delivered", reason="")
        elif self.channel is None:
            raise RunError(f"The channel {self.trigger.deliver_to} cannot be used.")
        elif not self.one.sending or await self._was_lost(self.channel):
            await self._send(self.channel, text)

    async def _was_lost(self, channel: channels.Channel) -> bool:
        """Return True if the answer, whose sending was cut off, surely did not arrive."""
        try:
            received = await channel.reconcile(self.one.full_key)
        except Exception:  # of any library
            log.exception("the channel %s cannot be asked now", channel.name)
            await self._change(next_try=self._next_try(), reason=CUT_OFF)
            return False
        if received is None:
            await self._change(state="unknown_outcome", reason=CUT_OFF)
        elif received:
            await self._change(state="delivered", reason="")
        return received is False

    async def _send(self, channel: channels.Channel, text: str) -> None:
        await self._change(sending=1)
        result = self.one.result
        files = [str(file["path"]) for file in result.get("artifacts", ())]
        details = self._details(str(result.get("status")))
        try:
            await channel.deliver(channels.Outgoing(self.one.full_key, text, files, details))
        except channels.NotSentError as error:
            await self._again(str(error))
        except Exception:  # a timeout, a broken connection: it may have arrived
            log.exception("sending %s was cut off", self.one.full_key)
            await self._change(reason=CUT_OFF)
        else:
            await self._change(state="delivered", reason="")

    def _details(self, status: str, **more: Any) -> Mapping[str, Any]:
        """Return what a message says of the run to programs."""
        return {"trigger": self.trigger.name, "thread": self.one.thread, "status": status, **more}

    async def _change(self, **columns: Any) -> None:
        await asyncio.to_thread(self.table.change, self.one, **columns)

    def _next_try(self) -> float:
        seconds = self.worker.first_backoff_s * 4.0**self.one.attempts
        return self.worker.clock() + min(seconds, MAX_BACKOFF_S)

    async def _read_again(self) -> None:
        self.one = await asyncio.to_thread(self.table.find, self.one.number)


async def run_now(one: Delivery, trigger: Trigger, automation: Automation) -> Delivery:
    """Work on a delivery until it has ended, or waits for a person; return it."""
    worker, trigger = Worker(automation=automation), replace(trigger, overlap="parallel")
    while one.state in ("claimed", "running", "done"):
        one = await Processing(worker, trigger, one).go()
        if one.reason.startswith(_WAITS):
            break
        await asyncio.sleep(BUSY_S if one.reason else 0)
    return one


def _files_of(trigger: Trigger, event: Mapping[str, Any]) -> tuple[runs.Upload, ...]:
    """Return the files that an event is about. Blocks. EventError: one is gone."""
    if trigger.kind == "folder":
        return (sources.file_of(trigger, event),)
    if trigger.kind != "mail" or "_uid" not in event:
        return ()
    from openmanus_graph.interfaces.triggers import mail  # needs an extra

    whole = mail.file_of(trigger, event)
    return () if whole is None else (whole,)

"""Brings deliveries as far as they get: the run, its questions, and its answer, each once.

Who works on a delivery holds the lock of its thread, and decides while holding it.
"""

import asyncio
import contextlib
import datetime
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from openmanus_graph.backends.persistence.accounts import MACHINE, User
from openmanus_graph.backends.persistence.backend import write_json
from openmanus_graph.backends.persistence.deliveries import Delivery, open_deliveries
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.triggers import Automation
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.service import run_setup, run_view, runner, runs
from openmanus_graph.interfaces.service.accounts import accounts, acting_as
from openmanus_graph.interfaces.service.own_process import ReportedError, RunError
from openmanus_graph.interfaces.service.threads import find_thread, holding_thread, is_running
from openmanus_graph.interfaces.triggers import channels, conversations, mail, sources, tasks
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.state.triggers import Trigger

BUSY_S = 1.0
"""After which a delivery is looked at again that may not run now."""
ANSWERED_S = 3.0
"""Between two looks whether a waiting run was answered."""
TYPING_S = 4.0
"""Between two signs that the agent works: Telegram shows one for 5 seconds."""
FIRST_BACKOFF_S, MAX_BACKOFF_S = 5.0, 3600.0
WAITS = "It waits for an answer since"
"""Begins the reason of a delivery whose run waits."""
CUT_OFF = "Sending the answer was cut off, and nobody knows whether it arrived."
_ENDED = ("finished", "stopped")
log = logging.getLogger(__name__)
Watch = Callable[[str], AbstractAsyncContextManager[runs.Show]]
"""Returns what shows the events of a thread's run."""


@dataclass
class Workplace:
    """What deliveries are processed with."""

    watch: Watch = lambda thread: contextlib.nullcontext(lambda event: None)
    clock: Callable[[], float] = time.time
    first_backoff_s: float = FIRST_BACKOFF_S
    automation: Automation = field(default_factory=lambda: Automation({}, {}, {}))
    stops: dict[str, runner.Stop] = field(default_factory=dict[str, runner.Stop])
    """What ends the runs that work now, by thread."""


@dataclass
class Processing:
    """Brings one delivery as far as it gets now."""

    worker: Workplace
    trigger: Trigger
    one: Delivery

    async def go(self) -> Delivery:
        """Bring the delivery as far as it gets now, and return it."""
        known = self.worker.automation.channels.get(self.trigger.deliver_to)
        self.channel = conversations.open_channel(known) if known else None
        opened = await asyncio.to_thread(lambda: (open_deliveries(), openmanus_home()))
        self.table, self.home = opened
        try:
            if "_question" in self.one.event and self.one.state == "claimed":
                await self._give_answer()
            elif self.one.state in ("claimed", "running"):
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
        if known is not None and not await self._has_begun(known):
            if known.status == "waiting":
                later = self.worker.clock() + ANSWERED_S
                await self._change(next_try=later, reason="The conversation asks a question.")
                return
            known = None  # another turn on its thread
        if known is not None and known.status == "waiting":
            await self._ask(known)
        elif known is not None and known.status in _ENDED:  # by whoever continued it
            state = (await run_setup.read_thread_state(thread, known.agent)).state
            await self._end_run(run_view.final_event(state, cancelled=False))
        elif known is not None and known.status == "cancelled" and self.one.asked:
            await self._end_run({"status": "cancelled"})
        else:
            try:
                plan = partial(self._planned, begins=known is None)
                await self._end_run(await self._attempt(thread, plan))
            except tasks.EventError as error:
                await self._change(state="dead", reason=str(error))

    async def _has_begun(self, known: Thread) -> bool:
        """Return whether the delivery's message is in the thread, where a chat has others too."""
        turn = conversations.turn_id(self.one)
        if self.trigger.kind != "channel" or await asyncio.to_thread(self._is_newest):
            return True
        state = (await run_setup.read_thread_state(known.id, known.agent)).state
        return turn in {message.id for message in state.values.get("messages", ())}

    def _is_newest(self) -> bool:
        newest = Threads(self.table.database).newest_message(self.one.thread)
        return newest is not None and newest.id == conversations.turn_id(self.one)

    async def _give_answer(self) -> None:
        """Resume a conversation with a message that answers its question, once.

        Another delivery has the run, and sends its end.
        """
        event, question = self.one.event, str(self.one.event["_question"])
        thread = str(event["_thread"])
        kind = await self._kind_of(thread, question)
        if kind is None and not self.one.sending and not event["_button"]:  # answered meanwhile
            plain = {name: event[name] for name in ("from", "text", "_where", "_files", "_proven")}
            await self._change(thread=event["_own"], event=write_json(plain))
            return
        if not await asyncio.to_thread(self._may_answer, question):
            await self._change(state="dead", event="{}", reason="It is another chat's question.")
            return
        if kind is not None and self.channel is not None:
            answer = conversations.answer_text(self.channel, kind, str(event["text"]))
            if answer is None:
                await self._change(state="dead", event="{}", reason="The sender approves nothing.")
                return
            await self._change(sending=1)
            reply = run_setup.ResumeAnswer(answer=answer, interrupt=question)
            final = await self._attempt(thread, partial(self._resuming, thread, reply))
            if await self._kind_of(thread, question) is not None:  # nothing was answered
                await self._again(str(final["answer"]))
                return
        await self._change(state="delivered", event="{}", reason="")

    def _may_answer(self, question: str) -> bool:
        """Return True if a question was asked in this chat, or in the channel for a trigger.

        Blocks. A button's data can be forged by whoever may write to the channel.
        """
        asking = self.table.asking(question=question)
        if asking is None or asking.thread == self.one.event["_own"]:
            return True
        by = self.worker.automation.triggers.get(asking.trigger)
        return by is not None and by.kind != "channel" and by.deliver_to == self.trigger.deliver_to

    def _resuming(self, thread: str, reply: run_setup.ResumeAnswer) -> runner.Run:
        """Return the run that continues from an answer. Blocks."""
        run = run_setup.resuming_run(thread, reply, tasks.options_of(self.trigger, self.one.event))

        def make_input() -> Any:  # called with the thread locked
            try:
                return run.make_input()
            except ConfigError as error:  # answered meanwhile: the next look sees it
                raise RunError(str(error)) from error

        return replace(run, make_input=make_input, trigger=f"trigger/{self.trigger.name}")

    async def _kind_of(self, thread: str, question: str) -> str | None:
        """Return the kind of an open question of a thread; None if it is not open."""
        if (known := await asyncio.to_thread(find_thread, thread)) is None:
            return None
        state = (await run_setup.read_thread_state(thread, known.agent)).state
        return {one.id: str(interrupt_event(one)["kind"]) for one in state.interrupts}.get(question)

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

    async def _again(self, reason: str, after_s: float = 0) -> None:
        """Note that an attempt surely failed, and try again later, or give the delivery up."""
        tried = self.one.attempts + 1
        if tried >= self.trigger.max_attempts:
            await self._change(state="dead", reason=reason, sending=0)
            return
        again = max(self._next_try(), self.worker.clock() + after_s)
        await self._change(attempts=tried, next_try=again, reason=reason, sending=0)

    async def _attempt(self, thread: str, plan: Callable[[], runner.Run]) -> runs.Final:
        """Start or continue a thread's run; return how it ended.

        RunError: it may not run now, or somebody else works on its thread.
        """
        user = User(self.trigger.user, "user") if self.trigger.user else MACHINE
        stop = self.worker.stops[thread] = runner.Stop()
        typing = asyncio.create_task(self._show_typing())
        try:
            with acting_as(user):
                run = await asyncio.to_thread(plan)
                async with self.worker.watch(thread) as show:
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
            typing.cancel()
            self.worker.stops.pop(thread, None)

    async def _show_typing(self) -> None:
        if self.channel is None or not (to := conversations.where(self.channel, self.one)):
            return
        while True:
            try:
                await self.channel.show_typing(to)
            except (channels.NotSentError, channels.UncertainError) as error:
                log.info("The channel %s shows no typing: %s", self.channel.name, error)
                return
            await asyncio.sleep(TYPING_S)

    def _planned(self, *, begins: bool) -> runner.Run:
        """Return the run that starts or continues the delivery. Blocks. EventError: none can."""
        one, trigger = self.one, self.trigger
        options = tasks.options_of(trigger, one.event, self._left_today())
        if begins:
            if not accounts().claim(one.thread, trigger.user):
                raise ConfigError(f"The thread {one.thread} belongs to another user.")

            options = runs.thread_options(options, one.thread)
            message = tasks.task_of(trigger, one.event)  # EventError before anything begins
            task = str(one.event["text"]) if trigger.kind == "channel" else trigger.task

            def first_input() -> dict[str, Any]:
                whole = replace(message, files=_files_of(trigger, one.event))
                if trigger.kind == "channel" and self.channel is not None:
                    whole = conversations.message_of(trigger, self.channel, one)
                workspace = runs.resolve_workspace(options, one.thread)
                brought = runs.bring_files(whole, workspace)
                given = run_setup.user_message(*brought, whole.origin())
                given["messages"][0].id = conversations.turn_id(one)
                return given

            run = run_setup.make_run(one.thread, trigger.agent, task, options, first_input)
            run = replace(run, title=tasks.title_of(trigger, one.event))
        else:
            run = run_setup.resuming_run(one.thread, run_setup.ResumeAnswer(), options)

        def make_input() -> Any:  # called with the thread locked: nobody else decides now
            is_chat = trigger.kind == "channel"
            known = self._is_newest() if is_chat else find_thread(one.thread) is not None
            if begins and known:
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
        since = f"{WAITS} {thread.updated} (UTC)."
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
        settings, is_decision = self.channel.settings, question["kind"] != "question"
        command = f"openmanus resume {self.one.thread} --id {question['id']}"
        replies = ("--approve", "--reject") if is_decision else ("--answer TEXT",)
        answers = [f"{command} {one}" for one in replies]
        details = self._details("waiting", question=question["id"], answer_with=answers)
        key = f"{self.one.full_key}/{question['id']}"
        may_answer = conversations.may_answer(settings, question["kind"])
        text, to = runs.question_text(question), conversations.where(self.channel, self.one)
        if not may_answer and settings.kind != "webhook":  # which gets the commands
            text += "\n\nThis channel may not answer it. Answer on the page or in a terminal."
        identity, decides = str(question["id"]) if may_answer else "", may_answer and is_decision
        asked = channels.Outgoing(key, text, (), details, to, identity, decides)
        try:
            await self.channel.deliver(asked)
        except channels.NotSentError as error:
            log.warning("The question %s was not sent: %s", key, error)
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
        elif self.one.sending:
            await self._reconcile(self.channel)
        else:
            await self._send(self.channel)

    async def _reconcile(self, channel: channels.BaseChannel) -> None:
        """Record whether the answer, whose sending was cut off, arrived."""
        try:
            received = await channel.reconcile(self._answer(channel))
        except Exception:  # of any library
            log.exception("the channel %s cannot be asked now", channel.name)
            await self._change(next_try=self._next_try(), reason=CUT_OFF)
            return
        if received is False:
            await self._again("Sending the answer was cut off, and it did not arrive.")
        else:
            state = "delivered" if received else "unknown_outcome"
            await self._change(state=state, reason="" if received else CUT_OFF)

    def _answer(self, channel: channels.BaseChannel) -> channels.Outgoing:
        result, one = self.one.result, self.one
        files = [str(file["path"]) for file in result.get("artifacts", ())]
        details, to = self._details(str(result.get("status"))), conversations.where(channel, one)
        options = tasks.options_of(self.trigger, one.event)
        attached = partial(conversations.read_artifacts, one, options)
        text = str(result.get("answer", ""))
        return channels.Outgoing(one.full_key, text, files, details, to, attached=attached)

    async def _send(self, channel: channels.BaseChannel) -> None:
        await self._change(sending=1)
        try:
            await channel.deliver(self._answer(channel))
        except channels.NotSentError as error:
            note = partial(self._again, str(error), error.after_s)
        except Exception:  # a timeout, a broken connection: it may have arrived
            log.exception("sending %s was cut off", self.one.full_key)
            note = partial(self._change, reason=CUT_OFF)
        else:
            note = partial(self._change, state="delivered", reason="")
        await self._until_stored(note)

    async def _until_stored(self, note: Callable[[], Awaitable[None]]) -> None:
        """Record what became of a sending. Only this process knows, so it waits for a database."""
        while True:
            try:
                return await note()
            except StorageError as error:
                log.warning("what became of %s is not recorded yet: %s", self.one.full_key, error)
                await asyncio.sleep(BUSY_S)

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


def _files_of(trigger: Trigger, event: Mapping[str, Any]) -> tuple[runs.Upload, ...]:
    """Return the files that an event is about. Blocks. EventError: one is gone."""
    if trigger.kind == "folder":
        return (sources.file_of(trigger, event),)
    whole = mail.file_of(trigger, event) if trigger.kind == "mail" and "_uid" in event else None
    return () if whole is None else (whole,)

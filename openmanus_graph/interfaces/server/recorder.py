"""Records the server's runs: the table of threads, their events, and the locks of threads.

Whoever starts a run - the page, Studio, the SDK - it is listed by `openmanus threads` afterwards,
can be resumed in the terminal, and two processes never work on one thread.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from langchain_core.messages import HumanMessage, convert_to_messages
from langgraph.types import Command

from openmanus_graph.backends.persistence.threads import Thread, describe_unused
from openmanus_graph.errors import ConfigError, StorageError, UnavailableError
from openmanus_graph.interfaces.server.admission import answered_ids
from openmanus_graph.interfaces.server.checkpoints import saver
from openmanus_graph.interfaces.server.event_stream import replay_events
from openmanus_graph.interfaces.server.store import Store, options_of, read_final_event, state_of
from openmanus_graph.interfaces.server.threads import open_questions
from openmanus_graph.interfaces.server.visits import announce_takeover
from openmanus_graph.interfaces.service.failures import RunError, describe_failure
from openmanus_graph.interfaces.service.final_event import failed_event, model_label
from openmanus_graph.interfaces.service.lock import holding_thread
from openmanus_graph.runtime.run_observer import ObservedRun
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

SHOWN_OPTIONS = ("max_steps", "max_cost_usd", "max_total_tokens", "timeout_s", "policy")
RETRY_S = 1.0
"""Between two attempts to write the end of a run after a database error."""
GIVE_UP_S = 600.0
"""How long writing the end of a run is retried."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class Recorder:
    """The `RunObserver` of the server."""

    def __init__(self, store: Store) -> None:
        self._store, self._journal = store, store.journal
        self._locks: dict[str, contextlib.AsyncExitStack] = {}
        """The threads' locks, by run."""
        self._recorded = set[str]()
        """Runs whose events the journal accepts."""

    async def on_start(self, run: ObservedRun, settings: Settings, context: Context | None) -> None:
        """Lock the thread and record the run's input. RunError if another process has the lock."""
        await self._lock_thread(run)
        message = _user_message(run.given)
        known = await asyncio.to_thread(self._store.threads.find, run.thread)
        agent = run.agent or (known.agent if known else "")
        task = message.text if message else (known.task if known else "")
        options = options_of(context, settings)
        if past := await replay_events(self._store, run.thread, message.id if message else None):
            # The thread was started in the terminal.
            await self._journal.write_past(run.thread, past)
        begin = self._store.threads.begin
        await asyncio.to_thread(begin, run.thread, agent, task, options, message)
        await self._acquire_journal(run)
        for question, answer in (await _answers(run, agent)).items():
            self._add_event(run, {"type": "answered", "id": question, "answer": answer})
        self._add_event(run, await _start_event(run, agent, task, settings))
        unused = describe_unused(run.thread, known.unused, options) if known else ""
        for warning in (*settings.warnings, *filter(None, [unused])):
            self._add_event(run, {"type": "notice", "level": "warning", "text": warning})

    def on_event(self, run: str, thread: str, plan_step: str, event: dict[str, Any]) -> None:
        """Add an event to the journal."""
        self._journal.add(thread, run, plan_step, event)

    async def on_end(self, run: ObservedRun, error: BaseException | None) -> None:
        """Record how a run ended, and release the thread.

        The lock is held until the end is written, so that no other run starts before; after
        `GIVE_UP_S` it is released all the same, and the next start of the server writes the end.
        """
        if isinstance(error, RunError):
            return  # another process has the thread
        try:
            if run.id not in self._locks:
                await self._lock_thread(run)
            async with asyncio.timeout(GIVE_UP_S):
                await self._write_end(run, error)
        except RunError as refusal:
            log.warning("%s", refusal)
        except (TimeoutError, StorageError) as failure:
            log.error("The end of the run on %s is not written: %s", run.thread, failure)
        finally:
            await self._release(run)

    async def _write_end(self, run: ObservedRun, error: BaseException | None) -> None:
        if run.id not in self._recorded:
            await _retry_until_written(run, lambda: self._record_failed_start(run))
        final = await _retry_until_written(run, lambda: self._final(run, error))
        if final["status"] == "waiting":
            questions = await _retry_until_written(
                run, lambda: open_questions(run.thread, run.agent)
            )
            for question in questions:
                self._journal.add(run.thread, run.id, question.get("plan_step", ""), question)
                if "browser" in question:
                    announce_takeover(run.thread, question["browser"])
        self._add_event(run, final)
        end = self._store.threads.end
        await _retry_until_written(run, lambda: asyncio.to_thread(end, run.thread, final["status"]))

    async def _release(self, run: ObservedRun) -> None:
        lock = self._locks.pop(run.id, None)
        try:
            if run.id in self._recorded:
                self._recorded.discard(run.id)
                await self._journal.release(run.thread)
        finally:
            if lock is not None:
                await lock.aclose()

    async def _lock_thread(self, run: ObservedRun) -> None:
        lock = contextlib.AsyncExitStack()
        await lock.enter_async_context(holding_thread(self._store.home, run.thread))
        self._locks[run.id] = lock

    async def _record_failed_start(self, run: ObservedRun) -> None:
        """Record the start of a run that failed before its settings were known."""
        message = _user_message(run.given)
        if message is not None:
            begin = self._store.threads.begin
            await asyncio.to_thread(begin, run.thread, run.agent, message.text, {}, message)
        await self._acquire_journal(run)
        start = {"type": "run_start", "agent": run.agent, "model": "", "workspace": ""}
        task = message.text if message else ""
        self._add_event(run, {**start, "task": task, "kind": "start" if message else "resume"})

    async def _final(self, run: ObservedRun, error: BaseException | None) -> dict[str, Any]:
        stopped = isinstance(error, asyncio.CancelledError | GeneratorExit)
        if isinstance(error, Exception) and not stopped:
            known = isinstance(error, ConfigError)
            sentence = str(error) if known else describe_failure(error, self._store.home)
            return failed_event(sentence, {})
        known_thread = await asyncio.to_thread(self._store.threads.find, run.thread)
        agent = known_thread.agent if known_thread else run.agent
        state = await state_of(run.thread, agent)
        if state is None:
            ended = failed_event("The run was cancelled." if stopped else "", {})
            status, reason = ("cancelled", "cancelled") if stopped else ("finished", "answer")
            return {**ended, "status": status, "stop_reason": reason}
        return await read_final_event(run.thread, agent, state, cancelled=stopped)

    async def _acquire_journal(self, run: ObservedRun) -> None:
        await self._journal.acquire(run.thread)
        self._recorded.add(run.id)

    def _add_event(self, run: ObservedRun, event: Mapping[str, Any]) -> None:
        self._journal.add(run.thread, run.id, "", dict(event))


async def _retry_until_written(run: ObservedRun, operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat an operation until the database accepts it: locks and full disks are temporary."""
    warned = False
    while True:
        try:
            return await operation()
        except UnavailableError as error:
            if not warned:
                log.warning("The end of the run on %s waits to be written: %s", run.thread, error)
            warned = True
        await asyncio.sleep(RETRY_S)


async def write_missing_ends(store: Store) -> None:
    """Write the ends of runs that an earlier server process could not write.

    A run that was interrupted stays as it is: it can be resumed.
    """
    for thread in await asyncio.to_thread(store.threads.all):
        newest_event = (
            await store.journal.newest_event(thread.id) if thread.status == "running" else None
        )
        if newest_event is None:
            continue
        with contextlib.suppress(RunError):
            async with holding_thread(store.home, thread.id):
                await _write_missing_end(store, thread, newest_event)


async def _write_missing_end(store: Store, thread: Thread, newest_event: dict[str, Any]) -> None:
    state = await state_of(thread.id, thread.agent)
    if state is None or (state.tasks and not state.interrupts):
        return
    message = await asyncio.to_thread(store.threads.newest_message, thread.id)
    if message is not None and message.id not in {one.id for one in state.values["messages"]}:
        return  # the state is the previous run's
    final = await read_final_event(thread.id, thread.agent, state, cancelled=False)
    if newest_event["type"] != "final":
        await store.journal.acquire(thread.id)
        for event in (*await open_questions(thread.id, thread.agent), final):
            place = event.get("plan_step", "")
            store.journal.add(thread.id, newest_event["run"], place, dict(event))
        await store.journal.release(thread.id)
    await asyncio.to_thread(store.threads.end, thread.id, final["status"])


def _user_message(given: Any) -> HumanMessage | None:
    """Return the user message that starts a run; a resumed run has none."""
    if not isinstance(given, dict):
        return None
    messages: Any = cast("dict[str, Any]", given).get("messages")
    if not messages:
        return None
    several = cast("list[Any]", messages if isinstance(messages, list) else [messages])
    found = convert_to_messages(several)
    return next((one for one in reversed(found) if isinstance(one, HumanMessage)), None)


async def _start_event(
    run: ObservedRun, agent: str, task: str, settings: Settings
) -> dict[str, Any]:
    """Return the `run_start` event, with the fields by which a page tells runs apart."""
    message = _user_message(run.given)
    kind = "start" if message else "resume"
    if isinstance(run.given, Command) and run.given.resume is not None:
        kind = "answer"
    if run.checkpoint:
        kind = "again"
    event: dict[str, Any] = {
        "type": "run_start",
        "task": task,
        "agent": agent,
        "model": model_label(settings),
        "workspace": str(settings.workspace),
        "options": {name: getattr(settings, name) for name in SHOWN_OPTIONS},
        "kind": kind,
    }
    if run.checkpoint:
        at = await saver().aget_tuple(
            {"configurable": {"thread_id": run.thread, "checkpoint_id": run.checkpoint}}
        )
        event["checkpoint_id"] = run.checkpoint
        event["checkpoint_at"] = at.checkpoint["ts"] if at else ""
        event["message"] = message.text if message else ""
    return event


async def _answers(run: ObservedRun, agent: str) -> dict[str, Any]:
    """Return the answers that a run is resumed with, by question id."""
    if not isinstance(run.given, Command) or run.given.resume is None:
        return {}
    answer: Any = run.given.resume
    if ids := answered_ids(answer):
        return {one: answer[one] for one in ids}
    state = await state_of(run.thread, agent)
    return {waiting.id: answer for waiting in (state.interrupts if state else ())}

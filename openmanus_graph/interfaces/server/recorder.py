"""Records the server's runs in the table of threads and the event log, and streams their events.

Every run is recorded, whether the page, Studio or the SDK starts it: `openmanus threads` lists it,
it can be resumed in the terminal, and two processes never work on one thread.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from langchain_core.messages import HumanMessage, convert_to_messages
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.types import Command

from openmanus_graph.backends.persistence.accounts import MACHINE_IDENTITY
from openmanus_graph.backends.persistence.journal import Numbered
from openmanus_graph.backends.persistence.threads import Thread, describe_unused
from openmanus_graph.backends.persistence.usage import quotas_of
from openmanus_graph.errors import ConfigError, StorageError, UnavailableError
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.server.admission import answered_ids
from openmanus_graph.interfaces.server.takeover import announce_takeover
from openmanus_graph.interfaces.service import run_view, thread_view
from openmanus_graph.interfaces.service.accounts import accounts
from openmanus_graph.interfaces.service.call_titles import with_titles
from openmanus_graph.interfaces.service.own_process import RunError, describe_failure
from openmanus_graph.interfaces.service.threads import holding_thread
from openmanus_graph.runtime.events import ObservedRun
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

SHOWN_OPTIONS = ("max_steps", "max_cost_usd", "max_total_tokens", "timeout_s", "policy")
RETRY_S = 1.0
"""Between two attempts to write the end of a run after a database error."""
GIVE_UP_S = 600.0
"""Seconds for which writing the end of a run is retried."""
PING_S = 15.0
T = TypeVar("T")
log = logging.getLogger(__name__)
router = APIRouter(prefix="/app/api/threads/{thread}")


class Recorder:
    """The `RunObserver` of the server."""

    def __init__(self, opened: store.Store) -> None:
        self._store, self._journal = opened, opened.journal
        self._locks: dict[str, contextlib.AsyncExitStack] = {}
        """The threads' locks, by run."""
        self._recorded = set[str]()
        """Runs whose events the journal accepts."""

    async def on_start(self, run: ObservedRun, settings: Settings, context: Context | None) -> None:
        """Lock the thread, record the input and wait for the run's turn.

        A run that waits can be resumed after a crash. RunError if another process has the lock.
        """
        await _require_owner(run.thread)
        await self._lock_thread(run)
        message = _user_message(run.given)
        known = await asyncio.to_thread(self._store.threads.find, run.thread)
        agent = run.agent or (known.agent if known else "")
        task = message.text if message else (known.task if known else "")
        options = store.options_of(context, settings)
        if past := await replay_events(run.thread, message.id if message else None):
            # The thread was started in the terminal.
            await self._journal.write_past(run.thread, past)
        begin, begun = self._store.threads.begin, (run.thread, agent, task, options, message)
        await asyncio.to_thread(begin, *begun, trigger=run.trigger)
        await self._acquire_journal(run)
        database = self._store.threads.database
        owner, quotas = await asyncio.to_thread(quotas_of, database, run.thread)
        turn = self._store.turns.turn(owner, quotas.get("runs", math.inf))
        await self._locks[run.id].enter_async_context(turn)
        for question, answer in (await _answers(run, agent)).items():
            self._add_event(run, {"type": "answered", "id": question, "answer": answer})
        self._add_event(run, await _start_event(run, agent, task, settings))
        unused = describe_unused(run.thread, known.unused, options) if known else ""
        for warning in (*settings.warnings, *filter(None, [unused])):
            self._add_event(run, {"type": "notice", "level": "warning", "text": warning})

    def on_event(self, run: str, thread: str, plan_step: str, event: dict[str, Any]) -> None:
        self._journal.add(thread, run, plan_step, event)

    async def on_end(self, run: ObservedRun, error: BaseException | None) -> None:
        """Record how a run ended, and release the thread.

        The lock is held until the end is written, so that no other run starts before. After
        `GIVE_UP_S` it is released anyway, and the next start of the server writes the end.
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
            async with self._locks.pop(run.id, contextlib.AsyncExitStack()):
                if run.id in self._recorded:
                    self._recorded.discard(run.id)
                    await self._journal.release(run.thread)

    async def _write_end(self, run: ObservedRun, error: BaseException | None) -> None:
        if run.id not in self._recorded:
            await _retry_until_written(run, lambda: self._record_failed_start(run))
        final = await _retry_until_written(run, lambda: self._final(run, error))
        if final["status"] == "waiting":
            questions = await _retry_until_written(
                run, lambda: store.open_questions(run.thread, run.agent)
            )
            for question in questions:
                self._journal.add(run.thread, run.id, question.get("plan_step", ""), question)
                if "browser" in question:
                    announce_takeover(run.thread, question["browser"])
        self._add_event(run, final)
        end = self._store.threads.end
        await _retry_until_written(run, lambda: asyncio.to_thread(end, run.thread, final["status"]))

    async def _lock_thread(self, run: ObservedRun) -> None:
        async with contextlib.AsyncExitStack() as lock:
            await lock.enter_async_context(holding_thread(self._store.home, run.thread))
            self._locks[run.id] = lock.pop_all()

    async def _record_failed_start(self, run: ObservedRun) -> None:
        message = _user_message(run.given)
        if message is not None:
            begin, place = self._store.threads.begin, (run.thread, run.agent, message.text)
            await asyncio.to_thread(begin, *place, {}, message, trigger=run.trigger)
        await self._acquire_journal(run)
        start = {"type": "run_start", "agent": run.agent, "model": "", "workspace": ""}
        task = message.text if message else ""
        self._add_event(run, {**start, "task": task, "kind": "start" if message else "resume"})

    async def _final(self, run: ObservedRun, error: BaseException | None) -> dict[str, Any]:
        stopped = isinstance(error, asyncio.CancelledError | GeneratorExit)
        if isinstance(error, Exception) and not stopped:
            known = isinstance(error, ConfigError)
            sentence = str(error) if known else describe_failure(error, self._store.home)
            return run_view.final_without_state(sentence)
        known_thread = await asyncio.to_thread(self._store.threads.find, run.thread)
        agent = known_thread.agent if known_thread else run.agent
        state = await store.state_of(run.thread, agent)
        if state is not None:
            return await store.read_final_event(run.thread, agent, state, cancelled=stopped)
        if stopped:
            return run_view.cancelled_event("The run was cancelled.")
        return run_view.final_without_state("", status="finished", reason="answer")

    async def _acquire_journal(self, run: ObservedRun) -> None:
        await self._journal.acquire(run.thread)
        self._recorded.add(run.id)

    def _add_event(self, run: ObservedRun, event: Mapping[str, Any]) -> None:
        self._journal.add(run.thread, run.id, "", dict(event))


_USER = "langgraph_auth_user"
"""Where servers of LangGraph's API keep who started a run from outside."""


async def _require_owner(thread: str) -> None:
    """Make the run's user the owner of its thread, which is new to us if the run is stateless.

    RunError if somebody else owns it, whatever the request said of the thread.
    """
    config = var_child_runnable_config.get() or {}
    identity = getattr(config.get("configurable", {}).get(_USER), "identity", None)
    name = "" if identity == MACHINE_IDENTITY else identity
    if name is not None and not await asyncio.to_thread(lambda: accounts().claim(thread, name)):
        raise RunError(f"There is no thread {thread}.")


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


async def write_missing_ends() -> None:
    """Write the ends of runs that an earlier server process could not write.

    An interrupted run stays unchanged: it can be resumed.
    """
    opened = store.current()
    for thread in await asyncio.to_thread(opened.threads.outlines):
        if thread.status != "running":
            continue
        newest_event = await opened.journal.newest_event(thread.id)
        if newest_event is None:
            continue
        with contextlib.suppress(RunError):
            async with holding_thread(opened.home, thread.id):
                await _write_missing_end(opened, thread, newest_event)


async def _write_missing_end(
    opened: store.Store, thread: Thread, newest_event: dict[str, Any]
) -> None:
    state = await store.state_of(thread.id, thread.agent)
    if state is None or (state.tasks and not state.interrupts):
        return
    message = await asyncio.to_thread(opened.threads.newest_message, thread.id)
    if message is not None and message.id not in {one.id for one in state.values["messages"]}:
        return  # the state is the previous run's
    final = await store.read_final_event(thread.id, thread.agent, state, cancelled=False)
    if newest_event["type"] != "final":
        await opened.journal.acquire(thread.id)
        for event in (*await store.open_questions(thread.id, thread.agent), final):
            place = event.get("plan_step", "")
            opened.journal.add(thread.id, newest_event["run"], place, dict(event))
        await opened.journal.release(thread.id)
    await asyncio.to_thread(opened.threads.end, thread.id, final["status"])


def _user_message(given: Any) -> HumanMessage | None:
    if not isinstance(given, dict):
        return None
    messages: Any = cast("dict[str, Any]", given).get("messages") or []
    several = cast("list[Any]", messages if isinstance(messages, list) else [messages])
    found = convert_to_messages(several)
    return next((one for one in reversed(found) if isinstance(one, HumanMessage)), None)


async def _start_event(
    run: ObservedRun, agent: str, task: str, settings: Settings
) -> dict[str, Any]:
    message = _user_message(run.given)
    is_answer = isinstance(run.given, Command) and run.given.resume is not None
    kind = "answer" if is_answer else "start" if message else "resume"
    event: dict[str, Any] = {
        "type": "run_start",
        "task": task,
        "agent": agent,
        "model": run_view.model_label(settings),
        "workspace": str(settings.workspace),
        "options": {name: getattr(settings, name) for name in SHOWN_OPTIONS},
        "kind": "again" if run.checkpoint else kind,
    }
    if run.checkpoint:
        place = {"thread_id": run.thread, "checkpoint_id": run.checkpoint}
        at = await store.saver().aget_tuple({"configurable": place})
        event |= {
            "checkpoint_id": run.checkpoint,
            "checkpoint_at": at.checkpoint["ts"] if at else "",
            "message": message.text if message else "",
            # It replaces the message that the run of the checkpoint was to read.
            "edited": bool(message and at and at.metadata.get("source") == "input"),
        }
    return event


async def _answers(run: ObservedRun, agent: str) -> dict[str, Any]:
    if not isinstance(run.given, Command) or run.given.resume is None:
        return {}
    answer: Any = run.given.resume
    if ids := answered_ids(answer):
        return {one: answer[one] for one in ids}
    state = await store.state_of(run.thread, agent)
    return {waiting.id: answer for waiting in (state.interrupts if state else ())}


async def replay_events(thread: str, until: str | None = None) -> list[Numbered]:
    """Return the past of a thread that ran in the terminal, as numbered events from its messages.

    Empty if the server has stored events of it. `until` is the id of the message that started the
    current run, whose events are sent live.
    """
    known = await store.current().find(thread)
    if known is None or await store.current().journal.last(thread):
        return []
    state = await store.state_of(thread, known.agent)
    if state is None:
        return []
    graph = await store.graph_of(known.agent)
    values, runs = await thread_view.read_conversations(graph, store.saver(), thread, state.values)
    if until is None:
        events = [*thread_view.stored_events(known, values, runs)]
    else:
        before = [*itertools.takewhile(lambda one: one.id != until, values["messages"])]
        events = [*thread_view.events_from_messages(known, before)]
    if known.status not in ("running", "interrupted"):
        events += await store.open_questions(thread, known.agent)
        stopped = known.status == "cancelled"
        events.append(await store.read_final_event(thread, known.agent, state, cancelled=stopped))
    # Its start: when it was last used changes with each request for a run.
    moment = f"{known.created.replace(' ', 'T')}+00:00"
    shared: Mapping[str, Any] = {"run": "", "thread": thread, "ts": moment}
    return [
        (number, json.dumps({"ns": "", **with_titles(event), **shared, "seq": number}, default=str))
        for number, event in enumerate(events, start=1)
    ]


@router.get("/events")
async def stream_events(
    thread: str,
    after: int = Query(0, alias="from", ge=0, lt=1 << 62),
    last_event_id: int | None = Header(None, ge=0, lt=1 << 62),
) -> StreamingResponse:
    """Stream a thread's events as server-sent events, the past ones first, until the client leaves.

    The past of a thread that ran in the terminal is rebuilt from its messages.
    """
    await store.require_thread(thread)
    return store.event_stream(
        _sse_chunks(thread, after if last_event_id is None else last_event_id)
    )


async def _sse_chunks(thread: str, after: int) -> AsyncGenerator[str]:
    journal = store.current().journal
    if past := [event for event in await replay_events(thread) if event[0] > after]:
        after = past[-1][0]
        yield _as_sse(past)
    async for events in journal.follow(thread, after, PING_S):
        if events is None:
            yield ": ping\n\n"
        elif not events:
            running = journal.is_running(thread)
            if not store.own_server.is_alone:
                running = await store.current().is_running(thread)
            yield f'event: live\ndata: {{"running": {json.dumps(running)}, "seq": {after}}}\n\n'
        else:
            after = events[-1][0]
            yield _as_sse(events)


def _as_sse(events: list[Numbered]) -> str:
    return "".join(f"id: {seq}\ndata: {text}\n\n" for seq, text in events)

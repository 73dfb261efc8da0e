"""Writes down the server's runs: the table of threads, their events, and who holds a thread.

Whoever starts a run - the page, Studio, the SDK - it stands in `openmanus threads` afterwards,
can be resumed in the terminal, and two processes never work on one thread.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, cast

from langchain_core.messages import HumanMessage, convert_to_messages
from langgraph.types import Command

from openmanus_graph.cli.failures import RunError, complaint_of
from openmanus_graph.cli.lock import hold_thread
from openmanus_graph.errors import ConfigError
from openmanus_graph.final import failed_event, final_event
from openmanus_graph.server.admission import answered_ids
from openmanus_graph.server.checkpoints import saver
from openmanus_graph.server.options import options_of
from openmanus_graph.server.retelling import retold
from openmanus_graph.server.store import Store, state_of
from openmanus_graph.server.threads import open_questions
from openmanus_graph.settings import Settings
from openmanus_graph.state.context import Context
from openmanus_graph.watching import WatchedRun

SHOWN_OPTIONS = ("max_steps", "max_cost_usd", "max_total_tokens", "timeout_s", "policy")
log = logging.getLogger(__name__)


class Recorder:
    """The server's watcher."""

    def __init__(self, store: Store) -> None:
        self._store, self._journal = store, store.journal
        self._held: dict[str, contextlib.ExitStack] = {}
        """Locks by run."""

    async def begins(self, run: WatchedRun, settings: Settings, context: Context | None) -> None:
        """Hold the thread and write down what it was asked. RunError if another process has it."""
        await self._hold(run)
        message = _message(run.given)
        known = await asyncio.to_thread(self._store.threads.find, run.thread)
        agent = run.agent or (known.agent if known else "")
        task = message.text if message else (known.task if known else "")
        options = options_of(context, settings.workspace)
        if past := await retold(self._store, run.thread, message.id if message else None):
            await self._journal.keep(run.thread, past)  # the terminal began this thread
        begin = self._store.threads.begin
        await asyncio.to_thread(begin, run.thread, agent, task, options, message)
        await self._journal.take_up(run.thread)
        for question, answer in (await _answers(run, agent)).items():
            self._tell(run, {"type": "answered", "id": question, "answer": answer})
        self._tell(run, await _start_event(run, agent, task, settings))
        for warning in settings.warnings:
            self._tell(run, {"type": "notice", "level": "warning", "text": warning})

    def tells(self, run: str, thread: str, step: str, event: dict[str, Any]) -> None:
        """Hand on an event."""
        self._journal.add(thread, run, step, event)

    async def ends(self, run: WatchedRun, error: BaseException | None) -> None:
        """Write down how a run ended, and let go of the thread."""
        if isinstance(error, RunError):
            return  # the thread is another process's
        try:
            if run.id not in self._held:
                await self._begin_what_failed(run)
            final = await self._final(run, error)
            if final["status"] == "waiting":
                await self._tell_questions(run)
            self._tell(run, final)
            await asyncio.to_thread(self._store.threads.end, run.thread, final["status"])
            await self._journal.let_go(run.thread)
        except RunError as refusal:
            log.warning("%s", refusal)
        finally:
            held = self._held.pop(run.id, None)
            if held is not None:
                await asyncio.to_thread(held.close)

    async def _hold(self, run: WatchedRun) -> None:
        stack = contextlib.ExitStack()
        await asyncio.to_thread(stack.enter_context, hold_thread(self._store.home, run.thread))
        self._held[run.id] = stack

    async def _begin_what_failed(self, run: WatchedRun) -> None:
        """Write down a run that ended before its settings were known."""
        await self._hold(run)
        message = _message(run.given)
        if message is not None:
            begin = self._store.threads.begin
            await asyncio.to_thread(begin, run.thread, run.agent, message.text, {}, message)
        await self._journal.take_up(run.thread)
        start = {"type": "run_start", "agent": run.agent, "model": "", "workspace": ""}
        task = message.text if message else ""
        self._tell(run, {**start, "task": task, "kind": "start" if message else "resume"})

    async def _final(self, run: WatchedRun, error: BaseException | None) -> dict[str, Any]:
        stopped = isinstance(error, asyncio.CancelledError | GeneratorExit)
        if isinstance(error, Exception) and not stopped:
            known = isinstance(error, ConfigError)
            sentence = str(error) if known else complaint_of(error, self._store.home)
            return failed_event(sentence, {})
        known_thread = await asyncio.to_thread(self._store.threads.find, run.thread)
        state = await state_of(run.thread, known_thread.agent if known_thread else run.agent)
        if state is None:
            ended = failed_event("The run was cancelled." if stopped else "", {})
            status, reason = ("cancelled", "cancelled") if stopped else ("finished", "answer")
            return {**ended, "status": status, "stop_reason": reason}
        return final_event(state, cancelled=stopped)

    async def _tell_questions(self, run: WatchedRun) -> None:
        for question in await open_questions(run.thread, run.agent):
            self._journal.add(run.thread, run.id, question.get("plan_step", ""), question)

    def _tell(self, run: WatchedRun, event: Mapping[str, Any]) -> None:
        self._journal.add(run.thread, run.id, "", dict(event))


def _message(given: Any) -> HumanMessage | None:
    """Return the user message that a run begins with; one that goes on has none."""
    messages: Any = cast("dict[str, Any]", given).get("messages") if _is_input(given) else None
    if not messages:
        return None
    several = cast("list[Any]", messages if isinstance(messages, list) else [messages])
    found = convert_to_messages(several)
    return next((one for one in reversed(found) if isinstance(one, HumanMessage)), None)


def _is_input(given: Any) -> bool:
    return isinstance(given, dict)


async def _start_event(
    run: WatchedRun, agent: str, task: str, settings: Settings
) -> dict[str, Any]:
    """Return the `run_start` event, with what a page needs to show it among earlier runs."""
    model, message = settings.main.model, _message(run.given)
    event: dict[str, Any] = {
        "type": "run_start",
        "task": task,
        "agent": agent,
        "model": model if isinstance(model, str) else type(model).__name__,
        "workspace": str(settings.workspace),
        "options": {name: getattr(settings, name) for name in SHOWN_OPTIONS},
        "kind": _kind(run, message),
    }
    if run.checkpoint:
        at = await saver().aget_tuple(
            {"configurable": {"thread_id": run.thread, "checkpoint_id": run.checkpoint}}
        )
        event["checkpoint_id"] = run.checkpoint
        event["checkpoint_at"] = at.checkpoint["ts"] if at else ""
        event["message"] = message.text if message else ""
    return event


def _kind(run: WatchedRun, message: HumanMessage | None) -> str:
    if run.checkpoint:
        return "again"
    if isinstance(run.given, Command) and run.given.resume is not None:
        return "answer"
    return "start" if message else "resume"


async def _answers(run: WatchedRun, agent: str) -> dict[str, Any]:
    """Return what a run answers, by question."""
    if not isinstance(run.given, Command) or run.given.resume is None:
        return {}
    answer: Any = run.given.resume
    if ids := answered_ids(answer):
        return {one: answer[one] for one in ids}
    state = await state_of(run.thread, agent)
    return {waiting.id: answer for waiting in (state.interrupts if state else ())}

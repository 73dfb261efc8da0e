"""Runs the agent for A2A tasks: a message starts, answers, resumes or cancels a run."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Message, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from typing_extensions import override

from openmanus_graph.interfaces.a2a_server.parts import (
    BadMessageError,
    answer_parts,
    file_parts,
    final_metadata,
    read_message,
)
from openmanus_graph.interfaces.a2a_server.store import DatabaseTaskStore
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.runs import (
    ANSWER_HINTS,
    Final,
    RemoteRun,
    first_question,
    progress_text,
    resolve_workspace,
    thread_options,
)
from openmanus_graph.interfaces.service.session_leases import SessionLeases
from openmanus_graph.interfaces.service.threads import find_thread


@dataclass
class _RunningTask:
    """A task with its run."""

    task: str
    run: RemoteRun
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False


class Executor(AgentExecutor):
    """Runs one agent. A context is a thread; each is worked on by one task at a time."""

    def __init__(self, agent: str, options: RunOptions, store: DatabaseTaskStore) -> None:
        self.agent, self.options, self.store = agent, options, store
        self.cut_off: set[str] = set()
        """Tasks that were under way when the server ended."""
        self.leases = SessionLeases()
        self._running: dict[str, _RunningTask] = {}
        """By context."""

    @override
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message, context_id = context.message, context.context_id or ""
        if message is None or context.task_id is None:
            return
        updater = TaskUpdater(event_queue, context.task_id, context_id)
        if context.current_task is None:
            await event_queue.enqueue_event(_new_task(message))
        if refusal := await self._refusal(context, context_id):
            await updater.reject(_agent_message(updater, refusal))
            return
        updates: asyncio.Queue[str | None] = asyncio.Queue()
        run = RemoteRun(self.agent, thread_of(context_id), self.options, _update_sender(updates))
        running = self._running[context_id] = _RunningTask(context.task_id, run)
        sender = asyncio.create_task(_send_updates(updates, updater))
        try:
            await updater.start_work()
            async with self.leases.lease(run.thread):
                final = await self._run_to_final(context, message, run)
            running.cancelled = final["status"] == "cancelled"
            updates.put_nowait(None)
            await sender  # what was said belongs before the end
            if not running.cancelled:
                await self._publish(final, updater, run)
        except BadMessageError as error:
            if context.current_task is None:
                await updater.reject(_agent_message(updater, str(error)))
            else:  # it still waits for its answer
                await updater.requires_input(_agent_message(updater, f"{error} Answer again."))
        finally:
            sender.cancel()
            del self._running[context_id]
            running.ended.set()

    @override
    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        context_id = context.context_id or ""
        running = self._running.get(context_id)
        if running is not None and running.task == context.task_id:
            running.run.stop.now()
            await running.ended.wait()
            if not running.cancelled:
                return  # it had ended by itself, and has said how
        updater = TaskUpdater(event_queue, context.task_id or "", context_id)
        await updater.cancel(_agent_message(updater, "The task was cancelled."))

    async def _refusal(self, context: RequestContext, context_id: str) -> str | None:
        """Say why a message cannot be worked on now."""
        running = self._running.get(context_id)
        if running is not None:
            return (
                f"This context is at work on task {running.task}. Wait for its end, cancel it, or "
                "use another context."
            )
        if context.current_task is not None:
            return None
        waiting = await self.store.waiting_in(context_id)
        if waiting:
            return (
                f"Task {waiting[0].id} of this context waits for an answer. Send it with that "
                "taskId, or cancel that task first."
            )
        return None

    async def _run_to_final(
        self, context: RequestContext, message: Message, run: RemoteRun
    ) -> Final:
        task = context.current_task
        if task is not None and task.id in self.cut_off:
            self.cut_off.discard(task.id)
            if await asyncio.to_thread(find_thread, run.thread) is not None:
                return await run.go_on()
            message = task.history[0]  # the server ended before the run began
        elif task is not None:
            answer = read_message(message)
            if question := await first_question(run.thread, self.agent):
                return await run.answer(answer.as_answer(), question)
        return await run.say(read_message(message))

    async def _publish(self, final: Final, updater: TaskUpdater, run: RemoteRun) -> None:
        """Say how a run ended, its files and its answer first."""
        answer = str(final["answer"])
        if final["status"] == "waiting":
            hint = ANSWER_HINTS.get(final["stop_reason"], "")
            await updater.requires_input(
                _agent_message(updater, f"{answer}\n\n{hint}".rstrip(), final)
            )
            return
        options = await asyncio.to_thread(thread_options, self.options, run.thread)
        workspace = await asyncio.to_thread(resolve_workspace, options, run.thread)
        files, left_out = await asyncio.to_thread(file_parts, final, workspace)
        for path, part in files:
            await updater.add_artifact([part], name=path, last_chunk=True)
        finished = final["status"] == "finished"
        if finished:
            parts = [*answer_parts(final), *map(new_text_part, left_out)]
            await updater.add_artifact(parts, name="answer", last_chunk=True)
        state = TaskState.TASK_STATE_COMPLETED if finished else TaskState.TASK_STATE_FAILED
        await updater.update_status(
            state,
            message=_agent_message(updater, answer, final),
            metadata=dict(final_metadata(final)),
        )


def _new_task(message: Message) -> Task:
    """Return the task that a message starts. InvalidParamsError if the SDK refuses it."""
    try:
        return new_task_from_user_message(message)
    except ValueError as error:
        raise InvalidParamsError(str(error)) from error


def thread_of(context_id: str) -> str:
    """Return the thread of a context."""
    return f"a2a-{context_id}"


def _update_sender(updates: "asyncio.Queue[str | None]") -> Any:
    """Return a function that queues texts about a run's events for the client."""

    def show(event: Mapping[str, Any]) -> None:
        if text := progress_text(event):
            updates.put_nowait(text)

    return show


async def _send_updates(updates: "asyncio.Queue[str | None]", updater: TaskUpdater) -> None:
    while (words := await updates.get()) is not None:
        await updater.start_work(_agent_message(updater, words))


def _agent_message(updater: TaskUpdater, text: str, final: Final | None = None) -> Message:
    metadata = None if final is None else dict(final_metadata(final))
    sendable = text.encode("utf-8", "replace").decode()
    return updater.new_agent_message([new_text_part(sendable)], metadata=metadata)

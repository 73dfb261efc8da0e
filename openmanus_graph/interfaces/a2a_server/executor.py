"""Runs the agent for A2A tasks: a message starts, answers, resumes or cancels a run."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import ListTasksRequest, ListTasksResponse, Message, Part, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict
from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.runs import (
    Final,
    Outbox,
    RemoteRun,
    SessionLeases,
    Upload,
    answer_with_hint,
    first_question,
    progress_text,
    resolve_workspace,
    thread_options,
)
from openmanus_graph.interfaces.service.runs import Message as RunMessage
from openmanus_graph.interfaces.service.threads import find_thread
from openmanus_graph.runtime.workspace import Workspace, opened_file
from openmanus_graph.state.addresses import DatabaseUrl

MAX_FILE_BYTES = 10_000_000
MAX_FILES = 100
MAX_ALL_BYTES = 30_000_000
_ANY = "application/octet-stream"


class BadMessageError(Exception):
    pass


def read_message(message: Message) -> RunMessage:
    """Read a message: texts, data as JSON, files. The first text is what the user typed.

    BadMessageError if it is empty, or has parts that are not accepted.
    """
    texts, words, files = list[str](), list[str](), list[Upload]()
    for number, part in enumerate(message.parts, 1):
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
                words.append(part.text)
            case "data":
                data = _with_integers(MessageToDict(part.data))
                texts.append(json.dumps(data, ensure_ascii=False))
            case "raw":
                name = part.filename or f"file-{number}"
                files.append(Upload(name, part.raw, part.media_type or _ANY))
            case "url":
                raise BadMessageError(
                    f"Part {number} is an address; this agent does not fetch it by itself. Send "
                    "the file's bytes, or name the address in the text."
                )
            case _:
                raise BadMessageError(f"Part {number} is empty.")
    text = "\n\n".join(text for text in texts if text.strip())
    if not text and not files:
        raise BadMessageError("The message is empty. Say in a text part what to do.")
    return RunMessage(text or "See the files.", tuple(files), "".join(words[:1]))


def file_parts(final: Final, workspace: Workspace) -> tuple[list[tuple[str, Part]], list[str]]:
    """Return the files of a run with their paths, and why others are left out. Blocks."""
    sent, left_out, room = list[tuple[str, Part]](), list[str](), MAX_ALL_BYTES
    for artifact in final["artifacts"]:
        path, size = artifact["path"], artifact["size"]
        if size > min(MAX_FILE_BYTES, room) or len(sent) == MAX_FILES:
            left_out.append(f"{path} ({size:,} bytes) is too much to send; it is in the workspace.")
            continue
        try:
            with opened_file(workspace, path) as file:
                data = file.read(MAX_FILE_BYTES)
        except ToolError as error:
            left_out.append(str(error))
            continue
        room -= len(data)
        name = _sendable(path)
        part = new_raw_part(data, filename=name, media_type=artifact["media_type"])
        sent.append((name, part))
    return sent, left_out


def _sendable(text: str) -> str:
    """Replace invalid Unicode, which the protocol cannot carry."""
    return text.encode("utf-8", "replace").decode()


def _with_integers(value: Any) -> Any:  # any JSON
    """Turn whole numbers back into integers: protobuf knows only doubles."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in cast("list[Any]", value)]
    return value


class DatabaseTaskStore(TaskStore):
    """The tasks of a database. Whoever has the server's token owns all of them. Opening blocks."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._run = open_database(url).run

    @override
    async def save(self, task: Task, context: ServerCallContext) -> None:
        await asyncio.to_thread(
            self._run,
            "INSERT INTO a2a_tasks (id, context, state, task) VALUES (?, ?, ?, ?) ON CONFLICT (id)"
            " DO UPDATE SET context = excluded.context, state = excluded.state,"
            " task = excluded.task",
            (task.id, task.context_id, int(task.status.state), task.SerializeToString()),
        )

    @override
    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        found = await self._select("WHERE id = ?", task_id)
        return found[0] if found else None

    @override
    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        # The SDK's own store filters, sorts and pages as the protocol requires.
        pages = InMemoryTaskStore(use_copying=False)
        for task in await self._select(""):
            await pages.save(task, context)
        return await pages.list(params, context)

    @override
    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        await asyncio.to_thread(self._run, "DELETE FROM a2a_tasks WHERE id = ?", (task_id,))

    async def under_way(self) -> Sequence[Task]:
        states = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
        return await self._select("WHERE state IN (?, ?)", *map(int, states))

    async def waiting_in(self, context_id: str) -> Sequence[Task]:
        state = int(TaskState.TASK_STATE_INPUT_REQUIRED)
        return await self._select("WHERE context = ? AND state = ?", context_id, state)

    async def _select(self, rest: str, *values: Any) -> Sequence[Task]:
        rows = await asyncio.to_thread(self._run, f"SELECT task FROM a2a_tasks {rest}", values)
        return [Task.FromString(row[0]) for row in rows]


@dataclass
class _RunningTask:
    task: str
    run: RemoteRun
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False


class Executor(AgentExecutor):
    """Runs one agent. A context is a thread; it has one task at a time."""

    def __init__(self, agent: str, options: RunOptions, store: DatabaseTaskStore) -> None:
        self.agent, self.options, self.store = agent, options, store
        self.cut_off: set[str] = set()
        """Tasks that were running when the server ended."""
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
        outbox = Outbox[str](lambda text: updater.start_work(_agent_message(updater, text)))

        def show(event: Mapping[str, Any]) -> None:
            if text := progress_text(event):
                outbox.put(text)

        run = RemoteRun(self.agent, f"a2a-{context_id}", self.options, show)
        running = self._running[context_id] = _RunningTask(context.task_id, run)
        try:
            await updater.start_work()
            async with outbox.sent(), self.leases.lease(run.thread):
                final = await self._run_to_final(context, message, run)
            running.cancelled = final["status"] == "cancelled"
            await self._publish(final, updater, run)
        except BadMessageError as error:
            if context.current_task is None:
                await updater.reject(_agent_message(updater, str(error)))
            else:  # it still waits for its answer
                await updater.requires_input(_agent_message(updater, f"{error} Answer again."))
        finally:
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
                return  # it had ended by itself, and has reported how
        updater = TaskUpdater(event_queue, context.task_id or "", context_id)
        await updater.cancel(_agent_message(updater, "The task was cancelled."))

    async def _refusal(self, context: RequestContext, context_id: str) -> str | None:
        running = self._running.get(context_id)
        if running is not None:
            return (
                f"This context is at work on task {running.task}. Wait for its end, cancel it, or "
                "use another context."
            )
        if context.current_task is None and (waiting := await self.store.waiting_in(context_id)):
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
                return await run.resume()
            message = task.history[0]  # the server ended before the run started
        elif task is not None:
            answer = read_message(message)
            if question := await first_question(run.thread, self.agent):
                return await run.answer(answer.as_answer(), question)
        return await run.start(read_message(message))

    async def _publish(self, final: Final, updater: TaskUpdater, run: RemoteRun) -> None:
        """Report how a run ended, its files first; `cancel` reports a cancelled one."""
        if final["status"] == "cancelled":
            return
        if final["status"] == "waiting":
            await updater.requires_input(_agent_message(updater, answer_with_hint(final), final))
            return
        options = await asyncio.to_thread(thread_options, self.options, run.thread)
        workspace = await asyncio.to_thread(resolve_workspace, options, run.thread)
        files, left_out = await asyncio.to_thread(file_parts, final, workspace)
        for path, part in files:
            await updater.add_artifact([part], name=path, last_chunk=True)
        state, answer = TaskState.TASK_STATE_FAILED, str(final["answer"])
        if final["status"] == "finished":
            state = TaskState.TASK_STATE_COMPLETED
            parts = [new_text_part(_sendable(answer), media_type="text/plain")]
            if final["structured"] is not None:
                parts.append(new_data_part(final["structured"], media_type="application/json"))
            parts += map(new_text_part, left_out)
            await updater.add_artifact(parts, name="answer", last_chunk=True)
        message = _agent_message(updater, answer, final)
        await updater.update_status(state, message=message, metadata=_metadata(final))


def _new_task(message: Message) -> Task:
    try:
        return new_task_from_user_message(message)
    except ValueError as error:
        raise InvalidParamsError(str(error)) from error


def _metadata(final: Final) -> dict[str, Any]:
    return {
        "status": final["status"],
        "stop_reason": final["stop_reason"] or "",
        "usage": dict(final["usage"]),
    }


def _agent_message(updater: TaskUpdater, text: str, final: Final | None = None) -> Message:
    metadata = None if final is None else _metadata(final)
    return updater.new_agent_message([new_text_part(_sendable(text))], metadata=metadata)

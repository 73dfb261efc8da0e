"""Serves one of our agents to other agents by the A2A protocol: a context is a thread."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from a2a import helpers, types
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.server.routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.server.tasks import TaskUpdater
from a2a.types import Message, Part, Task, TaskState
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH, VERSION_HEADER
from a2a.utils.errors import A2AError, InvalidParamsError, VersionNotSupportedError
from google.protobuf.json_format import MessageToDict
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from openmanus_graph.backends.persistence.accounts import MACHINE, User
from openmanus_graph.errors import ToolError
from openmanus_graph.graphs.catalog import agent_tools, describe_agent
from openmanus_graph.interfaces.a2a_server import tasks
from openmanus_graph.interfaces.service import runs
from openmanus_graph.interfaces.service.accounts import accounts, acting_as, current_user
from openmanus_graph.interfaces.service.http import App, RequestGuard
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.threads import find_thread
from openmanus_graph.runtime.workspace import Workspace, opened_file
from openmanus_graph.tools import closing_tools

PROTOCOLS = ("1.0", "0.3")
TEXT, JSON, ANY = "text/plain", "application/json", "application/octet-stream"
MAX_BODY_BYTES = 64 << 20
"""Of a request, in which files are a third larger."""
MAX_FILE_BYTES = 10_000_000
MAX_FILES = 100
MAX_ALL_BYTES = 30_000_000
log = logging.getLogger(__name__)


class BadMessageError(Exception):
    """A message that the agent cannot read. The text tells the client why."""


def read_message(message: Message) -> runs.Message:
    """Read a message: texts, data as JSON, files. The first text is what the user typed.

    BadMessageError if it is empty, or has parts that are not accepted.
    """
    texts, files = list[str](), list[runs.Upload]()
    for number, part in enumerate(message.parts, 1):
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
            case "data":
                data = _with_integers(MessageToDict(part.data))
                texts.append(json.dumps(data, ensure_ascii=False))
            case "raw":
                name = part.filename or f"file-{number}"
                files.append(runs.Upload(name, part.raw, part.media_type or ANY))
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
    typed = next((one.text for one in message.parts if one.WhichOneof("content") == "text"), "")
    return runs.Message(text or "See the files.", tuple(files), typed)


def _with_integers(value: Any) -> Any:  # any JSON
    """Turn whole numbers back into integers: protobuf knows only doubles."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in cast("list[Any]", value)]
    return value


def file_parts(final: runs.Final, workspace: Workspace) -> tuple[list[Part], list[str]]:
    """Return the files of a run, named by their paths, and why others are left out. Blocks."""
    sent, left_out, room = list[Part](), list[str](), MAX_ALL_BYTES
    for artifact in final["artifacts"]:
        path, size = artifact["path"], artifact["size"]
        try:
            if size > min(MAX_FILE_BYTES, room) or len(sent) == MAX_FILES:
                raise ToolError(
                    f"{path} ({size:,} bytes) is too much to send; it is in the workspace."
                )
            with opened_file(workspace, path) as file:
                data = file.read(MAX_FILE_BYTES)
        except ToolError as error:
            left_out.append(str(error))
            continue
        room -= len(data)
        name, media_type = _sendable(path), artifact["media_type"]
        sent.append(helpers.new_raw_part(data, filename=name, media_type=media_type))
    return sent, left_out


def _sendable(text: str) -> str:
    """Replace invalid Unicode, which the protocol cannot carry."""
    return text.encode("utf-8", "replace").decode()


@dataclass
class _RunningTask:
    task: str
    run: runs.RemoteRun
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False


class Executor(AgentExecutor):
    """Runs one agent. A context is a thread; it has one task at a time."""

    def __init__(self, agent: str, options: RunOptions, store: tasks.DatabaseTaskStore) -> None:
        self.agent, self.options, self.store = agent, options, store
        self.cut_off: set[str] = set()
        """Tasks that were running when the server ended."""
        self.leases = runs.SessionLeases()
        self._running: dict[str, _RunningTask] = {}  # by context

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

        async def send_progress(event: Mapping[str, Any]) -> None:
            if text := runs.progress_text(event):
                await updater.start_work(_agent_message(updater, text))

        outbox = runs.Outbox(send_progress)
        thread = tasks.THREADS + context_id
        run = runs.RemoteRun(self.agent, thread, self.options, outbox.put, trigger="a2a")
        running = self._running[context_id] = _RunningTask(context.task_id, run)
        try:
            await updater.start_work()
            async with outbox.sent(), self.leases.lease(run.thread):
                final = await self._run(context.current_task, message, run)
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
        if running := self._running.get(context_id):
            return (
                f"Task {running.task} runs in this context. Wait for its end, cancel it, or use "
                "another context."
            )
        if context.current_task is not None:
            return None
        state = int(TaskState.TASK_STATE_INPUT_REQUIRED)
        if waiting := await self.store.select("WHERE context = ? AND state = ?", context_id, state):
            return (
                f"Task {waiting[0].id} of this context waits for an answer. Send it with that "
                "taskId, or cancel that task first."
            )
        return None

    async def _run(self, task: Task | None, message: Message, run: runs.RemoteRun) -> runs.Final:
        if task is not None and task.id in self.cut_off:
            self.cut_off.discard(task.id)
            if await asyncio.to_thread(find_thread, run.thread) is not None:
                return await run.resume()
            message = task.history[0]  # the server ended before the run started
        elif task is not None:
            answer = read_message(message)
            if question := await runs.first_question(run.thread, self.agent):
                return await run.answer(answer.as_answer(), question)
        return await run.start(read_message(message))

    async def _publish(self, final: runs.Final, updater: TaskUpdater, run: runs.RemoteRun) -> None:
        """Report how a run ended, its files first; `cancel` reports a cancelled one."""
        if final["status"] == "cancelled":
            return
        metadata = {name: final[name] for name in ("status", "usage")}
        metadata["stop_reason"] = final["stop_reason"] or ""
        if final["status"] == "waiting":
            text = runs.answer_with_hint(final)
            await updater.requires_input(_agent_message(updater, text, metadata))
            return
        options = await asyncio.to_thread(runs.thread_options, self.options, run.thread)
        workspace = await asyncio.to_thread(runs.resolve_workspace, options, run.thread)
        files, left_out = await asyncio.to_thread(file_parts, final, workspace)
        for part in files:
            await updater.add_artifact([part], name=part.filename, last_chunk=True)
        state, answer = TaskState.TASK_STATE_FAILED, str(final["answer"])
        if final["status"] == "finished":
            state = TaskState.TASK_STATE_COMPLETED
            parts = [helpers.new_text_part(_sendable(answer), media_type=TEXT)]
            if final["structured"] is not None:
                parts.append(helpers.new_data_part(final["structured"], media_type=JSON))
            parts += map(helpers.new_text_part, left_out)
            await updater.add_artifact(parts, name="answer", last_chunk=True)
        message = _agent_message(updater, answer, metadata)
        await updater.update_status(state, message=message, metadata=metadata)


def _new_task(message: Message) -> Task:
    try:
        return helpers.new_task_from_user_message(message)
    except ValueError as error:
        raise InvalidParamsError(str(error)) from error


def _agent_message(updater: TaskUpdater, text: str, metadata: Any = None) -> Message:
    return updater.new_agent_message([helpers.new_text_part(_sendable(text))], metadata=metadata)


def agent_card(agent: str, url: str, version: str, *, guarded: bool) -> types.AgentCard:
    """Return the card of an agent. `url` has no last slash; `guarded`: clients need a token."""
    purpose = describe_agent(agent) or "does tasks with tools"
    whole_task = types.AgentSkill(
        id=agent,
        name="Do a task",
        description="Does a whole task, stated in plain words, and hands over an answer and files. "
        f"For {purpose}.",
        tags=[agent, "task"],
        examples=["Summarise sales.csv and draw the monthly totals"],
    )
    closing = {tool.name for tool in closing_tools()}
    skills = [whole_task]
    for tool in agent_tools(agent):
        if (name := tool.name) not in closing:
            summary = tool.description.strip().partition("\n\n")[0]
            skill = types.AgentSkill(id=name, name=name, description=summary, tags=["tool"])
            skills.append(skill)
    card = types.AgentCard(
        name=f"OpenManus {agent}",
        description=f"Does whole tasks with tools of its own. For {purpose}.",
        version=version,
        supported_interfaces=[
            types.AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version=one)
            for one in PROTOCOLS
        ],
        capabilities=types.AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=[TEXT, JSON, "image/png", "image/jpeg", ANY],
        default_output_modes=[TEXT, JSON, ANY],
        skills=skills,
    )
    if guarded:
        bearer = types.HTTPAuthSecurityScheme(
            scheme="bearer", description="Shown at the server's start."
        )
        scheme = types.SecurityScheme(http_auth_security_scheme=bearer)
        card.security_schemes["bearer"].CopyFrom(scheme)
        required = types.SecurityRequirement(schemes={"bearer": types.StringList()})
        card.security_requirements.append(required)
    return card


class Dispatcher(JsonRpcDispatcher):
    """Refuses requests that the SDK accepts by mistake, and passes it the others.

    * A version other than the card's: the SDK takes 1.1 for 1.0 (A2A 1.0, 3.6.2).
    * A task state that does not exist: the SDK lists all tasks (3.1.4, 3.3.2).
    * Params of version 0.3 that do not fit: the SDK calls the whole request invalid (0.3, 8.1).
    """

    @override
    async def handle_requests(self, request: Request) -> Response:
        headers = MutableHeaders(scope=request.scope)
        # Clients may send the version in the query, too (3.6.1).
        version = headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER, "")
        headers[VERSION_HEADER] = version
        try:
            body: Any = await request.json()
        except (ValueError, RecursionError):
            body = None  # the SDK reports what is wrong with it
        if isinstance(body, dict):
            request_body = cast("dict[str, Any]", body)
            if error := _refusal(version, request_body):
                return JSONResponse(build_error_response(request_body.get("id"), error))
        return await super().handle_requests(request)


_READING = ("GetTask", "ListTasks", "SubscribeToTask", "tasks/get", "tasks/resubscribe")


def _refusal(version: str, body: dict[str, Any]) -> A2AError | None:
    """Return why a request is refused that the SDK would accept; None leaves it to the SDK."""
    # Here, because it and the dispatcher import each other: the dispatcher must be first.
    from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter

    number: object = body.get("id")
    is_id = number is None or (isinstance(number, str | int) and not isinstance(number, bool))
    if body.get("jsonrpc") != "2.0" or not is_id:
        return None
    if version and ".".join(version.split(".")[:2]) not in PROTOCOLS:
        return VersionNotSupportedError(
            f"A2A {version} is not supported here. Send {VERSION_HEADER}: {' or '.join(PROTOCOLS)}."
        )
    method, params = body.get("method"), body.get("params")
    if current_user().role == "viewer" and method not in _READING:
        return InvalidParamsError("A viewer can read tasks, but not start, answer or cancel them.")
    if method == "ListTasks" and isinstance(params, dict):
        status = cast("dict[str, Any]", params).get("status")
        if isinstance(status, str) and status not in TaskState.keys():  # noqa: SIM118  # no dict
            return InvalidParamsError(
                f"There is no task state {status!r}. There are {', '.join(TaskState.keys())}."
            )
    model: Any = JSONRPC03Adapter.METHOD_TO_MODEL.get(str(method))  # typed as a metaclass there
    if model is not None:
        try:
            model.model_validate(body)
        except ValidationError as error:  # named without their values
            faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            return InvalidParamsError(f"The params do not fit. {'; '.join(faults[:5])}.")
    return None


def build_app(
    agent: str, options: RunOptions, url: str, host: str, token: str | None, version: str
) -> App:
    """Make the server's app. Blocks. The card needs no token."""
    card = agent_card(agent, url, version, guarded=token is not None)
    store = tasks.DatabaseTaskStore()
    executor = Executor(agent, options, store)
    handler = DefaultRequestHandler(
        executor, store, card, request_context_builder=tasks.TaskContextBuilder(store)
    )
    dispatcher = Dispatcher(handler, enable_v0_3_compat=True)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        states = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
        for task in await store.select("WHERE state IN (?, ?)", *map(int, states)):
            executor.cut_off.add(task.id)
            log.info("resuming task %s", task.id)
            # Its client may still ask for it.
            text, role = "(The server was restarted; the task continues.)", types.Role.ROLE_USER
            message = helpers.new_text_message(text, None, task.context_id, task.id, role)
            at_once = types.SendMessageConfiguration(return_immediately=True)
            request = types.SendMessageRequest(message=message, configuration=at_once)
            owner = await asyncio.to_thread(accounts().owner_of, tasks.THREADS + task.context_id)
            with acting_as(User(owner, "user") if owner else MACHINE):
                await handler.on_message_send(request, ServerCallContext())
        try:
            yield
        finally:
            await handler.aclose()
            await executor.leases.close()

    post = Route("/", dispatcher.handle_requests, methods=["POST"])
    return RequestGuard(
        Starlette(routes=[*create_agent_card_routes(card), post], lifespan=lifespan),
        token=token,
        bound_to=(host,),
        public=(AGENT_CARD_WELL_KNOWN_PATH,),
        max_body_bytes=MAX_BODY_BYTES,
    )

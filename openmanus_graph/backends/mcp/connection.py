"""One connection to a server: calls, calls that the server runs as tasks, input requests, errors.

Tasks are those of protocol 2025-11-25: the server answers a call at once with the id of a task. The
client asks for the task's state until it has ended, and then for the result. The id stays valid
after the connection is lost, and after our process has ended.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession, ElicitationFnT, SamplingFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError

from openmanus_graph.backends.mcp import results, transports
from openmanus_graph.backends.mcp.failures import UNSURE, Diagnostics, ServerError, is_loss
from openmanus_graph.backends.mcp.listed_tools import TASK_KEY
from openmanus_graph.errors import ToolError
from openmanus_graph.state.context import MCPServer

for _name in ("mcp", "client"):  # the SDK's loggers: a faulty server must not write on the terminal
    logging.getLogger(_name).addHandler(logging.NullHandler())

TOOLS, ROUNDS = 2000, 20
"""Limits: the tools of one server, and rounds of input requests in one call."""
KEEP_MS = 24 * 60 * 60 * 1000
"""How long a server is asked to keep a task and its result, in milliseconds."""
POLL_S, MIN_POLL_S, MAX_POLL_S = 1.0, 0.05, 30.0
"""Interval between requests for a task's state: the default, and the limits of what servers set."""
MAX_FAILURES = 5
"""Failed requests in a row for the state of a running task."""
CANCEL_S = 2.0
"""How long to wait for a server to confirm that a task is cancelled."""
_UNKNOWN = (types.INVALID_PARAMS, types.METHOD_NOT_FOUND)
WRONG_TRANSPORT = frozenset({404, 405, 406, 400})
"""Status codes that hint at the other transport, such as SSE."""
_FAILURES = (MCPError, TimeoutError, OSError, EOFError, RuntimeError, ValueError, ExceptionGroup)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Callbacks:
    elicit: ElicitationFnT
    sample: SamplingFnT
    tools_changed: Callable[[], None]


class _Session(ClientSession):
    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        """Accept any result: models do not see the schema of results."""


@dataclass(eq=False)
class Connection:
    session: ClientSession
    transport: str
    diagnostics: Diagnostics
    incoming: "_IncomingStream"
    _reads_resources: bool = False
    _task_tools: frozenset[str] = frozenset()
    """The tools whose calls the server runs as tasks."""

    @property
    def ended(self) -> asyncio.Event:
        return self.incoming.ended

    @property
    def notifies_out_of_band(self) -> bool:
        """Whether notifications come on another stream than results, perhaps after them."""
        return self.diagnostics.client is not None or self.session.discover_result is not None

    async def tools(self) -> list[types.Tool]:
        """List the tools, with one that reads the server's resources if there are any."""
        own = await self._own_tools()
        resources = await results.resource_tools(self.session, own)
        self._reads_resources = bool(resources)
        capabilities = self.session.server_capabilities
        tasks = capabilities.tasks if capabilities is not None else None
        requests = tasks.requests if tasks is not None else None
        if requests is not None and requests.tools is not None and requests.tools.call is not None:
            self._task_tools = frozenset(tool.name for tool in own if tool.execution is not None
                and tool.execution.task_support in ("optional", "required"))  # fmt: skip
        return own + resources

    async def _own_tools(self) -> list[types.Tool]:
        found: list[types.Tool] = []
        try:
            async for page in results.pages(self.session.list_tools):
                found += page.tools
                if len(found) >= TOOLS:
                    break
        except MCPError as error:
            if error.code != types.METHOD_NOT_FOUND or found:
                raise  # else a server without tools
        return found[:TOOLS]

    async def call(
        self,
        name: str,
        args: dict[str, Any],
        report: Callable[[str], None],
        on_task: Callable[[str], Awaitable[None]],
    ) -> Any:
        """Call a tool and return its result; cancelling notifies the server.

        Args:
            report: Receives the server's progress reports as text.
            on_task: Receives the task's id, before any other request, if the server runs a task.
        """

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            of = "" if total is None else f" of {total:g}"
            report(f"{progress:g}{of}{f': {message}' if message else ''}")

        if name == results.READ_RESOURCE and self._reads_resources:
            return await results.read_or_list(self.session, args.get("uri"))
        if name in self._task_tools:
            params = types.CallToolRequestParams(
                name=name, arguments=args, task=types.TaskMetadata(ttl=KEEP_MS)
            )
            request = types.CallToolRequest(params=params)
            answer = await self.session.send_request(request, types.CallToolResult)
            begun = (answer.meta or {}).get(TASK_KEY)
            if begun is None:  # the server has run the call at once
                return answer
            task = types.Task.model_validate(begun)
            await on_task(task.task_id)
            return await self._task_result(name, task, report)
        responses: dict[str, Any] | None = None
        state: str | None = None
        for _ in range(ROUNDS):
            result = await self.session.call_tool(
                name,
                args,
                progress_callback=on_progress,
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
            )
            if not isinstance(result, types.InputRequiredResult):
                return result
            responses, state = await self._answer_requests(result), result.request_state
        raise ServerError(f"it asked more than {ROUNDS} times during one call", lasting=False)

    async def finish_task(
        self, name: str, task_id: str, report: Callable[[str], None]
    ) -> types.CallToolResult:
        """Wait for the result of a call that the server runs as a task. ToolError: it is unknown.

        `report` receives the task's status message whenever it changes.
        """
        task = await self.find_task(task_id)
        if task is None:
            raise ToolError(
                f"{name}: its server runs it as a task, and does not know that any more. {UNSURE}"
            )
        return await self._task_result(name, task, report)

    async def find_task(self, task_id: str) -> types.Task | None:
        """Return a task's state; None if the server does not know the task."""
        try:
            return await self._task_state(task_id)
        except MCPError as error:
            if is_loss(error):
                raise
            return None

    async def cancel_task(self, task_id: str) -> None:
        """Cancel a task whose result is no longer needed. Errors are ignored."""
        params = types.CancelTaskRequestParams(task_id=task_id)
        with contextlib.suppress(MCPError, TimeoutError, ValueError):
            async with asyncio.timeout(CANCEL_S):
                await self.session.send_request(
                    types.CancelTaskRequest(params=params), types.CancelTaskResult
                )

    async def _task_state(self, task_id: str) -> types.Task:
        request = types.GetTaskRequest(params=types.GetTaskRequestParams(task_id=task_id))
        return await self.session.send_request(request, types.GetTaskResult)

    async def _task_result(
        self, name: str, task: types.Task, report: Callable[[str], None]
    ) -> types.CallToolResult:
        """Wait for a task's result. ToolError: the server cancelled it. MCPError: it failed."""
        reported, failures = None, 0
        while task.status == "working":
            if task.status_message and task.status_message != reported:
                reported = task.status_message
                report(reported)
            interval = POLL_S if task.poll_interval is None else task.poll_interval / 1000
            await asyncio.sleep(min(max(interval, MIN_POLL_S), MAX_POLL_S))
            try:
                task, failures = await self._task_state(task.task_id), 0
            except MCPError as error:
                failures += 1
                if is_loss(error) or error.code in _UNKNOWN or failures > MAX_FAILURES:
                    raise
        if task.status == "cancelled":
            why = f": {task.status_message.rstrip('.')}" if task.status_message else ""
            raise ToolError(f"{name} was cancelled by its server{why}. {UNSURE}")
        # A server that needs input requests it while it is asked for the result.
        params = types.GetTaskPayloadRequestParams(task_id=task.task_id)
        request = types.GetTaskPayloadRequest(params=params)
        return await self.session.send_request(request, types.CallToolResult)

    async def process_notifications(self) -> None:
        """Give the SDK time to handle the notifications received so far."""
        if self.incoming.notified:
            self.incoming.notified = False
            for _ in range(3):
                await asyncio.sleep(0)  # the SDK handles them in a separate task

    async def watch(self, changed: Callable[[], None]) -> None:
        """Subscribe to changes of tools, if the server's protocol needs a subscription."""
        if self.session.discover_result is None:
            return  # servers with a handshake notify without one
        with contextlib.suppress(MCPError, SubscriptionLost, TimeoutError):
            async with listen(self.session, tools_list_changed=True) as events:
                async for _ in events:
                    changed()

    async def _answer_requests(self, required: types.InputRequiredResult) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, request in (required.input_requests or {}).items():
            context = ClientRequestContext(session=self.session, request_id=key)
            answer = await self.session.dispatch_input_request(context, request)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            found[key] = answer
        if not found:
            await asyncio.sleep(0.1)  # it only asks to be called again
        return found


@contextlib.asynccontextmanager
async def open_connection(
    callbacks: Callbacks, diagnostics: Diagnostics, auth: httpx2.Auth | None = None
) -> AsyncGenerator[Connection]:
    """Connect to a server and initialize the session. ServerError: the server cannot be used.

    `auth` replaces the stored login.
    """
    kinds = transport_kinds(diagnostics.server)
    for kind in kinds:
        try:
            async with _open_with_transport(kind, callbacks, diagnostics, auth) as connection:
                yield connection
                return
        except ServerError as error:
            if kind is kinds[-1] or error.status not in WRONG_TRANSPORT:
                raise


@contextlib.asynccontextmanager
async def connect_outside_run(
    server: MCPServer, timeout_s: float | None = None, auth: httpx2.Auth | None = None
) -> AsyncGenerator[Connection]:
    """Connect to a server for a few requests; its own requests are declined.

    `timeout_s` limits the whole connection, and `auth` replaces the stored login.

    Raises:
        ServerError: The server cannot be used, or refused a request.
    """

    async def decline(context: object, params: object) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async def refuse(context: object, params: object) -> types.ErrorData:
        text = "There is no model outside a run."
        return types.ErrorData(code=types.INVALID_REQUEST, message=text)

    diagnostics = Diagnostics(server)
    callbacks = Callbacks(decline, refuse, lambda: None)
    try:
        async with (
            asyncio.timeout(timeout_s),
            open_connection(callbacks, diagnostics, auth) as connection,
        ):
            yield connection
    except _FAILURES as error:
        raise diagnostics.to_server_error(error) from error


def transport_kinds(server: MCPServer) -> list[str]:
    """Return the transports to try, the most likely first."""
    if server.transport is not None:
        return [server.transport]
    if server.command is not None:
        return ["stdio"]
    return ["sse", "http"] if (server.url or "").rstrip("/").endswith("/sse") else ["http", "sse"]


@contextlib.asynccontextmanager
async def _open_with_transport(
    kind: str, callbacks: Callbacks, diagnostics: Diagnostics, auth: httpx2.Auth | None
) -> AsyncGenerator[Connection]:
    is_open, server = False, diagnostics.server
    try:
        async with contextlib.AsyncExitStack() as stack:
            streams: contextlib.AbstractAsyncContextManager[tuple[Any, Any]]
            if kind == "stdio":
                streams = transports.stdio_streams(server, diagnostics.stderr_lines)
            else:
                client = await asyncio.to_thread(transports.Client, server, auth)  # it reads files
                diagnostics.client = await stack.enter_async_context(client)
                if kind == "http":
                    url, limit = server.url or "", transports.MAX_MESSAGE
                    streams = streamable_http_client(
                        url, http_client=client, max_sse_event_size=limit
                    )
                else:
                    streams = transports.sse_streams(server, client)
            read, write = await stack.enter_async_context(streams)
            incoming = _IncomingStream(read)
            session = _session(incoming, write, callbacks, diagnostics)
            await _handshake(await stack.enter_async_context(session), incoming.ended)
            is_open = True
            yield Connection(session, kind, diagnostics, incoming)
    except BaseException as error:
        # The SDK's task groups wrap what happens while a connection is made, and while it ends.
        if is_open or isinstance(error, asyncio.CancelledError | GeneratorExit):
            raise
        raise diagnostics.to_server_error(error) from error


def _session(
    read: Any, write: Any, callbacks: Callbacks, diagnostics: Diagnostics
) -> ClientSession:
    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        log.info("%s: %s: %s", diagnostics.server.name, params.level, str(params.data)[:2000])

    async def on_message(message: Any) -> None:  # a notification, or a message that is invalid
        if isinstance(message, Exception):
            diagnostics.noise = diagnostics.noise or str(message).partition("\n")[0]
        elif isinstance(message, types.ToolListChangedNotification):
            callbacks.tools_changed()

    # No roots are announced: servers of files would take them for the folders that their own
    # arguments name.
    return _Session(
        read,
        write,
        sampling_callback=callbacks.sample if diagnostics.server.sampling else None,
        elicitation_callback=callbacks.elicit,
        logging_callback=on_log,
        log_level="info",
        message_handler=on_message,
        client_info=types.Implementation(name="openmanus", version="1"),
    )


async def _handshake(session: ClientSession, ended: asyncio.Event) -> None:
    """Initialize with a handshake, because servers need one to send requests during a call.

    Discover servers that only support the newer protocol without sessions.
    """
    initializing = asyncio.ensure_future(session.initialize())
    ended_first = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({initializing, ended_first}, return_when=asyncio.FIRST_COMPLETED)
        if not initializing.done():
            raise EOFError
        await initializing
    except MCPError as error:
        if is_loss(error) or error.code == types.REQUEST_TIMEOUT:
            raise
        try:
            await session.discover()
        except (MCPError, RuntimeError):
            raise error from None
    finally:
        initializing.cancel()
        ended_first.cancel()


class _IncomingStream:
    """The incoming stream. It repairs messages, and records notifications and its end."""

    def __init__(self, stream: Any) -> None:  # the SDK's
        self._stream = stream
        self.ended = asyncio.Event()
        self.notified = False
        """A notification was received."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> "_IncomingStream":
        return self

    async def __anext__(self) -> Any:
        try:
            message = results.repair_message(await self._stream.__anext__())
        except asyncio.CancelledError:
            raise
        except BaseException:
            self.ended.set()
            raise
        sent = getattr(message, "message", None)
        self.notified = self.notified or isinstance(sent, types.JSONRPCNotification)
        return message

    async def __aenter__(self) -> "_IncomingStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *what: Any) -> Any:
        return await self._stream.__aexit__(*what)

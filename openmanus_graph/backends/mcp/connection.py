"""One connection to a server: the SDK's session, with pagination, input requests and errors."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError

from openmanus_graph.backends.mcp.failures import (
    UNSURE,
    Diagnostics,
    ServerError,
    is_loss,
    stdio_streams,
)
from openmanus_graph.backends.mcp.http import Client, http_streams, sse_streams
from openmanus_graph.backends.mcp.listed_tools import pages, repair_message
from openmanus_graph.backends.mcp.results import READ_RESOURCE, read_or_list, resource_tools
from openmanus_graph.backends.mcp.tasks import begin_task, find_task, finish_task, runs_tasks
from openmanus_graph.errors import ToolError
from openmanus_graph.state.mcp_server import MCPServer

for _name in ("mcp", "client"):  # the SDK's loggers: a faulty server must not write on the terminal
    logging.getLogger(_name).addHandler(logging.NullHandler())

TOOLS, ROUNDS = 2000, 20
"""Pages and tools of a list of tools; rounds of input requests in one call."""
WRONG_TRANSPORT = frozenset({404, 405, 406, 400})
"""Status codes that hint at the other transport, such as SSE."""
_FAILURES = (MCPError, TimeoutError, OSError, EOFError, RuntimeError, ValueError, ExceptionGroup)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Callbacks:
    """Handlers of the requests and notifications of a server."""

    elicit: Callable[[Any], Awaitable[types.ElicitResult]]
    sample: Callable[[Any], Awaitable[types.CreateMessageResult | types.ErrorData]]
    tools_changed: Callable[[], None]


@dataclass(frozen=True)
class TaskListener:
    """Told of a call that a server runs as a task."""

    on_begin: Callable[[str], Awaitable[None]]
    """Given the task's id, before anything else is asked of the server."""
    on_status: Callable[[str], None]
    """Given what the server says of the task's state."""


async def _decline(params: object) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


async def _refuse(params: object) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message="There is no model outside a run.")


class _Session(ClientSession):
    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        """Accept any result: models do not see the schema of results."""


@dataclass(eq=False)
class Connection:
    """An initialized connection to a server."""

    session: ClientSession
    transport: str
    diagnostics: Diagnostics
    incoming: "_IncomingStream"
    _reads_resources: bool = False
    _task_tools: frozenset[str] = frozenset()
    """The tools whose calls the server runs as tasks."""

    @property
    def ended(self) -> asyncio.Event:
        """Set when the incoming stream has ended."""
        return self.incoming.ended

    @property
    def notifies_out_of_band(self) -> bool:
        """Whether notifications come on another stream than results, perhaps after them."""
        return self.diagnostics.client is not None or self.session.discover_result is not None

    async def tools(self) -> list[types.Tool]:
        """List the tools, with one that reads the server's resources if there are any."""
        own = await self._own_tools()
        resources = await resource_tools(self.session, own)
        self._reads_resources = bool(resources)
        if runs_tasks(self.session):
            self._task_tools = frozenset(tool.name for tool in own if tool.execution is not None
                and tool.execution.task_support in ("optional", "required"))  # fmt: skip
        return own + resources

    async def _own_tools(self) -> list[types.Tool]:
        found: list[types.Tool] = []
        try:
            async for page in pages(self.session.list_tools):
                found += page.tools
                if len(found) >= TOOLS:
                    break
        except MCPError as error:
            if error.code != types.METHOD_NOT_FOUND or found:
                raise  # else a server without tools
        return found[:TOOLS]

    async def call(
        self, name: str, args: dict[str, Any], progress: ProgressFnT, listener: TaskListener
    ) -> Any:
        """Call a tool and return its result; cancelling notifies the server."""
        if name == READ_RESOURCE and self._reads_resources:
            return await read_or_list(self.session, args.get("uri"))
        if name in self._task_tools:
            begun = await begin_task(self.session, name, args)
            if not isinstance(begun, types.Task):
                return begun
            await listener.on_begin(begun.task_id)
            return await finish_task(self.session, name, begun, listener.on_status)
        responses: dict[str, Any] | None = None
        state: str | None = None
        for _ in range(ROUNDS):
            result = await self.session.call_tool(
                name,
                args,
                progress_callback=progress,
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
            )
            if not isinstance(result, types.InputRequiredResult):
                return result
            responses, state = await self._answer_requests(result), result.request_state
        raise ServerError(f"it asked more than {ROUNDS} times during one call", lasting=False)

    async def finish_task(self, name: str, task_id: str, listener: TaskListener) -> Any:
        """Return the result of a call that the server runs as a task. ToolError: it is unknown."""
        task = await find_task(self.session, task_id)
        if task is None:
            raise ToolError(
                f"{name}: its server runs it as a task, and does not know that any more. {UNSURE}"
            )
        return await finish_task(self.session, name, task, listener.on_status)

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
    server: MCPServer,
    callbacks: Callbacks,
    diagnostics: Diagnostics,
    auth: httpx2.Auth | None = None,
) -> AsyncGenerator[Connection]:
    """Connect to a server and initialize the session.

    Args:
        server: Its configuration.
        callbacks: Handle its requests.
        diagnostics: Collects what explains a failure.
        auth: Authenticates, in place of the login that is stored.

    Raises:
        ServerError: It cannot be used, and why.
    """
    kinds = transports(server)
    for kind in kinds:
        try:
            async with _open_with_transport(
                server, kind, callbacks, diagnostics, auth
            ) as connection:
                yield connection
                return
        except ServerError as error:
            if kind is kinds[-1] or error.status not in WRONG_TRANSPORT:
                raise


@contextlib.asynccontextmanager
async def connect_outside_run(
    server: MCPServer, timeout_s: float | None = None, auth: httpx2.Auth | None = None
) -> AsyncGenerator[Connection]:
    """Connect to a server for a few requests; nobody answers its own.

    Args:
        server: Its configuration.
        timeout_s: Seconds for all of it.
        auth: Authenticates, in place of the login that is stored.

    Raises:
        ServerError: It cannot be used, or refused a request, and why.
    """
    diagnostics = Diagnostics(server)
    callbacks = Callbacks(_decline, _refuse, lambda: None)
    try:
        async with (
            asyncio.timeout(timeout_s),
            open_connection(server, callbacks, diagnostics, auth) as connection,
        ):
            yield connection
    except _FAILURES as error:
        raise diagnostics.to_server_error(error) from error


def transports(server: MCPServer) -> list[str]:
    """Return the transports to try, the likeliest first."""
    if server.transport is not None:
        return [server.transport]
    if server.command is not None:
        return ["stdio"]
    return ["sse", "http"] if (server.url or "").rstrip("/").endswith("/sse") else ["http", "sse"]


@contextlib.asynccontextmanager
async def _open_with_transport(
    server: MCPServer,
    kind: str,
    callbacks: Callbacks,
    diagnostics: Diagnostics,
    auth: httpx2.Auth | None,
) -> AsyncGenerator[Connection]:
    is_open = False
    try:
        async with contextlib.AsyncExitStack() as stack:
            if kind == "stdio":
                streams = stdio_streams(server, diagnostics.stderr_lines)
            else:
                client = await asyncio.to_thread(Client, server, auth)  # it reads files
                diagnostics.client = await stack.enter_async_context(client)
                open_streams = http_streams if kind == "http" else sse_streams
                streams = open_streams(server, diagnostics.client)
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
    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        return await callbacks.elicit(params)

    async def sample(context: Any, params: Any) -> types.CreateMessageResult | types.ErrorData:
        return await callbacks.sample(params)

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
        sampling_callback=sample if diagnostics.server.sampling else None,
        elicitation_callback=elicit,
        logging_callback=on_log,
        log_level="info",
        message_handler=on_message,
        client_info=types.Implementation(name="openmanus", version="1"),
    )


async def _handshake(session: ClientSession, ended: asyncio.Event) -> None:
    """Initialize with a handshake, because only then a server can send requests during a call.

    Servers that only support the newer protocol, without sessions, are discovered.
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
    """Wraps the incoming stream: repairs messages, and notes notifications and the end."""

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
            message = repair_message(await self._stream.__anext__())
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

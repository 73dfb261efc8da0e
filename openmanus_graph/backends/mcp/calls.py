"""The open calls of a server, and the requests that the server sends during them.

`Calls` runs on the servers' event loop.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from openmanus_graph.backends.mcp.connection import Connection
from openmanus_graph.backends.mcp.failures import ENDED, PROBLEMS, UNSURE, is_loss
from openmanus_graph.errors import ToolError
from openmanus_graph.state.validation import validation_problems

LINK_TIMEOUT_S = 10.0
LINKS = 3
"""Most linked resources that are fetched with a result."""
FINAL_RESPONSE_S = 0.2
"""How long to wait for results that a server wrote just before its connection ended."""


@dataclass(eq=False)
class Event:
    """A progress report, a request of the server, the start of a task, or the end of a call."""

    kind: Literal["progress", "ask", "sample", "task", "done"]
    payload: Any = None
    """The text of a progress report, the parameters of a request, the id of a task, or a result."""
    error: Exception | None = None
    """Why the call failed."""
    problem: str = ""
    """Why the user's last answer was rejected."""

    @cached_property
    def answer(self) -> "Future[Any]":
        """The future that the server's request waits for, or a call that has become a task."""
        return Future()


class OpenCall:
    """One running call: its events in order, for one reader."""

    def __init__(self, tool: str, args: dict[str, Any], task_id: str = "") -> None:
        self.tool, self.args = tool, args
        self.task_id = task_id
        """The id of the task as which the server runs the call; empty if there is no task."""
        self.abandoned = False
        """Whether the result is no longer needed."""
        self.cancel: Callable[[], None] = lambda: None
        """Cancels the call on the servers' event loop."""
        self._events: deque[Event] = deque()
        self._reader: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._lock = threading.Lock()

    def put(self, event: Event) -> None:
        """Add an event, from any thread."""
        with self._lock:
            if event.kind == "done":  # no request waits for an answer any more
                self._events = deque(one for one in self._events if one.kind == "progress")
            self._events.append(event)
            reader, self._reader = self._reader, None
        if reader is not None:
            loop, waiting = reader
            with contextlib.suppress(RuntimeError):  # the reader's loop is closed
                loop.call_soon_threadsafe(_wake, waiting)

    async def first(self) -> Event:
        """Wait for the oldest event and return it. It stays first until `drop`."""
        while True:
            with self._lock:
                if self._events:
                    return self._events[0]
                loop = asyncio.get_running_loop()
                waiting = loop.create_future()
                self._reader = (loop, waiting)
            await waiting

    def drop(self) -> None:
        """Remove the oldest event after it was handled; `done` stays."""
        with self._lock:
            if self._events and self._events[0].kind != "done":
                self._events.popleft()

    def abandon(self) -> None:
        """Cancel the call, and resolve its pending requests with None."""
        self.abandoned = True
        self.cancel()
        for event in list(self._events):
            if not event.answer.done():
                event.answer.set_result(None)


async def _linked_contents(connection: Connection, result: types.CallToolResult) -> list[Any]:
    """Fetch the first resources that a result links to; leave out those that fail."""
    linked: list[Any] = []
    uris = [str(block.uri) for block in result.content if block.type == "resource_link"]
    for uri in uris[:LINKS]:
        with contextlib.suppress(MCPError, TimeoutError, ValueError):
            async with asyncio.timeout(LINK_TIMEOUT_S):
                linked += (await connection.session.read_resource(uri)).contents
    return linked


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


@dataclass(eq=False)
class Calls:
    """Runs calls, each until the `done` event that ends it."""

    server: str
    refresh_tools: Callable[[], None]
    """Called when the server's tools may have changed."""
    wait_for_tools: Callable[[], Awaitable[None]]
    """Waits until the list of tools is current."""
    report_exit: Callable[[str], None]
    """Called with the reason when the server has to be restarted."""
    resume: Callable[[OpenCall], None]
    """Resumes, on the next connection, a call that the server runs as a task."""
    _open: dict[OpenCall, "asyncio.Task[Any]"] = field(
        default_factory=lambda: dict[OpenCall, "asyncio.Task[Any]"]()
    )
    """The newest last."""

    async def run(self, call: OpenCall, connection: Connection) -> None:
        """Call a tool and put its result or error as a `done` event.

        A call that is a task is resumed after a lost connection, without such an event.
        """
        task = asyncio.current_task()
        assert task is not None
        self._open[call] = task
        try:
            call.put(Event("done", await self._perform(connection, call)))
        except asyncio.CancelledError:
            if call.abandoned and call.task_id:
                await connection.cancel_task(call.task_id)
            cancelled = ToolError(f"The call of {call.tool} was cancelled.")
            error = self._connection_lost() if connection.ended.is_set() else cancelled
            self._end(call, connection, error)
            raise
        except Exception as error:  # noqa: BLE001  # raised again where the events are read
            self._end(call, connection, error)
        finally:
            del self._open[call]

    def _end(self, call: OpenCall, connection: Connection, error: Exception) -> None:
        if call.task_id and connection.ended.is_set() and not call.abandoned:
            self.resume(call)
        else:
            call.put(Event("done", error=error))

    async def cancel_all(self) -> None:
        """Cancel the calls that get no result because the connection is lost."""
        if self._open:
            await asyncio.sleep(FINAL_RESPONSE_S)
        for task in self._open.values():
            task.cancel()

    async def elicit(self, context: ClientRequestContext, params: Any) -> types.ElicitResult:
        """Forward an elicitation to the newest call, which asks the user."""
        answer = await self._forward("ask", params)
        return answer or types.ElicitResult(action="cancel")

    async def sample(
        self, context: ClientRequestContext, params: Any
    ) -> types.CreateMessageResult | types.ErrorData:
        """Forward a sampling request to the newest call, which asks the model."""
        answer: types.CreateMessageResult | None = await self._forward("sample", params)
        if answer:
            return answer
        return types.ErrorData(code=types.INVALID_REQUEST, message="No call is open for that.")

    async def _forward(self, kind: Literal["ask", "sample"], params: Any) -> Any:
        if not self._open:
            return None
        event = Event(kind, params)
        list(self._open)[-1].put(event)
        return await asyncio.wrap_future(event.answer)

    async def _perform(self, connection: Connection, call: OpenCall) -> Any:
        tool = call.tool

        async def on_task(task_id: str) -> None:
            call.task_id = task_id
            begun = Event("task", task_id)
            call.put(begun)
            await asyncio.wrap_future(begun.answer)

        def report(text: str) -> None:
            call.put(Event("progress", text))

        if connection.diagnostics.client is not None:
            connection.diagnostics.client.last_failure = None
        try:
            if call.task_id:
                result = await connection.finish_task(tool, call.task_id, report)
            else:
                result = await connection.call(tool, call.args, report, on_task)
        except MCPError as error:
            raise self._tool_error(tool, error, connection) from error
        except ValidationError as error:
            problems = "; ".join(validation_problems(error)[:PROBLEMS])
            text = f"{tool}: {self.server} answered with an invalid result: {problems}."
            raise ToolError(text) from error
        await connection.process_notifications()  # those sent before the result
        await self.wait_for_tools()
        return result, await _linked_contents(connection, result)

    def _tool_error(self, tool: str, error: MCPError, connection: Connection) -> ToolError:
        diagnostics = connection.diagnostics
        if error.code in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS):
            self.refresh_tools()  # perhaps it has other tools now
        elif refusal := diagnostics.refusal(error):
            if refusal.over:
                connection.ended.set()
                self.report_exit(refusal.over)
            return ToolError(f"{tool} failed: {self.server} {refusal.text}")
        elif is_loss(error) or (
            diagnostics.client is not None and diagnostics.client.last_failure is not None
        ):
            connection.ended.set()
            return self._connection_lost()
        return ToolError(
            f"{tool} failed: {self.server} answered with an error: {str(error).rstrip('.')}."
        )

    def _connection_lost(self) -> ToolError:
        self.report_exit(ENDED)
        return ToolError(
            f"{self.server} ended, or its connection was lost, while the call ran. {UNSURE}"
        )

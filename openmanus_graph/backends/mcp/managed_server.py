"""The lifecycle of a server: start, supervision, restart on exit, and close with the thread.

It runs on a separate event loop, because a session outlives the event loops of single runs.
"""

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from openmanus_graph.backends.mcp import failures, listed_tools
from openmanus_graph.backends.mcp.calls import Event, OpenCall
from openmanus_graph.backends.mcp.connection import (
    Callbacks,
    Connection,
    open_connection,
    transport_kinds,
)
from openmanus_graph.backends.mcp.results import linked_contents
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.process import EventLoopThread
from openmanus_graph.state.context import MCPServer
from openmanus_graph.state.validation import validation_problems

BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Pauses before each restart of a server that exited; after the last one it is given up."""
STABLE_S = 30.0
"""Uptime after which the backoff returns to the first pause."""
LIST_S, CLOSE_S = 10.0, 10.0
FINAL_RESPONSE_S = 0.2
"""How long to wait for results that a server wrote just before its connection ended."""


log = logging.getLogger(__name__)

server_loop = EventLoopThread("openmanus-mcp")
os.register_at_fork(after_in_child=server_loop.forget)

State = Literal["starting", "up", "down", "gone"]


@dataclass(frozen=True, eq=False)
class ServerChange:
    """A change of a server's state or tools, reported once to the user and the model."""

    text: str
    level: Literal["info", "warning"] = "warning"


class ManagedServer:
    """A supervised server of one thread; a handle of the thread's session."""

    def __init__(self, server: MCPServer, siblings: "set[ManagedServer]") -> None:
        """Start the server in the background. It is closed with its siblings of the session."""
        self.server = server
        self.state: State = "starting"
        self.tools: tuple[listed_tools.ListedTool, ...] = ()
        self.changed: dict[str, str] = {}
        """The digests of changed tools at the time when the user added the server, by name."""
        self.transport = transport_kinds(server)[0]
        self.info = ""
        """The server's name and version, and the version of the protocol."""
        self.why = ""
        """Why the server is not connected."""
        self.changes: list[ServerChange] = []
        self.run: object = None
        """The run that started the server."""
        self._siblings = siblings
        self._connection: Connection | None = None
        self._calls: dict[OpenCall, asyncio.Task[Any]] = {}
        """The newest last."""
        self._first_attempt_done, self._tools_changed, self._tools_current, self._state_event = (
            asyncio.Event() for _ in range(4)
        )
        self._tools_current.set()
        self._has_session_state = self._called = False
        self._closing = self._exit_reported = False
        self._task: asyncio.Task[Any] | None = None
        server_loop.begin(self._supervise)
        siblings.add(self)

    async def wait_until_settled(self) -> None:
        """Wait until the first start succeeded or failed, and the list of tools is current."""
        await self._first_attempt_done.wait()
        connection = self._connection
        if (
            self._called
            and connection is not None
            and not connection.ended.is_set()
            and connection.notifies_out_of_band
        ):
            self._called = False
            self._refresh_tools()
        await self._wait_for_tools()

    async def state_changed(self) -> None:
        await self._state_event.wait()

    def begin_call(self, call: OpenCall) -> None:
        """Start a call, or follow the task as which the server runs it; it becomes events."""
        call.cancel = server_loop.begin(partial(self._call, call))

    def handle_state(self) -> str:
        """Return a description, for the model, of the state that ends with the session."""
        if not self._has_session_state:
            return ""
        return f"the session with the MCP server {self.server.name}, and what it kept in memory"

    def close(self) -> None:
        """Close the server, and begin to close the session's other servers."""
        for one in self._siblings:
            server_loop.begin(one._end)
        self._siblings.discard(self)
        with contextlib.suppress(TimeoutError):
            server_loop.call(self._end, CLOSE_S)

    async def _end(self) -> None:
        if self._task is None or self._task.done():
            return
        if not self._closing:
            self._closing = True
            self._task.cancel()
        await asyncio.wait({self._task})

    # Everything below runs on the servers' event loop.

    async def _supervise(self) -> None:
        self._task = asyncio.current_task()
        try:
            await self._run()
        except asyncio.CancelledError:
            self.why = "was closed"
            raise
        finally:
            self._set_state("gone")
            self._first_attempt_done.set()
            self._tools_current.set()

    async def _run(self) -> None:
        failed_starts = 0
        while not self._closing:
            started_at = asyncio.get_running_loop().time()
            try:
                await self._run_once()
                error = failures.ServerError(failures.ENDED, lasting=False)
            except failures.ServerError as caught:
                error = caught
            if asyncio.get_running_loop().time() - started_at > STABLE_S:
                failed_starts = 0
            first = not self._first_attempt_done.is_set()
            self.why = str(error)
            if error.lasting or failed_starts == len(BACKOFF_S):
                why = self.why.rstrip(".")
                self._notify(f"{self._name} {why}. Its tools cannot be used any more.")
                self.tools = ()
                return
            if first:
                self._notify(f"{self._name} {self.why.rstrip('.')}. It is started again.")
            elif self.state == "up":
                self.report_exit(failures.ENDED)
            self._has_session_state = False
            self._tools_current.set()
            self._set_state("down")
            self._first_attempt_done.set()
            await asyncio.sleep(BACKOFF_S[failed_starts])
            failed_starts += 1

    async def _run_once(self) -> None:
        """Connect to the server until the connection ends. ServerError: it did not start."""
        callbacks = Callbacks(self._elicit, self._sample, self._refresh_tools)
        diagnostics = failures.Diagnostics(self.server)
        clock = asyncio.timeout(self.server.start_timeout_s)
        try:
            async with clock, open_connection(callbacks, diagnostics) as connection:
                await self._list_tools(connection)
                clock.reschedule(None)
                self._on_connected(connection)
                await self._watch_tools(connection)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise diagnostics.to_server_error(error) from error
        except (MCPError, OSError, EOFError, RuntimeError, ValueError, ExceptionGroup) as error:
            if self._connection is None:
                raise diagnostics.to_server_error(error) from error
            log.info("%s: its connection ended", self._name, exc_info=error)
        finally:
            self._connection = None

    def _on_connected(self, connection: Connection) -> None:
        info = connection.session.server_info
        name = f"{info.name} {info.version}".strip() if info is not None else "unnamed"
        self.info = f"{name}, protocol {connection.session.protocol_version}"
        self._connection, self.why, self._exit_reported = connection, "", False
        self.transport = connection.transport
        if self._first_attempt_done.is_set():
            self._notify(f"{self._name} is connected again.", "info")
        self._set_state("up")
        self._first_attempt_done.set()

    async def _watch_tools(self, connection: Connection) -> None:
        """Refresh the list of tools on each change until the connection ends."""
        watching = asyncio.ensure_future(connection.watch(self._refresh_tools))
        ended = asyncio.ensure_future(connection.ended.wait())
        try:
            while not ended.done():
                changed = asyncio.ensure_future(self._tools_changed.wait())
                await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if not ended.done():
                    self._tools_changed.clear()
                    with contextlib.suppress(MCPError, TimeoutError, ValueError):
                        async with asyncio.timeout(LIST_S):
                            await self._list_tools(connection)
                    if not self._tools_changed.is_set():
                        self._tools_current.set()
        finally:
            watching.cancel()
            ended.cancel()
            self._tools_current.set()
            await self._cancel_calls()

    async def _list_tools(self, connection: Connection) -> None:
        listed = await connection.tools()
        # Digests of all tools are compared, because the user can offer others later.
        known = listed_tools.offered_tools(replace(self.server, allow=None, deny=()), listed)
        changed = await asyncio.to_thread(listed_tools.changed_tools, self.server, known)
        # In the previous order, so that the prompt prefix stays cacheable.
        places = {tool.name: place for place, tool in enumerate(self.tools)}
        offered = listed_tools.offered_tools(self.server, listed)
        found = tuple(sorted(offered, key=lambda tool: places.get(tool.name, len(places))))
        is_update = self.state != "starting"
        newly_changed = [one.name for one in found if one.name in changed.keys() - self.changed]
        self.changed = changed
        changes = listed_tools.difference(self.tools, found)
        self.tools = found if any(changes.values()) else self.tools
        described = [f"{word}: {', '.join(names)}" for word, names in changes.items() if names]
        if described and is_update:
            self._notify(f"{self._name} has changed its tools ({'; '.join(described)}).", "info")
        if newly_changed:
            self._notify(
                f"What the MCP server {self.server.name} says of {', '.join(newly_changed)} is new "
                "or has changed since you added it. It counts as untrusted, and a changed tool is "
                "asked about before its next call with external effects."
            )

    def accept(self, tool: listed_tools.ListedTool) -> None:
        """Save a tool's digest, because the user allowed a call of it. Blocks."""
        listed_tools.save_digests(self.server, {tool.name: tool.digest})
        self.changed = {name: one for name, one in self.changed.items() if name != tool.name}

    async def knows_task(self, task_id: str) -> bool:
        with contextlib.suppress(ToolError, MCPError, TimeoutError, ValueError):
            connection = await self._wait_for_connection()
            async with asyncio.timeout(LIST_S):
                return await connection.find_task(task_id) is not None
        return False

    async def _call(self, call: OpenCall) -> None:
        """Call a tool and put its result or error as a `done` event.

        A call that is a task is resumed after a lost connection, without such an event.
        """
        try:
            connection = await self._wait_for_connection()
        except ToolError as error:
            unsure = f" {failures.UNSURE}" if call.task_id else ""
            call.put(Event("done", error=ToolError(f"{error}{unsure}")))
            return
        self._has_session_state = self._called = True
        task = asyncio.current_task()
        assert task is not None
        self._calls[call] = task
        try:
            call.put(Event("done", await self._perform(connection, call)))
        except asyncio.CancelledError:
            if call.abandoned and call.task_id:
                await connection.cancel_task(call.task_id)
            cancelled = ToolError(f"The call of {call.tool} was cancelled.")
            lost = connection.ended.is_set()
            self._end_call(call, connection, self._connection_lost() if lost else cancelled)
            raise
        except Exception as error:  # noqa: BLE001  # raised again where the events are read
            self._end_call(call, connection, error)
        finally:
            del self._calls[call]

    def _end_call(self, call: OpenCall, connection: Connection, error: Exception) -> None:
        if call.task_id and connection.ended.is_set() and not call.abandoned:
            self.begin_call(call)
        else:
            call.put(Event("done", error=error))

    async def _cancel_calls(self) -> None:
        """Cancel the calls that get no result because the connection is lost."""
        if self._calls:
            await asyncio.sleep(FINAL_RESPONSE_S)
        for task in self._calls.values():
            task.cancel()

    async def _elicit(self, context: ClientRequestContext, params: Any) -> types.ElicitResult:
        """Forward an elicitation to the newest call, which asks the user."""
        answer = await self._forward("ask", params)
        return answer or types.ElicitResult(action="cancel")

    async def _sample(
        self, context: ClientRequestContext, params: Any
    ) -> types.CreateMessageResult | types.ErrorData:
        """Forward a sampling request to the newest call, which asks the model."""
        answer: types.CreateMessageResult | None = await self._forward("sample", params)
        if answer:
            return answer
        return types.ErrorData(code=types.INVALID_REQUEST, message="No call is open for that.")

    async def _forward(self, kind: Literal["ask", "sample"], params: Any) -> Any:
        if not self._calls:
            return None
        event = Event(kind, params)
        list(self._calls)[-1].put(event)
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
            problems = "; ".join(validation_problems(error)[: failures.PROBLEMS])
            text = f"{tool}: {self._name} answered with an invalid result: {problems}."
            raise ToolError(text) from error
        await connection.process_notifications()  # those sent before the result
        await self._wait_for_tools()
        return result, await linked_contents(connection.session, result)

    def _tool_error(self, tool: str, error: MCPError, connection: Connection) -> ToolError:
        diagnostics = connection.diagnostics
        if error.code in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS):
            self._refresh_tools()  # perhaps it has other tools now
        elif refusal := diagnostics.refusal(error):
            text, over = refusal
            if over:
                connection.ended.set()
                self.report_exit(over)
            return ToolError(f"{tool} failed: {self._name} {text}")
        elif failures.is_loss(error) or (
            diagnostics.client is not None and diagnostics.client.last_failure is not None
        ):
            connection.ended.set()
            return self._connection_lost()
        return ToolError(
            f"{tool} failed: {self._name} answered with an error: {str(error).rstrip('.')}."
        )

    def _connection_lost(self) -> ToolError:
        self.report_exit(failures.ENDED)
        return ToolError(
            f"{self._name} ended, or its connection was lost, while the call ran. {failures.UNSURE}"
        )

    async def _wait_for_tools(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIST_S):
                await self._tools_current.wait()

    async def _wait_for_connection(self) -> Connection:
        """Wait until the server is up and return the connection. ToolError: it has failed."""
        while self._connection is None or self._connection.ended.is_set():
            if self.state == "gone":
                raise ToolError(
                    f"{self._name} {self.why.rstrip('.')}. Its tools cannot be used: find another "
                    "way, or say in the answer what is left to do."
                )
            await self.state_changed()
        return self._connection

    def report_exit(self, why: str) -> None:
        """Add a notice that the server has exited, once for each exit."""
        if not self._exit_reported:
            self._exit_reported = True
            self._notify(
                f"{self._name} {why}. It is started again; what it kept in memory may be lost."
            )

    def _refresh_tools(self) -> None:
        self._tools_current.clear()
        self._tools_changed.set()

    def _notify(self, text: str, level: Literal["info", "warning"] = "warning") -> None:
        self.changes.append(ServerChange(text, level))

    def _set_state(self, state: State) -> None:
        self.state = state
        self._state_event.set()
        self._state_event = asyncio.Event()

    @property
    def _name(self) -> str:
        return f"The MCP server {self.server.name}"

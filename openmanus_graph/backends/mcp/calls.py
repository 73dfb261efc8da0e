"""The open calls of a server, and the requests that it sends during them.

All of it runs on the servers' event loop.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from openmanus_graph.backends.mcp.connection import Connection
from openmanus_graph.backends.mcp.failures import ENDED, PROBLEMS, UNSURE, is_loss
from openmanus_graph.backends.mcp.open_call import Event, OpenCall
from openmanus_graph.backends.mcp.results import links_of
from openmanus_graph.errors import ToolError
from openmanus_graph.state.validation import validation_problems

LINK_S = 10.0
LINKS = 3
"""Resources that a result refers to and that are fetched with it."""
FINAL_RESPONSE_S = 0.2
"""How long to wait for results that a server wrote just before its connection ended."""


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
    _open: dict[OpenCall, "asyncio.Task[Any]"] = field(
        default_factory=lambda: dict[OpenCall, "asyncio.Task[Any]"]()
    )
    """The newest last."""

    async def run(
        self, call: OpenCall, connection: Connection, tool: str, args: dict[str, Any]
    ) -> None:
        """Call a tool and put its result or error as a `done` event."""
        task = asyncio.current_task()
        assert task is not None
        self._open[call] = task
        try:
            call.put(Event("done", await self._perform(connection, call, tool, args)))
        except asyncio.CancelledError:
            connection_ended = connection.ended.is_set()
            error = (
                self._connection_lost()
                if connection_ended
                else ToolError(f"The call of {tool} was cancelled.")
            )
            call.put(Event("done", error=error))
            raise
        except Exception as error:  # noqa: BLE001  # raised again where the events are read
            call.put(Event("done", error=error))
        finally:
            del self._open[call]

    async def cancel_all(self) -> None:
        """Cancel the calls that get no result because the connection was lost."""
        if self._open:
            await asyncio.sleep(FINAL_RESPONSE_S)
        for task in self._open.values():
            task.cancel()

    async def elicit(self, params: Any) -> types.ElicitResult:
        """Forward an elicitation to the newest call, which asks the person."""
        answer = await self._forward("ask", params)
        return answer or types.ElicitResult(action="cancel")

    async def sample(self, params: Any) -> types.CreateMessageResult | types.ErrorData:
        """Forward a sampling request to the newest call, which asks the model."""
        answer = await self._forward("sample", params)
        nobody = types.ErrorData(code=types.INVALID_REQUEST, message="No call is open for that.")
        return answer or nobody

    async def _forward(self, kind: Literal["ask", "sample"], params: Any) -> Any:
        if not self._open:
            return None
        event = Event(kind, params)
        list(self._open)[-1].put(event)
        return await asyncio.wrap_future(event.answer)

    async def _perform(
        self, connection: Connection, call: OpenCall, tool: str, args: dict[str, Any]
    ) -> Any:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            of = "" if total is None else f" of {total:g}"
            call.put(Event("progress", f"{progress:g}{of}{f': {message}' if message else ''}"))

        if connection.faults.client is not None:
            connection.faults.client.fault = None
        try:
            result = await connection.call(tool, args, on_progress)
        except MCPError as error:
            raise self._tool_error(tool, error, connection) from error
        except ValidationError as error:
            problems = "; ".join(validation_problems(error)[:PROBLEMS])
            text = f"{tool}: {self.server} answered with what is no result of a call: {problems}."
            raise ToolError(text) from error
        await connection.process_notifications()  # those sent before the result
        await self.wait_for_tools()
        return result, await self._read_links(connection, result)

    async def _read_links(self, connection: Connection, result: Any) -> list[Any]:
        found: list[Any] = []
        for uri in links_of(result)[:LINKS]:
            with contextlib.suppress(MCPError, TimeoutError, ValueError):
                async with asyncio.timeout(LINK_S):
                    found += await connection.read(uri)
        return found

    def _tool_error(self, tool: str, error: MCPError, connection: Connection) -> ToolError:
        faults = connection.faults
        if error.code in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS):
            self.refresh_tools()  # perhaps it has other tools now
        elif refusal := faults.refusal(error):
            if refusal.over:
                connection.ended.set()
                self.report_exit(refusal.over)
            return ToolError(f"{tool} failed: {self.server} {refusal.text}")
        elif is_loss(error) or (faults.client is not None and faults.client.fault is not None):
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

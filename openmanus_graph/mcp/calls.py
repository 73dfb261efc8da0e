"""The calls that a server has not answered yet, and what it asks during them.

All of it runs on the engine's loop.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from openmanus_graph.errors import ToolError
from openmanus_graph.mcp.connection import Connection
from openmanus_graph.mcp.failures import ENDED, PROBLEMS, UNSURE, is_loss
from openmanus_graph.mcp.open_call import Event, OpenCall
from openmanus_graph.mcp.results import links_of
from openmanus_graph.schemas import validation_problems

LINK_S = 10.0
LINKS = 3
"""Resources that a result refers to and that are fetched with it."""
ANSWER_S = 0.2
"""What a server wrote just before it ended is still read."""


@dataclass(eq=False)
class Calls:
    """Sees calls through, each to an event that ends it."""

    server: str
    stale: Callable[[], None]
    """To be called when the server may have other tools."""
    up_to_date: Callable[[], Awaitable[None]]
    """Waits for the newest list of tools."""
    lost: Callable[[str], None]
    """To be called with what happened when the server turns out to have to be started again."""
    _open: dict[OpenCall, "asyncio.Task[Any]"] = field(
        default_factory=lambda: dict[OpenCall, "asyncio.Task[Any]"]()
    )
    """The newest last."""

    async def see_through(
        self, call: OpenCall, connection: Connection, tool: str, args: dict[str, Any]
    ) -> None:
        """Call a tool; what comes of it is an event."""
        task = asyncio.current_task()
        assert task is not None
        self._open[call] = task
        try:
            call.put(Event("done", await self._answered(connection, call, tool, args)))
        except asyncio.CancelledError:
            died = connection.ended.is_set()
            error = self._died() if died else ToolError(f"The call of {tool} was cancelled.")
            call.put(Event("done", error=error))
            raise
        except Exception as error:  # noqa: BLE001  # it is told where the call is followed
            call.put(Event("done", error=error))
        finally:
            del self._open[call]

    async def cut_off(self) -> None:
        """End the calls that a lost connection leaves without an answer."""
        if self._open:
            await asyncio.sleep(ANSWER_S)
        for task in self._open.values():
            task.cancel()

    async def elicit(self, params: Any) -> types.ElicitResult:
        """Have the newest call ask the person."""
        answer = await self._asked("ask", params)
        return answer or types.ElicitResult(action="cancel")

    async def sample(self, params: Any) -> types.CreateMessageResult | types.ErrorData:
        """Have the newest call ask the model."""
        answer = await self._asked("sample", params)
        nobody = types.ErrorData(code=types.INVALID_REQUEST, message="No call is open for that.")
        return answer or nobody

    async def _asked(self, kind: Literal["ask", "sample"], params: Any) -> Any:
        if not self._open:
            return None
        event = Event(kind, params)
        list(self._open)[-1].put(event)
        return await asyncio.wrap_future(event.answer)

    async def _answered(
        self, connection: Connection, call: OpenCall, tool: str, args: dict[str, Any]
    ) -> Any:
        async def reported(progress: float, total: float | None, message: str | None) -> None:
            of = "" if total is None else f" of {total:g}"
            call.put(Event("progress", f"{progress:g}{of}{f': {message}' if message else ''}"))

        if connection.faults.client is not None:
            connection.faults.client.fault = None
        try:
            result = await connection.call(tool, args, reported)
        except MCPError as error:
            raise self._failed(tool, error, connection) from error
        except ValidationError as error:
            wrong = "; ".join(validation_problems(error)[:PROBLEMS])
            text = f"{tool}: {self.server} answered with what is no result of a call: {wrong}."
            raise ToolError(text) from error
        await connection.heard()  # what it announced before it answered
        await self.up_to_date()
        return result, await self._linked(connection, result)

    async def _linked(self, connection: Connection, result: Any) -> list[Any]:
        found: list[Any] = []
        for uri in links_of(result)[:LINKS]:
            with contextlib.suppress(MCPError, TimeoutError, ValueError):
                async with asyncio.timeout(LINK_S):
                    found += await connection.read(uri)
        return found

    def _failed(self, tool: str, error: MCPError, connection: Connection) -> ToolError:
        faults = connection.faults
        if error.code in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS):
            self.stale()  # perhaps it has other tools now
        elif refusal := faults.refusal(error):
            if refusal.over:
                connection.ended.set()
                self.lost(refusal.over)
            return ToolError(f"{tool} failed: {self.server} {refusal.text}")
        elif is_loss(error) or (faults.client is not None and faults.client.fault is not None):
            connection.ended.set()
            return self._died()
        return ToolError(
            f"{tool} failed: {self.server} answered with an error: {str(error).rstrip('.')}."
        )

    def _died(self) -> ToolError:
        self.lost(ENDED)
        return ToolError(
            f"{self.server} ended, or its connection was lost, while the call ran. {UNSURE}"
        )

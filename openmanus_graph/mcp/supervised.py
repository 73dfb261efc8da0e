"""A server's life: started, watched, restarted when it dies, and closed with the thread.

All of it happens on an event loop of its own, because a session outlives the loops of single runs.
"""

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from mcp.shared.exceptions import MCPError

from openmanus_graph.browser.engine import Engine
from openmanus_graph.errors import ToolError
from openmanus_graph.mcp.announced import Announced, announced, difference, in_known_order
from openmanus_graph.mcp.calls import Calls
from openmanus_graph.mcp.connection import Callbacks, Connection, connected, transports
from openmanus_graph.mcp.failures import ENDED, Faults, ServerError
from openmanus_graph.mcp.open_call import Event, OpenCall
from openmanus_graph.state.mcp_server import MCPServer

PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Before each new start of a server that died; after the last one it is given up."""
STEADY_S = 30.0
"""A server that lived so long begins again with the first pause."""
LIST_S, CLOSE_S = 10.0, 10.0
log = logging.getLogger(__name__)

engine = Engine("openmanus-mcp")
os.register_at_fork(after_in_child=engine.forget)

State = Literal["starting", "up", "down", "gone"]


@dataclass(frozen=True, eq=False)
class News:
    """Something that the person and the model should hear of once."""

    text: str
    level: Literal["info", "warning"] = "warning"


class Supervised:
    """A server in use by one thread; a handle of its session."""

    def __init__(self, server: MCPServer, family: "set[Supervised]") -> None:
        """Begin to start it, without waiting.

        Args:
            server: Which one.
            family: All servers of the session; they are closed together.
        """
        self.server = server
        self.state: State = "starting"
        self.tools: tuple[Announced, ...] = ()
        self.transport = transports(server)[0]
        self.info = ""
        """What it calls itself, and the version of the protocol."""
        self.why = ""
        """Why it is not there."""
        self.news: list[News] = []
        self.run: object = None
        """The run that started it."""
        self._family = family
        self._connection: Connection | None = None
        self._calls = Calls(self._name, self._stale, self._up_to_date, self._mourn)
        self._tried, self._changed, self._listed, self._turn = (asyncio.Event() for _ in range(4))
        self._listed.set()
        self._remembers = self._called = False
        self._closing = self._mourned = False
        self._task: asyncio.Task[Any] | None = None
        engine.begin(self._live)
        family.add(self)

    async def settled(self) -> None:
        """Wait until it was started, or that failed, and its list of tools is the newest."""
        await self._tried.wait()
        connection = self._connection
        there = connection is not None and not connection.ended.is_set()
        if connection is not None and there and connection.tells_late and self._called:
            self._called = False
            self._stale()
        await self._up_to_date()

    async def turned(self) -> None:
        """Wait until it comes, goes or is given up."""
        await self._turn.wait()

    def begin_call(self, tool: str, args: dict[str, Any]) -> OpenCall:
        """Call a tool; what happens comes as events."""
        call = OpenCall()
        call.cancel = engine.begin(partial(self._call, call, tool, args))
        return call

    def held(self) -> str:
        """Say what the model would lose with the session."""
        if not self._remembers:
            return ""
        return f"the session with the MCP server {self.server.name}, and what it kept in memory"

    def close(self) -> None:
        """End the server, and begin to end the others of the session."""
        for one in self._family:
            engine.begin(one._end)
        self._family.discard(self)
        with contextlib.suppress(TimeoutError):
            engine.call(self._end, CLOSE_S)

    async def _end(self) -> None:
        if self._task is None or self._task.done():
            return
        if not self._closing:
            self._closing = True
            self._task.cancel()
        await asyncio.wait({self._task})

    # From here on, everything runs on the engine's loop.

    async def _live(self) -> None:
        self._task = asyncio.current_task()
        try:
            await self._starts()
        except asyncio.CancelledError:
            self.why = "was closed"
            raise
        finally:
            self._set("gone")
            self._tried.set()
            self._listed.set()

    async def _starts(self) -> None:
        failures = 0
        while not self._closing:
            began = asyncio.get_running_loop().time()
            try:
                await self._once()
                error = ServerError(ENDED, lasting=False)
            except ServerError as caught:
                error = caught
            if asyncio.get_running_loop().time() - began > STEADY_S:
                failures = 0
            first = not self._tried.is_set()
            self.why = str(error)
            if error.lasting or failures == len(PAUSES_S):
                why = self.why.rstrip(".")
                self._tell(f"{self._name} {why}. Its tools cannot be used any more.")
                self.tools = ()
                return
            if first:
                self._tell(f"{self._name} {self.why.rstrip('.')}. It is tried again.")
            elif self.state == "up":
                self._mourn(ENDED)
            self._remembers = False
            self._listed.set()
            self._set("down")
            self._tried.set()
            await asyncio.sleep(PAUSES_S[failures])
            failures += 1

    async def _once(self) -> None:
        """Start the server and stay with it to its end. ServerError: it did not start."""
        callbacks = Callbacks(self._calls.elicit, self._calls.sample, self._stale)
        faults = Faults(self.server)
        clock = asyncio.timeout(self.server.start_timeout_s)
        try:
            async with clock, connected(self.server, callbacks, faults) as connection:
                await self._list(connection)
                clock.reschedule(None)
                self._arrived(connection)
                await self._stay(connection)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise faults.explained(error) from error
        except (MCPError, OSError, EOFError, RuntimeError, ValueError, ExceptionGroup) as error:
            if self._connection is None:
                raise faults.explained(error) from error
            log.info("%s: its connection ended", self._name, exc_info=error)
        finally:
            self._connection = None

    def _arrived(self, connection: Connection) -> None:
        info = connection.session.server_info
        name = f"{info.name} {info.version}".strip() if info is not None else "unnamed"
        self.info = f"{name}, protocol {connection.session.protocol_version}"
        self._connection, self.why, self._mourned = connection, "", False
        self.transport = connection.transport
        if self._tried.is_set():
            self._tell(f"{self._name} is there again.", "info")
        self._set("up")
        self._tried.set()

    async def _stay(self, connection: Connection) -> None:
        """Keep the list of tools up to date until the connection ends."""
        watching = asyncio.ensure_future(connection.watch(self._stale))
        over = asyncio.ensure_future(connection.ended.wait())
        try:
            while not over.done():
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({over, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if not over.done():
                    self._changed.clear()
                    with contextlib.suppress(MCPError, TimeoutError, ValueError):
                        async with asyncio.timeout(LIST_S):
                            await self._list(connection)
                    if not self._changed.is_set():
                        self._listed.set()
        finally:
            watching.cancel()
            over.cancel()
            self._listed.set()
            await self._calls.cut_off()

    async def _list(self, connection: Connection) -> None:
        found = announced(self.server, await connection.tools())
        found = in_known_order(found, self.tools)
        known_before = self.state != "starting"
        changes = difference(self.tools, found)
        self.tools = found if any(changes.values()) else self.tools
        said = [f"{word}: {', '.join(names)}" for word, names in changes.items() if names]
        if said and known_before:
            self._tell(f"{self._name} has changed its tools ({'; '.join(said)}).", "info")

    async def _call(self, call: OpenCall, tool: str, args: dict[str, Any]) -> None:
        try:
            connection = await self._reached()
        except ToolError as error:
            call.put(Event("done", error=error))
            return
        self._remembers = self._called = True
        await self._calls.see_through(call, connection, tool, args)

    async def _up_to_date(self) -> None:
        if self._listed.is_set():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIST_S):
                await self._listed.wait()

    async def _reached(self) -> Connection:
        """Return the connection, once the server is there. ToolError: it will not be."""
        while self._connection is None or self._connection.ended.is_set():
            if self.state == "gone":
                raise ToolError(
                    f"{self._name} {self.why.rstrip('.')}. Its tools cannot be used: find another "
                    "way, or say in the answer what is left to do."
                )
            await self.turned()
        return self._connection

    def _mourn(self, why: str) -> None:
        """Tell that the server is gone, once."""
        if not self._mourned:
            self._mourned = True
            self._tell(
                f"{self._name} {why}. It is started again; what it kept in memory may be lost."
            )

    def _stale(self) -> None:
        self._listed.clear()
        self._changed.set()

    def _tell(self, text: str, level: Literal["info", "warning"] = "warning") -> None:
        self.news.append(News(text, level))

    def _set(self, state: State) -> None:
        self.state = state
        self._turn.set()
        self._turn = asyncio.Event()

    @property
    def _name(self) -> str:
        return f"The MCP server {self.server.name}"

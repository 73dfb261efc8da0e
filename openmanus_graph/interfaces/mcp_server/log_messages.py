"""Log messages to a client that wants some: what a person should know of a run."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, get_args

import anyio
import mcp_types as types
from mcp.server.session import ServerSession

LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""The least important first."""


class LogMessages:
    """Sends the notices of one request's run.

    Args:
        session: The client's.
        request: Id of the request, on whose stream they go.
        level: The least important that the client wants; None: it has asked for none.
    """

    def __init__(
        self, session: ServerSession, request: types.RequestId, level: types.LoggingLevel | None
    ) -> None:
        self._session, self._request = session, request
        self._wanted = () if level is None else LEVELS[LEVELS.index(level) :]
        self._notices: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()

    def show(self, event: Mapping[str, Any]) -> None:
        """Take an event; only notices are sent."""
        if event["type"] == "notice" and event["level"] in self._wanted:
            self._notices.put_nowait(event)

    @contextlib.asynccontextmanager
    async def sent(self) -> AsyncGenerator[None]:
        """Send while the block runs; at its end all has been sent."""
        sending = asyncio.create_task(self._keep_sending())
        try:
            yield
        finally:
            sending.cancel()
        while not self._notices.empty():
            await self._send(self._notices.get_nowait())

    async def _keep_sending(self) -> None:
        while True:
            await self._send(await self._notices.get())

    async def _send(self, notice: Mapping[str, Any]) -> None:
        params = types.LoggingMessageNotificationParams(
            level=notice["level"], logger="openmanus", data=notice["text"]
        )
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.send_notification(
                types.LoggingMessageNotification(params=params), self._request
            )

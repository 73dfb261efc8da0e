"""A server's tool as a tool of the graph."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import mcp_types as types
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from pydantic import ConfigDict, PrivateAttr

from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.events import Emit, notice
from openmanus_graph.interrupts import question_request
from openmanus_graph.mcp.announced import Announced, plain_line
from openmanus_graph.mcp.elicitation import question_text, read_answer
from openmanus_graph.mcp.open_call import Event, OpenCall
from openmanus_graph.mcp.results import is_plain, observed
from openmanus_graph.mcp.sampling import conversation, refusal, result_of
from openmanus_graph.mcp.schemas import Checker, problems_of
from openmanus_graph.mcp.supervised import Supervised
from openmanus_graph.schemas import schema_checker
from openmanus_graph.sessions import (
    ASK_KEY,
    CALL_KEY,
    CONVERSE_KEY,
    EMIT_KEY,
    SESSION_KEY,
    Session,
)
from openmanus_graph.tools.declaration import ForeignTool, Observation

PROGRESS_S = 0.5
"""Between two lines about one call's progress."""
LINE_CHARS = 200

Ask = Callable[[Mapping[str, Any], str], Awaitable[Any]]


class ServerTool(ForeignTool):
    """Calls one tool of one server."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    announced: Announced
    supervised: Supervised
    _checker: Checker | None = PrivateAttr(default=None)

    def problems(self, args: Mapping[str, Any]) -> list[str]:
        """Say what is wrong with a call's arguments."""
        checked = self.announced.checked
        if checked is None:
            return []
        if self._checker is None:
            self._checker = schema_checker(dict(checked))
        return problems_of(self._checker, args)

    async def observe(self, args: Mapping[str, Any], config: RunnableConfig) -> Observation:
        """Call the tool, or go on with a call that was left open while a person was asked."""
        place: Mapping[str, Any] = config.get("configurable", {})
        session, digest = cast("Session", place[SESSION_KEY]), str(place[CALL_KEY])
        call: OpenCall = session.take_up(digest) or self.supervised.begin_call(
            self.announced.name, dict(args)
        )
        try:
            result, linked = await _Follower(self, call, place).result()
        except GraphBubbleUp:
            session.leave_open(digest, call)
            raise
        except BaseException:
            call.abandon()
            raise
        if is_plain(result):  # a thread costs more than that
            return observed(result, linked, self.name, session.workspace)
        return await asyncio.to_thread(observed, result, linked, self.name, session.workspace)


class _Follower:
    """Sees one call through: shows its progress, and answers what its server asks."""

    def __init__(self, tool: ServerTool, call: OpenCall, place: Mapping[str, Any]) -> None:
        self._tool, self._call = tool, call
        self._session = cast("Session", place[SESSION_KEY])
        self._ask = cast("Ask", place[ASK_KEY])
        self._converse = cast("Callable[..., Awaitable[Any]]", place[CONVERSE_KEY])
        self._emit = cast("Emit", place[EMIT_KEY])
        self._shown_at = 0.0

    async def result(self) -> Any:
        """Return the call's result. ToolError, or whatever the SDK raises: it failed."""
        while True:
            event = await self._call.first()
            if event.kind == "done":
                if event.error is not None:
                    raise event.error
                return event.payload
            if event.kind == "progress":
                self._show(str(event.payload))
            elif event.kind == "ask":
                await self._have_answered(event)
            else:
                await self._have_sampled(event)
            self._call.drop()

    def _show(self, text: str) -> None:
        now = time.monotonic()
        if now - self._shown_at >= PROGRESS_S:
            self._shown_at = now
            notice(self._emit, f"{self._tool.name}: {plain_line(text, LINE_CHARS)}", "info")

    async def _have_answered(self, event: Event) -> None:
        """Ask the person until the answer is one; the run may pause here, the call does not."""
        while True:
            server, tool = self._tool.supervised.server.name, self._tool.announced.name
            text = question_text(server, tool, event.payload, event.problem)
            name = f"elicitation {hashlib.sha256(text.encode()).hexdigest()[:16]}"
            try:
                value = await self._ask(question_request(text), name)
            except GraphBubbleUp:
                raise
            except (RuntimeError, ToolError):  # nothing is saved here, so nobody can be asked
                _settle(event, types.ElicitResult(action="cancel"))
                return
            answer = read_answer(event.payload, value)
            if not isinstance(answer, str):
                result = types.ElicitResult(action=answer.action, content=answer.content)
                _settle(event, result)
                return
            event.problem = answer

    async def _have_sampled(self, event: Event) -> None:
        params: types.CreateMessageRequestParams = event.payload
        server = self._tool.supervised.server.name
        notice(self._emit, f"The MCP server {server} asks the model.", "info")
        try:
            messages = await asyncio.to_thread(conversation, params, self._session.workspace)
            reply = await self._converse(params.system_prompt or "", messages)
        except (ToolError, ConfigError, OSError) as error:
            _settle(event, refusal(str(error)))
            return
        model = self._session.settings.main.model
        _settle(event, result_of(reply, model if isinstance(model, str) else ""))


def _settle(event: Event, answer: Any) -> None:
    if not event.answer.done():
        event.answer.set_result(answer)

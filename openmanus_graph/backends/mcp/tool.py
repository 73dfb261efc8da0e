"""A server's tool as a tool of the graph."""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from langgraph.errors import GraphBubbleUp
from pydantic import ConfigDict

from openmanus_graph.backends.mcp.calls import Event, OpenCall
from openmanus_graph.backends.mcp.described_tool import DescribedTool
from openmanus_graph.backends.mcp.listed_tools import ListedTool, sanitize_text
from openmanus_graph.backends.mcp.managed_server import ManagedServer
from openmanus_graph.backends.mcp.results import is_short_text, to_observation
from openmanus_graph.backends.mcp.server_requests import (
    question_text,
    read_answer,
    sampling_messages,
    sampling_result,
)
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.tool_runtime import CallRuntime
from openmanus_graph.state.interrupts import question_request
from openmanus_graph.state.tool_traits import Observation

PROGRESS_INTERVAL_S = 0.5
"""Between two lines about one call's progress."""
PROGRESS_CHARS = 200


class ServerTool(DescribedTool):
    """Calls one tool of one server."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    listed_tool: ListedTool
    managed_server: ManagedServer

    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> Observation:
        """Call the tool, or resume a call that was left open while a person was asked."""
        session = runtime.session
        call: OpenCall = session.pop_open_call(runtime.key) or self.managed_server.begin_call(
            self.listed_tool.name, dict(args), runtime.server_task
        )
        try:
            result, linked = await _Follower(self, call, runtime).result()
        except GraphBubbleUp:
            session.keep_open_call(runtime.key, call)
            raise
        except BaseException:
            call.abandon()
            raise
        if is_short_text(result):  # a thread costs more than that
            return to_observation(result, linked, self.name, session.workspace)
        return await asyncio.to_thread(to_observation, result, linked, self.name, session.workspace)

    def accept(self) -> None:
        """Take the tool as its server describes it now. Blocks."""
        self.managed_server.accept(self.listed_tool)

    async def knows_task(self, task_id: str) -> bool:
        """Return whether the server can still say what became of a call that it runs as a task."""
        return await self.managed_server.knows_task(task_id)


class _Follower:
    """Follows one call: shows its progress, and answers its server's requests."""

    def __init__(self, tool: ServerTool, call: OpenCall, runtime: CallRuntime) -> None:
        self._tool, self._call, self._runtime = tool, call, runtime
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
                self._show_progress(str(event.payload))
            elif event.kind == "task":
                await self._runtime.record_server_task(event.payload)
                _respond(event, True)
            elif event.kind == "ask":
                await self._elicit(event)
            else:
                await self._sample(event)
            self._call.drop()

    def _show_progress(self, text: str) -> None:
        now = time.monotonic()
        if now - self._shown_at >= PROGRESS_INTERVAL_S:
            self._shown_at = now
            notice(
                self._runtime.emit,
                f"{self._tool.name}: {sanitize_text(text, PROGRESS_CHARS)}",
                "info",
            )

    async def _elicit(self, event: Event) -> None:
        """Ask the person until the answer is one; the run may pause here, the call does not."""
        while True:
            server, tool = self._tool.managed_server.server.name, self._tool.listed_tool.name
            text = question_text(server, tool, event.payload, event.problem)
            name = f"elicitation {hashlib.sha256(text.encode()).hexdigest()[:16]}"
            try:
                value = await self._runtime.ask_person(question_request(text), name)
            except GraphBubbleUp:
                raise
            except (RuntimeError, ToolError):  # without a checkpointer nobody can be asked
                _respond(event, types.ElicitResult(action="cancel"))
                return
            answer = read_answer(event.payload, value)
            if not isinstance(answer, str):
                _respond(event, answer)
                return
            event.problem = answer

    async def _sample(self, event: Event) -> None:
        params: types.CreateMessageRequestParams = event.payload
        server = self._tool.managed_server.server.name
        notice(self._runtime.emit, f"The MCP server {server} asks the model.", "info")
        try:
            messages = await asyncio.to_thread(
                sampling_messages, params, self._runtime.session.workspace
            )
            reply = await self._runtime.converse(params.system_prompt or "", messages)
        except (ToolError, ConfigError, OSError) as error:
            _respond(event, types.ErrorData(code=types.INTERNAL_ERROR, message=str(error)))
            return
        model = self._runtime.session.settings.main.model
        _respond(event, sampling_result(reply, model if isinstance(model, str) else ""))


def _respond(event: Event, answer: Any) -> None:
    if not event.answer.done():
        event.answer.set_result(answer)

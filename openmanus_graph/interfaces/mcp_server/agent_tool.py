"""The tool `run_task`, which runs a whole agent on a client's task."""

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
import mcp_types as types
from mcp.server.session import ServerSession

from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import describe_agent
from openmanus_graph.interfaces.mcp_server.client import Client, Elicitation, run_shielded
from openmanus_graph.interfaces.mcp_server.results import LogMessages, failure, link, text
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.runner import EXIT_CODES
from openmanus_graph.interfaces.service.runs import (
    Final,
    Message,
    RemoteRun,
    progress_text,
    resolve_workspace,
    thread_options,
)
from openmanus_graph.interfaces.service.threads import find_thread

INTERVAL_S = 1.0
QUICK_REPORTS = 10
SLOW_INTERVAL_S = 5.0
"""After `QUICK_REPORTS` notifications."""


class Progress:
    def __init__(self, session: ServerSession, *, wanted: bool) -> None:
        self._session = session
        self._wanted = wanted
        self._began = time.monotonic()
        self._last_seconds = -1.0
        self._words: asyncio.Queue[str] = asyncio.Queue()

    def note(self, words: str) -> None:
        if self._wanted:
            self._words.put_nowait(words)

    @contextlib.asynccontextmanager
    async def reporting(self, words: str) -> AsyncGenerator[None]:
        """Send the texts meanwhile, and repeat the last one if there is no new one."""
        if not self._wanted:
            yield
            return
        await self._report(words)
        reporter = asyncio.create_task(self._keep_reporting(words))
        try:
            yield
            while not self._words.empty():
                await self._report(self._words.get_nowait())
        finally:
            reporter.cancel()

    async def _keep_reporting(self, words: str) -> None:
        reports = 0
        while True:
            interval = INTERVAL_S if reports < QUICK_REPORTS else SLOW_INTERVAL_S
            try:
                words = await asyncio.wait_for(self._words.get(), interval)
            except TimeoutError:
                reports += 1
            await self._report(words)

    async def _report(self, words: str) -> None:
        seconds = max(round(time.monotonic() - self._began, 1), self._last_seconds + 0.001)
        self._last_seconds = seconds
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.report_progress(seconds, message=words)


def call_progress(event: Mapping[str, Any], max_steps: int) -> str | None:
    match event["type"]:
        case "think_start":
            return f"Step {event['step']} of at most {max_steps}: thinking."
        case "tool_end" if event["ok"]:
            return f"{event['tool']} is done."
        case _:
            return progress_text(event)


NAME = "run_task"
PREFIX = "mcp-task-"
_THREAD = re.compile(PREFIX + r"[0-9a-f]{16}")
_HINTS = {
    "question": "with the answer as its task",
    "approval": "with `approve`, `reject WHY`, or `= RESULT` as its task",
    "unknown_outcome": "with `approve` (run it again), `reject WHY`, or its result, as its task",
}


@dataclass(frozen=True)
class AgentTool:
    agent: str
    options: RunOptions
    max_steps: int

    def describe(self) -> types.Tool:
        purpose = describe_agent(self.agent)
        return types.Tool(
            name=NAME,
            description=(
                f"Have the agent {self.agent!r} do a whole task by itself"
                f"{f' ({purpose})' if purpose else ''}. It works in steps with tools of its own "
                "and returns an answer and links to the files it made. It may ask something back: "
                "then call again with the same thread and the answer as the task."
            ),
            input_schema=_INPUT,
            output_schema=_OUTPUT,
            annotations=types.ToolAnnotations(
                read_only_hint=False,
                destructive_hint=True,
                idempotent_hint=False,
                open_world_hint=True,
            ),
        )

    async def call(
        self,
        args: Mapping[str, Any],
        client: Client,
        elicitation: Elicitation,
        progress: Progress,
        log: LogMessages,
    ) -> types.CallToolResult:
        task, thread = args.get("task"), args.get("thread")
        if not isinstance(task, str) or not task.strip() or set(args) - {"task", "thread"}:
            return failure("run_task takes `task`, a text that is not empty, and maybe `thread`.")
        if thread is not None:
            is_ours = isinstance(thread, str) and _THREAD.fullmatch(thread) is not None
            if not is_ours or await asyncio.to_thread(find_thread, thread) is None:
                return failure(f"There is no thread {thread!r}. Leave it out to begin a new one.")
        try:
            run = await self._prepare(thread, client, elicitation, progress, log)
        except ConfigError as error:
            return failure(str(error))
        async with client.leases.lease(run.thread), log.outbox.sent():
            final = await run_shielded(run.send(Message(task)), run.stop.now)
        client.files[run.thread] = final["artifacts"]
        return _result(run.thread, final)

    async def _prepare(
        self,
        thread: str | None,
        client: Client,
        elicitation: Elicitation,
        progress: Progress,
        log: LogMessages,
    ) -> RemoteRun:
        options = self.options
        if thread is None:
            thread = f"{PREFIX}{secrets.token_hex(8)}"
            # In the client's workspace, so that its other tools see the files.
            options = replace(options, workspace=str(client.workspace.root))
        merged = await asyncio.to_thread(thread_options, options, thread)
        client.workspaces[thread] = await asyncio.to_thread(resolve_workspace, merged, thread)

        def show(event: Mapping[str, Any]) -> None:
            log.show(event)
            words = call_progress(event, self.max_steps)
            if words is not None:
                progress.note(words)

        return RemoteRun(self.agent, thread, options, show, elicitation)


def _result(thread: str, final: Final) -> types.CallToolResult:
    status, reason = final["status"], final["stop_reason"]
    words = answer = text(str(final["answer"])).text
    if status == "waiting":
        how = _HINTS.get(reason, _HINTS["question"])
        words += f"\n\n[The run waits. Call {NAME} again with thread {thread!r}, {how}.]"
    elif status in ("stopped", "cancelled"):
        words += f"\n\n[It was {status} ({reason}). Continue with thread {thread!r}.]"
    fields = ("status", "stop_reason", "structured", "usage", "artifacts")
    return types.CallToolResult(
        content=[text(words), *(link(thread, artifact) for artifact in final["artifacts"])],
        structured_content={
            "thread": thread,
            "answer": answer,
            **{name: final[name] for name in fields},
        },
        is_error=status not in ("finished", "waiting"),
    )


_TEXT: dict[str, Any] = {"type": "string"}
_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "What to do, in plain words, complete in itself; or the answer to what "
            "the thread asks.",
        },
        "thread": {
            "type": "string",
            "description": "Continue this thread, as an earlier result names it.",
        },
    },
    "required": ["task"],
    "additionalProperties": False,
}
_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "thread": _TEXT,
        "status": {"type": "string", "enum": [*EXIT_CODES]},
        "stop_reason": {"anyOf": [_TEXT, {"type": "null"}]},
        "answer": _TEXT,
        "usage": {"type": "object"},
        "artifacts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": _TEXT, "size": {"type": "integer"}, "media_type": _TEXT},
            },
        },
    },
    "required": ["thread", "status", "answer", "artifacts"],
}

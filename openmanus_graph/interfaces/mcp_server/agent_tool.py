"""The tool `run_task`, with which a client has a whole agent do a task."""

import asyncio
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types

from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import describe_agent
from openmanus_graph.interfaces.mcp_server.asking import Elicitation
from openmanus_graph.interfaces.mcp_server.client import Client, run_shielded
from openmanus_graph.interfaces.mcp_server.progress import Progress, call_progress
from openmanus_graph.interfaces.mcp_server.results import failure, link, text
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.runs import (
    Final,
    Message,
    RemoteRun,
    first_question,
    resolve_workspace,
    thread_options,
)
from openmanus_graph.interfaces.service.threads import find_thread

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
    """Runs an agent for clients."""

    agent: str
    options: RunOptions
    max_steps: int

    def describe(self) -> types.Tool:
        """Return the tool as MCP describes it."""
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
        self, args: Mapping[str, Any], client: Client, elicitation: Elicitation, progress: Progress
    ) -> types.CallToolResult:
        """Run the agent on a new thread, or resume one."""
        task, thread = args.get("task"), args.get("thread")
        if not isinstance(task, str) or not task.strip() or set(args) - {"task", "thread"}:
            return failure("run_task takes `task`, a text that is not empty, and maybe `thread`.")
        if thread is not None and not await asyncio.to_thread(_known, thread):
            return failure(f"There is no thread {thread!r}. Leave it out to begin a new one.")
        try:
            run = await self._prepare(thread, client, elicitation, progress)
        except ConfigError as error:
            return failure(str(error))
        waiting = None if thread is None else await first_question(thread, self.agent)
        work = run.answer(task, waiting) if waiting else run.say(Message(task))
        async with client.leases.lease(run.thread):
            final = await run_shielded(work, run.stop.now)
        client.files[run.thread] = final["artifacts"]
        return _result(run.thread, final)

    async def _prepare(
        self, thread: str | None, client: Client, elicitation: Elicitation, progress: Progress
    ) -> RemoteRun:
        options = self.options
        if thread is None:
            thread = f"{PREFIX}{secrets.token_hex(8)}"
            # In the client's own workspace, so that its other tools see the files.
            options = replace(options, workspace=str(client.workspace.root))
        merged = await asyncio.to_thread(thread_options, options, thread)
        client.workspaces[thread] = await asyncio.to_thread(resolve_workspace, merged, thread)

        def show(event: Mapping[str, Any]) -> None:
            words = call_progress(event, self.max_steps)
            if words is not None:
                progress.note(words)

        return RemoteRun(self.agent, thread, options, show, elicitation)


def _known(thread: Any) -> bool:
    return (
        isinstance(thread, str)
        and _THREAD.fullmatch(thread) is not None
        and find_thread(thread) is not None
    )


def _result(thread: str, final: Final) -> types.CallToolResult:
    """Return a run's answer and files, and how to resume it where it waits."""
    status, reason = final["status"], final["stop_reason"]
    answer = text(str(final["answer"])).text
    words = answer
    if status == "waiting":
        how = _HINTS.get(reason, _HINTS["question"])
        words += f"\n\n[The run waits. Call {NAME} again with thread {thread!r}, {how}.]"
    elif status in ("stopped", "cancelled"):
        words += f"\n\n[It was {status} ({reason}). Go on with thread {thread!r}.]"
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
            "description": "Go on with this thread, as an earlier result names it.",
        },
    },
    "required": ["task"],
    "additionalProperties": False,
}
_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "thread": {"type": "string"},
        "status": {
            "type": "string",
            "enum": ["finished", "failed", "stopped", "waiting", "cancelled"],
        },
        "stop_reason": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "answer": {"type": "string"},
        "usage": {"type": "object"},
        "artifacts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "size": {"type": "integer"},
                    "media_type": {"type": "string"},
                },
            },
        },
    },
    "required": ["thread", "status", "answer", "artifacts"],
}

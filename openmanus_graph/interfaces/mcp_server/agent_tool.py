"""The tool `run_task`, which runs a whole agent on a client's task."""

import asyncio
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types

from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import describe_agent
from openmanus_graph.interfaces.mcp_server import client as clients
from openmanus_graph.interfaces.service import runs
from openmanus_graph.interfaces.service.accounts import Refused, claim
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.runner import EXIT_CODES
from openmanus_graph.interfaces.service.threads import find_thread

NAME = "run_task"
PREFIX = "mcp-task-"
_THREAD = re.compile(PREFIX + r"[0-9a-f]{16}")
_HINTS = {
    "question": "with the answer as its task",
    "approval": "with `approve`, `reject WHY`, or `= RESULT` as its task",
    "unknown_outcome": "with `approve` (run it again), `reject WHY`, or its result, as its task",
}
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
        self, args: Mapping[str, Any], client: clients.Client, caller: clients.Caller
    ) -> types.CallToolResult:
        task, thread = args.get("task"), args.get("thread")
        if not isinstance(task, str) or not task.strip() or set(args) - {"task", "thread"}:
            return clients.failure(
                "run_task takes `task`, a text that is not empty, and maybe `thread`."
            )
        options = self.options
        if thread is None:
            thread = f"{PREFIX}{secrets.token_hex(8)}"
            # In the client's workspace, so that its other tools see the files.
            options = replace(options, workspace=str(client.workspace.root))
        elif (
            not isinstance(thread, str)
            or _THREAD.fullmatch(thread) is None
            or await asyncio.to_thread(find_thread, thread) is None
        ):
            return clients.failure(
                f"There is no thread {thread!r}. Leave it out to begin a new one."
            )
        try:
            await claim(thread)
            merged = await asyncio.to_thread(runs.thread_options, options, thread)
            workspace = await asyncio.to_thread(runs.resolve_workspace, merged, thread)
        except (ConfigError, Refused) as error:
            return clients.failure(str(error))
        client.workspaces[thread] = workspace

        def show(event: Mapping[str, Any]) -> None:
            caller.show(event, self._progress(event))

        run = runs.RemoteRun(self.agent, thread, options, show, caller, trigger="mcp")
        async with client.leases.lease(thread), caller.outbox.sent():
            final = await clients.run_shielded(run.send(runs.Message(task)), run.stop.now)
        client.files[thread] = final["artifacts"]
        return _result(thread, final)

    def _progress(self, event: Mapping[str, Any]) -> str | None:
        match event["type"]:
            case "think_start":
                return f"Step {event['step']} of at most {self.max_steps}: thinking."
            case "tool_end" if event["ok"]:
                return f"{event['tool']} is done."
            case _:
                return runs.progress_text(event)


def _result(thread: str, final: runs.Final) -> types.CallToolResult:
    status, reason = final["status"], final["stop_reason"]
    text = answer = clients.text_block(str(final["answer"])).text
    if status == "waiting":
        how = _HINTS.get(reason, _HINTS["question"])
        text += f"\n\n[The run waits. Call {NAME} again with thread {thread!r}, {how}.]"
    elif status in ("stopped", "cancelled"):
        text += f"\n\n[It was {status} ({reason}). Continue with thread {thread!r}.]"
    names = ("status", "stop_reason", "structured", "usage", "artifacts")
    fields = {"thread": thread, "answer": answer, **{name: final[name] for name in names}}
    links = [clients.link(thread, artifact) for artifact in final["artifacts"]]
    return types.CallToolResult(
        content=[clients.text_block(text), *links],
        structured_content=fields,
        is_error=status not in ("finished", "waiting"),
    )

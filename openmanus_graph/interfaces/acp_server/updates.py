"""Shows a run's events in the editor: texts, tool calls with their diffs, the plan."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.interfaces import Client
from acp.schema import FileEditToolCallContent, PlanEntry, ToolCallLocation, ToolKind
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.interfaces.service.runs import progress_text
from openmanus_graph.tools.ask_human import ask_human

TITLE_CHARS = 100
_KINDS: Mapping[str, ToolKind] = {
    "bash": "execute",
    "python_execute": "execute",
    "str_replace_editor": "edit",
    "read_file": "read",
    "web_search": "search",
    "fetch_page": "fetch",
    "browser_use": "fetch",
}
"""Kinds of tools, by name; others are `other`."""
_TITLE_ARGS = ("command", "path", "query", "url", "code")
_PLAN_STATUS: Mapping[str, Any] = {"completed": "completed", "in_progress": "in_progress"}


class SessionUpdates:
    """Sends the updates of one turn, in order."""

    def __init__(self, client: Client, session: str, folder: Path) -> None:
        self._client, self._session, self._folder = client, session, folder
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._steps: dict[str, PlanEntry] = {}
        """The newest plan's, by id."""
        self._diffs: dict[str, FileEditToolCallContent] = {}
        """Of edits that have begun, by call."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Take an event."""
        update = self._update(event)
        if update is not None:
            self._queue.put_nowait(update)

    def say(self, text: str) -> None:
        """Show what the agent says."""
        self._queue.put_nowait(update_agent_message_text(text))

    def replay(self, messages: Sequence[AnyMessage]) -> None:
        """Show a conversation so far: what was said, and the calls with their results."""
        for message in messages:
            if isinstance(message, AIMessage):
                if message.text.strip():
                    self.say(f"{message.text.strip()}\n\n")
                for call in message.tool_calls:
                    if call["name"] == ask_human.name:
                        self.say(str(call["args"].get("inquire", "")))
                    start = {"type": "tool_start", "tool": call["name"], "call_id": call["id"]}
                    self.show({**start, "args": call["args"]})
            elif isinstance(message, ToolMessage) and message.name != ask_human.name:
                end = {"type": "tool_end", "tool": message.name, "call_id": message.tool_call_id}
                self.show({**end, "ok": message.status != "error", "output": message.text})
            else:
                self._queue.put_nowait(update_user_message_text(message.text))

    @contextlib.asynccontextmanager
    async def sent(self) -> AsyncGenerator[None]:
        """Send while the block runs; at its end all has been sent."""
        sending = asyncio.create_task(self._send())
        try:
            yield
            self._queue.put_nowait(None)
            await sending
        finally:
            sending.cancel()

    async def _send(self) -> None:
        while (update := await self._queue.get()) is not None:
            await self._client.session_update(session_id=self._session, update=update)

    def _update(self, event: Mapping[str, Any]) -> Any:
        match event["type"]:
            case "think_end" if event["text"].strip() and event["tool_calls"]:
                return update_agent_message_text(f"{event['text'].strip()}\n\n")
            case "tool_start" if event["tool"] != ask_human.name:
                return self._begun(event)
            case "tool_end" if event["tool"] != ask_human.name:
                return self._ended(event)
            case "plan" | "plan_change" if not event.get("plan_step"):
                return self._plan(event)
            case "notice" | "step_start" | "step_end":
                return update_agent_thought_text(f"{progress_text(event)}\n\n")
            case _:
                return None

    def _begun(self, event: Mapping[str, Any]) -> Any:
        tool, args = event["tool"], event["args"]
        named = next((str(args[name]) for name in _TITLE_ARGS if args.get(name)), "")
        title = " ".join(f"{tool} {args.get('path') or named}".split())[:TITLE_CHARS]
        path = args.get("path")
        places = [ToolCallLocation(path=str(self._folder / path))] if isinstance(path, str) else []
        diff = edit_of(args) if tool == "str_replace_editor" else None
        content = None
        if diff is not None and places:
            old, new = diff
            self._diffs[event["call_id"]] = tool_diff_content(places[0].path, new, old)
            content = [self._diffs[event["call_id"]]]
        reads = tool == "str_replace_editor" and args.get("command") == "view"
        return start_tool_call(
            event["call_id"],
            title,
            kind="read" if reads else _KINDS.get(tool, "other"),
            status="in_progress",
            content=content,
            locations=places or None,
            raw_input=args,
        )

    def _ended(self, event: Mapping[str, Any]) -> Any:
        """End a call; its content replaces what the editor shows, so that a diff comes again."""
        diff = self._diffs.pop(event["call_id"], None)
        done = [diff] if diff is not None and event["ok"] else []
        return update_tool_call(
            event["call_id"],
            status="completed" if event["ok"] else "failed",
            content=[*done, tool_content(text_block(event["output"]))],
        )

    def _plan(self, event: Mapping[str, Any]) -> Any:
        if event["type"] == "plan":
            self._steps.clear()
        for step in event["steps"]:
            status = _PLAN_STATUS.get(step["status"], "pending")
            self._steps[step["id"]] = plan_entry(step["text"], status=status)
        order = event.get("order") or list(self._steps)
        return update_plan([self._steps[step] for step in order if step in self._steps])


def edit_of(args: Mapping[str, Any]) -> tuple[str | None, str] | None:
    """Return the text that a call of the editor replaces, and the new one; None if it edits none.

    A new file replaces nothing.
    """
    match args.get("command"):
        case "create":
            return None, str(args.get("file_text") or "")
        case "str_replace":
            return str(args.get("old_str") or ""), str(args.get("new_str") or "")
        case "insert":
            return "", str(args.get("new_str") or "")
        case _:
            return None

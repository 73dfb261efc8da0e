"""Shows a run's events in the editor: texts, tool calls with their diffs, the plan."""

from collections.abc import Iterable, Mapping
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

from openmanus_graph.interfaces.service.runs import Outbox, progress_text
from openmanus_graph.tools.closing import ask_human

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
        self._folder = folder
        self.outbox = Outbox[Any](
            lambda update: client.session_update(session_id=session, update=update)
        )
        self._steps: dict[str, PlanEntry] = {}
        """The newest plan's, by id."""
        self._diffs: dict[str, FileEditToolCallContent] = {}
        """Of edits that have started, by call."""

    def show(self, event: Mapping[str, Any]) -> None:
        update = self._update(event)
        if update is not None:
            self.outbox.put(update)

    def say(self, text: str) -> None:
        self.outbox.put(update_agent_message_text(text))

    def replay(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Show a conversation so far: texts, and the calls with their results."""
        for event in events:
            is_question = event.get("tool") == ask_human.name
            match event["type"]:
                case "run_start":
                    self.outbox.put(update_user_message_text(event["task"]))
                case "steer":
                    self.outbox.put(update_user_message_text(event["text"]))
                case "tool_end" if is_question:
                    self.outbox.put(update_user_message_text(event["output"]))
                case "tool_start" if is_question:
                    self.say(str(event["args"].get("inquire", "")))
                case "think_end" if event["text"].strip():
                    self.say(f"{event['text'].strip()}\n\n")
                case _:
                    self.show(event)

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
            content = [tool_diff_content(places[0].path, diff[1], diff[0])]
            self._diffs[event["call_id"]] = content[0]
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
        """End a call. Its content replaces what the editor shows, so it has the diff again."""
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

    The old text of a new file is None.
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

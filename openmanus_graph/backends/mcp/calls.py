"""One call as its reader sees it: progress, the server's requests, and the result.

Servers request two things during a call: elicitation asks the user, sampling asks the model.
"""

import asyncio
import base64
import contextlib
import hashlib
import mimetypes
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import mcp_types as types
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from openmanus_graph.backends.mcp.listed_tools import is_schema, sanitize_text
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.tool_runtime import CallRuntime
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.interrupts import Decision, question_request, read_decision, read_text
from openmanus_graph.state.json_values import as_list, as_object, json_or
from openmanus_graph.state.validation import schema_problems

PROGRESS_INTERVAL_S = 0.5
"""Shortest time between two notices about one call's progress."""
PROGRESS_CHARS = 200
MAX_REQUEST_CHARS = 200_000
_DECLINE_WORDS = {"decline", "reject", "no thanks"}
_CANCEL_WORDS = {"cancel"}
_YES, _NO = {"yes", "y", "true", "1"}, {"no", "n", "false", "0"}


@dataclass(eq=False)
class Event:
    """A progress report, a request of the server, the start of a task, or the end of a call."""

    kind: Literal["progress", "ask", "sample", "task", "done"]
    payload: Any = None
    """The text of a progress report, the parameters of a request, the id of a task, or a result."""
    error: Exception | None = None
    """Why the call failed."""
    problem: str = ""
    """Why the user's last answer was rejected."""

    @cached_property
    def answer(self) -> "Future[Any]":
        """The future that the server's request waits for, or a call that has become a task."""
        return Future()

    def respond(self, answer: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class OpenCall:
    """One running call: its events in order, for one reader."""

    def __init__(self, tool: str, args: dict[str, Any], task_id: str = "") -> None:
        self.tool, self.args = tool, args
        self.task_id = task_id
        """The id of the task as which the server runs the call; empty if there is no task."""
        self.abandoned = False
        """Whether the result is no longer needed."""
        self.cancel: Callable[[], None] = lambda: None
        """Cancels the call on the servers' event loop."""
        self._events: deque[Event] = deque()
        self._reader: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._lock = threading.Lock()

    def put(self, event: Event) -> None:
        """Add an event, from any thread."""
        with self._lock:
            if event.kind == "done":  # no request waits for an answer any more
                self._events = deque(one for one in self._events if one.kind == "progress")
            self._events.append(event)
            reader, self._reader = self._reader, None
        if reader is not None:
            loop, waiting = reader
            with contextlib.suppress(RuntimeError):  # the reader's loop is closed
                loop.call_soon_threadsafe(_wake, waiting)

    async def first(self) -> Event:
        """Wait for the oldest event and return it. It stays first until `drop`."""
        while True:
            with self._lock:
                if self._events:
                    return self._events[0]
                loop = asyncio.get_running_loop()
                waiting = loop.create_future()
                self._reader = (loop, waiting)
            await waiting

    def drop(self) -> None:
        """Remove the oldest event after it was handled; `done` stays."""
        with self._lock:
            if self._events and self._events[0].kind != "done":
                self._events.popleft()

    def abandon(self) -> None:
        """Cancel the call, and resolve its pending requests with None."""
        self.abandoned = True
        self.cancel()
        for event in list(self._events):
            event.respond(None)


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


async def follow_call(call: OpenCall, runtime: CallRuntime, name: str, server: str) -> Any:
    """Show a call's progress, answer the server's requests, and return the result.

    `name` is that of the tool as models see it. ToolError or an error of the SDK: the call failed.
    """
    shown_at = 0.0
    while True:
        event = await call.first()
        match event.kind:
            case "done":
                if event.error is not None:
                    raise event.error
                return event.payload
            case "progress":
                now = time.monotonic()
                if now - shown_at >= PROGRESS_INTERVAL_S:
                    shown_at = now
                    text = sanitize_text(str(event.payload), PROGRESS_CHARS)
                    notice(runtime.emit, f"{name}: {text}", "info")
            case "task":
                await runtime.record_server_task(event.payload)
                event.respond(True)
            case "ask":
                await _elicit(event, runtime, call.tool, server)
            case _:
                await _sample(event, runtime, server)
        call.drop()


async def _elicit(event: Event, runtime: CallRuntime, tool: str, server: str) -> None:
    """Ask the user until the answer is valid. The run may pause, the call does not."""
    while True:
        text = question_text(server, tool, event.payload, event.problem)
        name = f"elicitation {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        try:
            value = await runtime.ask_person(question_request(text), name)
        except (RuntimeError, ToolError):  # without a checkpointer the run cannot pause
            event.respond(types.ElicitResult(action="cancel"))
            return
        answer = read_answer(event.payload, value)
        if not isinstance(answer, str):
            event.respond(answer)
            return
        event.problem = answer


async def _sample(event: Event, runtime: CallRuntime, server: str) -> None:
    params: types.CreateMessageRequestParams = event.payload
    notice(runtime.emit, f"The MCP server {server} asks the model.", "info")
    try:
        messages = await asyncio.to_thread(_sampling_messages, params, runtime.session.workspace)
        reply = await runtime.converse(params.system_prompt or "", messages)
    except (ToolError, ConfigError, OSError) as error:
        event.respond(types.ErrorData(code=types.INTERNAL_ERROR, message=str(error)))
        return
    model = runtime.session.settings.main.model
    configured = model if isinstance(model, str) else ""
    result = types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(type="text", text=reply.text.strip()),
        model=str(reply.response_metadata.get("model_name") or configured or "model"),
        stop_reason="endTurn",
    )
    event.respond(result)


def question_text(server: str, tool: str, params: Any, problem: str) -> str:
    """Return a server's request as a question; `problem` is why the last answer was rejected."""
    lines = [
        *([f"That cannot be passed on: {problem}."] if problem else []),
        f"The MCP server {server} asks (during {tool}): {sanitize_text(params.message)}",
    ]
    if url := getattr(params, "url", None):
        lines.append(f"It wants you to open {url}. Answer done when you have, or decline.")
        return "\n".join(lines)
    fields = list(_field_lines(_schema(params)))
    known = bool(_defaults(_schema(params)))
    if len(fields) > 1:
        usual = " What you leave out gets its default; answer nothing to leave all out."
        lines += [*fields, f"Answer with a JSON object of these fields, or decline.{usual * known}"]
    elif fields:
        usual = " Answer nothing to take the default."
        lines += [*fields, f"Answer with that value, or decline.{usual * known}"]
    else:
        lines.append("Answer yes, or decline.")
    return "\n".join(lines)


def read_answer(params: Any, value: Any) -> types.ElicitResult | str:
    """Parse the user's answer. If it is wrong, return the problem as text."""
    text = read_text(value)
    word = (text or "").strip()
    decision = read_decision(value) if isinstance(value, Mapping) else None
    rejected = decision is not None and decision.type == "reject"
    if rejected or word.lower() in _DECLINE_WORDS:
        return types.ElicitResult(action="decline")
    if word.lower() in _CANCEL_WORDS:
        return types.ElicitResult(action="cancel")
    if getattr(params, "url", None):
        return types.ElicitResult(action="accept")
    schema = _schema(params)
    defaults = _defaults(schema)
    left_out = text is not None and not word and bool(defaults)
    content = {} if left_out else _content(schema, value, decision, word)
    if content is None:
        return "a JSON object is needed"
    content = {**defaults, **content}
    problems = schema_problems(schema, content) if schema else []
    return "; ".join(problems) or types.ElicitResult(action="accept", content=content)


def _content(
    schema: dict[str, Any], value: Any, decision: Decision | None, word: str
) -> dict[str, Any] | None:
    properties = _properties(schema)
    if isinstance(value, dict) and (given := as_object(value)).keys() <= properties.keys():
        return given
    if isinstance(parsed := json_or(word), dict):
        return as_object(parsed)
    if not properties or (decision is not None and decision.type == "approve"):
        return {}
    if len(properties) > 1:
        return None
    name, field = next(iter(properties.items()))
    return {name: _typed(field, word)}


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = _properties(schema).items()
    return {name: field["default"] for name, field in fields if "default" in field}


def _typed(field: Mapping[str, Any], word: str) -> Any:
    """Convert a value to the type of its schema."""
    kind = field.get("type")
    if kind == "boolean" and word.lower() in _YES | _NO:
        return word.lower() in _YES
    if kind in ("integer", "number"):
        try:
            return int(word) if kind == "integer" else float(word)
        except ValueError:
            return word
    if kind == "array":
        return [part.strip() for part in word.split(",")]
    return word


def _field_lines(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required") or ()
    for name, field in _properties(schema).items():
        several = field.get("type") == "array"
        of_choice: dict[str, Any] = field.get("items") or {} if several else field
        titled: list[Any] = of_choice.get("oneOf") or of_choice.get("anyOf") or []
        choices: list[Any] = of_choice.get("enum") or [one.get("const") for one in titled]
        of = "some" if several else "one"
        facts = [
            str(field.get("format") or field.get("type", "value")),
            *(["required"] if name in required else []),
            *([f"{of} of {', '.join(map(str, choices))}"] if choices else []),
            *([f"default {field['default']}"] if "default" in field else []),
        ]
        about = sanitize_text(str(field.get("description") or field.get("title") or ""), 300)
        yield f"- {name} ({', '.join(facts)})" + (f": {about}" if about else "")


def _properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: as_object(one) for name, one in as_object(schema.get("properties")).items()}


def _schema(params: Any) -> dict[str, Any]:
    """Return the schema of the requested form; empty if it is not a valid schema."""
    found = as_object(getattr(params, "requested_schema", None))
    return found if is_schema(found) else {}


def _sampling_messages(
    params: types.CreateMessageRequestParams, workspace: Workspace
) -> list[AnyMessage]:
    """Turn a sampling request into messages. Blocks: pictures become files."""
    messages: list[AnyMessage] = []
    for index, message in enumerate(params.messages):
        content: Any = message.content  # one block, or several
        blocks = as_list(content) if isinstance(content, list) else [content]
        text = "\n".join(block.text for block in blocks if block.type == "text")[:MAX_REQUEST_CHARS]
        if message.role == "assistant":
            messages.append(AIMessage(text, id=f"sampled-{index}"))
            continue
        shown: list[str] = []
        for block in blocks:
            if block.type == "image":
                try:
                    data = base64.b64decode(block.data)
                except ValueError:
                    continue
                suffix = mimetypes.guess_extension(block.mime_type) or ".png"
                shown.append(workspace.relative(workspace.keep(data, suffix)))
        extra = {"images": shown} if shown else {}
        messages.append(HumanMessage(text, id=f"sampled-{index}", additional_kwargs=extra))
    return messages

"""The agent in an editor, by the Agent Client Protocol: sessions are threads.

The workspace of a session is the editor's folder.
"""

import asyncio
import base64
import json
import logging
import secrets
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import anyio
from acp import RequestError, helpers, schema
from acp.agent.connection import AgentSideConnection
from acp.interfaces import Client

from openmanus_graph.interfaces.service import runs
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.own_process import PARSE_ERROR, StdioPipes
from openmanus_graph.interfaces.service.run_setup import read_thread_state
from openmanus_graph.interfaces.service.thread_view import events_from_messages
from openmanus_graph.interfaces.service.threads import find_thread
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.state.json_values import json_or
from openmanus_graph.tools.closing import ask_human

TITLE_CHARS = 100
_KINDS: Mapping[str, schema.ToolKind] = {
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
_APPROVAL = (
    schema.PermissionOption(option_id="approve", name="Allow", kind="allow_once"),
    schema.PermissionOption(option_id="always", name="Always allow", kind="allow_always"),
    schema.PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
)
_UNKNOWN_OUTCOME = (
    schema.PermissionOption(option_id="approve", name="Run it again", kind="allow_once"),
    schema.PermissionOption(option_id="reject", name="Leave it", kind="reject_once"),
)
log = logging.getLogger(__name__)


class EditorTurn:
    """One turn of a session: sends its updates to the editor, in order, and asks for approvals."""

    def __init__(self, client: Client, session: str, folder: Path) -> None:
        self._client, self._session, self._folder = client, session, folder
        self.outbox = runs.Outbox[Any](
            lambda update: client.session_update(session_id=session, update=update)
        )
        self._steps: dict[str, schema.PlanEntry] = {}
        """The newest plan's, by id."""
        self._diffs: dict[str, schema.FileEditToolCallContent] = {}
        """Of edits that have started, by call."""

    def show(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "think_end" if event["text"].strip() and event["tool_calls"]:
                self.say(f"{event['text'].strip()}\n\n")
            case "tool_start" if event["tool"] != ask_human.name:
                self.outbox.put(self._call_started(event))
            case "tool_end" if event["tool"] != ask_human.name:
                self.outbox.put(self._call_ended(event))
            case "plan" | "plan_change" if not event.get("plan_step"):
                self.outbox.put(self._plan(event))
            case "notice" | "step_start" | "step_end":
                text = f"{runs.progress_text(event)}\n\n"
                self.outbox.put(helpers.update_agent_thought_text(text))
            case _:
                pass

    def say(self, text: str) -> None:
        self.outbox.put(helpers.update_agent_message_text(text))

    def replay(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Show a conversation so far: texts, and the calls with their results."""
        for event in events:
            is_question = event.get("tool") == ask_human.name
            match event["type"]:
                case "run_start":
                    self.outbox.put(helpers.update_user_message_text(event["task"]))
                case "steer":
                    self.outbox.put(helpers.update_user_message_text(event["text"]))
                case "tool_end" if is_question:
                    self.outbox.put(helpers.update_user_message_text(event["output"]))
                case "tool_start" if is_question:
                    self.say(str(event["args"].get("inquire", "")))
                case "think_end" if event["text"].strip():
                    self.say(f"{event['text'].strip()}\n\n")
                case _:
                    self.show(event)

    def _call_started(self, event: Mapping[str, Any]) -> Any:
        tool, args = event["tool"], event["args"]
        named = next((str(args[name]) for name in _TITLE_ARGS if args.get(name)), "")
        title = " ".join(f"{tool} {args.get('path') or named}".split())[:TITLE_CHARS]
        path, is_editor = args.get("path"), tool == "str_replace_editor"
        place = str(self._folder / path) if isinstance(path, str) else None
        content = None
        if is_editor and place and (edit := edit_of(args)):
            content = [helpers.tool_diff_content(place, edit[1], edit[0])]
            self._diffs[event["call_id"]] = content[0]
        reads = is_editor and args.get("command") == "view"
        return helpers.start_tool_call(
            event["call_id"],
            title,
            kind="read" if reads else _KINDS.get(tool, "other"),
            status="in_progress",
            content=content,
            locations=[schema.ToolCallLocation(path=place)] if place else None,
            raw_input=args,
        )

    def _call_ended(self, event: Mapping[str, Any]) -> Any:
        """End a call. Its content replaces what the editor shows, so it has the diff again."""
        diff = self._diffs.pop(event["call_id"], None)
        done = [diff] if diff is not None and event["ok"] else []
        return helpers.update_tool_call(
            event["call_id"],
            status="completed" if event["ok"] else "failed",
            content=[*done, helpers.tool_content(helpers.text_block(event["output"]))],
        )

    def _plan(self, event: Mapping[str, Any]) -> Any:
        if event["type"] == "plan":
            self._steps.clear()
        for step in event["steps"]:
            status = _PLAN_STATUS.get(step["status"], "pending")
            self._steps[step["id"]] = helpers.plan_entry(step["text"], status=status)
        order = event.get("order") or list(self._steps)
        return helpers.update_plan([self._steps[step] for step in order if step in self._steps])

    async def answer(self, interrupt: Any) -> Any:
        """Return the user's decision; None if there is none. The next prompt answers a question."""
        event = interrupt_event(interrupt)
        if event["kind"] == "question":
            return None
        nothing: dict[str, Any] = {"call_id": event["id"], "args": {}}
        call = event["calls"][0] if event["calls"] else nothing
        try:
            asked = schema.ToolCallUpdate(
                tool_call_id=call["call_id"] or event["id"],
                title=str(event["question"]),
                status="pending",
                content=[helpers.tool_content(helpers.text_block(runs.question_text(event)))],
                raw_input=call["args"],
            )
            options = [*(_APPROVAL if event["kind"] == "approval" else _UNKNOWN_OUTCOME)]
            response = await self._client.request_permission(
                session_id=self._session, tool_call=asked, options=options
            )
        except RequestError as error:
            log.warning("the editor does not ask the user: %s", error)
            return None
        outcome = response.outcome
        return outcome.option_id if outcome.outcome == "selected" else None


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


def read_blocks(blocks: Sequence[Any], folder: Path) -> runs.Message:
    """Read a prompt: the user typed its texts, but not what it encloses or names.

    Files below the folder are named as the agent's tools name them. RequestError if the prompt is
    empty, or data is not base64.
    """
    texts, words, files = list[str](), list[str](), list[runs.Upload]()
    for number, block in enumerate(blocks, 1):
        match block.type:
            case "text":
                texts.append(block.text)
                words.append(block.text)
            case "resource_link":
                texts.append(_name_of(block.uri, folder))
            case "resource" if isinstance(block.resource, schema.TextResourceContents):
                name = _name_of(block.resource.uri, folder)
                texts.append(f"{name} holds:\n\n{block.resource.text}")
            case "resource":
                name = Path(_name_of(block.resource.uri, folder)).name or f"file-{number}"
                kind = block.resource.mime_type or "application/octet-stream"
                files.append(runs.Upload(name, _decoded(block.resource.blob), kind))
            case _:  # image and audio
                suffix = block.mime_type.partition("/")[2].partition("+")[0] or "bin"
                name = f"{block.type}-{number}.{suffix}"
                files.append(runs.Upload(name, _decoded(block.data), block.mime_type))
    text = " ".join(text for text in texts if text.strip())
    words = [text for text in words if text.strip()]
    if not text and not files:
        raise RequestError(-32602, "The prompt is empty. Say what to do.")
    return runs.Message(text or "See the files.", tuple(files), " ".join(words))


def _name_of(uri: str, folder: Path) -> str:
    """Return a file's path, relative if it is in the folder. Other addresses stay unchanged."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise RequestError(-32602, f"The data is not base64: {error}.") from error


PROTOCOL_VERSION = 1
PREFIX = "acp-"
_STOP_REASONS = {"stopped": "max_turn_requests", "cancelled": "cancelled"}
"""By a run's status; others end the turn."""
AT_WORK = "A run works in this session. Cancel it, or wait for its end."
_NO_SESSION = "There is no session {!r}. Begin a new one."


@dataclass
class _Session:
    folder: Path
    run: runs.RemoteRun | None = None
    """The running one."""


class EditorAgent:
    """Answers the editor's requests; the SDK calls its methods by name."""

    def __init__(self, agent: str, options: RunOptions, version: str) -> None:
        self.agent, self.options, self.version = agent, options, version
        self.leases = runs.SessionLeases()
        self._sessions: dict[str, _Session] = {}
        self._client: Client  # the SDK connects before its first request

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        capabilities = schema.PromptCapabilities(image=True, audio=True, embedded_context=True)
        info = schema.Implementation(name="openmanus", title="OpenManus", version=self.version)
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True, prompt_capabilities=capabilities
            ),
            agent_info=info,
            auth_methods=[],
        )

    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        folder = await _existing(cwd)
        session = f"{PREFIX}{secrets.token_hex(8)}"
        self._sessions[session] = _Session(folder)
        return schema.NewSessionResponse(session_id=session)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        """Continue a conversation of an earlier process, and show it."""
        folder = await _existing(cwd)
        of_editor = session_id.startswith(PREFIX)
        known = await asyncio.to_thread(find_thread, session_id) if of_editor else None
        if known is None:
            raise RequestError(-32602, _NO_SESSION.format(session_id))
        place = known.options.get("workspace")
        if place != str(folder) or known.agent != self.agent:
            raise RequestError(
                -32602,
                f"The session {session_id} is one of the agent {known.agent} in {place}. Open that "
                "folder, and start `openmanus acp` with that agent.",
            )
        if session_id in self._sessions and self._sessions[session_id].run is not None:
            raise RequestError(-32600, AT_WORK)
        saved = await read_thread_state(session_id, known.agent, whole=True)
        turn = EditorTurn(self._client, session_id, folder)
        async with turn.outbox.sent():
            turn.replay(events_from_messages(known, saved.state.values.get("messages", [])))
        self._sessions[session_id] = _Session(folder)
        return schema.LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        """Run the agent on a message, or on the answer to its question, to the end of the turn."""
        session = self._session(session_id)
        if session.run is not None:
            raise RequestError(-32600, AT_WORK)
        message = read_blocks(prompt, session.folder)
        turn = EditorTurn(self._client, session_id, session.folder)
        options = replace(self.options, workspace=str(session.folder))
        run = runs.RemoteRun(self.agent, session_id, options, turn.show, turn, trigger="acp")
        session.run = run
        try:
            async with turn.outbox.sent(), self.leases.lease(session_id):
                final = await run.send(message)
                if final["status"] not in ("failed", "cancelled"):
                    turn.say(runs.answer_with_hint(final))
        finally:
            session.run = None
        return _response(final, cancelled=run.stop.requested)

    async def cancel(self, session_id: str, **_: Any) -> None:
        run = self._session(session_id).run
        if run is not None:
            run.stop.now()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        log.info("ignored %s", method)

    def _session(self, session_id: str) -> _Session:
        if session_id not in self._sessions:
            raise RequestError(-32602, _NO_SESSION.format(session_id))
        return self._sessions[session_id]


async def _existing(cwd: str) -> Path:
    folder = Path(cwd)
    if not folder.is_absolute() or not await asyncio.to_thread(folder.is_dir):
        raise RequestError(-32602, f"cwd must be an absolute path of a folder, not {cwd!r}.")
    return folder


async def serve_editor(agent: str, options: RunOptions, pipes: StdioPipes, version: str) -> None:
    serving = EditorAgent(agent, options, version)
    served: Any = serving  # the SDK answers calls of its Agent's other methods
    connection = AgentSideConnection(served, _Transport(pipes), listening=False)
    loop = asyncio.get_running_loop()
    try:
        with anyio.CancelScope() as listening:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, listening.cancel)
            await connection.listen()
    finally:
        await connection.close()
        await serving.leases.close()
        await asyncio.to_thread(pipes.flush)


class _Transport:
    """Messages over the pipes, one per line."""

    def __init__(self, pipes: StdioPipes) -> None:
        self._pipes = pipes
        self._lines = pipes.listen(asyncio.get_running_loop())

    async def send(self, message: dict[str, Any]) -> None:
        self._pipes.send(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        while (line := await self._lines.get()) is not None:
            if isinstance(message := json_or(line), dict):
                return cast("dict[str, Any]", message)
            if line.strip():
                self._pipes.send(PARSE_ERROR)
        return None

    async def close(self) -> None:
        """Do nothing: the pipes are flushed at the end."""


def _response(final: Mapping[str, Any], *, cancelled: bool) -> schema.PromptResponse:
    """Return how a turn ended. RequestError if the run failed."""
    if final["status"] == "failed" and not cancelled:
        raise RequestError(-32603, str(final["answer"]))
    # A run that was cancelled while it asked has the status `waiting`.
    status = "cancelled" if cancelled else final["status"]
    usage = final["usage"]
    sent, received = usage["input_tokens"], usage["output_tokens"]
    return schema.PromptResponse(
        stop_reason=_STOP_REASONS.get(status, "end_turn"),  # type: ignore[arg-type]  # the names above are among them
        usage=schema.Usage(
            total_tokens=sent + received,
            input_tokens=sent,
            output_tokens=received,
            cached_read_tokens=usage["cached_tokens"],
        ),
    )

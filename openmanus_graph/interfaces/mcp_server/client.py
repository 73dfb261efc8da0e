"""One connected client: its thread with kernel, shell and browser, its requests and results."""

import asyncio
import base64
import contextlib
import itertools
import mimetypes
import secrets
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypeVar, cast, get_args
from urllib.parse import quote

import anyio
import mcp_types as types
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from typing_extensions import TypedDict

from openmanus_graph.backends.persistence.accounts import MACHINE
from openmanus_graph.backends.persistence.ledger import EffectKey
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.service.accounts import claim, current_user, require_separation
from openmanus_graph.interfaces.service.runs import Outbox, SessionLeases, question_text
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_keeper import SessionKeeper
from openmanus_graph.runtime.session_registry import enter_session, open_session
from openmanus_graph.runtime.workspace import Workspace, opened_file
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import Artifact, PendingCall, Plans, no_plans, no_usage
from openmanus_graph.tool_calls.agent import Agent
from openmanus_graph.tool_calls.context import open_call_context
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools.browser_use import browser_use

QUESTIONS_KEY = "openmanus_questions"
"""Key in `configurable` of the `Questions` that ask the client's user."""
MAX_IMAGE_BYTES = 5_000_000
MAX_FILE_BYTES = 20_000_000
SCHEME = "openmanus"
LINKS = f"{SCHEME}://{{thread}}/{{+path}}"
"""The form of all links."""
_TEXTUAL = ("application/json", "application/xml", "application/javascript", "image/svg+xml")
LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""From the least important to the most important."""
INTERVAL_S = 1.0
QUICK_REPORTS = 10
SLOW_INTERVAL_S = 5.0
"""After `QUICK_REPORTS` notifications."""


class CallState(TypedDict):
    call: PendingCall
    plans: Plans
    result: NotRequired[ToolMessage]


def build_call_graph(agent: Agent) -> Any:
    """Compile the graph that runs one call, because only a run of a graph has a session."""

    async def call_tool(state: CallState, runtime: Runtime[Context]) -> dict[str, Any]:
        session = await enter_session(runtime)
        context = await open_call_context(
            session,
            session.cached((agent, "call_tool"), lambda: Toolset(agent.tools, None)),
            runtime.stream_writer,
            Progress(0, no_usage(), 0.0),
            for_our_model=False,  # the client's model may see pictures
        )
        context.plans = state["plans"]
        context.questions = cast("Questions", get_config().get("configurable", {})[QUESTIONS_KEY])
        call = state["call"]
        result = await run_call(call, context)
        if asks_for_screenshot(call):
            result = await with_screenshot(result, session)
        return {"result": result, "plans": context.plans}

    builder = StateGraph(CallState, context_schema=Context)
    builder.add_node("call_tool", call_tool)
    builder.add_edge(START, "call_tool")
    builder.add_edge("call_tool", END)
    # LangGraph's type of a compiled graph has lost the state's type here.
    return cast("Any", builder.compile(name="call_tool").with_config(callbacks=[SessionKeeper()]))


def asks_for_screenshot(call: PendingCall) -> bool:
    return call["name"] == browser_use.name and call["args"].get("action") == "get_state"


async def with_screenshot(message: ToolMessage, session: Session) -> ToolMessage:
    """Add a screenshot of the browser to a result, if there is one that may be shown."""
    # The call has loaded it.
    from openmanus_graph.backends.browser.pages import state_for_request

    _, picture = await state_for_request(session, picture=True)
    if picture is None or message.status == "error":
        return message
    data = base64.b64decode(picture.partition(",")[2])
    kept = await asyncio.to_thread(session.workspace.keep, data, ".jpg")
    extra: dict[str, Any] = message.artifact or {}
    images = [*extra.get("images", ()), session.workspace.relative(kept)]
    return message.model_copy(update={"artifact": {**extra, "images": images}})


T = TypeVar("T")


@dataclass
class Client:
    graph: Any
    context: Context
    thread: str
    workspace: Workspace
    plans: Plans = field(default_factory=no_plans)
    workspaces: dict[str, Workspace] = field(default_factory=dict[str, Workspace])
    """The workspaces of its runs by thread; the client may read their files."""
    files: dict[str, list[Artifact]] = field(default_factory=dict[str, list[Artifact]])
    """The files that its runs have made, by thread."""
    log_level: types.LoggingLevel | None = None
    """The lowest level of log messages that the client wants; None for no messages."""
    leases: SessionLeases = field(default_factory=SessionLeases)
    """The leases of its runs' threads."""
    _locks: weakref.WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary[str, asyncio.Lock]
    )
    """The locks of the resources that calls use."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def call(
        self, tool: BaseTool, args: dict[str, Any], questions: Questions
    ) -> ToolMessage | None:
        """Run a tool. Calls that share a resource, such as a shell, run in order."""
        number = next(self._numbers)
        call = PendingCall(
            id=f"mcp-{number}", name=tool.name, args=args, occurrence=number, problem=None
        )
        resource = None
        # The validation reports wrong arguments.
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            resource = traits_of(tool).resource_of(args)
        turn = self._locks.setdefault(resource, asyncio.Lock()) if resource else asyncio.Lock()

        async def run() -> ToolMessage | None:
            configurable = {"thread_id": self.thread, QUESTIONS_KEY: questions}
            before = self.plans
            given, config = {"call": call, "plans": before}, {"configurable": configurable}
            done: Mapping[str, Any] = await self.graph.ainvoke(given, config, context=self.context)
            if done.get("plans", before) != before:  # other tools return them unchanged
                self.plans = done["plans"]
            return done.get("result")

        async with turn:
            return await run_shielded(run())


@contextlib.asynccontextmanager
async def connected(graph: Any, context: Context) -> AsyncGenerator[Client]:
    """Open a client's session, and close it however the connection ends."""
    thread = f"mcp-{secrets.token_hex(8)}"
    settings = await asyncio.to_thread(resolve_settings, context, thread)
    if current_user() != MACHINE:  # whose clients may have no database
        await asyncio.to_thread(require_separation, settings.sandbox)
        await claim(thread)
    client = Client(graph, context, thread, Workspace.of(settings))
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(open_session(client.thread))
    stack.push_async_callback(client.leases.close)
    try:
        yield client
    finally:
        # A cancelled scope of anyio cancels every await again, and closing awaits.
        with anyio.CancelScope(shield=True):
            await stack.aclose()


async def run_shielded(
    work: Coroutine[Any, Any, T], cancel: Callable[[], object] | None = None
) -> T:
    """Run work in its own task. Cancel it once, and wait for its clean-up.

    `cancel` replaces the cancellation of the task.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        (cancel or task.cancel)()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
        raise


class Caller(Questions):
    """The client of one request: gets progress and log messages, and asks its user."""

    def __init__(
        self, request: ServerRequestContext[Any, Any], level: types.LoggingLevel | None
    ) -> None:
        super().__init__(None)
        self._session, self._request = request.session, request.request_id or 0
        self._wants_progress = "progress_token" in (request.meta or {})
        self._wanted_levels = () if level is None else LEVELS[LEVELS.index(level) :]
        self._began, self._last_seconds = time.monotonic(), -1.0
        self._progress: asyncio.Queue[str] = asyncio.Queue()
        self.outbox = Outbox[Mapping[str, Any]](self._send_notice)

    def show(self, event: Mapping[str, Any], progress: str | None) -> None:
        """Send a notice as a log message, and the text as progress, if the client wants them."""
        if event["type"] == "notice" and event["level"] in self._wanted_levels:
            self.outbox.put(event)
        if progress is not None and self._wants_progress:
            self._progress.put_nowait(progress)

    async def _send_notice(self, notice: Mapping[str, Any]) -> None:
        params = types.LoggingMessageNotificationParams(
            level=notice["level"], logger="openmanus", data=notice["text"]
        )
        message = types.LoggingMessageNotification(params=params)
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.send_notification(message, self._request)

    @contextlib.asynccontextmanager
    async def reporting(self, text: str) -> AsyncGenerator[None]:
        """Send progress meanwhile, and repeat the last text if there is no new one."""
        if not self._wants_progress:
            yield
            return
        await self._report(text)
        reporter = asyncio.create_task(self._keep_reporting(text))
        try:
            yield
            while not self._progress.empty():
                await self._report(self._progress.get_nowait())
        finally:
            reporter.cancel()

    async def _keep_reporting(self, text: str) -> None:
        reports = 0
        while True:
            interval = INTERVAL_S if reports < QUICK_REPORTS else SLOW_INTERVAL_S
            try:
                text = await asyncio.wait_for(self._progress.get(), interval)
            except TimeoutError:
                reports += 1
            await self._report(text)

    async def _report(self, text: str) -> None:
        seconds = max(round(time.monotonic() - self._began, 1), self._last_seconds + 0.001)
        self._last_seconds = seconds
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.report_progress(seconds, message=text)

    async def answer(self, interrupt: Any) -> Any:
        """Ask the question of a run's interrupt. Return None if there is no answer."""
        return await self._elicit(interrupt_event(interrupt))

    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        """Ask a call's question at once, while the client waits for the call's result."""
        value = await self._elicit(request)
        if value is not None:
            return value
        why = "there was no answer"
        if not self._can_elicit():
            why = "this client cannot ask its user (it has no elicitation)"
        raise ToolError(
            f"{key.tool} was not run. {request['question']} The user must decide that, and {why}. "
            "Use a client that can ask, or start the server with --policy auto."
        )

    def _can_elicit(self) -> bool:
        known = self._session.client_capabilities
        offered = known.elicitation if known else None
        return offered is not None and (offered.form is not None or offered.url is None)

    async def _elicit(self, request: Mapping[str, Any]) -> Any:
        """Return the answer in the form that an interrupt is resumed with."""
        if not self._can_elicit():
            return None
        kind = str(request.get("kind", "question"))
        text, schema, asking = question_text(request), answer_schema(kind), self._request
        try:
            result = await self._session.elicit_form(text, schema, related_request_id=asking)
        except MCPError:
            return None  # the client cannot show forms
        return read_answer(kind, result)


def answer_schema(kind: str) -> dict[str, Any]:
    answer = {"type": "string", "title": "Answer"}
    if kind == "question":
        return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    choices, further = ["approve", "reject"], {"reason": {"type": "string", "title": "Reason"}}
    if kind == "unknown_outcome":
        choices, further = [*choices, "answer"], {"answer": answer}
    decision = {"type": "string", "title": "Decision", "enum": choices}
    properties = {"decision": decision, **further}
    return {"type": "object", "properties": properties, "required": ["decision"]}


def read_answer(kind: str, result: types.ElicitResult) -> Any:
    content: dict[str, Any] = dict(result.content or {})
    if result.action == "cancel":
        return None
    if kind == "question":
        text = str(content.get("answer") or "")
        return text if result.action == "accept" else "The user declined to answer."
    decision = content.get("decision") if result.action == "accept" else "reject"
    text = str(content.get("reason") or content.get("answer") or "")
    match decision:
        case "approve" | "reject":
            return {"type": decision, "message": text}
        case "answer":
            return {"type": "respond", "message": text}
        case _:
            return None


def call_result(message: ToolMessage, workspace: Workspace) -> types.CallToolResult:
    """Return a tool message as a result, with its pictures from the workspace. Blocks."""
    extra: dict[str, Any] = message.artifact or {}
    content: list[types.ContentBlock] = [text_block(message.text)]
    for path in extra.get("images", ()):
        try:
            data = base64.b64encode(read_bytes(workspace, path, MAX_IMAGE_BYTES)).decode()
        except ToolError as error:
            content.append(text_block(str(error)))
        else:
            media_type = mimetypes.guess_type(path)[0] or "image/png"
            content.append(types.ImageContent(type="image", data=data, mime_type=media_type))
    structured = extra.get("structured")
    return types.CallToolResult(
        content=content,
        structured_content=structured if isinstance(structured, dict) else None,
        is_error=message.status == "error",
    )


def failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[text_block(text)], is_error=True)


def text_block(text: str) -> types.TextContent:
    """Return a text block, with invalid Unicode replaced."""
    return types.TextContent(type="text", text=text.encode("utf-8", "replace").decode())


def link(thread: str, artifact: Artifact) -> types.ResourceLink:
    return types.ResourceLink(
        type="resource_link",
        uri=f"{SCHEME}://{quote(thread, safe='')}/{quote(artifact['path'])}",
        name=artifact["path"],
        mime_type=artifact["media_type"],
        size=artifact["size"],
    )


def contents(
    uri: str, path: str, workspace: Workspace
) -> types.TextResourceContents | types.BlobResourceContents:
    data = read_bytes(workspace, path, MAX_FILE_BYTES)
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if media_type.startswith("text/") or media_type in _TEXTUAL:
        text = data.decode("utf-8", "replace")
        return types.TextResourceContents(uri=uri, mime_type=media_type, text=text)
    blob = base64.b64encode(data).decode()
    return types.BlobResourceContents(uri=uri, mime_type=media_type, blob=blob)


def read_bytes(workspace: Workspace, path: str, limit: int) -> bytes:
    """Read a file of the workspace. Blocks. ToolError if there is none, or it is too large."""
    with opened_file(workspace, path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ToolError(
            f"{Path(path).name} is larger than {limit:,} bytes and was not sent. "
            f"It is {path} in the workspace: read it in pieces."
        )
    return data

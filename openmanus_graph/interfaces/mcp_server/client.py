"""One connected client: its thread with kernel, shell and browser, its plans and questions."""

import asyncio
import base64
import contextlib
import itertools
import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypeVar, cast

import anyio
import mcp_types as types
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from typing_extensions import TypedDict

from openmanus_graph.backends.persistence.ledger import EffectKey
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.service.runs import SessionLeases, question_text
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_keeper import SessionKeeper
from openmanus_graph.runtime.session_registry import enter_session, open_session
from openmanus_graph.runtime.workspace import Workspace
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
            branch="",
            progress=Progress(0, no_usage(), 0.0),
            plans=state["plans"],
            handle_state={},
            for_our_model=False,  # the client's model may see pictures
        )
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
        default_factory=lambda: weakref.WeakValueDictionary[str, asyncio.Lock]()
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
        async with turn:
            return await run_shielded(self._run(call, questions))

    async def _run(self, call: PendingCall, questions: Questions) -> ToolMessage | None:
        configurable = {"thread_id": self.thread, QUESTIONS_KEY: questions}
        before = self.plans
        done: Mapping[str, Any] = await self.graph.ainvoke(
            {"call": call, "plans": before}, {"configurable": configurable}, context=self.context
        )
        if done.get("plans", before) != before:  # other tools return them unchanged
            self.plans = done["plans"]
        return done.get("result")


@contextlib.asynccontextmanager
async def connected(graph: Any, context: Context) -> AsyncGenerator[Client]:
    """Open a client's session, and close it however the connection ends."""
    thread = f"mcp-{secrets.token_hex(8)}"
    settings = await asyncio.to_thread(resolve_settings, context, thread)
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


class Elicitation:
    """Asks the client's user questions during one request. Without an answer, it is None."""

    def __init__(self, session: ServerSession, request_id: types.RequestId) -> None:
        self._session, self._request_id = session, request_id

    @property
    def possible(self) -> bool:
        known = self._session.client_capabilities
        offered = known.elicitation if known else None
        return offered is not None and (offered.form is not None or offered.url is None)

    async def ask(self, request: Mapping[str, Any]) -> Any:
        """Return the answer in the form that an interrupt is resumed with."""
        if not self.possible:
            return None
        kind = str(request.get("kind", "question"))
        text, schema = question_text(request), answer_schema(kind)
        try:
            result = await self._session.elicit_form(
                text, schema, related_request_id=self._request_id
            )
        except MCPError:
            return None  # the client cannot show forms
        return read_answer(kind, result)

    async def answer(self, interrupt: Any) -> Any:
        return await self.ask(interrupt_event(interrupt))


class ElicitedQuestions(Questions):
    """Asks a call's questions at once, while the client waits for its result."""

    def __init__(self, elicitation: Elicitation) -> None:
        super().__init__(None)
        self._elicitation = elicitation

    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        value = await self._elicitation.ask(request)
        if value is not None:
            return value
        why = "there was no answer"
        if not self._elicitation.possible:
            why = "this client cannot ask its user (it has no elicitation)"
        raise ToolError(
            f"{key.tool} was not run. {request['question']} The user must decide that, and {why}. "
            "Use a client that can ask, or start the server with --policy auto."
        )


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

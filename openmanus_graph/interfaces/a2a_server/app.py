"""The A2A server as an ASGI app."""

import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator
from typing import Any, cast

from a2a.helpers import new_text_part
from a2a.server.agent_execution import RequestContext, SimpleRequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.server.routes import create_agent_card_routes
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    Message,
    Role,
    SecurityRequirement,
    SecurityScheme,
    SendMessageConfiguration,
    SendMessageRequest,
    StringList,
    Task,
    TaskState,
)
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH, VERSION_HEADER
from a2a.utils.errors import A2AError, InvalidParamsError, VersionNotSupportedError
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from openmanus_graph.config.resolve import database_url
from openmanus_graph.graphs.catalog import agent_tools, describe_agent
from openmanus_graph.interfaces.a2a_server.executor import DatabaseTaskStore, Executor
from openmanus_graph.interfaces.service.http import App, RequestGuard
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.tools import closing_tools

PROTOCOLS = ("1.0", "0.3")
TEXT, ANY = "text/plain", "application/octet-stream"
MAX_BODY_BYTES = 64 << 20
"""Of a request, in which files are a third larger."""
log = logging.getLogger(__name__)


def agent_card(agent: str, url: str, version: str, *, guarded: bool) -> AgentCard:
    """Return the card of an agent. `url` has no last slash; `guarded`: clients need a token."""
    purpose = describe_agent(agent) or "does tasks with tools"
    card = AgentCard(
        name=f"OpenManus {agent}",
        description=f"Does whole tasks with tools of its own. For {purpose}.",
        version=version,
        supported_interfaces=[
            AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version=protocol)
            for protocol in PROTOCOLS
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=[TEXT, "application/json", "image/png", "image/jpeg", ANY],
        default_output_modes=[TEXT, "application/json", ANY],
        skills=_skills(agent, purpose),
    )
    if guarded:
        scheme = HTTPAuthSecurityScheme(scheme="bearer", description="Shown at the server's start.")
        card.security_schemes["bearer"].CopyFrom(SecurityScheme(http_auth_security_scheme=scheme))
        card.security_requirements.append(SecurityRequirement(schemes={"bearer": StringList()}))
    return card


def _skills(agent: str, purpose: str) -> list[AgentSkill]:
    whole_task = AgentSkill(
        id=agent,
        name="Do a task",
        description=f"Does a whole task, stated in plain words, and hands over an answer and "
        f"files. For {purpose}.",
        tags=[agent, "task"],
        examples=["Summarise sales.csv and draw the monthly totals"],
    )
    closing = {tool.name for tool in closing_tools()}
    skills = [whole_task]
    for tool in agent_tools(agent):
        if tool.name not in closing:
            summary = tool.description.strip().partition("\n\n")[0]
            skill = AgentSkill(id=tool.name, name=tool.name, description=summary, tags=["tool"])
            skills.append(skill)
    return skills


class Dispatcher(JsonRpcDispatcher):
    """Refuses requests that the SDK accepts by mistake, and passes it the others.

    * A version other than the card's: the SDK takes 1.1 for 1.0 (A2A 1.0, 3.6.2).
    * A task state that does not exist: the SDK lists all tasks (3.1.4, 3.3.2).
    * Params of version 0.3 that do not fit: the SDK calls the whole request invalid (0.3, 8.1).
    """

    def __init__(self, handler: RequestHandler) -> None:
        super().__init__(handler, _ContextBuilder(), enable_v0_3_compat=True)

    @override
    async def handle_requests(self, request: Request) -> Response:
        try:
            body: Any = await request.json()
        except (ValueError, RecursionError):
            body = None  # the SDK says what is wrong with it
        if isinstance(body, dict):
            request_body = cast("dict[str, Any]", body)
            if error := _refusal(_version(request), request_body):
                return JSONResponse(build_error_response(request_body.get("id"), error))
        return await super().handle_requests(request)


class _ContextBuilder(DefaultServerCallContextBuilder):
    """Takes the version from the query, too: clients may send it there (3.6.1)."""

    @override
    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state["headers"][VERSION_HEADER] = _version(request)
        return context


def _version(request: Request) -> str:
    return request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER, "")


def _refusal(version: str, body: dict[str, Any]) -> A2AError | None:
    """Return why a request is refused that the SDK would accept; None leaves it to the SDK."""
    # Here, because it and the dispatcher import each other: the dispatcher must be first.
    from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter

    number: object = body.get("id")
    is_id = number is None or (isinstance(number, str | int) and not isinstance(number, bool))
    if body.get("jsonrpc") != "2.0" or not is_id:
        return None
    if version and ".".join(version.split(".")[:2]) not in PROTOCOLS:
        return VersionNotSupportedError(
            f"A2A {version} is not spoken here. Send {VERSION_HEADER}: {' or '.join(PROTOCOLS)}."
        )
    method, params = body.get("method"), body.get("params")
    if method == "ListTasks" and isinstance(params, dict):
        status = cast("dict[str, Any]", params).get("status")
        if isinstance(status, str) and status not in TaskState.keys():  # noqa: SIM118  # no dict
            return InvalidParamsError(
                f"There is no task state {status!r}. There are {', '.join(TaskState.keys())}."
            )
    model: Any = JSONRPC03Adapter.METHOD_TO_MODEL.get(str(method))  # typed as a metaclass there
    if model is not None:
        try:
            model.model_validate(body)
        except ValidationError as error:  # named without their values
            faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            return InvalidParamsError(f"The params do not fit. {'; '.join(faults[:5])}.")
    return None


def build_app(
    agent: str, options: RunOptions, url: str, host: str, token: str | None, version: str
) -> App:
    """Make the server's app. Blocks. The card needs no token."""
    card = agent_card(agent, url, version, guarded=token is not None)
    store = DatabaseTaskStore(database_url())
    executor = Executor(agent, options, store)
    handler = DefaultRequestHandler(
        executor, store, card, request_context_builder=_TaskContextBuilder(store)
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        for task in await store.under_way():
            await _resume_task(task, executor, handler)
        try:
            yield
        finally:
            await handler.aclose()
            await executor.leases.close()

    routes = [
        *create_agent_card_routes(card),
        Route("/", Dispatcher(handler).handle_requests, methods=["POST"]),
    ]
    return RequestGuard(
        Starlette(routes=routes, lifespan=lifespan),
        token=token,
        bound_to=(host,),
        public=(AGENT_CARD_WELL_KNOWN_PATH,),
        max_body_bytes=MAX_BODY_BYTES,
    )


class _TaskContextBuilder(SimpleRequestContextBuilder):
    """Adds the context to a message that names only its task; the SDK would make a new one."""

    def __init__(self, store: DatabaseTaskStore) -> None:
        super().__init__()
        self._store = store

    @override
    async def build(
        self,
        context: ServerCallContext,
        params: SendMessageRequest | None = None,
        task_id: str | None = None,
        context_id: str | None = None,
        task: Task | None = None,
    ) -> RequestContext:
        if task_id and not context_id and (known := await self._store.get(task_id, context)):
            context_id = known.context_id
        return await super().build(context, params, task_id, context_id, task)


async def _resume_task(task: Task, executor: Executor, handler: DefaultRequestHandler) -> None:
    """Resume a task that ran when the server stopped: its client may still ask for it."""
    executor.cut_off.add(task.id)
    message = Message(
        message_id=str(uuid.uuid4()),
        role=Role.ROLE_USER,
        task_id=task.id,
        context_id=task.context_id,
        parts=[new_text_part("(The server was restarted; the task continues.)")],
    )
    log.info("resuming task %s", task.id)
    at_once = SendMessageConfiguration(return_immediately=True)
    request = SendMessageRequest(message=message, configuration=at_once)
    await handler.on_message_send(request, ServerCallContext())

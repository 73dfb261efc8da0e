"""The A2A server as an ASGI app."""

import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator

from a2a.helpers import new_text_part
from a2a.server.agent_execution import RequestContext, SimpleRequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes
from a2a.types import (
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
)
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from starlette.applications import Starlette
from starlette.routing import Route
from typing_extensions import override

from openmanus_graph.config.resolve import database_url
from openmanus_graph.interfaces.a2a_server.card import agent_card
from openmanus_graph.interfaces.a2a_server.dispatcher import Dispatcher
from openmanus_graph.interfaces.a2a_server.executor import Executor
from openmanus_graph.interfaces.a2a_server.store import DatabaseTaskStore
from openmanus_graph.interfaces.service.guard import App, RequestGuard
from openmanus_graph.interfaces.service.options import RunOptions

MAX_BODY_BYTES = 64 << 20
"""Of a request, whose files are a third larger in it."""
log = logging.getLogger(__name__)


def build_app(
    agent: str, options: RunOptions, url: str, host: str, token: str | None, version: str
) -> App:
    """Make the server's app. Blocks.

    Args:
        agent: Name of the agent.
        options: Of each run.
        url: Under which clients reach the server.
        host: That it listens on.
        token: What clients must send; None for none. The card is open to all.
        version: Of this package.
    """
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
    """Fills in the context of a message that names only its task; the SDK would make a new one."""

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
        parts=[new_text_part("(The server was started again; the task goes on.)")],
    )
    log.info("going on with task %s", task.id)
    await handler.on_message_send(
        SendMessageRequest(
            message=message, configuration=SendMessageConfiguration(return_immediately=True)
        ),
        ServerCallContext(),
    )

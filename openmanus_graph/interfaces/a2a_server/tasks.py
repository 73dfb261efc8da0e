"""The tasks of the A2A server: each belongs to a context, and so to the owner of a thread."""

import asyncio
from collections.abc import Sequence
from typing import Any

from a2a import types
from a2a.server.agent_execution import RequestContext, SimpleRequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore, TaskStore
from a2a.types import Task
from a2a.utils.errors import InvalidParamsError
from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.config.resolve import database_url
from openmanus_graph.interfaces.service.accounts import Refused, claim, current_user

THREADS = "a2a-"
"""Begins the thread's name of a context."""
_OWNER = f"COALESCE((SELECT owner FROM owners WHERE thread = '{THREADS}' || context), '')"


class DatabaseTaskStore(TaskStore):
    """The tasks in our database, each of its thread's owner. Opening it blocks."""

    def __init__(self) -> None:
        self._run = open_database(database_url()).run

    @override
    async def save(self, task: Task, context: ServerCallContext) -> None:
        await asyncio.to_thread(
            self._run,
            "INSERT INTO a2a_tasks (id, context, state, task) VALUES (?, ?, ?, ?) ON CONFLICT (id)"
            " DO UPDATE SET context = excluded.context, state = excluded.state,"
            " task = excluded.task",
            (task.id, task.context_id, int(task.status.state), task.SerializeToString()),
        )

    @override
    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        found = await self.select(f"WHERE id = ? AND {_OWNER} = ?", task_id, current_user().name)
        return found[0] if found else None

    @override
    async def list(
        self, params: types.ListTasksRequest, context: ServerCallContext
    ) -> types.ListTasksResponse:
        # The SDK's own store filters, sorts and pages as the protocol requires.
        pages = InMemoryTaskStore(use_copying=False)
        for task in await self.select(f"WHERE {_OWNER} = ?", current_user().name):
            await pages.save(task, context)
        return await pages.list(params, context)

    @override
    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        await asyncio.to_thread(self._run, "DELETE FROM a2a_tasks WHERE id = ?", (task_id,))

    async def select(self, rest: str, *values: Any) -> Sequence[Task]:
        rows = await asyncio.to_thread(self._run, f"SELECT task FROM a2a_tasks {rest}", values)
        return [Task.FromString(row[0]) for row in rows]


class TaskContextBuilder(SimpleRequestContextBuilder):
    """Adds the context to a message that names only its task; the SDK would make a new one.

    The context becomes the current user's.
    """

    def __init__(self, store: DatabaseTaskStore) -> None:
        super().__init__()
        self._store = store

    @override
    async def build(
        self,
        context: ServerCallContext,
        params: types.SendMessageRequest | None = None,
        task_id: str | None = None,
        context_id: str | None = None,
        task: Task | None = None,
    ) -> RequestContext:
        if task_id and not context_id and (known := await self._store.get(task_id, context)):
            context_id = known.context_id
        made = await super().build(context, params, task_id, context_id, task)
        try:
            await claim(f"{THREADS}{made.context_id}")
        except Refused as refusal:
            raise InvalidParamsError(f"Context {made.context_id}: {refusal}") from refusal
        return made

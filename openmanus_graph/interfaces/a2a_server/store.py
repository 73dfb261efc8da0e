"""A2A tasks in the database, beside the threads: they outlive the server."""

import asyncio
from collections.abc import Sequence
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore, TaskStore
from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.state.storage_urls import DatabaseUrl

UNDER_WAY = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)


class DatabaseTaskStore(TaskStore):
    """The tasks of a database. Whoever has the server's token owns all of them."""

    def __init__(self, url: DatabaseUrl) -> None:
        """Open the database. Blocks."""
        self._run = open_database(url).run

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
        found = await self._select("WHERE id = ?", task_id)
        return found[0] if found else None

    @override
    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        # The SDK's own store filters, sorts and pages as the protocol wants it.
        pages = InMemoryTaskStore(use_copying=False)
        for task in await self._select(""):
            await pages.save(task, context)
        return await pages.list(params, context)

    @override
    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        await asyncio.to_thread(self._run, "DELETE FROM a2a_tasks WHERE id = ?", (task_id,))

    async def under_way(self) -> Sequence[Task]:
        """Return the tasks that were being worked on when they were last saved."""
        return await self._select("WHERE state IN (?, ?)", *map(int, UNDER_WAY))

    async def waiting_in(self, context_id: str) -> Sequence[Task]:
        """Return the tasks of a context that wait for an answer."""
        state = int(TaskState.TASK_STATE_INPUT_REQUIRED)
        return await self._select("WHERE context = ? AND state = ?", context_id, state)

    async def _select(self, rest: str, *values: Any) -> Sequence[Task]:
        rows = await asyncio.to_thread(self._run, f"SELECT task FROM a2a_tasks {rest}", values)
        return [Task.FromString(row[0]) for row in rows]

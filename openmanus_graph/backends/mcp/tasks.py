"""Calls that a server runs as tasks, as protocol 2025-11-25 has them.

The server answers a call at once with the id of a task. It is asked for the task's state until that
has ended, and then for the result. The id outlives the connection, and us.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError

from openmanus_graph.backends.mcp.failures import UNSURE, is_loss
from openmanus_graph.backends.mcp.listed_tools import TASK_KEY
from openmanus_graph.errors import ToolError

KEEP_MS = 24 * 60 * 60 * 1000
"""How long a server is asked to keep a task and its result, in milliseconds."""
POLL_S, MIN_POLL_S, MAX_POLL_S = 1.0, 0.05, 30.0
"""Between two questions for a task's state: where the server names no interval, and at least and
most where it does."""
MAX_FAILURES = 5
"""Failed questions in a row for the state of a task that runs."""
CANCEL_S = 2.0
"""How long to wait for a server to confirm that a task is cancelled."""

_UNKNOWN = (types.INVALID_PARAMS, types.METHOD_NOT_FOUND)


def runs_tasks(session: ClientSession) -> bool:
    """Return whether a server runs calls of tools as tasks."""
    capabilities = session.server_capabilities
    tasks = capabilities.tasks if capabilities is not None else None
    requests = tasks.requests if tasks is not None else None
    return requests is not None and requests.tools is not None and requests.tools.call is not None


async def begin_task(
    session: ClientSession, name: str, args: dict[str, Any]
) -> types.CallToolResult | types.Task:
    """Call a tool as a task. A server that answers with a result has run it at once."""
    params = types.CallToolRequestParams(
        name=name, arguments=args, task=types.TaskMetadata(ttl=KEEP_MS)
    )
    answer = await session.send_request(types.CallToolRequest(params=params), types.CallToolResult)
    task = (answer.meta or {}).get(TASK_KEY)
    return answer if task is None else types.Task.model_validate(task)


async def find_task(session: ClientSession, task_id: str) -> types.Task | None:
    """Return a task's state; None if the server does not know the task."""
    try:
        return await _state(session, task_id)
    except MCPError as error:
        if is_loss(error):
            raise
        return None


async def finish_task(
    session: ClientSession, name: str, task: types.Task, report: Callable[[str], None]
) -> types.CallToolResult:
    """Wait for a task's result.

    Args:
        session: With its server.
        name: The tool's.
        task: Its newest state.
        report: Given what the server says of its state, whenever that is something else.

    Raises:
        ToolError: The server has cancelled it.
        MCPError: The call itself failed.
    """
    said, failures = None, 0
    while task.status == "working":
        if task.status_message and task.status_message != said:
            said = task.status_message
            report(said)
        interval = POLL_S if task.poll_interval is None else task.poll_interval / 1000
        await asyncio.sleep(min(max(interval, MIN_POLL_S), MAX_POLL_S))
        try:
            task, failures = await _state(session, task.task_id), 0
        except MCPError as error:
            failures += 1
            if is_loss(error) or error.code in _UNKNOWN or failures > MAX_FAILURES:
                raise
    if task.status == "cancelled":
        why = f": {task.status_message.rstrip('.')}" if task.status_message else ""
        raise ToolError(f"{name} was cancelled by its server{why}. {UNSURE}")
    # A server that needs input asks for it while it is asked for the result.
    params = types.GetTaskPayloadRequestParams(task_id=task.task_id)
    request = types.GetTaskPayloadRequest(params=params)
    return await session.send_request(request, types.CallToolResult)


async def cancel_task(session: ClientSession, task_id: str) -> None:
    """Tell a server that nobody wants a task's result any more."""
    params = types.CancelTaskRequestParams(task_id=task_id)
    with contextlib.suppress(MCPError, TimeoutError, ValueError):
        async with asyncio.timeout(CANCEL_S):
            await session.send_request(
                types.CancelTaskRequest(params=params), types.CancelTaskResult
            )


async def _state(session: ClientSession, task_id: str) -> types.Task:
    params = types.GetTaskRequestParams(task_id=task_id)
    return await session.send_request(types.GetTaskRequest(params=params), types.GetTaskResult)

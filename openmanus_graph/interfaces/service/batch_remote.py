"""Does the tasks of a batch on a server with LangGraph's API, such as `openmanus serve`."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
from langgraph_sdk import get_client

from openmanus_graph.conversation.history import ORIGIN_KEY
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT
from openmanus_graph.interfaces.service.batch import Budget
from openmanus_graph.interfaces.service.batch_files import BatchResult, BatchTask
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.run_setup import name_files, to_context
from openmanus_graph.safety.provenance import origin_of_parts
from openmanus_graph.state.manus import no_usage
from openmanus_graph.state.settings import MAX_COST_USD

TOKEN_VARIABLE = "OPENMANUS_TOKEN"
AT_WORK = ("pending", "running")
CONNECT_S = 20.0
ERROR_CHARS = 500
MOST_FOUND = 1000
"""Threads that a server lists at once."""


class RemoteTaskRunner:
    """Runs tasks on a server and waits for them; a run continues there if this process ends.

    Arguments as of `LocalTaskRunner`, and the server's address. ConfigError if an option names
    something of this machine.
    """

    def __init__(
        self,
        url: str,
        options: RunOptions,
        agent: str | None,
        budget: Budget,
        notice: Callable[[str], None],
    ) -> None:
        if options.config or options.secret:
            raise ConfigError(
                "--config and --secret are of this machine. Leave them out with --remote; the "
                "server has its own."
            )
        self._url, self._options, self._budget = url.rstrip("/"), options, budget
        self._agent, self._notice = agent or DEFAULT_AGENT, notice
        token = os.environ.get(TOKEN_VARIABLE)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        # A run may be silent for long: only connecting has a time limit.
        times = (CONNECT_S, None, None, None)
        self._client = get_client(url=self._url, api_key=None, headers=self._headers, timeout=times)
        self._at_work: dict[str, str] = {}
        """Runs by thread."""
        self._cancelling = set[asyncio.Task[None]]()

    async def begun(self, threads: Sequence[str]) -> set[str]:
        with self._failures():
            limit = min(max(1, len(threads)), MOST_FOUND)
            found = await self._client.threads.search(ids=[*threads], limit=limit)
        return {one["thread_id"] for one in found}

    async def do(self, task: BatchTask, thread: str) -> BatchResult | None:
        """Do what `TaskRunner.do` says.

        ConfigError if the server refuses the run, RunError if it cannot be reached.
        """
        with self._failures():
            await self._client.threads.create(thread_id=thread, if_exists="do_nothing")
            runs = await self._client.runs.list(thread)
            run = next((one["run_id"] for one in runs if one["status"] in AT_WORK), None)
            own_usd = task.limits.get("max_cost_usd", MAX_COST_USD)
            limit_usd = own_usd
            if run is None:
                state: Any = await self._client.threads.get_state(thread)
                if (result := _result(task, thread, state)) is not None:
                    return result
                self._budget.record(thread, _usage(state)["cost_usd"])
                limit_usd = self._budget.limit_usd(thread, own_usd)
                run = await self._start(task, thread, state, limit_usd)
            await self._follow(thread, run)
            state = await self._client.threads.get_state(thread)
            self._budget.record(thread, _usage(state)["cost_usd"])
            if (state["values"] or {}).get("stop_reason") == "budget" and limit_usd < own_usd:
                self._budget.exhaust()
                return None
            if (result := _result(task, thread, state)) is not None:
                return result
            ended = await self._client.runs.get(thread, run)
        if ended["status"] != "error":
            return None  # it was cancelled
        why = "The run failed on the server; its log says why."
        return BatchResult(
            id=task.id,
            status="failed",
            answer=why,
            usage=_usage(state),
            artifacts=[],
            thread=thread,
        )

    def request_drain(self, reason: str) -> None:
        """Cancel the runs if the budget is spent; else wait for them."""
        if reason != "budget":
            return
        for thread, run in self._at_work.items():
            cancelling = asyncio.create_task(self._cancel(thread, run))
            self._cancelling.add(cancelling)
            cancelling.add_done_callback(self._cancelling.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._cancelling)
        await self._client.aclose()

    async def _start(self, task: BatchTask, thread: str, state: Any, limit_usd: float) -> str:
        given: Any = None
        if not state["next"]:
            names = [await self._upload(thread, Path(path)) for path in task.files]
            # The same id each time: a message that came twice is one.
            message = {"type": "human", "id": str(uuid.uuid5(uuid.UUID(thread), "task"))}
            origin = origin_of_parts(task.text, task.text, names=bool(names))
            extra = {"additional_kwargs": {ORIGIN_KEY: origin}} if origin else {}
            text = name_files(task.text, names)
            given = {"messages": [{**message, "content": text, **extra}]}
        options = replace(self._options, **{**task.limits, "max_cost_usd": limit_usd})
        fields = vars(to_context(options))
        context = {name: value for name, value in fields.items() if value is not None}
        run = await self._client.runs.create(
            thread,
            task.agent or self._agent,
            input=given,
            context=context,
            stream_mode=["custom"],
            stream_subgraphs=True,
            multitask_strategy="reject",
        )
        return run["run_id"]

    async def _follow(self, thread: str, run: str) -> None:
        """Wait for the end of a run, and count what its steps cost."""
        self._at_work[thread] = run
        try:
            async for part in self._client.runs.join_stream(thread, run, stream_mode="custom"):
                event = cast("dict[str, Any]", part.data)
                if not part.event.startswith("custom"):
                    continue
                if event.get("type") == "notice" and event["level"] == "error":
                    self._notice(event["text"])
                elif event.get("type") == "think_end":
                    self._budget.add(thread, event["usage"]["cost_usd"])
                    if self._budget.is_spent:
                        self.request_drain("budget")
            await self._client.runs.join(thread, run)
        finally:
            self._at_work.pop(thread, None)

    async def _cancel(self, thread: str, run: str) -> None:
        with contextlib.suppress(httpx.HTTPError):  # it has just ended by itself
            await self._client.runs.cancel(thread, run)

    async def _upload(self, thread: str, path: Path) -> str:
        data = await asyncio.to_thread(path.read_bytes)
        async with httpx.AsyncClient(headers=self._headers, timeout=None) as http:
            target = f"{self._url}/app/api/threads/{thread}/files/{quote(path.name)}?replace=1"
            (await http.put(target, content=data)).raise_for_status()
        return path.name

    @contextlib.contextmanager
    def _failures(self) -> Generator[None]:
        try:
            yield
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            if status == HTTPStatus.UNAUTHORIZED:
                raise ConfigError(
                    f"{self._url} requires its token. Set {TOKEN_VARIABLE}; `openmanus serve` "
                    "prints it at its start."
                ) from error
            kind = RunError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ConfigError
            raise kind(f"{self._url} answers {status}: {str(error)[:ERROR_CHARS]}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RunError(
                f"{self._url} cannot be reached: {error or type(error).__name__}. Its runs may "
                "continue; the same command takes up their results."
            ) from error


def _usage(state: Any) -> Any:
    values: dict[str, Any] = state["values"] or {}
    return values.get("usage") or no_usage()


def _result(task: BatchTask, thread: str, state: Any) -> BatchResult | None:
    """Return the result that a thread's state holds; None if its run has not ended."""
    values: dict[str, Any] = state["values"] or {}
    status, answer = values.get("status"), values.get("answer") or ""
    if state.get("interrupts"):
        status, asked = "waiting", state["interrupts"][0]["value"]
        known = cast("dict[str, Any]", asked if isinstance(asked, dict) else {})
        answer = str(known.get("question", asked))
    elif state["next"] or not status:
        return None
    artifacts: list[dict[str, Any]] = values.get("artifacts") or []
    return BatchResult(
        id=task.id, status=status, answer=answer, usage=_usage(state), artifacts=artifacts,
        thread=thread,
    )  # fmt: skip

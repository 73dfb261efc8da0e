"""Run the tasks of a batch: in this process, or on a server with LangGraph's API."""

import asyncio
import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx

from openmanus_graph.backends.models.build import close_models
from openmanus_graph.backends.persistence.threads import BATCH
from openmanus_graph.config.homes import home_place
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.conversation.history import ORIGIN_KEY
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT
from openmanus_graph.interfaces.service import own_process, run_setup
from openmanus_graph.interfaces.service.batch import BatchResult, BatchTask, Budget
from openmanus_graph.interfaces.service.options import InputOptions, RunOptions
from openmanus_graph.interfaces.service.run_view import NO_RESULT, final_event, final_without_state
from openmanus_graph.interfaces.service.runner import Run, Stop, run_graph
from openmanus_graph.interfaces.service.runs import Final, NoInput, RemoteSink
from openmanus_graph.interfaces.service.threads import find_thread
from openmanus_graph.runtime.process import BackgroundTasks
from openmanus_graph.runtime.session_registry import TRIGGER_KEY
from openmanus_graph.safety.provenance import origin_of_parts
from openmanus_graph.state.manus import Usage, no_usage
from openmanus_graph.state.settings import MAX_COST_USD

log = logging.getLogger(__name__)
TOKEN_VARIABLE = "OPENMANUS_TOKEN"
AT_WORK = ("pending", "running")
CONNECT_S = 20.0
ERROR_CHARS = 500
MOST_FOUND = 1000
"""Threads that a server lists at once."""


class LocalTaskRunner:
    """Runs tasks in this process, as `openmanus run` does.

    A task's own limits have priority over `options`; `notice` shows what concerns all tasks.
    """

    def __init__(
        self, options: RunOptions, agent: str | None, budget: Budget, notice: Callable[[str], None]
    ) -> None:
        self._options, self._agent, self._budget = options, agent or DEFAULT_AGENT, budget
        self.notice = notice
        self._own_usd = resolve_settings(run_setup.to_context(options), "batch").max_cost_usd
        self._stops = set[Stop]()
        self._draining = False

    async def begun(self, threads: Sequence[str]) -> set[str]:
        return await asyncio.to_thread(
            lambda: {thread for thread in threads if find_thread(thread) is not None}
        )

    async def do(self, task: BatchTask, thread: str) -> BatchResult | None:
        """Do what `TaskRunner.do` says. Also raises StorageError: the database cannot be used."""
        known = await asyncio.to_thread(find_thread, thread)
        if known is not None:
            state = (await run_setup.read_thread_state(thread, known.agent)).state
            if known.status == "finished":
                return _result(task, thread, final_event(state, cancelled=False))
            known_values: dict[str, Any] = {}
            if isinstance(state.values, Mapping):  # a third-party graph may have anything there
                known_values = {**cast("Mapping[str, Any]", state.values)}
            usage: Usage = known_values.get("usage") or no_usage()
            self._budget.record(thread, usage["cost_usd"])
        own_usd = task.limits.get("max_cost_usd", self._own_usd)
        limit_usd = self._budget.limit_usd(thread, own_usd)
        options = replace(self._options, **{**task.limits, "max_cost_usd": limit_usd})

        if known is not None:
            plan = partial(run_setup.resuming_run, thread, run_setup.ResumeAnswer(), options)
        else:
            taken = thread, task.agent or self._agent, options
            plan = partial(run_setup.new_run, task.text, InputOptions(file=list(task.files)), taken)
        reached = set[str]()
        run = replace(await asyncio.to_thread(plan), trigger=BATCH)
        if self._draining:  # meanwhile
            return None
        final = await self._run(run, RemoteSink(partial(self._take, thread, reached)))
        self._budget.record(thread, final["usage"]["cost_usd"])
        if "max_cost_usd" in reached and limit_usd < own_usd:
            self._budget.exhausted = True
            return None
        return None if final["status"] == "cancelled" else _result(task, thread, final)

    def request_drain(self, reason: str) -> None:
        self._draining = True
        for stop in self._stops:
            stop.control.request_drain(reason)

    async def close(self) -> None:
        await close_models()

    def _take(self, thread: str, reached: set[str], event: Mapping[str, Any]) -> None:
        """Take an event of a run; the setting whose limit ended the run is added to `reached`."""
        if event["type"] == "limit":
            reached.add(event.get("setting", ""))
        elif _count_cost(event, thread, self._budget, self.notice):
            self.request_drain("budget")

    async def _run(self, run: Run, sink: RemoteSink) -> Final:
        stop = Stop()
        self._stops.add(stop)
        try:
            await run_graph(run, sink, NoInput(), stop)
        except own_process.ReportedError as error:
            cause = error.__cause__
            if isinstance(cause, Exception) and own_process.is_storage_fault(cause):
                raise
        except (ConfigError, own_process.RunError):
            raise
        except Exception as error:  # of one task: the others continue
            if own_process.is_storage_fault(error):
                raise
            log.exception("the run of thread %s failed", run.thread)
            text = own_process.describe_failure(error, home_place())
            return sink.final or final_without_state(text)
        finally:
            self._stops.discard(stop)
        return sink.final or final_without_state(NO_RESULT)


def _count_cost(
    event: Mapping[str, Any], thread: str, budget: Budget, notice: Callable[[str], None]
) -> bool:
    """Count what a step has cost, and show what concerns all tasks; return True if nothing is left.

    A third-party graph may send any event.
    """
    if event.get("type") == "notice" and event["level"] == "error":
        notice(event["text"])
    if event.get("type") != "think_end":
        return False
    budget.add(thread, event["usage"]["cost_usd"])
    return budget.is_spent


def _result(task: BatchTask, thread: str, final: Final) -> BatchResult:
    names = ("status", "answer", "usage", "artifacts")
    return BatchResult(id=task.id, thread=thread, **{name: final[name] for name in names})


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
        from langgraph_sdk import get_client  # which is heavy

        # A run may be silent for long: only connecting has a time limit.
        times = (CONNECT_S, None, None, None)
        self._client = get_client(url=self._url, api_key=None, headers=self._headers, timeout=times)
        self._at_work: dict[str, str] = {}
        """Runs by thread."""
        self._cancelling = BackgroundTasks()

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
                if (result := _remote_result(task, thread, state)) is not None:
                    return result
                self._budget.record(thread, _usage(state)["cost_usd"])
                limit_usd = self._budget.limit_usd(thread, own_usd)
                run = await self._start(task, thread, state, limit_usd)
            await self._follow(thread, run)
            state = await self._client.threads.get_state(thread)
            self._budget.record(thread, _usage(state)["cost_usd"])
            if (state["values"] or {}).get("stop_reason") == "budget" and limit_usd < own_usd:
                self._budget.exhausted = True
                return None
            if (result := _remote_result(task, thread, state)) is not None:
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
            # One that has just ended by itself cannot be cancelled, which is fine.
            self._cancelling.spawn(self._client.runs.cancel(thread, run))

    async def close(self) -> None:
        await self._cancelling.wait()
        await self._client.aclose()

    async def _start(self, task: BatchTask, thread: str, state: Any, limit_usd: float) -> str:
        given: Any = None
        if not state["next"]:
            names = [await self._upload(thread, Path(path)) for path in task.files]
            # The same id each time: a message that came twice is one.
            message = {"type": "human", "id": str(uuid.uuid5(uuid.UUID(thread), "task"))}
            origin = origin_of_parts(task.text, task.text, names=bool(names))
            extra = {"additional_kwargs": {ORIGIN_KEY: origin}} if origin else {}
            text = run_setup.name_files(task.text, names)
            given = {"messages": [{**message, "content": text, **extra}]}
        options = replace(self._options, **{**task.limits, "max_cost_usd": limit_usd})
        fields = vars(run_setup.to_context(options))
        context = {name: value for name, value in fields.items() if value is not None}
        run = await self._client.runs.create(
            thread,
            task.agent or self._agent,
            input=given,
            metadata={TRIGGER_KEY: BATCH},
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
                if part.event.startswith("custom") and _count_cost(
                    event, thread, self._budget, self._notice
                ):
                    self.request_drain("budget")
            await self._client.runs.join(thread, run)
        finally:
            self._at_work.pop(thread, None)

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
            is_its_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR
            kind = own_process.RunError if is_its_fault else ConfigError
            raise kind(f"{self._url} answered {status}: {str(error)[:ERROR_CHARS]}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise own_process.RunError(
                f"{self._url} cannot be reached: {error or type(error).__name__}. Its runs may "
                "continue; the same command reads their results."
            ) from error


def _usage(state: Any) -> Any:
    values: dict[str, Any] = state["values"] or {}
    return values.get("usage") or no_usage()


def _remote_result(task: BatchTask, thread: str, state: Any) -> BatchResult | None:
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

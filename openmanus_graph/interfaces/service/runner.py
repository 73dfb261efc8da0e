"""Drives one run of a graph: shows its events, asks its questions, handles signals."""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from langchain_core.messages import HumanMessage
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.runtime import RunControl
from langgraph.types import Command, Interrupt

from openmanus_graph.backends.persistence.backend import LeaseLostError
from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.backends.persistence.texts import text_of
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.backends.sandbox.choose import require_sandbox
from openmanus_graph.backends.snapshots.shared_files import require_files
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url, resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import build_agent, is_ours
from openmanus_graph.interfaces.service import own_process, run_view
from openmanus_graph.interfaces.service.accounts import require_separation
from openmanus_graph.interfaces.service.threads import holding_thread
from openmanus_graph.model_calls.run_models import prepare_models
from openmanus_graph.runtime.events import interrupt_event, unobserved
from openmanus_graph.runtime.limits import recursion_limit
from openmanus_graph.runtime.session_registry import open_session
from openmanus_graph.state.addresses import without_secrets
from openmanus_graph.state.context import Context
from openmanus_graph.state.interrupts import middleware_answer
from openmanus_graph.state.settings import Settings

EXIT_CODES = {"finished": 0, "failed": 1, "stopped": 3, "waiting": 4, "cancelled": 130}
WRONG_USAGE_EXIT = 2
log = logging.getLogger(__name__)


class EventSink(Protocol):
    def show(self, event: Mapping[str, Any]) -> None: ...


class UserInput(Protocol):
    async def answer(self, interrupt: Interrupt) -> Any:
        """Return the value to resume with, or None if there is no answer."""
        ...


@dataclass
class Run:
    thread: str
    agent: str
    task: str
    context: Context
    options: dict[str, Any]
    """As they are stored with the thread."""
    make_input: Callable[[], Any]
    """Makes a graph input, a Command, or None to continue where the thread was interrupted. Called
    off the event loop with the thread locked: it may write files and read the state."""
    graph_arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    trigger: str = "terminal"
    """What started it, for its usage."""
    title: str = ""
    """Of a new thread; the task if it is empty."""


@dataclass(eq=False)
class Stop:
    """Cancels a run, for callers that do not use the process's signals."""

    requested: bool = False
    lease_lost: bool = False
    task: asyncio.Task[Any] | None = None
    """The task of the run; set by the caller."""
    control: RunControl = field(default_factory=RunControl)

    def now(self) -> None:
        """Cancel the run; its checkpoints stay."""
        self.requested = True
        if self.task is not None:
            self.task.cancel()

    def lease_is_lost(self) -> None:
        self.lease_lost = True
        if self.task is not None:
            self.task.cancel()


async def run_graph(
    run: Run,
    sink: EventSink,
    user_input: UserInput,
    stop: Stop | None = None,
    *,
    ends_process: bool = False,
) -> int:
    """Run a graph to its end, or to a question that is not answered; return the exit code.

    `stop` ends the run; without one, SIGINT, SIGTERM and SIGHUP do. With `ends_process`, a later
    signal ends the process with the run's code.

    Raises:
        ConfigError: The settings are wrong.
        RunError: The thread is in use by another process, or the disk failed during the run.
        StorageError: The database is damaged or cannot be used.
    """
    home = await asyncio.to_thread(openmanus_home)
    settings = await asyncio.to_thread(resolve_settings, run.context, run.thread)
    # Checked before a thread is created: the model can be called, the sandbox works here.
    await prepare_models(settings)
    await asyncio.to_thread(require_sandbox, settings.sandbox)
    await asyncio.to_thread(require_separation, settings.sandbox)
    if settings.database != await asyncio.to_thread(database_url):
        raise ConfigError(
            f"The configuration file of thread {run.thread} names another database than this "
            f"command uses. Give the file by --config {run.context.config}."
        )
    uses_signals, stop = stop is None, stop or Stop()
    stop.task = stop.task or asyncio.current_task()
    loop = asyncio.get_running_loop()

    def report_loss() -> None:
        loop.call_soon_threadsafe(stop.lease_is_lost)

    async with holding_thread(home, run.thread, report_loss):
        await asyncio.to_thread(require_files, run.thread, settings)
        given = await asyncio.to_thread(run.make_input)
        threads = Threads(await asyncio.to_thread(open_database, settings.database))
        options = options_to_keep(run.options, settings)
        message = None
        if isinstance(given, dict):  # made by `user_message`; a resumed run has none
            message = cast("dict[str, list[HumanMessage]]", given)["messages"][-1]
        begun = run.thread, run.agent, run.task, options, message
        await asyncio.to_thread(threads.begin, *begun, title=run.title, trigger=run.trigger)
        async with contextlib.AsyncExitStack() as opened:
            opened.enter_context(unobserved())
            checkpointer = await opened.enter_async_context(open_checkpointer(settings.database))
            await opened.enter_async_context(open_session(run.thread))
            arguments = {"checkpointer": checkpointer, **run.graph_arguments}
            graph = await asyncio.to_thread(lambda: build_agent(run.agent, **arguments))
            if getattr(graph, "store", None) is None:  # not every builder takes one
                graph.store = DatabaseStore(settings.database)
            driver = _Driver(graph, run, settings, threads, sink, user_input, stop, ends_process)
            with driver.signals.handled() if uses_signals else contextlib.nullcontext():
                final, code = await driver.drive(given)
                # The signal handlers are still set: a late Ctrl-C does not change the reported end.
                await asyncio.to_thread(threads.end, run.thread, final["status"])
                await opened.aclose()
                driver.signals.exit_code = code
    return code


@dataclass
class _Driver:
    graph: Any
    run: Run
    settings: Settings
    threads: Threads
    sink: EventSink
    user_input: UserInput
    stop: Stop
    ends_process: bool
    tagger: run_view.StepEventTagger = field(default_factory=run_view.StepEventTagger)
    limit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The event of the limit that ended the run."""
    asked: set[str] = field(default_factory=set[str])
    """Ids of the questions that were shown since the run was started or resumed."""
    left: bool = False
    """Whether the person has left a question open: no other is asked."""

    def __post_init__(self) -> None:
        self.config: dict[str, Any] = {
            "configurable": {"thread_id": self.run.thread},
            "recursion_limit": recursion_limit(self.graph),
        }
        control = self.stop.control
        self.signals = own_process.Signals(control, self.emit, ends_process=self.ends_process)

    async def drive(self, given: Any) -> tuple[dict[str, Any], int]:
        """Run to the end. Return what the `final` event holds, and the exit code."""
        self.emit(
            type="run_start",
            task=self.run.task,
            agent=self.run.agent,
            model=run_view.model_label(self.settings),
            workspace=str(self.settings.workspace),
        )
        for warning in self.settings.warnings:
            self.emit(type="notice", level="warning", text=warning)
        try:
            try:
                cancelled = await self._stream_to_end(given)
            finally:
                self.signals.over, self.stop.task = True, None
            final = await self._finish(cancelled=cancelled)
        except ConfigError as error:  # found during the run: a removed folder, a vision model
            state = await self.graph.aget_state(self.config)
            final = run_view.final_without_state(str(error), usage=state.values.get("usage"))
            self.emit(**final)
            return final, WRONG_USAGE_EXIT
        except GraphRecursionError:
            final = await self._finish(cancelled=False, too_long=True)
        except Exception as error:  # the `final` event is sent in any case
            self._fail(error)
            raise
        if final["status"] == "cancelled" and self.signals.first is not None:
            return final, own_process.SIGNAL_EXIT + self.signals.first
        return final, EXIT_CODES[final["status"]]

    def _fail(self, error: Exception) -> None:
        """Report a failed run. ReportedError if it counts as interrupted, and can be resumed."""
        is_third_party = not is_ours(self.run.agent)
        description = own_process.describe_failure(error, self.settings.home)
        if is_third_party:
            description = f"The agent {self.run.agent} failed with {description} (more by --log)."
            log.info("the agent %s failed", self.run.agent, exc_info=error)
        self.emit(**run_view.final_without_state(description))
        if is_third_party or own_process.is_storage_fault(error):
            raise own_process.ReportedError(description) from error

    async def _stream_to_end(self, step: Any) -> bool:
        """Stream until the run ends or waits. Return True if it was cancelled."""
        try:
            while True:
                await self._stream(step)
                resumed = await self._answers()
                if not resumed:  # done, or a question stays open
                    return False
                step = Command(resume=resumed)
        except GraphDrained:
            return True
        except asyncio.CancelledError:
            if self.signals.first is None and not self.stop.requested and not self.stop.lease_lost:
                raise
            own_process.continue_after_cancellation()
            if self.stop.lease_lost:
                raise LeaseLostError(self.run.thread) from None
            return True

    async def _stream(self, step: Any) -> None:
        self.asked.clear()
        parts = self.graph.astream(
            step,
            self.config,
            context=self.run.context,
            stream_mode=["custom"],
            subgraphs=True,  # each step of a plan runs in its own graph
            version="v2",
            durability="sync",
            control=self.stop.control,
        )
        async for part in parts:
            event = self.tagger.event(part["ns"], part["data"])
            if event is not None:
                self.emit(**event)
                if event["type"] == "interrupt":
                    self.asked.add(event["id"])

    async def _answers(self) -> dict[str, Any]:
        state = await self.graph.aget_state(self.config)
        answers: dict[str, Any] = {}
        for task in state.tasks:
            for waiting in task.interrupts:
                if waiting.id not in self.asked:  # a plan's step shows its question at once
                    step = self.tagger.step_at((f"{task.name}:{task.id}",))
                    self.emit(**{**step, **interrupt_event(waiting)})
        asks = self.signals.first is None and not self.left
        for waiting in state.interrupts if asks else ():
            with self.signals.asking():
                value = await self.user_input.answer(waiting)
            if value is None:
                self.left = True
                break
            self.threads.add_text_later(
                self.run.thread, text_of({"type": "answered", "answer": value})
            )
            answers[waiting.id] = middleware_answer(waiting.value, value)
        return answers

    async def _finish(self, *, cancelled: bool, too_long: bool = False) -> dict[str, Any]:
        """Emit the `final` event. `too_long`: the run reached its graph's recursion limit."""
        state = await self.graph.aget_state(self.config)
        saver, agents = getattr(self.graph, "checkpointer", None), None
        if isinstance(saver, Checkpointer):
            agents = await run_view.agents_within(self.run.agent, self.run.thread, state, saver)
        if too_long:
            final = run_view.final_without_state(
                f"The graph of {self.run.agent} reached its recursion limit without an end. Give "
                "it a way to end, or a higher recursion_limit; a resumed run continues where it "
                "stopped.",
                status="stopped",
                reason="max_steps",
                usage=agents.usage if agents else None,
            )
        else:
            usage = (
                agents.usage
                if agents
                else await run_view.read_usage(self.graph, self.config, state)
            )
            final = run_view.final_event(state, usage, agents, cancelled=cancelled)
        if too_long or (agents is not None and final["status"] == "stopped"):
            self.emit(type="limit", reason=final["stop_reason"])
        self.emit(**final)
        return final

    def emit(self, **event: Any) -> None:
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
        event = {**event, "thread": self.run.thread, "ts": now}
        if event["type"] == "limit":
            self.limit = event
        elif event["type"] == "final":
            event["resume"] = run_view.resume_command(event, self.limit)
        self.sink.show(event)
        self.threads.add_text_later(self.run.thread, text_of(event))


def options_to_keep(options: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Return a run's options as they are stored with its thread.

    An address loses its password and query. The folder becomes absolute, so that the thread can be
    resumed from another one; if files are stored with threads, each machine has its own instead.
    """
    kept = dict(options)
    if kept.get("base_url"):
        kept["base_url"] = without_secrets(kept["base_url"])
    if settings.storage.workspace_url is None or kept.get("workspace"):
        kept["workspace"] = str(settings.workspace)
    return kept

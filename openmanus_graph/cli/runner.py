"""One run of a graph from the terminal: events out, questions answered, signals obeyed."""

import asyncio
import contextlib
import datetime
import logging
import signal
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from langchain_core.messages import HumanMessage
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, Interrupt

from openmanus_graph.agents import build_agent, is_ours
from openmanus_graph.cli.bill import read_bill
from openmanus_graph.cli.failures import ToldError, complaint_of, is_storage_fault
from openmanus_graph.cli.lock import hold_thread
from openmanus_graph.cli.signals import Signals
from openmanus_graph.config import resolve_settings
from openmanus_graph.config.resolve import openmanus_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.events import interrupt_event
from openmanus_graph.final import failed_event, final_event
from openmanus_graph.models.build import prepare_model
from openmanus_graph.persistence.checkpoints import open_checkpointer
from openmanus_graph.persistence.database import open_database
from openmanus_graph.persistence.threads import Threads
from openmanus_graph.registry import open_session
from openmanus_graph.sandbox.choose import choose_sandbox
from openmanus_graph.settings import Settings
from openmanus_graph.sources import Sources
from openmanus_graph.state.context import Context

EXIT_CODES = {"finished": 0, "failed": 1, "stopped": 3, "waiting": 4, "cancelled": 130}
SIGTERM_EXIT = 143
WRONG_USAGE_EXIT = 2
log = logging.getLogger(__name__)


class View(Protocol):
    """Shows events to a person or a program."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Show one event."""
        ...


class Person(Protocol):
    """Answers questions, if somebody is there."""

    async def answer(self, interrupt: Interrupt) -> Any:
        """Return the value to resume with, or None when nobody answers."""
        ...


@dataclass
class Run:
    """What is to be run."""

    thread: str
    agent: str
    task: str
    context: Context
    options: dict[str, Any]
    """As the thread keeps them."""
    make_input: Callable[[], Any]
    """Makes a graph input, a Command, or None to go on where the thread was cut off. Called off
    the event loop and once the thread is ours: it may write files and read the state."""
    graph_arguments: dict[str, Any] = field(default_factory=dict[str, Any])


class Stop:
    """Lets whoever began a run cut it off, where the process's signals are not the run's."""

    def __init__(self) -> None:
        self.requested = False
        self.task: asyncio.Task[Any] | None = None
        """That the run goes on in; set by whoever begins it."""

    def now(self) -> None:
        """Cut the run off; what it has done stays saved."""
        self.requested = True
        if self.task is not None:
            self.task.cancel()


async def run_graph(run: Run, view: View, person: Person, stop: Stop | None = None) -> int:
    """Run a graph on its thread to its end, or to a question nobody answers.

    Args:
        run: What to do.
        view: Is shown the events.
        person: Is asked the questions.
        stop: Ends the run. Without one, SIGINT and SIGTERM do.

    Returns:
        The exit code.

    Raises:
        ConfigError: The settings are wrong.
        RunError: The thread is in use by another process, or the disk failed on the way.
        sqlite3.Error: The database is damaged or cannot be used.
    """
    home = openmanus_home()
    settings = await asyncio.to_thread(resolve_settings, run.context, run.thread)
    # No thread begins with a model that cannot be asked, or a sandbox that does not work here.
    await prepare_model(settings.main)
    await asyncio.to_thread(choose_sandbox, settings.sandbox)
    with hold_thread(home, run.thread):
        given = await asyncio.to_thread(run.make_input)
        threads = await asyncio.to_thread(_open_threads, home)
        # The workspace is found again also from another folder.
        options = {**without_password(run.options), "workspace": str(settings.workspace)}
        message = _begun_with(given)
        await asyncio.to_thread(threads.begin, run.thread, run.agent, run.task, options, message)
        async with contextlib.AsyncExitStack() as opened:
            checkpointer = await opened.enter_async_context(open_checkpointer(home))
            await opened.enter_async_context(open_session(run.thread))
            graph = build_agent(run.agent, checkpointer=checkpointer, **run.graph_arguments)
            driver = _Driver(graph, run, settings, view, person, stop or Stop())
            with driver.signals.obeyed() if stop is None else contextlib.nullcontext():
                final, code = await driver.drive(given)
                # Still under the signals' handlers: a late Ctrl-C changes nothing of what was told.
                await asyncio.to_thread(threads.end, run.thread, final["status"])
                await opened.aclose()
    return code


class _Driver:
    """Drives one graph run and turns what happens into events."""

    def __init__(
        self, graph: Any, run: Run, settings: Settings, view: View, person: Person, stop: Stop
    ) -> None:
        self.graph, self.run, self.settings, self.stop = graph, run, settings, stop
        self.view, self.person = view, person
        self.config = {"configurable": {"thread_id": run.thread}, "recursion_limit": 100_000}
        self.control = RunControl()
        self.signals = Signals(self.control, self._emit)
        self.sources = Sources()

    async def drive(self, given: Any) -> tuple[dict[str, Any], int]:
        """Run to the end and return what the `final` event holds, and the exit code."""
        self._emit(
            type="run_start",
            task=self.run.task,
            agent=self.run.agent,
            model=_model_name(self.settings),
            workspace=str(self.settings.workspace),
        )
        for warning in self.settings.warnings:
            self._emit(type="notice", level="warning", text=warning)
        try:
            cancelled = await self._to_the_end(given)
            final = await self._finish(cancelled=cancelled)
        except ConfigError as error:  # noticed on the way: a folder that went away, a vision model
            final = failed_event(str(error), await self._values())
            self._emit(**final)
            return final, WRONG_USAGE_EXIT
        except Exception as error:  # the last event is due all the same
            complaint, brought = complaint_of(error, openmanus_home()), not is_ours(self.run.agent)
            if brought:
                complaint = f"The agent {self.run.agent} failed with {complaint} (more by --log)."
                log.info("the agent %s failed", self.run.agent, exc_info=error)
            self._emit(**failed_event(complaint, {}))
            if brought or is_storage_fault(error):
                # Not recorded as failed: it is a run that was cut off, and can go on.
                raise ToldError(complaint) from error
            raise
        if final["status"] == "cancelled" and self.signals.first == signal.SIGTERM:
            return final, SIGTERM_EXIT
        return final, EXIT_CODES[final["status"]]

    async def _to_the_end(self, step: Any) -> bool:
        """Stream until the run ends or waits; True when it was cancelled."""
        try:
            while True:
                await self._stream(step)
                resumed = await self._answers()
                if not resumed:  # done, or what is open stays open
                    return False
                step = Command(resume=resumed)
        except GraphDrained:
            return True
        except asyncio.CancelledError:
            if self.signals.first is None and not self.stop.requested:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return True

    async def _stream(self, step: Any) -> None:
        parts = self.graph.astream(
            step,
            self.config,
            context=self.run.context,
            stream_mode=["custom"],
            subgraphs=True,  # the steps of a plan run in graphs of their own
            version="v2",
            durability="sync",
            control=self.control,
        )
        async for part in parts:
            event = self.sources.event(part["ns"], part["data"])
            if event is not None:
                self._emit(**event)

    async def _answers(self) -> dict[str, Any]:
        """Ask the person each open question; nothing when one stays open."""
        state = await self.graph.aget_state(self.config)
        answers: dict[str, Any] = {}
        for task in state.tasks:
            for waiting in task.interrupts:
                self._emit(**{**self.sources.of_task(task), **interrupt_event(waiting)})
        for waiting in state.interrupts if self.signals.first is None else ():
            with self.signals.asking():
                value = await self.person.answer(waiting)
            if value is None:
                break
            answers[waiting.id] = value
        return answers

    async def _finish(self, *, cancelled: bool) -> dict[str, Any]:
        state = await self.graph.aget_state(self.config)
        bill = await read_bill(self.graph, self.config, state)
        final = final_event(state, bill, cancelled=cancelled)
        self._emit(**final)
        return final

    async def _values(self) -> dict[str, Any]:
        state = await self.graph.aget_state(self.config)
        return dict(state.values)

    def _emit(self, **event: Any) -> None:
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
        self.signals.finished = event["type"] == "final"
        self.view.show({**event, "thread": self.run.thread, "ts": now})


def without_password(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options as a thread may keep them: an address may hold a password."""
    url = urlsplit(options.get("base_url") or "")
    if "@" not in url.netloc:
        return options
    return {**options, "base_url": url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()}


def _begun_with(given: Any) -> HumanMessage | None:
    """Return the user message of a graph input; a run that goes on has none."""
    if not isinstance(given, dict):
        return None
    messages = cast("dict[str, list[HumanMessage]]", given)["messages"]  # `user_message` made it
    return messages[-1]


def user_message(text: str, images: list[str]) -> dict[str, Any]:
    """Return the input of a run."""
    extra = {"images": images} if images else {}
    message = HumanMessage(text, id=str(uuid.uuid4()), additional_kwargs=extra)
    return {"messages": [message]}


def _model_name(settings: Settings) -> str:
    model = settings.main.model
    return model if isinstance(model, str) else type(model).__name__


def _open_threads(home: Path) -> Threads:
    return Threads(open_database(home))

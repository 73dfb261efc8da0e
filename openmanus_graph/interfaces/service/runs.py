"""Runs of an agent for the clients of a server: start, answer, resume, cancel."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from openmanus_graph.backends.files.file_content import media_type_of
from openmanus_graph.config.homes import home_place
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service import own_process, run_setup, run_view, runner
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.threads import find_thread, with_stored
from openmanus_graph.runtime.process import BackgroundTasks
from openmanus_graph.runtime.session_registry import IDLE_S, open_session
from openmanus_graph.runtime.workspace import Workspace, find, put_file, read_file
from openmanus_graph.safety.provenance import origin_of_parts
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.manus import Origin
from openmanus_graph.tools.closing import ask_human

log = logging.getLogger(__name__)
ANSWER_HINTS = {
    "approval": "Answer `approve`, `always`, `reject WHY`, or `= RESULT`.",
    "unknown_outcome": "Answer `approve` (run it again), `reject WHY`, or with its result.",
}
"""How to answer what is not a plain question, by a waiting run's stop reason."""
MAX_ARGS_CHARS = 2000
Show = Callable[[Mapping[str, Any]], None]
Final = dict[str, Any]
"""What the `final` event holds: `status, stop_reason, answer, structured, usage, artifacts`."""
T = TypeVar("T")


@dataclass(frozen=True)
class Upload:
    name: str
    data: bytes
    media_type: str


@dataclass(frozen=True)
class Message:
    text: str
    files: tuple[Upload, ...] = ()
    words: str | None = None
    """The part of the text that the user typed, which alone verifies anything; None: all of it."""

    def origin(self) -> Origin | None:
        """Return what the message says of its parts; None if the user typed all of it."""
        words = self.text if self.words is None else self.words
        return origin_of_parts(words, self.text, names=bool(self.files))

    def as_answer(self) -> str:
        """Return the message as the answer to a question; what was not typed is marked."""
        if self.words is None or self.words.strip() == self.text.strip():
            return self.text
        rest = self.text.replace(self.words, "", 1).strip()
        return f"{self.words}\n\n{mark_untrusted(rest)}".lstrip()


class RemoteSink:
    """Passes a run's events on, and remembers the `final` one and the open questions."""

    def __init__(self, show: Show = lambda event: None) -> None:
        self._show = show
        self.final: Final | None = None
        self.questions: list[Mapping[str, Any]] = []
        """The `interrupt` events that are open."""

    def show(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "final":
                self.final = dict(event)
            case "interrupt":
                self.questions.append(event)
            case "think_start":  # another step of the plan may continue while one waits
                step = event.get("plan_step")
                self.questions = [one for one in self.questions if one.get("plan_step") != step]
            case _:
                pass
        self._show(event)

    def outcome(self) -> Final | None:
        """Return the `final` event; if the run waits, the first open question is its answer."""
        if self.final is None or self.final["status"] != "waiting" or not self.questions:
            return self.final
        return self.final | {"answer": question_text(self.questions[0])}


class NoInput:
    async def answer(self, interrupt: Any) -> Any:
        return None


@dataclass
class RemoteRun:
    """One run for a client; `stop` cancels it at any time."""

    agent: str
    thread: str
    options: RunOptions
    show: Show
    user_input: runner.UserInput = field(default_factory=NoInput)
    stop: runner.Stop = field(default_factory=runner.Stop)
    trigger: str = "remote"

    async def send(self, message: Message) -> Final:
        """Answer the question that the thread asks with a message, or start a run with it."""
        self.stop.task = asyncio.current_task()  # it may be cancelled before it starts
        try:
            question = None
            if await asyncio.to_thread(find_thread, self.thread) is not None:
                question = await first_question(self.thread, self.agent)
        except asyncio.CancelledError:
            if not self.stop.requested:
                raise
            own_process.continue_after_cancellation()
            return run_view.cancelled_event("The run was cancelled before it began.")
        if question and not message.files:
            return await self.answer(message.as_answer(), question)
        return await self.start(message)

    async def start(self, message: Message) -> Final:
        def plan() -> runner.Run:
            options = thread_options(self.options, self.thread)

            def make_input() -> dict[str, Any]:
                workspace = resolve_workspace(options, self.thread)
                return run_setup.user_message(*bring_files(message, workspace), message.origin())

            return run_setup.make_run(self.thread, self.agent, message.text, options, make_input)

        return await self._run_to_end(plan)

    async def answer(self, text: str, question: str) -> Final:
        return await self._resume(run_setup.ResumeAnswer(answer=text, interrupt=question))

    async def resume(self) -> Final:
        return await self._resume(run_setup.ResumeAnswer())

    async def _resume(self, answer: run_setup.ResumeAnswer) -> Final:
        plan = partial(run_setup.resuming_run, self.thread, answer, self.options)
        return await self._run_to_end(plan)

    async def _run_to_end(self, plan: Callable[[], runner.Run]) -> Final:
        sink = RemoteSink(self.show)
        self.stop.task = asyncio.current_task()
        try:
            run = await asyncio.to_thread(plan)
            run.trigger = self.trigger
            await runner.run_graph(run, sink, self.user_input, self.stop)
        except asyncio.CancelledError:
            if not self.stop.requested:
                raise  # the server shuts down: the thread can be resumed later
            own_process.continue_after_cancellation()
            return run_view.cancelled_event("The run was cancelled.")
        except Exception as error:  # the client gets every error
            log.exception("the run of thread %s failed", self.thread)
            is_known = isinstance(error, ConfigError | own_process.RunError)
            text = str(error) if is_known else own_process.describe_failure(error, home_place())
            return sink.final or run_view.final_without_state(text)
        return sink.outcome() or run_view.final_without_state(run_view.NO_RESULT)


def progress_text(event: Mapping[str, Any]) -> str | None:
    """Return the text for a client about an event of a running run; None for most events."""
    match event["type"]:
        case "think_end" if event["text"].strip() and event["tool_calls"]:
            return str(event["text"]).strip()
        case "tool_start" if event["tool"] != ask_human.name:
            return f"Runs {event['tool']}."
        case "tool_end" if not event["ok"]:
            return f"{event['tool']} failed."
        case "step_start" | "step_end":
            return run_view.step_line(event)
        case "notice":
            return str(event["text"])
        case _:
            return None


def question_text(question: Mapping[str, Any]) -> str:
    calls = (
        f"{call['tool']} {json.dumps(call['args'], ensure_ascii=False)[:MAX_ARGS_CHARS]}"
        for call in question.get("calls", ())
    )
    return "\n".join([str(question["question"]), *calls])


def answer_with_hint(final: Final) -> str:
    hint = ANSWER_HINTS.get(final["stop_reason"], "") if final["status"] == "waiting" else ""
    return f"{final['answer']}\n\n{hint}".rstrip()


async def first_question(thread: str, agent: str) -> str | None:
    state = (await run_setup.read_thread_state(thread, agent)).state
    return state.interrupts[0].id if state.interrupts else None


def thread_options(options: RunOptions, thread: str) -> RunOptions:
    """Return a server's options, with the stored ones of the thread as defaults. Blocks."""
    known = find_thread(thread)
    return with_stored(options, known) if known else options


def resolve_workspace(options: RunOptions, thread: str) -> Workspace:
    """Return a thread's workspace. Blocks. ConfigError if a setting is wrong."""
    return Workspace.of(resolve_settings(run_setup.to_context(options), thread))


def bring_files(message: Message, workspace: Workspace) -> tuple[str, list[str]]:
    """Put a message's files into the workspace. Blocks.

    Return the message's text, which names the files, and the pictures among them.
    """
    workspace.prepare()
    names = [_save_upload(upload, workspace) for upload in message.files]
    images = [
        name
        for name, upload in zip(names, message.files, strict=True)
        if upload.media_type.startswith("image/") or media_type_of(name)
    ]
    return run_setup.name_files(message.text, names), images


def _save_upload(upload: Upload, workspace: Workspace) -> str:
    """Write a file under a free name, unless it is there already, and return its path."""
    name = upload.name.replace("\\", "/").rpartition("/")[2].strip().lstrip(".") or "file"
    name = "".join(char for char in name if char.isprintable())[-120:]
    stem, dot, suffix = name.partition(".")
    number = 1
    while (found := find(workspace, name)) is not None:
        is_same = found.is_file and found.status.st_size == len(upload.data)
        if is_same and read_file(workspace, name, len(upload.data)) == upload.data:
            return found.path
        number += 1
        name = f"{stem}-{number}{dot}{suffix}"
    put_file(workspace, workspace.root / name, upload.data)
    return name


class Outbox(Generic[T]):
    """Sends items to a client, in order, while a block runs."""

    def __init__(self, send: Callable[[T], Awaitable[object]]) -> None:
        self._send = send
        self._queue: asyncio.Queue[T | None] = asyncio.Queue()

    def put(self, item: T) -> None:
        self._queue.put_nowait(item)

    @contextlib.asynccontextmanager
    async def sent(self) -> AsyncGenerator[None]:
        """Send meanwhile. If the block ends without an error, all has been sent at its end."""

        async def keep_sending() -> None:
            while (item := await self._queue.get()) is not None:
                await self._send(item)

        sending = asyncio.create_task(keep_sending())
        try:
            yield
            self._queue.put_nowait(None)
            await sending
        finally:
            sending.cancel()


@dataclass
class _Lease:
    stack: contextlib.AsyncExitStack
    users: int = 0
    idle: asyncio.TimerHandle | None = None


@dataclass
class SessionLeases:
    """Owns the sessions of threads until these have not been used for `idle_s` seconds."""

    idle_s: float = IDLE_S
    _leases: dict[str, _Lease] = field(default_factory=dict[str, _Lease])
    _closing: BackgroundTasks = field(default_factory=BackgroundTasks)

    @contextlib.asynccontextmanager
    async def lease(self, thread: str) -> AsyncGenerator[None]:
        lease = self._leases.get(thread)
        if lease is None:
            lease = self._leases[thread] = _Lease(contextlib.AsyncExitStack())
            await lease.stack.enter_async_context(open_session(thread))
        if lease.idle is not None:
            lease.idle.cancel()
        lease.users += 1
        try:
            yield
        finally:
            lease.users -= 1
            if not lease.users:
                loop = asyncio.get_running_loop()
                lease.idle = loop.call_later(self.idle_s, self._release, thread)

    async def close(self) -> None:
        for thread in list(self._leases):
            self._release(thread)
        await self._closing.wait()

    def _release(self, thread: str) -> None:
        lease = self._leases.pop(thread)
        if lease.idle is not None:
            lease.idle.cancel()
        self._closing.spawn(lease.stack.aclose())

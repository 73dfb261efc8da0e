"""Whole runs of an agent for clients of a server: begun, answered, gone on with, cut off."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openmanus_graph.cli.failures import RunError, complaint_of
from openmanus_graph.cli.launch import to_context
from openmanus_graph.cli.options import RunOptions
from openmanus_graph.cli.resume import Reply, plan_resume, standing_of
from openmanus_graph.cli.runner import Person, Run, Stop, run_graph, user_message
from openmanus_graph.cli.threads import find_thread
from openmanus_graph.config import resolve_settings
from openmanus_graph.config.resolve import openmanus_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.reducers import no_usage
from openmanus_graph.workspace import Workspace

log = logging.getLogger(__name__)
MAX_ARGS_CHARS = 2000
Show = Callable[[Mapping[str, Any]], None]
Final = dict[str, Any]
"""What the `final` event holds: `status, stop_reason, answer, structured, usage, artifacts`."""


@dataclass(frozen=True)
class Upload:
    """A file that came with a message."""

    name: str
    data: bytes
    media_type: str


@dataclass(frozen=True)
class Message:
    """What a client says to a thread."""

    text: str
    files: tuple[Upload, ...] = ()


class RemoteView:
    """Hands a run's events on, and keeps the last one."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self.final: Final | None = None
        self.questions: list[Mapping[str, Any]] = []
        """The `interrupt` events that are open."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Take an event."""
        match event["type"]:
            case "final":
                self.final = dict(event)
            case "interrupt":
                self.questions.append(event)
            case "think_start":
                self.questions.clear()
            case _:
                pass
        self._show(event)


class Nobody:
    """Answers no question: the run waits."""

    async def answer(self, interrupt: Any) -> Any:
        """Return None."""
        return None


@dataclass
class RemoteRun:
    """One run for a client. Its task may be cut off at any time by `stop`."""

    agent: str
    thread: str
    options: RunOptions
    show: Show
    person: Person = field(default_factory=Nobody)
    stop: Stop = field(default_factory=Stop)

    async def say(self, message: Message) -> Final:
        """Begin a run with a message, on a new thread or one that is there."""
        return await self._see_through(lambda: self._begun(message))

    async def answer(self, text: str, question: str | None = None) -> Final:
        """Answer a question of the thread, the first one unless its id is given."""

        def plan() -> Run:
            known = question or asyncio.run(first_question(self.thread, self.agent))
            return plan_resume(self.thread, Reply(answer=text, interrupt=known), self.options)

        return await self._see_through(plan)

    async def go_on(self) -> Final:
        """Go on where the thread was cut off."""
        return await self._see_through(lambda: plan_resume(self.thread, Reply(), self.options))

    def _begun(self, message: Message) -> Run:
        options = thread_options(self.options, self.thread)
        context = to_context(options)
        return Run(
            thread=self.thread,
            agent=self.agent,
            task=message.text,
            context=context,
            options=options.stored(),
            make_input=lambda: _input(message, resolve_workspace(options, self.thread)),
        )

    async def _see_through(self, plan: Callable[[], Run]) -> Final:
        view = RemoteView(self.show)
        self.stop.task = asyncio.current_task()
        try:
            run = await asyncio.to_thread(plan)
            await run_graph(run, view, self.person, self.stop)
        except asyncio.CancelledError:
            if not self.stop.requested:
                raise  # the server ends: the thread stays as it is, and can go on
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return _ended("cancelled", "cancelled", "The run was cancelled.")
        except Exception as error:  # whatever it is, the client is to be told
            log.exception("the run of thread %s failed", self.thread)
            return view.final or _ended("failed", "error", _complaint(error))
        if view.final is None:
            return _ended("failed", "error", "The run ended without a word.")
        if view.final["status"] == "waiting" and view.questions:
            return view.final | {"answer": asked(view.questions[0])}
        return view.final


def asked(question: Mapping[str, Any]) -> str:
    """Say what is asked, with the calls that it is about."""
    calls = (
        f"{call['tool']} {json.dumps(call['args'], ensure_ascii=False)[:MAX_ARGS_CHARS]}"
        for call in question.get("calls", ())
    )
    return "\n".join([str(question["question"]), *calls])


def _complaint(error: Exception) -> str:
    if isinstance(error, ConfigError | RunError):
        return str(error)
    return complaint_of(error, openmanus_home())


async def first_question(thread: str, agent: str) -> str | None:
    """Return the id of the question that a thread waits with; None if it asks nothing."""
    state = (await standing_of(thread, agent)).state
    return state.interrupts[0].id if state.interrupts else None


def thread_options(options: RunOptions, thread: str) -> RunOptions:
    """Return a server's options with what the thread was begun with. Blocks."""
    known = find_thread(thread)
    return options.over(known.options) if known else options


def resolve_workspace(options: RunOptions, thread: str) -> Workspace:
    """Return a thread's workspace. Blocks. ConfigError if a setting is wrong."""
    settings = resolve_settings(to_context(options), thread)
    return Workspace(settings.workspace, settings.protected)


def _input(message: Message, workspace: Workspace) -> dict[str, Any]:
    """Put the message's files into the workspace and make the run's input."""
    workspace.prepare()
    names = [_place(upload, workspace) for upload in message.files]
    images = [
        name
        for name, upload in zip(names, message.files, strict=True)
        if upload.media_type.startswith("image/")
    ]
    text = message.text
    if names:
        text = f"{text}\n\nFiles in the workspace: {', '.join(names)}".lstrip()
    return user_message(text, images)


def _place(upload: Upload, workspace: Workspace) -> str:
    """Write a file under its own name, or one like it that is free, and return that name."""
    from openmanus_graph.files.contained import put_file

    name = upload.name.replace("\\", "/").rpartition("/")[2].strip().lstrip(".") or "file"
    name = "".join(char for char in name if char.isprintable())[-120:]
    stem, dot, suffix = name.partition(".")
    target, number = workspace.resolve(name), 1
    while target.exists() and target.read_bytes() != upload.data:
        number += 1
        target = workspace.resolve(f"{stem}-{number}{dot}{suffix}")
    put_file(workspace, target, upload.data)
    return workspace.relative(target)


def _ended(status: str, reason: str, answer: str) -> Final:
    return {
        "status": status,
        "stop_reason": reason,
        "answer": answer,
        "structured": None,
        "usage": no_usage(),
        "artifacts": [],
    }

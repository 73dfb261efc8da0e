"""Killing a run at any moment, and resuming it until it ends."""

import contextlib
import fcntl
import io
import json
import math
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from tests.support.cli import Cli, Event, read_event, until
from tests.support.crash_script import (
    ANSWER,
    STEPS,
    TASK,
    THREAD,
    WINDOW,
    bring_tool,
    decide,
)
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Answer
from tests.support.openai_server import OpenAIServer
from tests.support.strict_openai import complaint
from tests.support.zygote import Forked, Zygote


@dataclass(frozen=True)
class Kill:
    """When and how a process is killed."""

    event: int | Callable[[Event], bool]
    """After this event, counted from 1 (0 is the start), or the first one that is meant."""
    delay_s: float | None = None
    """None: at once, the process cannot go on to a further event. Else it runs on for so long."""
    whole: bool = True
    """With everything it has started, or alone."""
    until: Callable[[], object] | None = None
    """Returns when the time has come."""

    def meant(self, events: Sequence[Event]) -> bool:
        """Say whether it is after the newest of these events."""
        if isinstance(self.event, int):
            return self.event == len(events)
        return bool(events) and self.event(events[-1])

    def __str__(self) -> str:
        how = "whole" if self.whole else "alone"
        return f"{self.event}{'' if self.delay_s is None else f'+{self.delay_s:.3f}s'} {how}"


@dataclass
class Life:
    """One process of the run."""

    argv: tuple[str, ...]
    events: list[Event]
    code: int

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def finished(self) -> bool:
        """Whether the end was told, even if it was killed after that."""
        return bool(self.events) and self.events[-1].get("status") == "finished"

    @property
    def final(self) -> Event:
        return self.events[-1]


def read_nothing(event: Event) -> None:
    """Take no notice of an event."""


@dataclass
class Ordeal:
    """A thread that is run, killed and resumed until it ends."""

    root: Path
    zygote: Zygote
    sandbox: str = "none"
    number: int = 0
    """Of the case; varies what the person answers."""
    model: Answer = decide
    make_server: type[OpenAIServer] = OpenAIServer
    """Of the model."""
    watch: Callable[[Event], object] = read_nothing
    """Sees each event while the process that wrote it cannot go on, if that is to be killed."""
    database: str = ""
    """Its address; empty for files in the home folder."""
    lives: list[Life] = field(default_factory=list[Life])

    def __post_init__(self) -> None:
        self.server = self.make_server([self.model], loop=True, strict=True)
        self.cli = Cli(self.root)
        self.cli.use(self.server.base_url)
        self.cli.env |= {DATABASE_VARIABLE: self.database} if self.database else {}
        self.cli.write("openmanus.toml", f"[llm]\ncontext_window = {WINDOW}\n")
        for name in ("notes.md", "plan.md"):
            self.cli.write(name, "# Lines\n")
        bring_tool(self.cli)

    def run_argv(self) -> tuple[str, ...]:
        common = ("--thread", THREAD, "--workspace", "files", "--policy", "auto")
        files = ("--file", "notes.md", "--file", "plan.md")
        return ("run", TASK, *common, *files, "--sandbox", self.sandbox)

    def see_through(self, *kills: Kill | None) -> None:
        """Run to the end; the processes are killed one after the other, None spares one."""
        with self.server:
            self.go_on(*kills)

    def go_on(self, *kills: Kill | None) -> None:
        """Run or resume to the end, while the server is there."""
        plan = iter(kills)
        argv = self.next_argv(self.lives[-1]) if self.lives else self.run_argv()
        for _ in range(20):
            life = self.live(argv, next(plan, None))
            if life.finished:
                return
            assert life.code != 1, "the run failed"
            argv = self.next_argv(life)
        raise AssertionError(f"it never ended: {[life.argv for life in self.lives]}")

    def live(self, argv: tuple[str, ...], kill: Kill | None) -> Life:
        """Run one command, until it ends or is killed."""
        events: list[Event] = []
        address = f"http://127.0.0.1:{self.server.port}/life-{len(self.lives)}/v1"
        self.cli.env["OPENAI_BASE_URL"] = address
        lockstep = kill is not None and kill.delay_s is None
        with start(self.zygote, self.cli, (*argv, "--json"), lockstep=lockstep) as (process, lines):
            if kill is not None and kill.meant(events):
                kill_process(process, kill)
            for line in lines:
                events.append(read_event(line))
                self.watch(events[-1])
                if kill is not None and kill.meant(events):
                    kill_process(process, kill)
            code = process.wait(BACKSTOP_S)
        life = Life(argv, events, code)
        self.lives.append(life)
        assert code in (0, 1, 4, -signal.SIGKILL), f"exit code {code}"
        self.cli.note("", self.errors())
        return life

    def errors(self) -> str:
        """Return what was written to stderr so far."""
        return (self.cli.root / "stderr").read_text()

    def next_argv(self, life: Life) -> tuple[str, ...]:
        """Return the command with which a person goes on."""
        if life.killed:
            return ("resume", THREAD) if self.look_at_thread() else self.run_argv()
        waiting = next(event for event in life.events if event["type"] == "interrupt")
        return ("resume", THREAD, "--id", waiting["id"], *self.reply_to(waiting))

    def reply_to(self, waiting: Event) -> tuple[str, ...]:
        """Answer as a careful person does: look whether the bell has rung."""
        if waiting["kind"] == "question":
            return ("--answer", ANSWER)
        assert waiting["kind"] == "unknown_outcome", waiting
        line = waiting["calls"][0]["args"]["line"]
        if line not in self.files().get("ring.log", "").split():
            return ("--approve",) if self.number % 3 else ("--reject", "--reason", "It is silent.")
        if self.number % 2:
            return ("--answer", f"= It rang {line}.")
        return ("--reject", "--reason", "I heard it.")

    def check(self, undisturbed: "Ordeal") -> None:
        """Fail if a call was lost or ran twice, if the end differs, or anything is left running."""
        self.check_end(undisturbed)
        self.check_requests()

    def check_end(self, undisturbed: "Ordeal") -> None:
        """Fail if files or answer differ, a request was refused, or a process is left."""
        require_equal("files", self.files(), undisturbed.files())
        for key in ("answer", "stop_reason", "artifacts"):
            require_equal(key, self.lives[-1].final[key], undisturbed.lives[-1].final[key])
        faults = [fault for r in self.server.requests if (fault := complaint(r.body))]
        require_equal("faults of requests", faults, [])
        with contextlib.suppress(AssertionError):
            until(lambda: strays(self.root) == [])
        require_equal("processes that are left", strays(self.root), [])

    def check_requests(self) -> None:
        """Fail if the model was asked again for a saved reply, or a call was not counted."""
        asked = [json.dumps(request.messages) for request in self.server.requests]
        saved = self.saved_replies()
        repeated = {n for n, request in enumerate(asked) if request in asked[n + 1 :]}
        require_equal("requests that were repeated in vain", repeated & saved, set[int]())
        counted = self.lives[-1].final["usage"]["model_calls"]
        known = f"{counted} calls of {len(asked)}, {len(saved)} of them surely saved"
        assert len(saved) <= counted <= len(set(asked)), known
        steps = json.loads(self.quietly("show", THREAD, "--json"))["step_count"]
        assert len(STEPS) < steps <= counted, f"{steps} steps of {counted} calls"

    def requests_of(self, life: int) -> list[int]:
        """Return the positions of the requests that a process sent, counted from 0 like it.

        When one came in says nothing of who sent it: that of a killed process may be read after
        the next one has begun.
        """
        prefix = f"/life-{life}/"
        return [n for n, r in enumerate(self.server.requests) if r.path.startswith(prefix)]

    def saved_replies(self) -> set[int]:
        """Return the requests whose replies were surely saved, counted from 0.

        All of a process that ended by itself; of a killed one those up to the last reply of which
        a call began, now or later: a call begins only when its reply is saved.
        """
        ids = [
            event["call_id"]
            for life in self.lives
            for event in life.events
            if event["type"] == "tool_start"
        ]
        begun = {int(call_id.split("_")[1]) - 1 for call_id in ids}  # by the server's numbers
        saved = set[int]()
        for number, life in enumerate(self.lives):
            sent = self.requests_of(number)
            last = max(begun.intersection(sent), default=-1) if life.killed else math.inf
            saved.update(n for n in sent if n <= last)
        return saved

    def story(self) -> str:
        """Tell what happened, for whoever mends it."""
        lines = [
            f"{' '.join(life.argv)} -> {life.code}: {' '.join(map(_word, life.events))}"
            for life in self.lives
        ]
        said = [
            f"  {message['role']}: {message['content']!s:.300}"
            for message in (self.server.requests[-1].messages if self.server.requests else ())
        ]
        return "\n".join([str(self.root), *lines, *said, self.errors()])

    def look_at_thread(self) -> bool:
        """`threads` and `show` work on what was cut off; return whether there is a thread yet."""
        rows = [json.loads(row) for row in self.quietly("threads", "--json").splitlines()]
        assert [row["id"] for row in rows] in ([], [THREAD])
        if rows:
            assert rows[0]["status"] in ("interrupted", "waiting", "finished")
            assert isinstance(json.loads(self.quietly("show", THREAD, "--json"))["messages"], list)
        return bool(rows)

    def quietly(self, *argv: str) -> str:
        """Run a command that must succeed; return what it wrote."""
        with start(self.zygote, self.cli, argv) as (process, lines):
            out = "\n".join(lines)
            assert process.wait(BACKSTOP_S) == 0, (argv, out)
        return out

    def checkpoints(self) -> list[Path]:
        """Return the files of the checkpoints' database."""
        return sorted(self.cli.home.glob("checkpoints.db*"))

    def files(self) -> dict[str, str]:
        """Return the workspace's files."""
        found = sorted(self.cli.workspace.glob("*.*"))
        return {path.name: path.read_text() for path in found if path.is_file()}


def require_equal(what: str, found: object, wanted: object) -> None:
    """Fail, saying what differs."""
    assert found == wanted, f"{what}: {found!r} instead of {wanted!r}"


def _word(event: Event) -> str:
    """Name an event in a word."""
    if event["type"] == "tool_end":
        return f"tool_end({event['tool']} {event['output'][:60]!r})"
    return f"{event['type']}({event['tool']})" if "tool" in event else str(event["type"])


@contextlib.contextmanager
def start(
    zygote: Zygote, cli: Cli, argv: Sequence[str], *, lockstep: bool = False
) -> Generator[tuple[Forked, Iterator[str]]]:
    """Start a command; yield it and its lines of stdout, as they come.

    Args:
        zygote: Starts it.
        cli: Its folder and environment.
        argv: Its arguments.
        lockstep: Let it write a line only when the one before was read.
    """
    readable, writable = os.pipe2(os.O_DIRECT if lockstep else 0)
    if lockstep:  # of one page, which holds one packet: one line
        fcntl.fcntl(writable, fcntl.F_SETPIPE_SZ, 4096)
    with (cli.root / "stderr").open("ab") as errors:
        process = zygote.start(argv, cwd=cli.cwd, env=cli.env, out=writable, err=errors.fileno())
    os.close(writable)
    with os.fdopen(readable, "rb", buffering=0) as pipe:
        try:
            yield process, _whole_lines(pipe)
        finally:
            process.kill()


def _whole_lines(pipe: io.RawIOBase) -> Iterator[str]:
    """Yield lines; one that a killed process did not finish counts as never written."""
    held = b""
    while piece := pipe.read(1 << 16):
        *whole, held = (held + piece).split(b"\n")
        yield from (line.decode() for line in whole)


def kill_process(process: Forked, kill: Kill) -> None:
    """Kill a command and wait until nothing of it is left."""
    if kill.until is not None:
        kill.until()
    if kill.delay_s is not None:
        threading.Event().wait(kill.delay_s)
    family = family_of(process.pid)
    process.kill()
    for member in family if kill.whole else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait(BACKSTOP_S)
    until(lambda: not any(map(lives, family)))


def family_of(pid: int) -> list[psutil.Process]:
    """Return all that a process has started."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def lives(process: psutil.Process) -> bool:
    """Say whether a process runs; one that nobody has waited for does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def strays(root: Path) -> list[str]:
    """Return the processes that work below a folder."""
    found: list[str] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(root) and lives(process):
                found.append(f"{process.pid} {process.cmdline()}")
    return found

"""The command `openmanus` as a process of its own, as a person or a program runs it.

Most are forked from a process that has imported everything (`Zygote`), which costs a fifth of the
time; a test of the start itself takes the fixture `real_start`.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import jsonschema
import psutil

from openmanus_graph.runtime.events import event_schema
from tests.support import hermetic
from tests.support.limits import BACKSTOP_S, POLL_S
from tests.support.zygote import Forked, Zygote

OPENMANUS = str(Path(sys.executable).with_name("openmanus"))
_SPARSE_BYTES = 1 << 20
"""A larger file that takes no room on the disk holds nothing, in up to gigabytes."""
KEY = "sk-e2eSecret0123456789abcdefNeverToBeSeen"

Event = dict[str, Any]
Process = subprocess.Popen[bytes] | Forked


@dataclass(frozen=True)
class Result:
    """What a finished command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[Event]:
        """The events of `--json`, each valid."""
        return [read_event(line) for line in self.stdout.splitlines()]

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def final(self) -> Event:
        return self.events[-1]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]


@cache
def _validator() -> Any:
    return jsonschema.Draft202012Validator(event_schema())


def read_event(line: str) -> Event:
    """Parse a line of `--json`; an event that the schema does not know fails."""
    event: Event = json.loads(line)
    _validator().validate(event)
    return event


@dataclass
class Cli:
    """A folder, home and configuration of its own, and the commands run there."""

    root: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    started: list[Process] = field(default_factory=list[Process])
    seen: list[str] = field(default_factory=list[str])
    """All that was written to a terminal or a pipe; no key may be in it."""
    zygote: Zygote | None = None
    """Forks the commands, if it is there: most of a short command is its imports."""

    def __post_init__(self) -> None:
        self.cwd.mkdir(parents=True)
        self.env = {
            "PATH": os.environ["PATH"],
            **hermetic.given(str(self.root)),
            "OPENMANUS_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.root / "config"),
        }

    @property
    def cwd(self) -> Path:
        return self.root / "project"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def workspace(self) -> Path:
        """The folder of runs that are given `--workspace files`."""
        return self.cwd / "files"

    def use(self, base_url: str, model: str = "openai:test-model", key: str = KEY) -> None:
        """Configure a model server by environment variables."""
        self.env |= {"OPENMANUS_MODEL": model, "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key}

    def write(self, path: str, text: str | bytes) -> Path:
        """Write a file, relative to the working folder."""
        target = self.cwd / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def run(
        self,
        *args: str,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        wrapper: Sequence[str] = (),
    ) -> Result:
        """Run a command to its end. An exception's traceback on stderr fails.

        Args:
            args: The arguments.
            stdin: What it reads.
            env: Added to the environment.
            cwd: Its working folder, if it is another one.
            wrapper: A command that starts `openmanus`, which is then not forked.
        """
        given = stdin.encode() if isinstance(stdin, str) else stdin
        temporary = tempfile.TemporaryFile
        with _input(given) as standard, temporary() as out, temporary() as err:
            process = self.launch(args, standard, out, err, env=env, cwd=cwd, wrapper=wrapper)
            code = process.wait(BACKSTOP_S)
            stdout, stderr = _written(out), _written(err)
        self.note(stdout, stderr)
        return Result(code, stdout, stderr)

    def launch(
        self,
        args: Sequence[str],
        stdin: IO[bytes],
        out: IO[bytes],
        err: IO[bytes],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        wrapper: Sequence[str] = (),
    ) -> Process:
        """Start a command that reads and writes these files; it is ended after the test."""
        given = {**self.env, **(env or {})}
        process: Process
        if self.zygote is not None and not wrapper:
            process = self.zygote.start(
                args,
                cwd=cwd or self.cwd,
                env=given,
                out=out.fileno(),
                err=err.fileno(),
                stdin=stdin.fileno(),
            )
        else:
            process = subprocess.Popen(
                [*wrapper, OPENMANUS, *args],
                cwd=cwd or self.cwd,
                env=given,
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run_all(self, *commands: Sequence[str]) -> list[Result]:
        """Run commands that do not disturb each other, several at a time."""
        with ThreadPoolExecutor(3) as pool:
            running = [pool.submit(self.run, *command) for command in commands]
            return [run.result() for run in running]

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> "Running":
        """Start a command with `--json` and leave it running."""
        (out, its_out), (err, its_err) = pipe(), pipe()
        with its_out, its_err, no_input() as nothing:
            process = self.launch([*args, "--json"], nothing, its_out, its_err, env=env)
        return Running(self, process, out, err)

    def note(self, stdout: str, stderr: str) -> None:
        """Keep what was written, and fail on a traceback: nobody should ever see one."""
        self.seen += (stdout, stderr)
        assert "Traceback (most recent call last)" not in stderr, stderr

    def close(self) -> None:
        """End what a failed test left running."""
        for process in self.started:
            process.kill()
            process.wait()

    def assert_no_key(self) -> None:
        """Fail if the key lies anywhere below the root, or was ever written."""
        assert not [text for text in self.seen if KEY in text]
        holders = [path for path in self.root.rglob("*") if _holds(path, KEY.encode())]
        assert not holders


@contextlib.contextmanager
def _input(content: bytes) -> Generator[IO[bytes]]:
    """Write into a pipe, for as long as somebody reads it."""
    readable, writable = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(writable, "wb") as pipe:
            pipe.write(content)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(readable, "rb") as pipe:
        yield pipe
    writer.join()


def no_input() -> contextlib.AbstractContextManager[IO[bytes]]:
    """Open what a command reads that is given nothing."""
    return _input(b"")


def pipe() -> tuple[IO[str], IO[bytes]]:
    """Open what a command may write to: the end that is read, and the command's."""
    readable, writable = os.pipe()
    return os.fdopen(readable), os.fdopen(writable, "wb")


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _holds(path: Path, secret: bytes) -> bool:
    if not path.is_file():
        return False
    kept = path.stat()
    is_hole = kept.st_size > _SPARSE_BYTES and not kept.st_blocks
    return not is_hole and secret in path.read_bytes()


class Running:
    """A command under way. Its events are read as they come."""

    def __init__(self, cli: Cli, process: Process, out: IO[str], err: IO[str]) -> None:
        self.cli, self.process = cli, process
        self._lines: queue.Queue[str] = queue.Queue()
        self._events: list[Event] = []
        self._errors: list[str] = []
        self._readers = [_reader(out, self._lines.put), _reader(err, self._errors.append)]

    def wait_for(self, wanted: Callable[[Event], bool]) -> Event:
        """Wait for an event."""
        end = time.monotonic() + BACKSTOP_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no such event; {self._events} {self._errors}") from None
            self._events.append(read_event(line))
            if wanted(self._events[-1]):
                return self._events[-1]

    def wait_for_kind(self, kind: str) -> Event:
        return self.wait_for(lambda event: event["type"] == kind)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def family(self) -> list[psutil.Process]:
        """The process and all that it started."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def finish(self) -> Result:
        """Wait for the end."""
        try:
            code = self.process.wait(BACKSTOP_S)
        except (subprocess.TimeoutExpired, AssertionError):
            self.process.kill()
            raise AssertionError(f"still running; {self._events} {self._errors}") from None
        for reader in self._readers:
            reader.join(BACKSTOP_S)
        while not self._lines.empty():
            self._events.append(read_event(self._lines.get()))
        out = "".join(json.dumps(event) + "\n" for event in self._events)
        result = Result(code, out, "".join(self._errors))
        self.cli.note(result.stdout, result.stderr)
        return result


def _reader(stream: IO[str], take: Callable[[str], object]) -> threading.Thread:
    def read() -> None:
        with stream:
            for line in stream:
                take(line)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def until(true: Callable[[], bool], timeout_s: float = BACKSTOP_S) -> None:
    """Poll until something holds that sets no event here: files and processes of others."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not true():
        assert time.monotonic() < end, "it never came true"
        pause.wait(POLL_S)

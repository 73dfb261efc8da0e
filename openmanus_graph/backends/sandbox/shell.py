"""A persistent bash in the sandbox.

It is interactive, so that it survives ctrl+c and has job control. Its terminal only carries our
control lines: commands are read from a file and their output goes to a file, so that neither
quoting nor large output can disturb the protocol.
"""

import contextlib
import itertools
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from openmanus_graph.backends.sandbox.confinement import Sandbox
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS, newest_line, shorten_file

MOST_NAMES, LONGEST_NAME, LONGEST_FOLDER = 20, 60, 500
_JOB = re.compile(r"^\[\d+\][ +-] +Running +(?P<command>.*?) ?&?$", re.MULTILINE)
_BASH_VARIABLES = {"_", "OLDPWD", "BASH_REMATCH", "COLUMNS", "LINES", "PIPESTATUS", "OPTARG"}
"""Variables that bash sets by itself while commands run."""
_LABELS = {"variables": "variables", "definitions": "functions and classes", "imports": "imports"}


def describe_kernel(reply: Any) -> str:
    """Describe a kernel's memory as the kernel program reports it; code there may have changed it.

    Per sort the reply has the number of names and the first of them, and `folder` if it is not the
    workspace.
    """
    parts: list[str] = []
    reported = cast("dict[str, Any]", reply) if isinstance(reply, dict) else {}
    for sort, label in _LABELS.items():
        match reported.get(sort):
            case [int(count), [*names]]:
                parts.append(f"{label} {_listed(names, count)}")
            case _:
                pass
    if folder := reported.get("folder"):
        parts.append(f"its folder {_name(folder, LONGEST_FOLDER)}")
    return f"Python: {'; '.join(parts)}." if parts else ""


@dataclass(frozen=True)
class ShellState:
    """A snapshot of a shell's state after a command."""

    jobs: tuple[str, ...] = ()
    """Commands that run in the background."""
    folder: str = ""
    path: str = ""
    variables: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


SHELL_STATE_COMMAND = (
    r"""{ jobs -r; builtin printf '\036%s' "$PWD" "$PATH" '';"""
    r" builtin compgen -v; builtin printf '\036'; builtin compgen -A function || :;"
    r" builtin printf '\036'; builtin compgen -a || :; }"
)
"""The command that prints what `read_shell_state` reads; of builtins only: it starts no program."""


def read_shell_state(text: str) -> ShellState:
    """Read what `SHELL_STATE_COMMAND` printed."""
    jobs, folder, path, *names = (text.split("\x1e") + [""] * 5)[:6]
    found = tuple(match["command"] for match in _JOB.finditer(jobs))
    return ShellState(found, folder, path, *(tuple(part.split()) for part in names))


def describe_shell(now: ShellState, fresh: ShellState) -> str:
    """Describe the diff of a shell's state to that of a new shell."""
    parts: list[str] = []
    if now.folder != fresh.folder:
        parts.append(f"its folder {_name(now.folder, LONGEST_FOLDER)}")
    variables = [n for n in now.variables if n not in {*fresh.variables, *_BASH_VARIABLES}]
    variables += ["PATH"] if now.path != fresh.path else []
    for label, names in (
        ("variables", variables),
        ("functions", now.functions),
        ("aliases", now.aliases),
        ("running in the background:", now.jobs),
    ):
        if names:
            parts.append(f"{label} {_listed(names, len(names))}")
    return f"Shell: {'; '.join(parts)}." if parts else ""


def _listed(names: Sequence[Any], count: int) -> str:
    shown = [_name(name) for name in names[:MOST_NAMES]]
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more


def _name(name: Any, longest: int = LONGEST_NAME) -> str:
    plain = "".join(c if c.isprintable() else "?" for c in str(name))
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


_ARGV = ("bash", "--noediting", "--norc", "--noprofile", "-i")
_SETUP = "stty -echo; set +H; unset HISTFILE MAILCHECK; PS1= PS2= PROMPT_COMMAND="
_START_TIMEOUT_S, _STOP_TIMEOUT_S, _POLL_S = 20.0, 2.0, 0.1
_STATE = "look"
"""Name of the file that the shell's state is written to."""
_MIN_FREE_DISK = 4096
_JOB_STARTED = re.compile(r"^\[\d+\] \d+\n", re.MULTILINE)
"""The line that bash prints for a new job; its process id differs from run to run."""


@dataclass(frozen=True)
class CommandResult:
    text: str
    code: int | None
    """Exit status, if there is one."""
    outcome: Literal["done", "interrupted", "ended"]
    reason: str = ""
    """Why the shell ended."""
    jobs: tuple[str, ...] = ()
    """Commands that run in the background."""
    later: str = ""
    """The file with their further output, as programs in the sandbox see it."""


@dataclass
class _Output:
    """The output of a command, read by the open file: programs may replace the named one."""

    path: Path
    file: BinaryIO
    shown: int = 0
    """Bytes of it that were shown."""

    def size(self) -> int:
        return os.fstat(self.file.fileno()).st_size


class Shell:
    """A handle of the session. `pool` runs its blocking methods, one at a time."""

    def __init__(self, sandbox: Sandbox, name: str = "shell") -> None:
        """Start it. `name` is that of the folder with its files; each shell has its own."""
        self._sandbox = sandbox
        self.pool = ThreadPoolExecutor(1, thread_name_prefix=f"openmanus-{name}")
        self.stop = threading.Event()
        """Set from another thread to interrupt the running command."""
        self._run, self._files = sandbox.layout.run / name, sandbox.layout.files
        with self._files.opened(self._run):
            pass
        self._number = 0
        self._terminal_output = b""
        self._closed = False
        """Whether the shell has closed its end of the terminal."""
        self._commands = itertools.count(1)
        self._outputs: list[_Output] = []
        """Of commands with background jobs."""
        self._newest: _Output | None = None
        self._initial = self._current = ShellState()
        self.pool.submit(self._start).result()

    @property
    def alive(self) -> bool:
        """Whether the shell still runs."""
        return self._tree.alive()

    def run(
        self, command: str, timeout_s: float, max_chars: int = MIN_OBSERVATION_CHARS
    ) -> CommandResult:
        """Run a command and return at most `max_chars` characters. Blocks; call it on `pool`."""
        inside, source = self._sandbox.backend.inside, self._run / "command"
        self._files.write(source, command.encode("utf-8", "replace") + b"\n")
        # Outside of the workspace, so that a command such as `grep -r` does not read it.
        path = self._run / f"{next(self._commands)}.log"
        self._newest = output = _Output(path, self._files.create(path))
        known_jobs, new_jobs = self._current.jobs, tuple[str, ...]()
        with self._sandbox.call(self._tree):
            # The commands run in this shell itself, so that variables and folders persist.
            script, target = shlex.quote(inside(source)), shlex.quote(inside(path))
            line = f'{{ eval "$(<{script})"; }} </dev/null >>{target} 2>&1; '
            code = self._execute(line, timeout_s)
            outcome = "done" if code is not None else self._interrupt()
            if outcome != "ended":
                self._ask_state()
        if self._tree.reason:  # what it did could not be brought here
            outcome = "ended"
        text = _JOB_STARTED.sub("", self._shortened(output, max_chars))
        if outcome == "ended":
            text = text.removesuffix("exit\n")  # an interactive shell says so
        elif (jobs := self._read_state().jobs) != known_jobs:
            new_jobs = jobs
        if shutil.disk_usage(self._run).free < _MIN_FREE_DISK:
            text += "[The disk is full, so output may be missing. Delete what is not needed.]\n"
        if new_jobs:  # they write to the file
            output.shown = output.size()
            self._outputs.append(output)
        else:
            output.file.close()
            self._files.remove(path)
        why = self.why() if outcome == "ended" else ""
        return CommandResult(text, code, outcome, why, new_jobs, inside(path) if new_jobs else "")

    def more(self, max_chars: int = MIN_OBSERVATION_CHARS) -> CommandResult:
        """Return the new output of background jobs, at most `max_chars` of each. Blocks."""
        jobs = self._inspect().jobs
        pieces: list[str] = []
        for output in self._outputs:
            start, output.shown = output.shown, output.size()
            if start < output.shown:
                pieces.append(self._shortened(output, max_chars, start))
        return CommandResult("".join(pieces), 0, "done", jobs=jobs)

    def interrupt_jobs(self, max_chars: int = MIN_OBSERVATION_CHARS) -> CommandResult:
        """Interrupt background jobs; kill those that do not stop; then as `more`. Blocks."""
        for name in ("INT", "TERM", "KILL"):
            if not self._inspect().jobs:
                break
            line = f"for job in $(jobs -rp); do builtin kill -{name} -- -$job; done; wait; "
            if self._execute(line, _STOP_TIMEOUT_S) is None:
                self._type(b"\x03")
        return self.more(max_chars)

    def newest_line(self) -> str:
        """Return the newest line of the newest command's output; any thread may ask."""
        return newest_line(self._newest.file) if self._newest else ""

    def handle_state(self) -> str:
        """Describe what commands have changed in the shell, for the model."""
        return describe_shell(self._current, self._initial)

    def close(self) -> None:
        """Kill the shell and all of its processes."""
        self.stop.set()
        self._sandbox.end(self._tree)
        self.pool.shutdown()
        for output in self._outputs:
            output.file.close()
        with contextlib.suppress(OSError):
            os.close(self._terminal)
        remove_folder(self._run)  # the next shell numbers its files from 1 again

    def _start(self) -> None:
        with contextlib.ExitStack() as undo:
            undo.callback(self.pool.shutdown, wait=False)
            self._terminal, slave = os.openpty()
            undo.callback(os.close, self._terminal)
            try:
                self._tree = self._sandbox.start(_ARGV, output=slave, terminal=True)
            finally:
                os.close(slave)
            undo.callback(self._sandbox.end, self._tree)
            if self._execute(f"{_SETUP}; ", _START_TIMEOUT_S) is None:
                printed = self._terminal_output[-1500:].decode("utf-8", "replace").strip()
                raise ToolError(
                    f"bash did not start in the sandbox. It said: {printed or 'nothing'}"
                )
            self._shell_group = os.tcgetpgrp(self._terminal)
            self._initial = self._inspect(_START_TIMEOUT_S)
            undo.pop_all()

    def _type(self, keys: bytes) -> None:
        with contextlib.suppress(OSError):  # the shell has ended, which `_execute` notices
            os.write(self._terminal, keys)

    def _execute(self, commands: str, limit_s: float, status: str = "$?") -> int | None:
        """Type commands and a marker with a status; return that, or None if it does not come.

        Args:
            commands: Empty, or ends with a semicolon.
            limit_s: After it None is returned, and also if the shell ends.
            status: Shell expression.
        """
        self._number += 1
        self._terminal_output = b""
        # `set +eu` afterwards: left on, they would end the shell at the next failure.
        marker = f"builtin printf '\\036%s:%s\\036' {self._number} {status}; set +eu"
        self._type(f" {commands}{marker}\n".encode())
        deadline = time.monotonic() + limit_s
        report = re.compile(rb"\x1e%d:(\d+)\x1e" % self._number)
        while not self.stop.is_set() and (left := deadline - time.monotonic()) > 0:
            alive = self._tree.alive()
            if select.select([self._terminal], [], [], min(left, _POLL_S))[0]:
                try:
                    self._terminal_output = (
                        self._terminal_output + os.read(self._terminal, 65536)
                    )[-65536:]
                except OSError:
                    self._closed = True
                    return None
                if found := report.search(self._terminal_output):
                    return int(found[1])
            elif not alive:
                return None
        return None

    def _interrupt(self) -> Literal["interrupted", "ended"]:
        """Send ctrl+c, then kill the foreground command, and the shell as the last resort."""
        self.stop.clear()
        if self._closed:  # it ends by itself
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._tree.process.wait(timeout=_STOP_TIMEOUT_S)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        kill = False
        while self._tree.alive() and time.monotonic() < deadline:
            self._type(b"\x03")
            if kill:  # the foreground process group of the terminal, unless it is the shell
                with contextlib.suppress(OSError):
                    group = os.tcgetpgrp(self._terminal)
                    if group > 0 and group != self._shell_group:
                        os.killpg(group, signal.SIGKILL)
            if self._execute("", _STOP_TIMEOUT_S / 4, status="130") is not None:
                return "interrupted"
            kill = True
        if self._tree.alive():
            self._tree.kill("The command did not stop when it was interrupted.")
        return "ended"

    def _inspect(self, limit_s: float = _STOP_TIMEOUT_S) -> ShellState:
        """Have the shell write its state (folder, variables) and background jobs, and read it."""
        with self._sandbox.call(self._tree):
            self._ask_state(limit_s)
        return self._read_state()

    def _ask_state(self, limit_s: float = _STOP_TIMEOUT_S) -> None:
        """Have the shell write its state. If it does not, there is no file."""
        self._files.remove(self._run / _STATE)
        target = shlex.quote(self._sandbox.backend.inside(self._run / _STATE))
        self._execute(f"{SHELL_STATE_COMMAND} >|{target}; ", limit_s)

    def _read_state(self) -> ShellState:
        """Read the state that the shell has written; an empty one if it did not."""
        found = self._files.read(self._run / _STATE)
        if found:
            self._current = read_shell_state(found.decode("utf-8", "replace"))
        return self._current if found else ShellState()

    def _shortened(self, output: _Output, max_chars: int, start: int = 0) -> str:
        return shorten_file(output.file, self._sandbox.workspace, start=start, max_chars=max_chars)

    def why(self) -> str:
        """Return why the shell ended, as a sentence."""
        if not self._tree.reason and self._tree.out_of_memory():
            return f"Programs used more than {self._sandbox.settings.memory_mb} MB of memory."
        return self._tree.reason or f"The shell ended with {self._tree.ending()}."

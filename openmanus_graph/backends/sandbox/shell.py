"""A persistent bash in the sandbox.

Pipes carry our control lines and its answers. Commands are read from a file and their output goes
to a file, so that neither quoting nor large output can disturb the protocol.

Before each command the shell forks a spare, which waits in the state of that moment. If the shell
ends (`exit`, `set -e`, `exec`, a signal) or reaches the time limit, the spare takes over. After the
time limit the old shell continues its command as a background job. `shell_program.py` is the
parent of all shells, `shell_program.bash` their text.
"""

import contextlib
import itertools
import os
import re
import select
import shlex
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from openmanus_graph.backends.sandbox.confinement import Sandbox
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS, newest_line, shorten_file

MOST_NAMES, LONGEST_NAME, LONGEST_FOLDER = 20, 60, 500
_JOB = re.compile(
    r"^\[(\d+)\][ +-] +Running +(?:still_running '(.*)'|(.*?))(?: &)?(?:  \(wd: .*\))?$",
    re.MULTILINE,
)
_PID = re.compile(r"^\d+$", re.MULTILINE)
_BASH_VARIABLES = {
    "_", "OLDPWD", "BASH_COMPAT", "BASH_REMATCH", "COLUMNS", "LINES", "PIPESTATUS", "OPTARG",
}  # fmt: skip
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
    """Commands that run in the background, after their names."""
    pids: tuple[str, ...] = ()
    """Their process ids."""
    folder: str = ""
    path: str = ""
    variables: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


SHELL_STATE_COMMAND = (
    r"""{ builtin jobs -rp; builtin jobs -r; builtin printf '\036%s' "$PWD" "$PATH" '';"""
    r" builtin compgen -v; builtin printf '\036'; builtin compgen -A function || :;"
    r" builtin printf '\036'; builtin compgen -a || :; }"
)
"""The command that prints what `read_shell_state` reads; of builtins only: it starts no program."""


def read_shell_state(text: str) -> ShellState:
    """Read what `SHELL_STATE_COMMAND` printed."""
    jobs, folder, path, *names = (text.split("\x1e") + [""] * 5)[:6]
    found = tuple(f"%{number} {adopted or own}" for number, adopted, own in _JOB.findall(jobs))
    parts = (tuple(part.split()) for part in names)
    return ShellState(found, tuple(_PID.findall(jobs)), folder, path, *parts)


def describe_shell(now: ShellState, fresh: ShellState) -> str:
    """Describe the diff of a shell's state to that of a new shell."""
    parts: list[str] = []
    if now.folder != fresh.folder:
        parts.append(f"its folder {_name(now.folder, LONGEST_FOLDER)}")
    variables = [n for n in now.variables if n not in {*fresh.variables, *_BASH_VARIABLES}]
    variables += ["PATH"] if now.path != fresh.path else []
    for label, names in (
        ("variables", variables),
        ("functions", [n for n in now.functions if n not in fresh.functions]),
        ("aliases", now.aliases),
        ("running in the background:", [job.partition(" ")[2] for job in now.jobs]),
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


_ARGV = ("bash", "--norc", "--noprofile", "-c")
_FORK = (
    '\\exec 207<<<x; __spare=$( builtin jobs -lr >|"$__files/{number}.jobs"; '
    "( set -m; ( __old=$__self; __self=$BASHPID; "
    'while IFS= builtin read -r -u 208 __line; do builtin eval "$__line"; done ) '
    '>/dev/null 205>"$__spare_end" & '
    "builtin echo $! ) ); builtin trap '__save {number}' EXIT; "
)
"""Forks the spare, in a process group of its own, and neither as `$!` nor among the jobs."""
_RUN = (
    '\\exec >>{output} 2>&1; {{ builtin eval "$(<{script})"; }} </dev/null 207<&- 208<&- 209>&-; '
    "__code=$?; builtin set +eu; \\exec >/dev/null 2>&1; builtin trap - EXIT; "
)
"""A trap of EXIT also prints to the output, but has the other descriptors of ours."""
_MARKER = "builtin printf '\\036%s:%s\\036' {} {} >&209; builtin set +eu"
"""`set +eu` afterwards: left on, they would end the shell at the next failure."""
_ANSWER = re.compile(rb"\x1e(?P<number>\d+):(?P<value>\d+):?(?P<code>\d*)\x1e")
"""A marker, or a process id with the code that it has ended with."""
_CLAIM = "__won=; builtin read -rn1 -u 207 __won; [[ $__won ]] || builtin exit "
"""Ends the shell or its spare if the other one was first: the pipe has one character."""
_TAKE_OVER = (
    "[[ $__old ]] || continue; " + _CLAIM + "; \\exec 205>&- 207<&-; "
    'builtin set -m; : >|"$__files/$__self.shell"; __adopt_jobs {number}; '
    "__follow $__old {command}{end}; "
    "__kept=1; [[ -e $__files/{number}.saved ]] && "
    '{{ builtin . "$__files/{number}.saved"; __kept=0; }}; '
    "builtin set +eu; __old=; "
)
"""Only the spare has `__old`, the shell that it replaces."""
_END = " && { builtin kill $!; while builtin kill -0 $__old; do sleep 0.05; done; }"
_WAKEABLE = "builtin trap : USR2; "
_END_SPARE = "builtin kill -9 $__spare; builtin read -rd '' -u 207 __won; \\exec 207<&-; "
"""Waits until the spare has closed its end of the pipe: before, it may read our next line."""
_UNTIL_ENDED = "for __line in {1..15}; do [[ $(builtin jobs -r) ]] || break; sleep 0.1; done; "
_LINE = re.compile(r"^bash: (eval: )?line \d+: ", re.MULTILINE)
"""The number is that of our control lines."""
_WAIT = re.compile(r"\s*wait(\s+[\w%$!-]+)*\s*")
"""A command that only waits for jobs."""
_START_TIMEOUT_S, _STOP_TIMEOUT_S, _TAKE_OVER_TIMEOUT_S, _POLL_S = 20.0, 2.0, 10.0, 0.1
_PROGRAM, _TEXT = (Path(__file__).with_name(f"shell_program.{kind}") for kind in ("py", "bash"))
_STATE = "look"
"""Name of the file that the shell's state is written to."""
_MIN_FREE_DISK = 4096


Outcome = Literal["done", "limit", "interrupted", "ended"]


class Ending(NamedTuple):
    outcome: Outcome
    """`limit`: it continues in the background; `ended`: the shell ended with it."""
    code: int | None = None
    """Exit status, if there is one."""
    restored: bool = False
    """Whether folder and variables are again as they were before the command."""


@dataclass(frozen=True)
class CommandResult:
    text: str
    ending: Ending
    reason: str = ""
    """Why the shell ended."""
    jobs: tuple[str, ...] = ()
    """Commands that run in the background, after their names."""
    newest: str = ""
    """Process id of the last of them, by which the shell knows its exit code later."""
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
        self._answers = b""
        self._shell = 0
        """Its process id inside."""
        self._ending: int | None = None
        """Exit status of a shell that has ended."""
        self._commands = itertools.count(1)
        self._outputs: list[_Output] = []
        """Of commands with background jobs."""
        self._newest: _Output | None = None
        self._initial = self._current = ShellState()
        self.pool.submit(self._start).result()

    @property
    def alive(self) -> bool:
        return self._tree.alive()

    def run(
        self,
        command: str,
        timeout_s: float,
        max_chars: int = MIN_OBSERVATION_CHARS,
        *,
        ends_at_limit: bool = False,
    ) -> CommandResult:
        """Run a command and return at most `max_chars` characters. Blocks; call it on `pool`.

        After `timeout_s` it goes on in the background, or is ended if `ends_at_limit`.
        """
        inside, source = self._sandbox.backend.inside, self._run / "command"
        self._files.write(source, command.encode("utf-8", "replace") + b"\n")
        # Outside of the workspace, so that a command such as `grep -r` does not read it.
        path = self._run / f"{next(self._commands)}.log"
        self._newest = output = _Output(path, self._files.create(path))
        known = self._current.jobs
        waits = _WAIT.fullmatch(command) is not None
        with self._sandbox.call(self._tree):
            places = {"script": shlex.quote(inside(source)), "output": shlex.quote(inside(path))}
            line = (_FORK + _RUN).format(number=self._number + 1, **places)
            line = f"{_WAKEABLE}{line}builtin trap - USR2; " if waits else line
            line += _CLAIM + "$__code; " + _END_SPARE
            code = self._execute(line, timeout_s, "$__code")
            ending = (
                Ending("done", code)
                if code is not None
                else self._recover(command, waits, ends=ends_at_limit)
            )
            if ending.outcome != "ended":
                self._ask_state()
        if self._tree.reason:  # what it did could not be brought here
            ending = Ending("ended", None)
        text = _LINE.sub("bash: ", self._shortened(output, max_chars))
        if waits:
            text += self._new_output(max_chars)
        now = self._read_state() if ending.outcome != "ended" else ShellState()
        writing = bool({*now.jobs} - {*known})
        if shutil.disk_usage(self._run).free < _MIN_FREE_DISK:
            text += "[The disk is full, so output may be missing. Delete what is not needed.]\n"
        if writing:  # jobs to the file
            output.shown = output.size()
            self._outputs.append(output)
        else:
            output.file.close()
            self._files.remove(path)
        why = self.why() if ending.outcome == "ended" else ""
        jobs = () if now.jobs == known and ending.outcome != "limit" else now.jobs
        later = inside(path) if writing else ""
        return CommandResult(text, ending, why, jobs, "".join(now.pids[-1:]), later)

    def more(self, max_chars: int = MIN_OBSERVATION_CHARS) -> CommandResult:
        """Return the new output of background jobs, at most `max_chars` of each. Blocks."""
        now, text = self._inspect(), self._new_output(max_chars)
        return CommandResult(text, Ending("done", 0), "", now.jobs, "".join(now.pids[-1:]))

    def _new_output(self, max_chars: int) -> str:
        pieces: list[str] = []
        for output in self._outputs:
            start, output.shown = output.shown, output.size()
            if start < output.shown:
                pieces.append(self._shortened(output, max_chars, start))
        return "".join(pieces)

    def interrupt_jobs(self, max_chars: int = MIN_OBSERVATION_CHARS) -> CommandResult:
        """Interrupt background jobs; kill those that do not stop; then as `more`. Blocks."""
        for name in ("INT", "TERM", "KILL"):
            if not self._inspect().jobs:
                break
            line = f"for job in $(jobs -rp); do builtin kill -{name} -- -$job; done; "
            self._execute(line + _UNTIL_ENDED, _STOP_TIMEOUT_S)
        return self.more(max_chars)

    def newest_line(self) -> str:
        """Return the newest line of the newest command's output; any thread may ask."""
        return newest_line(self._newest.file) if self._newest else ""

    def handle_state(self) -> str:
        """Describe what commands have changed in the shell, for the model."""
        return describe_shell(self._current, self._initial)

    def close(self) -> None:
        self.stop.set()
        self._sandbox.end(self._tree)
        self.pool.shutdown()
        for output in self._outputs:
            output.file.close()
        os.close(self._lines)
        os.close(self._replies)
        remove_folder(self._run)  # the next shell numbers its files from 1 again

    def _start(self) -> None:
        inside, program = self._sandbox.backend.inside, self._run / _PROGRAM.name
        self._files.write(program, _PROGRAM.read_bytes())
        holder = (self._sandbox.backend.python, "-I", "-S", inside(program), inside(self._run))
        given, self._lines = os.pipe()
        self._replies, output = os.pipe()
        with contextlib.ExitStack() as undo:
            undo.callback(self.pool.shutdown, wait=False)
            undo.callback(os.close, self._lines)
            undo.callback(os.close, self._replies)
            try:
                argv = (*holder, *_ARGV, _TEXT.read_text(), "bash", inside(self._run))
                self._tree = self._sandbox.start(argv, output=output, given=given, direct=True)
            finally:
                os.close(given)
                os.close(output)
            undo.callback(self._sandbox.end, self._tree)
            shell = self._execute("", _START_TIMEOUT_S, "$__self")
            if shell is None:
                printed = self._answers[-1500:].decode("utf-8", "replace").strip()
                raise ToolError(
                    f"bash did not start in the sandbox. It said: {printed or 'nothing'}"
                )
            self._shell = shell
            self._initial = self._inspect(_START_TIMEOUT_S)
            undo.pop_all()

    def _type(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the shell has ended, which `_answer` notices
            os.write(self._lines, line.encode() + b"\n")

    def _execute(self, commands: str, limit_s: float, status: str = "$?") -> int | None:
        """Send commands and a marker with a status; return that, or None if it does not come.

        Args:
            commands: Empty, or ends with a semicolon.
            limit_s: After it None is returned, and also if the shell ends.
            status: Shell expression.
        """
        self._number += 1
        self._type(commands + _MARKER.format(self._number, status))
        answer = self._answer(limit_s, self._number)
        return answer and answer[1]

    def _answer(self, limit_s: float, oldest: int) -> tuple[int, int] | None:
        """Return the first marker from a number on with its status; None as `_execute`."""
        deadline, found = time.monotonic() + limit_s, None
        while not self.stop.is_set() and (left := deadline - time.monotonic()) > 0:
            alive = self._tree.alive()
            if select.select([self._replies], [], [], min(left, _POLL_S))[0]:
                self._answers = (self._answers + os.read(self._replies, 65536))[-65536:]
                for number, value, code in _ANSWER.findall(self._answers):
                    if code and int(value) == self._shell:
                        self._ending = int(code)
                    elif not code and int(number) >= oldest:
                        found = (int(number), int(value))
                self._answers = _ANSWER.split(self._answers)[-1]
            if found or self._ending is not None or not alive:
                return found
        return None

    def _recover(self, command: str, waits: bool, *, ends: bool) -> Ending:
        """Continue after a time limit, a stop, or the end of the shell."""
        number, code, self._ending = self._number, self._ending, None
        ends = self.stop.is_set() or (ends and not waits)
        outcome: Outcome = "interrupted" if ends else "limit"
        outcome = outcome if code is None else "done"
        self.stop.clear()
        if waits and code is None:  # only the waiting ends
            self._type("[[ $__old ]] && builtin kill -USR2 $__old")
            if self._answer(_STOP_TIMEOUT_S, number):
                return Ending(outcome)
        self._shell, self._number = 0, number + 1
        name = shlex.quote(command.strip().split("\n")[0][:LONGEST_NAME])
        end = _END if outcome == "interrupted" else ""
        take_over = _TAKE_OVER.format(number=number, command=name, end=end)
        self._type(take_over + _MARKER.format(self._number, "$__self"))
        match self._answer(_TAKE_OVER_TIMEOUT_S, number):
            case None:
                if self._tree.alive():
                    self._tree.kill("The command has ended the shell.")
                return Ending("ended")
            case found, status if found == number:  # it ended at this moment
                return Ending("done", status)
            case _, shell:
                self._shell = shell
        kept = self._execute("", _STOP_TIMEOUT_S, "$__kept") == 0
        return Ending(outcome, code, restored=not kept)

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
        if not self._tree.reason and self._tree.out_of_memory():
            return f"Programs used more than {self._sandbox.settings.memory_mb} MB of memory."
        return self._tree.reason or f"The shell ended with {self._tree.ending()}."

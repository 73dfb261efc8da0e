"""The sandbox of the small tasks: a root of bind mounts that only shows what a run needs.

Programs inside can write to the task's folder, and nowhere else that lasts. They have no network:
a Unix socket is all that leads out, to the model.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

HOME = "/home/user"
FOLDER = f"{HOME}/task"
SOCKET = "/run/model.sock"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")
_ETC = (
    "ld.so.cache",
    "alternatives",
    "passwd",
    "group",
    "nsswitch.conf",
    "localtime",
    "mime.types",
)


@dataclass(frozen=True)
class Ended:
    """How a program in the sandbox ended."""

    code: int | None
    """None: it was stopped because its time was over."""
    out: str
    errors: str


def sandboxed(
    folder: Path,
    command: Sequence[str],
    *,
    shown: Iterable[Path] = (),
    programs: Path | None = None,
    socket: Path | None = None,
) -> list[str]:
    """Return the command that runs a command in the sandbox.

    Args:
        folder: The task's, where it runs.
        command: Program and arguments.
        shown: Further files and folders that it can read, at their own paths.
        programs: The folder that comes first on the `PATH`: `python` is the agent's own.
        socket: Leads to the model.
    """
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    for place in _SYSTEM:
        argv += ["--ro-bind-try", place, place]
    for name in _ETC:
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", HOME]
    for path in (Path(sys.base_prefix), *shown):
        argv += ["--ro-bind", str(path), str(path)]
    argv += ["--bind", str(folder), FOLDER, "--chdir", FOLDER]
    if socket is not None:
        argv += ["--ro-bind", str(socket), SOCKET]
    first = f"{programs}:" if programs else ""
    variables = {"HOME": HOME, "PATH": f"{first}/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    for name, value in (variables | {"PYTHONDONTWRITEBYTECODE": "1"}).items():
        argv += ["--setenv", name, value]
    return [*argv, "--", *command]


async def run(argv: Sequence[str], timeout_s: float) -> Ended:
    """Run a command, and stop it with all that it started when its time is over."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(timeout_s):
            out, errors = await process.communicate()
    except TimeoutError:
        return Ended(None, "", "")
    finally:
        if process.returncode is None:
            _kill(process.pid)
            await process.wait()
    return Ended(process.returncode, out.decode(errors="replace"), errors.decode(errors="replace"))


def _kill(pid: int) -> None:
    """Kill a process and all below it: one that has just begun does not die with its parent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        parent.suspend()  # it starts nothing more
        for one in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def python_passes(folder: Path, code: str, cpu_s: int = 2, timeout_s: float = 60) -> bool:
    """Return True if Python code runs without an error in a folder, in the sandbox."""
    limits = f"import resource; resource.setrlimit(resource.RLIMIT_CPU, ({cpu_s}, {cpu_s}))"
    program = [sys.executable, "-c", f"{limits}\n{code}"]
    argv = sandboxed(folder, program, shown=[Path(sys.prefix)])
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0

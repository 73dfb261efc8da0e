"""The connection to another machine by the system's `ssh`, and the program that serves us there."""

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from openmanus_graph.backends.sandbox.remote_program import GREETING
from openmanus_graph.errors import ToolError
from openmanus_graph.state.settings import SandboxSettings

_PROGRAM = Path(__file__).with_name("remote_program.py")
_LAUNCH = Path(__file__).with_name("launch.py")
_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "UpdateHostKeys": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "GSSAPIDelegateCredentials": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "EscapeChar": "none",
    "LogLevel": "ERROR",
    "ConnectTimeout": "15",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ControlPersist": "no",
}
"""They come before those of `~/.ssh/config`, whose names, keys and jumps are used."""
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR")
_BOOT = "import sys; exec(compile(sys.stdin.buffer.read({size}), 'openmanus', 'exec'))"
_STOP_TIMEOUT_S = 5
_LONGEST_LINE = 16 << 20
"""Bytes of an answer without its body: programs of that account may send anything."""
_LOOK_TIMEOUT_S = 30
_LOOKED = "openmanus-looked "
_LOOK = f"""import importlib.util, json, platform, shutil, sys
print({_LOOKED!r} + json.dumps([platform.system(), *sys.version_info[:2],
    bool(shutil.which("bash")), bool(importlib.util.find_spec("ipykernel"))]))"""


class SshLink:
    """One connection. The next use restores a broken one. Methods block, and raise ToolError."""

    def __init__(self, settings: SandboxSettings, control: Path, name: str) -> None:
        """Connect. `control` is the path of the socket by which further programs share it.

        `name` is that of the sandbox's folder on the other machine.
        """
        self._settings, self._control, self._name = settings, control, name
        self.lock = threading.RLock()
        """Held while answers with bodies are read, so that no other thread asks meanwhile."""
        self._unread = 0
        """Bytes of the last answer's body."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this object
        """What `ssh` prints itself."""
        try:
            self.connect()
        except ToolError:
            self._said.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the connection is open, as far as is known."""
        return self._process.poll() is None

    def connect(self) -> bool:
        """Connect, and create or take over the sandbox's folder; return True if it is new."""
        program = _PROGRAM.read_bytes()
        boot = f"exec {self._settings.ssh_python} -c {shlex.quote(_BOOT.format(size=len(program)))}"
        self._control.unlink(missing_ok=True)
        self._unread = 0
        self._said.truncate(0)
        master = ("-S", str(self._control), "-M", "-o", "ClearAllForwardings=yes")
        self._process = subprocess.Popen(
            _ssh_command(self._settings, *master, program=boot),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=_environment(),
            start_new_session=True,  # ctrl+c in the terminal is not for it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        try:
            self._input.write(program)
            self._input.flush()
            while (line := self._output.readline(_LONGEST_LINE)) and not line.endswith(GREETING):
                pass
        except OSError:
            line = b""
        if not line:
            self._end_process()
            self._said.seek(0)
            raise ToolError(explain(self._said.read().decode(errors="replace"), self._settings))
        launch = _LAUNCH.read_bytes()
        request = {"do": "open", "base": self._settings.ssh_folder, "name": self._name}
        opened = self.ask(request, [launch], len(launch))
        self.root, self.python = Path(opened["root"]), str(opened["python"])
        return bool(opened["new"])

    def shared(self, *options: str, program: str = "") -> list[str]:
        """Return a command that uses this connection and never opens another."""
        own = ("-S", str(self._control), "-F", "none", "-o", "ProxyCommand=false")
        return _ssh_command(self._settings, *own, *options, program=program)

    def ask(
        self, request: dict[str, Any], body: Iterable[bytes] = (), size: int = 0
    ) -> dict[str, Any]:
        with self.lock:
            try:
                for _ in self.read(self._unread):
                    pass  # what an error has left there
                self._input.write(json.dumps({**request, "body": size}).encode() + b"\n")
                self._input.writelines(body)
                self._input.flush()
                line = self._output.readline(_LONGEST_LINE)
                answer: dict[str, Any] = json.loads(line) if line else {}
            except (OSError, ValueError) as error:
                raise self._lost() from error
            if not line:
                raise self._lost()
            if "error" in answer:
                raise ToolError(f"{self._settings.ssh_host} could not do it: {answer['error']}.")
            self._unread = int(answer.get("body", 0))
            return answer

    def read(self, size: int) -> Iterator[bytes]:
        """Yield the next bytes of the last answer's body."""
        while size:
            piece = self._output.read(min(size, 1 << 20))
            if not piece:
                raise self._lost()
            size -= len(piece)
            self._unread -= len(piece)
            yield piece

    def forward(self, here: Path, there: Path) -> None:
        """Let a socket here lead to one that a program opens there."""
        # An earlier one has lost its file here. If there is none, `cancel` changes nothing.
        for command in ("cancel", "forward"):
            here.unlink(missing_ok=True)
            argv = self.shared("-O", command, "-L", f"{here}:{there}")
            done = subprocess.run(
                argv, capture_output=True, stdin=subprocess.DEVNULL, start_new_session=True
            )
            if command == "forward" and done.returncode:
                why = done.stderr.decode(errors="replace").strip()[-300:]
                raise ToolError(f"{self._settings.ssh_host} forwards no socket: {why}")

    def close(self) -> None:
        """Remove the folder there, and end the connection."""
        with contextlib.suppress(ToolError):
            self.ask({"do": "close"})
        with contextlib.suppress(OSError):
            self._input.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT_S)
        self._end_process()
        self._said.close()

    def _end_process(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):
                pipe.close()

    def _lost(self) -> ToolError:
        self._end_process()
        return ToolError(
            f"The connection to {self._settings.ssh_host} was lost. The files that programs had "
            "written there are kept, and fetched when the next call has connected again."
        )


_NO_PYTHON = "{host} has no {python}. Name a Python that is there with ssh_python"
_REASONS = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "{host} shows another host key than the known one: "
    "it was reinstalled, or someone intercepts the connection. Only if you know why, run "
    "`ssh-keygen -R {host}` and connect once with {by_hand}",
    "Host key verification failed": "The host key of {host} is not known. Connect once with "
    "{by_hand} and compare it, or name a file that has it with ssh_known_hosts",
    "UNPROTECTED PRIVATE KEY FILE": "Others can read the key {key}. Run `chmod 600 {key}`",
    "Permission denied": "{host} refuses the key. Put the public key into ~/.ssh/authorized_keys "
    "there, name another key with ssh_key, or set ssh_user. A key with a passphrase must be in "
    "ssh-agent",
    "not found": _NO_PYTHON,
    "No such file or directory": _NO_PYTHON,
}
"""By what `ssh` prints, the explanation. The first match counts."""


def _ssh_command(given: SandboxSettings, *options: str, program: str = "") -> list[str]:
    argv = ["ssh"]
    for option, value in _OPTIONS.items():
        argv += ["-o", f"{option}={value}"]
    if given.ssh_known_hosts:
        argv += ["-o", f"UserKnownHostsFile={given.ssh_known_hosts}"]
        argv += ["-o", "GlobalKnownHostsFile=/dev/null"]
    argv += ["-i", given.ssh_key, "-o", "IdentitiesOnly=yes"] if given.ssh_key else []
    argv += ["-l", given.ssh_user] if given.ssh_user else []
    argv += ["-p", str(given.ssh_port)] if given.ssh_port else []
    return [*argv, *options, "--", str(given.ssh_host), *([program] if program else [])]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}


def look_at_host(settings: SandboxSettings) -> tuple[str, tuple[int, int], bool, bool]:
    """Return a host's system, its Python's version, and if it has bash and ipykernel. Blocks.

    Connects once and changes nothing. ToolError: there is no connection, or no such Python.
    """
    program = f"exec {settings.ssh_python} -c {shlex.quote(_LOOK)}"
    try:
        done = subprocess.run(
            _ssh_command(settings, "-o", "ControlPath=none", program=program),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(),
            timeout=_LOOK_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{settings.ssh_host} did not answer in {_LOOK_TIMEOUT_S} s.") from error
    found = done.stdout.decode(errors="replace").rpartition(_LOOKED)[2]  # after a shell's greeting
    try:
        system, major, minor, bash, ipykernel = json.loads(found)
    except ValueError:
        raise ToolError(explain(done.stderr.decode(errors="replace"), settings)) from None
    return str(system), (int(major), int(minor)), bool(bash), bool(ipykernel)


def explain(said: str, settings: SandboxSettings) -> str:
    """Return why there is no connection and what to do, from what `ssh` printed. Pure."""
    host, python, key = settings.ssh_host, settings.ssh_python, settings.ssh_key
    port = f"-p {settings.ssh_port} " if settings.ssh_port else ""
    user = f"{settings.ssh_user}@" if settings.ssh_user else ""
    by_hand = f"`ssh {port}{user}{host}`"
    for words, reason in _REASONS.items():
        if words in said:
            return reason.format(host=host, python=python, key=key, by_hand=by_hand) + "."
    last = (said.strip().splitlines() or ["ssh ended without a word"])[-1]
    return f"{host} cannot be reached: {last.strip()}. Check ssh_host and ssh_port; try {by_hand}."

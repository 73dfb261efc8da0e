"""A program that runs in a sandbox, with all of its child processes."""

import contextlib
import os
import signal
import subprocess
import threading
import time

import psutil

from openmanus_graph.backends.sandbox.limits import Group

MARKER = "OPENMANUS_TREE"


class Tree:
    """A process tree, killed as a whole; created by `Sandbox.start`."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        *,
        group: Group | None,
        marker: str,
        holds_processes: bool,
        kill_command: tuple[str, ...] = (),
    ) -> None:
        self.process = process
        self.group = group
        self.busy = False
        """A call is running: limits are checked more often, and a full disk kills this tree."""
        self.reason = ""
        """Why we killed it, as a sentence for the model."""
        self._marker = marker
        self._holds_processes = holds_processes
        self._kill_command = kill_command
        self._lock = threading.Lock()

    def alive(self) -> bool:
        """Return whether the program itself still runs."""
        return self.process.poll() is None

    def ending(self) -> str:
        """Describe how the program ended: its exit code or the signal."""
        code = self.process.wait()
        number = -code if code < 0 else code - 128 if code > 128 else 0
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(number).name}" if number else f"exit code {code}"
        return f"exit code {code}"

    def out_of_memory(self) -> bool:
        """Return whether the kernel killed a process of it for its memory."""
        return self.group is not None and self.group.out_of_memory()

    def members(self) -> list[psutil.Process]:
        """List the processes, daemons too, unless the backend kills those itself."""
        found = {self.process.pid}
        found.update(self.group.members() if self.group else ())
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children(recursive=True)
            found.update(child.pid for child in children)
        if not self._holds_processes:
            # A daemon is no child any more, but has kept its environment.
            for process in psutil.process_iter(["environ"]):
                if (process.info["environ"] or {}).get(MARKER) == self._marker:
                    found.add(process.pid)
        members: list[psutil.Process] = []
        for pid in found - {os.getpid()}:
            with contextlib.suppress(psutil.Error):
                members.append(psutil.Process(pid))
        return members

    def kill(self, reason: str = "") -> None:
        """Kill all processes at once. Blocks until they have ended."""
        with self._lock:
            self.reason = self.reason or reason
            if self._kill_command:
                subprocess.run(self._kill_command, capture_output=True, check=False)
            if self._holds_processes:
                self.process.kill()
            else:
                self._kill_members()
            self.process.wait()

    def close(self) -> None:
        """Kill all processes and remove the control group."""
        self.kill()
        if self.group is not None:
            deadline = time.monotonic() + 2
            while self.group.members() and time.monotonic() < deadline:
                for pid in self.group.members():
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.005)
            self.group.remove()

    def _kill_members(self) -> None:
        """Stop all before killing all, so that none starts others meanwhile."""
        for _ in range(20):
            members = self.members()
            for action in (psutil.Process.suspend, psutil.Process.kill):
                for process in members:
                    with contextlib.suppress(psutil.Error):
                        action(process)
            _, left = psutil.wait_procs(members, timeout=0.2)
            if not left and len(members) <= 1:
                return

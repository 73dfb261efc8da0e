"""Our servers as processes of their own, and what they leave behind."""

import contextlib
import queue
import signal
import subprocess
import threading
from collections.abc import Generator
from dataclasses import dataclass

import psutil

from tests.support.cli import OPENMANUS, Cli

STARTS_S = 60.0
ENDS_S = 30.0


@dataclass
class Served:
    """A server that listens."""

    process: "subprocess.Popen[str]"
    url: str
    token: str | None
    errors: list[str]

    @property
    def headers(self) -> dict[str, str]:
        """What a client sends."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(ENDS_S)

    def family(self) -> list[psutil.Process]:
        """What the server has started."""
        return psutil.Process(self.process.pid).children(recursive=True)


@contextlib.contextmanager
def served(cli: Cli, *args: str, token: str | None = None) -> Generator[Served]:
    """Start a server on a free port and wait until it listens; kill it in the end."""
    process = subprocess.Popen(
        [OPENMANUS, *args, "--port", "0"],
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    errors: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            errors.append(line)
            lines.put(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        url = lines.get(timeout=STARTS_S).partition(": ")[2].strip()
        assert url.startswith("http"), errors
        shown = None
        if token is None and "--no-token" not in args:
            shown = lines.get(timeout=ENDS_S).partition(": ")[2].strip()
        yield Served(process, url, token or shown, errors)
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stdout is not None
        out = process.stdout.read()
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()
        cli.note(out, "".join(errors))


MONEY = """
from openmanus_graph import manus_tool
@manus_tool(effect="external")
def send_money(amount: int) -> str:
    \"\"\"Send money.

    Args:
        amount: How much.
    \"\"\"
    print("what a tool says past everything", flush=True)
    return f"sent {amount}"
"""


def bring_money(cli: Cli) -> None:
    """Give the command a tool with effects outside, from another package."""
    info = cli.root / "brought" / "brought-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / "brought.py").write_text(MONEY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[openmanus_graph.tools]\nmoney = brought:send_money\n")
    cli.env["PYTHONPATH"] = str(info.parent)


def sleepers(seconds: str) -> list[psutil.Process]:
    """Return the processes `sleep SECONDS`."""
    found = psutil.process_iter(["cmdline"])
    return [process for process in found if process.info["cmdline"] == ["sleep", seconds]]


def gone(processes: list[psutil.Process]) -> bool:
    """Say whether none of these processes runs any more."""
    return not [process for process in processes if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

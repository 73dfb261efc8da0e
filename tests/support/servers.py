"""Our servers as processes of their own, and what they leave behind."""

import contextlib
import queue
import signal
import threading
from collections.abc import Generator
from dataclasses import dataclass

import psutil

from tests.support.cli import Cli, Process, no_input, pipe
from tests.support.limits import BACKSTOP_S


@dataclass
class Served:
    """A server that listens."""

    process: Process
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
        return self.process.wait(BACKSTOP_S)

    def family(self) -> list[psutil.Process]:
        """What the server has started."""
        return psutil.Process(self.process.pid).children(recursive=True)


@contextlib.contextmanager
def served(cli: Cli, *args: str, token: str | None = None) -> Generator[Served]:
    """Start a server on a free port and wait until it listens; kill it in the end."""
    (out, its_out), (err, its_err) = pipe(), pipe()
    with its_out, its_err, no_input() as nothing:
        process = cli.launch([*args, "--port", "0"], nothing, its_out, its_err)
    lines: queue.Queue[str] = queue.Queue()
    errors: list[str] = []

    def read() -> None:
        with err:
            for line in err:
                errors.append(line)
                lines.put(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        url = lines.get(timeout=BACKSTOP_S).partition(": ")[2].strip()
        assert url.startswith("http"), errors
        shown = None
        if token is None and "--no-token" not in args:
            shown = lines.get(timeout=BACKSTOP_S).partition(": ")[2].strip()
        yield Served(process, url, token or shown, errors)
    finally:
        process.kill()
        process.wait(BACKSTOP_S)
        reader.join()
        with out:
            cli.note(out.read(), "".join(errors))


MONEY = """
from openmanus_graph import manus_tool
@manus_tool(effect="external")
def send_money(amount: int, to: str = "anna") -> str:
    \"\"\"Send money.

    Args:
        amount: How much.
        to: Whom.
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

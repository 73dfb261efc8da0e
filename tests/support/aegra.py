"""aegra as docs/deploy.md installs and starts it: processes with one PostgreSQL and one Redis."""

import contextlib
import importlib.metadata
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from langgraph_sdk import get_client

from openmanus_graph.interfaces.cli.doctor import install_commands
from tests.support.cli import until
from tests.support.hermetic import installing
from tests.support.limits import BACKSTOP_S

ROOT = Path(__file__).parent.parent.parent
TOKEN = "a-token-of-the-tests"
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "openmanus_graph", "deploy")
"""What of the repository the commands need."""
ADDRESSES = {
    "DATABASE_URL": "postgresql://agents:PASSWORD@127.0.0.1:5432/agents",
    "REDIS_URL": "redis://127.0.0.1:6379/0",
    "OPENMANUS_TOKEN": "A-SECRET-OF-16-CHARACTERS-OR-MORE",
}
"""What stands in the page for what everybody has of his own."""


def page_command(name: str) -> str:
    """Return a command of docs/deploy.md."""
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- command: {name} -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert found, f"docs/deploy.md has no command {name}"
    return found[1]


def page_environment(**own: str) -> str:
    """Return the page's environment with addresses of one's own in the place of its examples."""
    text = page_command("environment")
    for name, example in ADDRESSES.items():
        assert example in text
        text = text.replace(example, f"'{own[name]}'")
    return text


@dataclass
class Installed:
    """A folder like a clone of the repository, in which aegra is installed beside the package."""

    folder: Path

    @classmethod
    def into(cls, folder: Path) -> "Installed":
        """Install by the page's commands."""
        folder.mkdir()
        for name in NEEDED:
            (folder / name).symlink_to(ROOT / name)
        installed = cls(folder)
        if _has_new_python():
            installed.shell(page_command("install"))
        else:
            installed._install_for_old_python()
        return installed

    def shell(self, command: str) -> None:
        """Run a command in the folder."""
        subprocess.run(
            ["bash", "-euc", command], check=True, cwd=self.folder,
            env=clean_environment(installing()),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def _install_for_old_python(self) -> None:
        """Install where neither this machine nor its network has the Python that aegra asks for.

        Its code works with 3.11, too; only its metadata ask for 3.12.
        """
        command = page_command("install").replace('">=3.12"', f'"{sys.executable}"')
        assert sys.executable in command
        self.shell(command.replace(" aegra-api", ""))
        uv = "python3 -m uv pip install --quiet --python server/bin/python"
        self.shell(f"{uv} --no-deps --python-version 3.12 aegra-api")
        (packages,) = (self.folder / "server" / "lib").glob("python*/site-packages")
        (aegra,) = importlib.metadata.distributions(name="aegra-api", path=[str(packages)])
        self.shell(f"{uv} {' '.join(repr(one) for one in aegra.requires or ())}")


def clean_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a shell that knows nothing of the tests' own."""
    own = str(Path(sys.executable).parent)
    path = os.pathsep.join(one for one in os.environ["PATH"].split(os.pathsep) if one != own)
    dropped = ("VIRTUAL_ENV", "PYTHONPATH", "OPENMANUS_HOME")
    return {k: v for k, v in environment.items() if k not in dropped} | {"PATH": path}


def _has_new_python() -> bool:
    command = ["python3", "-m", "uv", "python", "find", "--quiet", ">=3.12"]
    return subprocess.run(command, env=clean_environment(), check=False).returncode == 0


@dataclass
class Worker:
    """One process of aegra: it takes requests, and does runs."""

    process: "subprocess.Popen[bytes]"
    port: int
    log_file: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {TOKEN}"}

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def sdk(self) -> Any:
        """Return LangGraph's client with the token; what it answers is JSON."""
        return get_client(url=self.url, headers=self.headers)

    def http(self) -> httpx.AsyncClient:
        """Return a client with the token."""
        return httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=BACKSTOP_S)

    def answers(self) -> bool:
        """Say whether it has started."""
        assert self.process.poll() is None, self.log
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/ok").is_success
        return False

    def end(self, number: signal.Signals) -> None:
        """End it by a signal, and wait."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        self.process.wait(BACKSTOP_S)


@dataclass
class Cluster:
    """Processes of aegra on this machine, with one folder for the threads' files."""

    installed: Installed
    folder: Path
    environment: str
    """The page's, as shell commands."""
    env: Mapping[str, str]
    database_url: str
    workers: list[Worker] = field(default_factory=list[Worker])

    def start(self, *environments: Mapping[str, str]) -> list[Worker]:
        """Start processes by the page's command, at once, and wait until they answer.

        Args:
            environments: What is added to each one's environment.
        """
        started = [self._start(env) for env in environments]
        for worker in started:
            until(worker.answers)
        return started

    def _start(self, env: Mapping[str, str]) -> Worker:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        log = self.folder / f"{port}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                ["bash", "-euc", f"{self.environment}\n{page_command('start')}"],
                cwd=self.installed.folder,
                env={**clean_environment(), **self.env, **env, "PORT": str(port)},
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        self.workers.append(Worker(process, port, log))
        return self.workers[-1]

    def close(self) -> None:
        """Kill what is left."""
        for worker in self.workers:
            worker.end(signal.SIGKILL)


@contextlib.contextmanager
def redis(folder: Path) -> Generator[str]:
    """Run a Redis on a socket in a folder, and return its address."""
    if shutil.which("redis-server") is None:
        for line in install_commands("redis-server"):
            subprocess.run(line, shell=True, check=False, stdin=subprocess.DEVNULL)
    path = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", ""]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        until(path.exists)
        yield f"unix://{path}"
    finally:
        process.kill()
        process.wait()

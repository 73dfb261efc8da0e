"""The network that the programs of one thread share in bubblewrap, and only they."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.backends.sandbox.choose import Bwrap
from openmanus_graph.backends.sandbox.confinement import run_read_only, sandbox_of
from openmanus_graph.backends.sandbox.held_network import HeldNetwork
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash, python_execute
from tests.support.cli import until

BWRAP = SandboxSettings(mode="bwrap")
# It prints a line when it listens, and runs on in the background.
SERVE = "read -r _ < <(python3 -u -m http.server 8123 --bind 127.0.0.1 2>/dev/null)"
ANSWER = """
import urllib.request
def look(url):
    try:
        return urllib.request.urlopen(url, timeout=5).read().decode()
    except OSError as error:
        return str(error)
"""


def session_in(root: Path, settings: SandboxSettings = BWRAP) -> Session:
    root.mkdir(exist_ok=True)
    return tool_session(root, sandbox=settings)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with contextlib.closing(session_in(tmp_path / "here")) as opened:
        (tmp_path / "here" / "hello.txt").write_text("hello from bash")
        yield opened


def network_of(session: Session) -> HeldNetwork:
    backend = sandbox_of(session).backend
    assert isinstance(backend, Bwrap)
    return backend.network


async def call(tool: BaseTool, session: Session, **arguments: Any) -> str:
    assert isinstance(tool, StructuredTool)
    assert tool.coroutine is not None
    shown, _ = await tool.coroutine(**arguments, runtime=tool_runtime(session))
    return str(shown)


async def test_a_server_of_bash_is_reached_from_python_and_by_us(session: Session) -> None:
    await call(bash, session, command=SERVE)
    url = "http://127.0.0.1:8123/hello.txt"
    shown = await call(python_execute, session, code=f"{ANSWER}\nprint(look({url!r}))")
    assert "hello from bash" in shown
    made = await asyncio.to_thread(sandbox_of(session).backend.new_socket, socket.AF_INET)
    with made:
        made.settimeout(5)
        await asyncio.to_thread(made.connect, ("127.0.0.1", 8123))
        await asyncio.to_thread(made.sendall, b"GET /hello.txt HTTP/1.0\r\n\r\n")
        assert (await asyncio.to_thread(made.recv, 20)).startswith(b"HTTP/1.0 200")


async def test_neither_another_thread_nor_this_machine_is_reached(
    session: Session, tmp_path: Path
) -> None:
    await call(bash, session, command=SERVE)
    with (
        socket.create_server(("127.0.0.1", 0)) as of_machine,
        contextlib.closing(session_in(tmp_path / "other")) as other,
    ):
        for port in (8123, of_machine.getsockname()[1]):
            code = f"{ANSWER}\nprint(look('http://127.0.0.1:{port}/'))"
            assert "refused" in await call(python_execute, other, code=code)
            command = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
            assert "refused" in await call(bash, other, command=f"({command})")


async def test_programs_can_neither_change_the_network_nor_signal_its_holder(
    session: Session,
) -> None:
    pid = network_of(session).holder()
    shown = await call(
        bash, session, command=f"kill -9 {pid}; ip link set lo down; ls /sys/class/net; "
        "python3 -c \"import socket; socket.socket(17, 3, 3)\"",
    )  # fmt: skip
    assert "No such process" in shown
    assert "PermissionError" in shown
    assert psutil.pid_exists(pid)


async def test_a_killed_network_is_replaced_and_all_ends_with_the_session(tmp_path: Path) -> None:
    with contextlib.closing(session_in(tmp_path / "here")) as session:
        await call(bash, session, command="true")
        network = network_of(session)
        first = network.holder()
        os.kill(first, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(first))
        await call(bash, session, command=SERVE, restart=True)
        await call(bash, session, command=SERVE)
        second = network.holder()
        assert second != first
        code = f"{ANSWER}\nprint(look('http://127.0.0.1:8123/'))"
        assert "Directory listing" in await call(python_execute, session, code=code)
    assert not psutil.pid_exists(second)


async def test_a_single_command_that_reads_has_an_empty_network(session: Session) -> None:
    await call(bash, session, command=SERVE)
    done = await asyncio.to_thread(
        run_read_only, "exec 3<>/dev/tcp/127.0.0.1/8123", session.workspace,
        BWRAP, limit_s=20, stop=threading.Event(), max_chars=1000,
    )  # fmt: skip
    assert "refused" in done.text


def test_a_closed_network_does_not_start_again() -> None:
    network = HeldNetwork(())
    before = psutil.Process().children()
    network.close()
    with pytest.raises(ToolError, match="the sandbox was closed meanwhile"):
        network.holder()
    assert psutil.Process().children() == before

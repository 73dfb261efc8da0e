"""What stays of a shell or kernel that does not start, and of limits when a connection is lost."""

import copy
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmanus_graph.backends.sandbox import kernel, shell
from openmanus_graph.backends.sandbox.backend import Measured
from openmanus_graph.backends.sandbox.confinement import Sandbox
from openmanus_graph.backends.sandbox.process_tree import LimitMonitor
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import SandboxSettings
from tests.support.limits import BACKSTOP_S


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    settings = SandboxSettings(mode="none")
    opened = Sandbox(Workspace(tmp_path / "here", tmp_path / "private"), settings)
    yield opened
    opened.close()


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_shell_that_does_not_start_leaves_nothing(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "_ARGV", ("false",))
    before = open_files()
    for _ in range(3):
        with pytest.raises(ToolError, match="bash did not start"):
            shell.Shell(sandbox)
    assert len(open_files()) <= len(before)
    assert sandbox.trees == []


def test_a_kernel_that_does_not_start_leaves_nothing(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_reach(socket: Path) -> Path:
        raise ToolError(f"{socket.name} cannot be reached")

    kernel.Kernel(sandbox).close()  # what the first one loads stays
    monkeypatch.setattr(sandbox.backend, "reach", out_of_reach)
    before = open_files()
    for _ in range(3):
        with pytest.raises(ToolError, match="cannot be reached"):
            kernel.Kernel(sandbox)
    assert len(open_files()) <= len(before)
    assert sandbox.trees == []


def test_limits_hold_after_a_connection_was_lost_and_is_back(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_back = threading.Event()

    def measure() -> Measured:
        free = 0 if sandbox.trees else 1 << 40
        return Measured(1, (1 << 40) if is_back.is_set() else 0, free)

    def used_bytes() -> int:
        if sandbox.trees:
            raise ToolError("The machine cannot be reached.")
        return 0

    elsewhere = copy.copy(sandbox.backend)
    monkeypatch.setattr(elsewhere, "measure", measure)
    monkeypatch.setattr(elsewhere, "used_bytes", used_bytes)
    monitor = LimitMonitor([], sandbox.settings, elsewhere, lambda: list(sandbox.trees))
    with (tmp_path / "output").open("wb") as output:
        for reason in ("The machine cannot be reached.", "It was ended: it used more than"):
            tree = sandbox.start(["sleep", "1000"], output=output.fileno())
            monitor.wake()
            tree.process.wait(BACKSTOP_S)
            assert reason in tree.reason
            sandbox.end(tree)
            is_back.set()
    monitor.close()

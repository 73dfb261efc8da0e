"""Commands that look at a workspace: whatever they try, its files stay as they are."""

import asyncio
import os
import socket
import threading
from pathlib import Path
from typing import get_args

import pytest

from openmanus_graph.backends.sandbox import choose, confinement
from openmanus_graph.backends.sandbox.backend import Layout
from openmanus_graph.backends.sandbox.confinement import ReadOnlyResult, run_read_only
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import SandboxMode
from openmanus_graph.state.settings import SandboxSettings
from tests.support.sandboxes import MODES

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "here"
    (root / "out").mkdir(parents=True)
    (root / "out" / "a.txt").write_text("yes\n")
    (root / ".home").mkdir()
    (root / ".home" / "key").write_text("secret")
    os.mkfifo(root / "pipe")
    return Workspace(root, tmp_path / "private", (root / ".home",))


def look(
    workspace: Workspace, command: str, mode: SandboxMode = "bwrap", limit_s: float = 60
) -> ReadOnlyResult:
    settings = SandboxSettings(mode=mode, network="any")
    return run_read_only(
        command, workspace, settings, limit_s=limit_s, stop=threading.Event(), max_chars=4000
    )


def files(workspace: Workspace) -> dict[str, str]:
    return {
        str(path.relative_to(workspace.root)): path.read_text()
        for path in workspace.root.rglob("*")
        if path.is_file()
    }


def test_all_modes_are_known() -> None:
    assert set(get_args(SandboxMode)) == {"auto", "docker", "bwrap", "nono", "ssh", "none"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "command",
    [
        "rm -rf ./* .home",
        "echo no > out/a.txt; echo new > b.txt; mkdir c; chmod 700 out",
        "mv out away",
        "python -c 'import shutil; shutil.rmtree(\".\")'",
        "find . -delete",
    ],
)
def test_nothing_in_the_workspace_changes(
    workspace: Workspace, mode: SandboxMode, command: str
) -> None:
    before = files(workspace)
    look(workspace, f"{command}; true", mode)
    assert files(workspace) == before


@pytest.mark.parametrize("mode", MODES)
def test_it_looks_at_the_files_and_has_a_scratch_folder(
    workspace: Workspace, mode: SandboxMode
) -> None:
    done = look(workspace, "cp out/a.txt $TMPDIR/x && grep -c yes $TMPDIR/x", mode)
    assert done == ReadOnlyResult("1\n", 0, "")
    assert look(workspace, "ls $TMPDIR/x", mode).code, "each has one of its own"
    assert "secret" not in look(workspace, "cat .home/key", mode).text or mode == "nono"


def test_a_refused_write_fails_and_says_so(workspace: Workspace) -> None:
    done = look(workspace, "rm -r out")
    assert done.code == 1
    assert "Read-only file system" in done.text


@pytest.mark.parametrize("mode", MODES)
def test_one_that_hangs_is_ended_with_what_it_started(
    workspace: Workspace, mode: SandboxMode
) -> None:
    done = look(workspace, "echo begun; sleep 1000 & sleep 1000", mode, limit_s=1)
    assert (done.text, done.reason) == ("begun\n", "It did not end within 1 s and was ended.")


async def test_one_that_is_stopped_ends(workspace: Workspace) -> None:
    stop = threading.Event()
    running = asyncio.to_thread(
        run_read_only, "sleep 1000", workspace, SandboxSettings(mode="bwrap"),
        limit_s=1000, stop=stop, max_chars=4000,
    )  # fmt: skip
    task = asyncio.create_task(running)
    stop.set()
    assert (await task).reason


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "none"])
def test_no_network_is_reached_even_where_programs_may(
    workspace: Workspace, mode: SandboxMode
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert look(workspace, f"exec 3<>/dev/tcp/127.0.0.1/{port}", mode).code


@pytest.mark.parametrize("mode", MODES)
def test_in_an_empty_folder_there_is_none_of_the_work(
    workspace: Workspace, mode: SandboxMode
) -> None:
    done = run_read_only(
        "ls -A; test -s out/a.txt", workspace, SandboxSettings(mode=mode),
        limit_s=60, stop=threading.Event(), max_chars=4000, in_empty_folder=True,
    )  # fmt: skip
    assert (done.text, done.code) == ("", 1)


def test_without_a_sandbox_a_workspace_too_large_to_copy_is_refused(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "MOST_COPIED_BYTES", 3)
    with pytest.raises(ToolError, match="no sandbox, and the workspace has more than"):
        look(workspace, "true", "none")
    assert look(workspace, "true").code == 0, "a sandbox copies nothing"


def test_without_a_sandbox_a_workspace_that_cannot_be_copied_is_refused(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "lseek", full)
    with pytest.raises(ToolError, match="could not be copied .No space left"):
        look(workspace, "true", "none")


def test_a_container_mounts_the_workspace_read_only(workspace: Workspace, tmp_path: Path) -> None:
    layout = Layout(workspace, tmp_path / "scratch", Path("python"), read_only=True)
    options = choose.container_options(layout, SandboxSettings(mode="docker"), {})
    root, python = str(workspace.root), str(workspace.python)
    assert {f"{root}:{root}:ro", f"{python}:{python}:ro"} <= set(options)
    assert f"{root}:{root}" not in options

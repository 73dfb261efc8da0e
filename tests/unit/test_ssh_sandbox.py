"""The ssh backend against a real server; the tests of bash and Python run over it as well."""

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.backends.sandbox import ssh
from openmanus_graph.backends.sandbox.choose import choose_sandbox
from openmanus_graph.backends.sandbox.confinement import Sandbox, run_read_only, sandbox_of
from openmanus_graph.backends.sandbox.shell import Shell
from openmanus_graph.backends.sandbox.ssh import Mirror
from openmanus_graph.backends.sandbox.ssh_link import SshLink
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.setting_declaration import ssh_name
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash, python_execute
from openmanus_graph.tools.files import str_replace_editor
from tests.support.cli import until
from tests.support.ssh import SshServer

pytestmark = pytest.mark.slow


@pytest.fixture
def session(ssh_server: SshServer, tmp_path: Path) -> Iterator[Session]:
    root = tmp_path / "here"
    root.mkdir()
    opened = tool_session(root, sandbox=ssh_server.settings)
    yield opened
    opened.close()


async def call(tool: BaseTool, session: Session, **arguments: Any) -> str:
    assert isinstance(tool, StructuredTool)
    assert tool.coroutine is not None
    shown, _ = await tool.coroutine(**arguments, runtime=tool_runtime(session))
    return str(shown)


async def shell(session: Session, command: str) -> str:
    return await call(bash, session, command=command)


async def python(session: Session, code: str) -> str:
    return await call(python_execute, session, code=code)


async def test_shell_python_and_file_tools_see_the_same_files(session: Session) -> None:
    root = session.workspace.root
    (root / "given.txt").write_text("one\n")
    await shell(session, "cat given.txt > copied.txt; mkdir -p a/b; ln -s copied.txt link")
    assert (root / "copied.txt").read_text() == "one\n"
    assert (root / "a/b").is_dir()
    assert (root / "link").readlink() == Path("copied.txt")
    edit = {"command": "str_replace", "path": "copied.txt", "old_str": "one", "new_str": "two"}
    edit_file = cast("StructuredTool", str_replace_editor).func
    assert edit_file is not None
    await asyncio.to_thread(edit_file, **edit, runtime=tool_runtime(session))
    assert await python(session, "open('copied.txt').read()") == r"'two\n'"
    await python(session, "import os; os.remove('given.txt'); os.rename('a', 'c')")
    assert sorted(path.name for path in root.iterdir()) == ["c", "copied.txt", "link"]
    (root / "copied.txt").unlink()
    assert await shell(session, "ls") == "c\nlink"


async def test_programs_run_there_in_a_folder_that_is_removed_at_close(
    session: Session, ssh_server: SshServer
) -> None:
    place = await shell(session, "pwd")
    assert Path(place).is_relative_to(ssh_server.folder / "there")
    assert await python(session, "import os; print(os.getcwd())") == place
    assert await shell(session, "echo $HOME; touch $TMPDIR/t") == str(Path(place).parent / "home")
    session.close()
    assert list((ssh_server.folder / "there").iterdir()) == []


async def test_modes_times_odd_names_and_kinds_are_kept(session: Session) -> None:
    root = session.workspace.root
    name = os.fsdecode(b"odd \xff\n'name\"")
    (root / name).write_bytes(b"\0" * 3_000_000)
    (root / name).chmod(0o750)
    os.utime(root / name, ns=(1, 1_000_000_007))
    await shell(
        session, 'for f in odd*; do cp -p "$f" copy; done; mkfifo pipe; rm odd*; mkdir odd_'
    )
    copy = (root / "copy").stat()
    assert (stat.S_IMODE(copy.st_mode), copy.st_mtime_ns) == (0o750, 1_000_000_007)
    assert copy.st_size == 3_000_000
    assert {path.name for path in root.iterdir()} == {"copy", "odd_"}
    await shell(session, "rm -r odd_; echo now a file > odd_; rm copy; mkdir copy; touch copy/in")
    assert (root / "odd_").read_text() == "now a file\n"
    assert (root / "copy/in").exists()


async def test_what_both_sides_changed_is_kept_twice(session: Session) -> None:
    root = session.workspace.root
    (root / "report").write_text("first")
    wait = "while [ ! -e go ]; do sleep 0.05; done; echo there > report; touch done"
    await shell(session, f"({wait}) & true")
    (root / "report").write_text("here")
    there = Path(sandbox_of(session).backend.inside(root))
    (there / "go").touch()
    await asyncio.to_thread(until, (there / "done").exists)
    assert (await shell(session, "cat report report.other-1")).startswith("herethere")
    assert (root / "report.other-1").read_text() == "there\n"


async def test_protected_files_stay_here_and_are_not_replaced(session: Session) -> None:
    root = session.workspace.root
    (root / "openmanus.toml").write_text("key = 1")
    protected = (root / "openmanus.toml",)
    session.workspace = replace(session.workspace, protected=protected)
    assert await shell(session, "ls -A") == "(no output)"
    await shell(session, "echo mine > openmanus.toml")
    assert (root / "openmanus.toml").read_text() == "key = 1"


async def test_links_lead_nothing_out_of_the_workspace(session: Session) -> None:
    outside = session.workspace.root.parent / "outside"
    outside.mkdir()
    await shell(session, f"ln -s {outside} way; mkdir d; echo 1 > d/x")
    await shell(session, f"rm way; mkdir way; echo 1 > way/x; rm -r d; ln -s {outside} d")
    assert (session.workspace.root / "way/x").exists()
    assert list(outside.iterdir()) == []
    command = "$HOME/../run/shell/command"
    await shell(session, f"rm {command}; ln -s {outside}/made {command}")
    assert await shell(session, "echo fine") == "fine"
    assert list(outside.iterdir()) == []


async def test_secrets_and_the_agent_stay_here(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.of.here")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    seen = await shell(session, "env") + await python(session, "!env")
    assert "PATH=" in seen
    for hidden in ("sk-secret", "proxy.of.here", "SSH_AUTH_SOCK"):
        assert hidden not in seen


async def test_a_connection_that_is_cut_loses_no_file_and_no_output(
    session: Session, ssh_server: SshServer
) -> None:
    root = session.workspace.root
    sandbox = await asyncio.to_thread(sandbox_of, session)
    await python(session, "x = 1")
    await shell(session, "true")
    opened: Shell = session.handle("bash", lambda: pytest.fail("there is one"))
    task = asyncio.create_task(shell(session, "echo begun; echo kept > file; sleep 87655"))
    await asyncio.to_thread(until, lambda: opened.newest_line() == "begun")
    ssh_server.cut()
    seen = await task
    assert seen.startswith("begun\n[The connection to 127.0.0.1 was lost.")
    assert "fetched when the next call has connected again" in seen
    until(lambda: not marked("87655"))
    again = await shell(session, "cat file")
    assert again.endswith("This is a new one, in the workspace.]\nkept")
    assert (root / "file").read_text() == "kept\n"
    assert "gone" in await python(session, "x")
    assert await python(session, "2") == "2"
    assert await asyncio.to_thread(sandbox_of, session) is sandbox


async def test_what_vanished_there_is_not_removed_here(
    session: Session, ssh_server: SshServer
) -> None:
    file = session.workspace.root / "file"
    await shell(session, "echo precious > file")
    seen = await shell(session, 'rm -r "$PWD"')
    assert "could not do it: FileNotFoundError" in seen
    assert file.exists()
    ssh_server.cut()
    shutil.rmtree(ssh_server.folder / "there")
    assert (await shell(session, "cat file")).endswith("\nprecious")
    assert file.exists()


def marked(word: str) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if word in (p.info["cmdline"] or ())]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ssh_known_hosts": "/dev/null"}, r"host key of 127.0.0.1 is not known.*`ssh -p"),
        ({"ssh_key": "{folder}/stranger"}, "refuses the key.*authorized_keys"),
        ({"ssh_port": 1}, "cannot be reached: .*Connection refused.*ssh_port"),
        ({"ssh_host": "no-such.invalid"}, "cannot be reached: .*no-such.invalid"),
        ({"ssh_python": "/no/python"}, "has no /no/python.*ssh_python"),
        ({"ssh_key": "{folder}/open"}, "chmod 600"),
        ({"ssh_known_hosts": "{folder}/other_hosts"}, "another host key.*ssh-keygen -R"),
    ],
)
def test_no_connection_is_explained(
    ssh_server: SshServer, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    folder = ssh_server.folder
    (folder / "open").write_bytes((folder / "key").read_bytes())
    (folder / "open").chmod(0o644)
    other = (folder / "stranger.pub").read_text().split()[1]
    (folder / "other_hosts").write_text(f"[127.0.0.1]:{ssh_server.port} ssh-ed25519 {other}\n")
    filled: dict[str, Any] = {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    settings = replace(ssh_server.settings, **filled)
    with pytest.raises(ToolError, match=said):
        Sandbox(Workspace(tmp_path, tmp_path / "private"), settings)


def test_without_a_host_the_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="ssh_host"):
        choose_sandbox(SandboxSettings(mode="ssh", network="any"))


def test_its_network_is_not_taken_unasked() -> None:
    with pytest.raises(ConfigError, match="network = true"):
        choose_sandbox(SandboxSettings(mode="ssh", ssh_host="host"))


async def test_memory_and_disk_are_limited(ssh_server: SshServer, tmp_path: Path) -> None:
    small = replace(ssh_server.settings, memory_mb=300, disk_mb=60)
    with contextlib.closing(tool_session(tmp_path, sandbox=small)) as opened:
        assert "MemoryError" in await python(opened, "x = bytes(400 << 20)")
        hogs = "hog() { python -c 'x = bytearray(200 << 20); import time; time.sleep(1000)'; }; "
        assert "more than 300 MB of memory" in await shell(opened, hogs + "hog & hog")
        fill = "head -c 100000000 /dev/zero > $TMPDIR/big; ls -s --block-size=1M $TMPDIR | tail -1"
        assert "60 big" in await shell(opened, fill)


async def test_too_much_to_send_is_refused(ssh_server: SshServer, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(2 << 20))
    small = replace(ssh_server.settings, disk_mb=1)
    refused = pytest.raises(ToolError, match="Nothing was run: 2 MB .* more than disk_mb")
    with contextlib.closing(tool_session(tmp_path, sandbox=small)) as opened, refused:
        await shell(opened, "ls")


def test_a_command_that_only_looks_changes_nothing_here(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("as it was")
    workspace = Workspace(tmp_path, tmp_path.with_name("private"))
    command = "cat file; echo other > file"
    stop = threading.Event()
    found = run_read_only(
        command, workspace, ssh_server.settings, limit_s=60, stop=stop, max_chars=1000
    )
    assert (found.text, found.code) == ("as it was", 0)
    assert (tmp_path / "file").read_text() == "as it was"


async def test_packages_are_installed_for_the_thread(session: Session) -> None:
    wheel = session.workspace.root / "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("tiny.py", "word = 42")
        made.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        made.writestr(f"{about}/WHEEL", tags)
        made.writestr(f"{about}/RECORD", "")
    installed = await shell(session, "python -m pip install --no-index ./tiny*.whl")
    assert "Successfully installed" in installed
    assert await python(session, "import tiny; tiny.word") == "42"
    assert await shell(session, "python -c 'import tiny; print(tiny.word)'") == "42"


def test_nothing_runs_on_when_we_are_killed(ssh_server: SshServer, tmp_path: Path) -> None:
    seconds = f"87653.{os.getpid()}"
    code = f"""
import asyncio, pathlib, sys
from openmanus_graph.state.setting_declaration import ssh_name
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash
session = tool_session(pathlib.Path({str(tmp_path)!r}), sandbox={ssh_server.settings!r})
started = "(setsid sleep {seconds} &); sleep {seconds} &"
asyncio.run(bash.coroutine(command=started, runtime=tool_runtime(session)))
print("ready", flush=True)
sys.stdin.read()
"""
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert len(marked(seconds)) == 2
        process.kill()
    until(lambda: not marked(seconds))
    shutil.rmtree(ssh_server.folder / "there")  # it would be kept for a week


@pytest.mark.parametrize("name", ["-oProxyCommand=touch evil", "a b", "$(evil)"])
def test_a_host_is_never_an_option(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name of a host"):
        ssh_name(name)


class HostileSide(SshLink):
    """A machine whose program is not ours any more."""

    def __init__(self, listed: list[str], given: list[str]) -> None:
        self._listed, self._given = listed, given

    def ask(
        self, request: dict[str, Any], body: Iterable[bytes] = (), size: int = 0
    ) -> dict[str, Any]:
        names = self._listed if request["do"] == "scan" else self._given
        return {"entries": [(name, ["f", 0o4777, 4, 0, ""]) for name in names]}

    def read(self, size: int) -> Iterator[bytes]:
        yield b"evil"[:size]


def test_a_hostile_machine_writes_nothing_outside(tmp_path: Path) -> None:
    root = tmp_path / "here"
    (root / "kept").mkdir(parents=True)
    (root / "way").symlink_to(tmp_path)
    mirror = Mirror(Workspace(root, tmp_path / "private", (root / "kept",)), "workspace", 1 << 20)
    elsewhere = ["../out", str(tmp_path / "out"), "a/../../out", "kept/out", "kept", ".", ""]
    mirror.fetch(HostileSide(elsewhere, elsewhere))
    with pytest.raises(ToolError, match="was not asked for"):
        mirror.fetch(HostileSide(["fine"], ["../out"]))
    with pytest.raises(ToolError, match="could not be fetched: way/out"):
        mirror.fetch(HostileSide(["way/out"], ["way/out"]))
    mirror.fetch(HostileSide(["fine"], ["fine"]))
    assert stat.S_IMODE((root / "fine").stat().st_mode) == 0o777
    assert sorted(path.name for path in root.iterdir()) == ["fine", "kept", "way"]
    assert not list((root / "kept").iterdir())
    assert not (tmp_path / "out").exists()


async def test_an_answer_without_an_end_is_a_lost_connection(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nprintf '\\036openmanus\\n'\nexec cat /dev/zero\n")
    endless.chmod(0o755)
    (tmp_path / "here").mkdir()
    settings = replace(ssh_server.settings, ssh_python=str(endless))
    session = tool_session(tmp_path / "here", sandbox=settings)
    with contextlib.closing(session), pytest.raises(ToolError, match="was lost"):
        await shell(session, "true")


def test_what_the_machine_lacks_is_said_with_what_to_do(ssh_server: SshServer) -> None:
    given = ssh_server.settings
    assert ssh.examine(given).works
    stranger = replace(given, ssh_key=str(ssh_server.folder / "stranger"))
    assert "Put the public key into" in ssh.examine(stranger).detail
    bare = ssh.examine(replace(given, ssh_python=f"{given.ssh_python} -S -I"))
    assert not bare.works
    assert "has no ipykernel" in bare.detail
    assert "-m pip install ipykernel" in bare.detail

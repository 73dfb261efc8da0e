import asyncio
import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.backends.persistence.accounts import User
from openmanus_graph.backends.sandbox import (
    choose,
    scratch,
)
from openmanus_graph.backends.sandbox.backend import Layout, Probe
from openmanus_graph.backends.sandbox.confinement import Sandbox, sandbox_of
from openmanus_graph.backends.sandbox.process_tree import make_group, rlimits
from openmanus_graph.backends.sandbox.scratch import make_scratch, remove_folder
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.service.accounts import acting_as, require_separation
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash, python_execute
from tests.support.cli import until
from tests.support.crash import lives
from tests.support.limits import BACKSTOP_S
from tests.support.processes import line_of
from tests.support.sampling import sampled

BWRAP = SandboxSettings(mode="bwrap")
HOST_HOME = Path.home()
HOST_FILES = {path.name for path in HOST_HOME.iterdir()}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    root = tmp_path / "here"
    root.mkdir()
    opened = tool_session(root, sandbox=BWRAP)
    yield opened
    opened.close()


async def call(tool: BaseTool, session: Session, **arguments: str) -> str:
    assert isinstance(tool, StructuredTool)
    assert tool.coroutine is not None
    shown, _ = await tool.coroutine(**arguments, runtime=tool_runtime(session))
    return str(shown)


async def shell(session: Session, command: str) -> str:
    return await call(bash, session, command=command)


async def python(session: Session, code: str) -> str:
    return await call(python_execute, session, code=code)


async def test_files_outside_the_workspace_are_out_of_reach(session: Session) -> None:
    secret = session.workspace.root.parent / "secret"
    secret.write_text("for nobody")
    assert "No such file" in await shell(session, f"cat {secret}")
    assert "No such file" in await shell(session, "cat /etc/shadow")
    assert "FileNotFoundError" in await python(session, f"open({str(secret)!r})")
    prefixes = [Path(sys.prefix).parts, Path(sys.base_prefix).parts]
    listed = set((await shell(session, f"ls -A {HOST_HOME}")).split())
    assert not listed & HOST_FILES - {part for parts in prefixes for part in parts}


async def test_nothing_can_be_written_outside(session: Session) -> None:
    places = ["/usr/x", "/etc/x", "/x", "/bin/x", sys.prefix + "/x", sys.base_prefix + "/x"]
    for place in places:
        seen = await shell(session, f"echo 1 >{place}")
        assert "Read-only file system" in seen or "Permission denied" in seen
    assert not any(map(os.path.exists, places))


async def test_workspace_is_written_under_its_own_path(session: Session) -> None:
    await shell(session, "echo shell >a")
    await python(session, "open('b', 'w').write('python')")
    assert (session.workspace.root / "a").read_text() == "shell\n"
    assert (session.workspace.root / "b").read_text() == "python"


async def test_temporary_folder_is_shared_and_removed_at_close(session: Session) -> None:
    await python(session, "open('/tmp/t', 'w').write('both see this')")
    assert await shell(session, "cat /tmp/t") == "both see this"
    folder = sandbox_of(session).layout.scratch
    assert (folder / "tmp" / "t").exists()
    session.close()
    assert not folder.exists()


async def test_no_variable_of_the_host_reaches_any_process(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    look = "cat /proc/*/environ | tr '\\0' '\\n' | sort -u"
    seen = await shell(session, look) + await python(session, f"!{look}")
    assert "PATH=" in seen
    assert "sk-secret" not in seen
    assert f"HOME={HOST_HOME}" not in seen.splitlines()


async def test_network_is_off(session: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert "ConnectionRefusedError" in await python(session, code)
        assert "lo" in await shell(session, "tail -n +3 /proc/net/dev | cut -d: -f1")


async def test_network_can_be_allowed(tmp_path: Path) -> None:
    with contextlib.closing(
        tool_session(tmp_path, sandbox=SandboxSettings(mode="bwrap", network="any"))
    ) as opened:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2).close(); 1"
            assert await python(opened, code) == "1"
        assert await shell(opened, "test -e /etc/resolv.conf && echo yes") == "yes"


@pytest.mark.slow
async def test_changed_settings_give_a_new_sandbox(session: Session) -> None:
    assert await python(session, "x = 1; x") == "1"
    before = sandbox_of(session)
    assert sandbox_of(session) is before
    other = SandboxSettings(mode="bwrap", disk_mb=100)
    session.configure(tool_session(session.workspace.root, sandbox=other).settings)
    assert sandbox_of(session) is not before
    assert "NameError" in await python(session, "x")


async def test_protected_places_are_masked_and_take_nothing(tmp_path: Path) -> None:
    with contextlib.closing(tool_session(tmp_path, sandbox=BWRAP)) as opened:
        (tmp_path / "openmanus.toml").write_text("api_key = 1")
        home = tmp_path / ".openmanus"
        home.mkdir()
        (home / "threads.db").write_text("other threads")
        protected = (home, tmp_path / "openmanus.toml")
        opened.workspace = replace(opened.workspace, protected=protected)
        assert "api_key" not in await shell(opened, "cat openmanus.toml")
        assert await shell(opened, "ls -A .openmanus") == "(no output)"
        for refused in ("mkdir .openmanus/files", "echo mine > .openmanus/threads.db"):
            assert "Read-only" in await shell(opened, refused)


@pytest.mark.slow
async def test_packages_are_installed_in_a_place_of_the_threads_own(session: Session) -> None:
    """Without network: from a folder, with the build tools left out."""
    wheel = session.workspace.root / "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("tiny.py", "word = 42")
        made.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        made.writestr(f"{about}/WHEEL", tags)
        made.writestr(f"{about}/RECORD", "")
    assert "Successfully installed" in await shell(session, "pip install --no-index ./tiny*.whl")
    assert await python(session, "import tiny; tiny.word") == "42"
    assert await shell(session, "python -c 'import tiny, psutil; print(tiny.word)'") == "42"
    own = str(session.workspace.python)
    assert (await python(session, "tiny.__file__")).startswith(f"'{own}")
    assert await python(session, "import sys; sys.prefix") == f"'{own}'"


async def test_links_in_place_of_control_files_reach_nothing_of_the_host(session: Session) -> None:
    host = session.workspace.root.parent / "of_the_host"
    host.write_text("untouched")
    await python(session, "1")
    for name in ("shell/command", "shell/look", "kernel.json", "kernel_program.py", "pictures"):
        await shell(session, f"rm -f /run/openmanus/{name}; ln -s {host} /run/openmanus/{name}")
    assert await shell(session, "echo still here") == "still here"
    session.drop("python_execute")
    assert await python(session, "2") == "2"
    aside = "mv /run/openmanus/shell /run/openmanus/old; ln -s {} /run/openmanus/shell"
    await shell(session, aside.format(host.parent))
    with pytest.raises(OSError, match="shell"):
        await shell(session, "echo > elsewhere")
    assert host.read_text() == "untouched"
    assert [path.name for path in host.parent.glob("*") if path.is_file()] == [host.name]


async def test_an_installation_without_network_is_refused_at_once(session: Session) -> None:
    for run, text in ((shell, "cd /; pip install tiny"), (python, "print(1)\n%pip install tiny")):
        with pytest.raises(ToolError, match=r"Nothing was run: `pip install tiny`.*--network"):
            await run(session, text)
    assert await shell(session, "pwd") == str(session.workspace.root)
    assert await shell(session, "echo $PIP_RETRIES $UV_OFFLINE") == "0 1"


@pytest.mark.parametrize(
    "settings", [SandboxSettings(mode="none"), SandboxSettings(mode="bwrap", network="any")]
)
@pytest.mark.slow
async def test_where_the_network_is_reached_pip_is_run(
    settings: SandboxSettings, tmp_path: Path
) -> None:
    with contextlib.closing(tool_session(tmp_path, sandbox=settings)) as opened:
        # A package that is there already: pip has nothing to load.
        assert "already satisfied" in await shell(opened, "pip install psutil")
        assert await shell(opened, "echo $PIP_RETRIES") == "(no output)"


def test_environment_is_an_allow_list_without_credentials() -> None:
    host = {"PIP_INDEX_URL": "https://user:pass@index.test/simple", "AWS_KEY": "1", "TZ": "UTC"}
    make = functools.partial(
        scratch.sandbox_environment, home="/h", tmp="/tmp", path="/v/bin", host=host
    )
    off, on = make(network=False), make(network=True)
    assert "PIP_INDEX_URL" not in off
    assert on["PIP_INDEX_URL"] == "https://index.test/simple"
    assert "AWS_KEY" not in on
    assert (on["TZ"], on["HOME"]) == ("UTC", "/h")
    assert on["PATH"].startswith("/v/bin:")


def test_pip_configuration_is_merged_without_credentials(tmp_path: Path) -> None:
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://me:word@index.test/simple\n"
        "extra-index-url =\n  https://a.test\n  https://b.test\n"
    )
    more = tmp_path / "more.conf"
    more.write_text("[install]\nno-deps = true\n")
    merged = scratch.pip_configuration({"PIP_CONFIG_FILE": str(more)}, tmp_path, tmp_path)
    assert "https://index.test/simple" in merged
    assert "word" not in merged
    assert "https://a.test\n    https://b.test" in merged
    assert "no-deps = true" in merged


def test_local_files_never_show_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    wheels = tmp_path / "wheels"
    home.mkdir()
    wheels.mkdir()
    texts = [f"find-links = file://{wheels} {tmp_path} /", f"cert = {home}/none"]
    assert scratch.local_files(texts, home) == [wheels]


def test_python_of_another_version_is_made_again(tmp_path: Path) -> None:
    made = scratch.make_python(tmp_path / "python")
    (tmp_path / "python" / "pyvenv.cfg").write_text("home = /elsewhere\n")
    stale = made.parent / "stale"
    stale.touch()
    assert scratch.make_python(tmp_path / "python") == made
    assert not stale.exists()
    assert subprocess.run([made, "-c", "import psutil"], check=False).returncode == 0


def test_named_mode_that_does_not_work_says_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for settings in (BWRAP, SandboxSettings(mode="docker")):
        with pytest.raises(ConfigError, match="openmanus doctor --fix"):
            choose.choose_sandbox(settings)


@pytest.mark.parametrize(
    "program",
    ["sleep 60", "echo 'bwrap: Creating new namespace failed: Cannot allocate memory'; exit 1"],
)
def test_a_busy_machine_gets_no_weaker_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\nexec >&2\n{program}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(choose, "_START_S", 1.0)
    with pytest.raises(ConfigError, match="too busy"):
        choose.choose_sandbox(SandboxSettings())


def test_a_mode_is_tried_before_a_run_only_if_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def probe(_: SandboxSettings) -> Probe:
        tried.append("bwrap")
        return Probe("bwrap", True, "works")

    monkeypatch.setattr(choose.Bwrap, "probe", probe)
    choose.require_sandbox(SandboxSettings())
    assert not tried
    choose.require_sandbox(BWRAP)
    assert tried == ["bwrap"]


def test_auto_takes_bubblewrap_and_falls_back_with_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert choose.choose_sandbox(SandboxSettings()).name == "bwrap"

    def missing(_: SandboxSettings) -> Probe:
        return Probe("x", False, "not here")

    monkeypatch.setattr(choose.Bwrap, "probe", missing)
    monkeypatch.setattr(choose.Nono, "probe", missing)
    choice = choose.choose_sandbox(SandboxSettings())
    assert choice.name == "none"
    unconfined = choice(layout(tmp_path / "w", tmp_path / "s"), SandboxSettings())
    assert "every file of this account" in unconfined.warning


def test_without_a_sandbox_only_the_machines_own_user_has_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: SandboxSettings) -> Probe:
        return Probe("x", False, "not here")

    require_separation(SandboxSettings())
    with acting_as(User("alice", "admin")):
        require_separation(SandboxSettings())
        monkeypatch.setattr(choose.Bwrap, "probe", missing)
        monkeypatch.setattr(choose.Nono, "probe", missing)
        require_separation(SandboxSettings(mode="none"))
        with pytest.raises(ConfigError, match="No sandbox works on this server"):
            require_separation(SandboxSettings())
    require_separation(SandboxSettings())


@contextlib.contextmanager
def killed_while_it_started(root: Path) -> Generator[psutil.Process]:
    """Yield what bubblewrap leaves behind where it is killed half way."""
    (reported, its_told), (blocked, its_blocked) = os.pipe(), os.pipe()
    command = [
        "bwrap",
        "--unshare-user",
        "--unshare-pid",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
    ]
    held = ["--info-fd", str(its_told), "--userns-block-fd", str(blocked)]
    starting = subprocess.Popen(
        [*command, *held, "--chdir", str(root), "true"], pass_fds=[its_told, blocked]
    )
    os.close(its_told)
    with os.fdopen(reported) as info:
        inside = psutil.Process(json.load(info)["child-pid"])
    starting.kill()
    starting.wait()
    assert inside.status() != psutil.STATUS_ZOMBIE, "bubblewrap leaves it behind"
    try:
        yield inside
    finally:
        os.close(blocked)
        os.close(its_blocked)
        if lives(inside):
            inside.kill()


def test_what_was_killed_while_its_sandbox_started_is_ended_by_the_next_one(tmp_path: Path) -> None:
    with killed_while_it_started(tmp_path) as inside:
        sandbox = Sandbox(Workspace(tmp_path, tmp_path / "private"), BWRAP)
        until(lambda: not lives(inside))
        sandbox.close()


def test_what_was_killed_while_its_sandbox_started_is_ended_with_the_sandbox(
    tmp_path: Path,
) -> None:
    sandbox = Sandbox(Workspace(tmp_path, tmp_path / "private"), BWRAP)
    with killed_while_it_started(tmp_path) as inside:
        sandbox.close()
        until(lambda: not lives(inside))


def test_folders_of_killed_processes_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    held = make_scratch()
    with tempfile.TemporaryDirectory(prefix="openmanus-", ignore_cleanup_errors=True) as stale:
        (Path(stale) / "lock").touch()
        for folder in (stale, Path(held.name).parent):
            os.utime(folder, (0, 0))
        with make_scratch() as another:
            assert not Path(stale).exists()
            assert Path(held.name).exists()
            remove_folder(Path(another.name).parent)
    remove_folder(Path(held.name).parent)
    held.close()


async def test_odd_workspace_names_work(tmp_path: Path) -> None:
    root = tmp_path / 'it\'s a "$HOME" 中文'
    root.mkdir()
    with contextlib.closing(tool_session(root, sandbox=BWRAP)) as opened:
        assert await shell(opened, "pwd; python -c 'print(1)'; pip --version | cut -c1-3") == (
            f"{opened.workspace.root}\n1\npip"
        )
        assert await python(opened, "import os; print(os.getcwd())") == str(opened.workspace.root)


def test_root_folder_is_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be a workspace"):
        Sandbox(Workspace(Path("/"), tmp_path / "private"), BWRAP)


def layout(root: Path, scratch: Path) -> Layout:
    (root / ".openmanus").mkdir(parents=True)
    for name in ("tmp", "home", "run", "etc"):
        (scratch / name).mkdir(parents=True)
    private = scratch.with_name("private")
    workspace = Workspace(root, private, (root / ".openmanus", root / "key"))
    workspace.prepare()
    workspace.python.mkdir()
    (root / "key").write_text("secret")
    return Layout(workspace, scratch, Path("/usr/bin/python3"))


def test_docker_command_limits_mounts_and_hides(tmp_path: Path) -> None:
    root = tmp_path / "w"
    places = layout(root, tmp_path / "s")
    settings = SandboxSettings(mode="docker", memory_mb=100, processes=50, image="im")
    launch = choose.Docker(places, settings).launch(["python3"], {"PATH": "/v"}, 1)
    line = " ".join(launch.argv)
    assert line.endswith("im python3")
    for part in (
        "--network none",
        "--memory 100m --pids-limit 50",
        f"--volume {root}:{root}",
        f"--tmpfs {root}/.openmanus",
        f"--volume /dev/null:{root}/key:ro",
        f"--volume {tmp_path}/s/run:/run/openmanus",
        f"--volume {tmp_path}/private/python:{tmp_path}/private/python",
        f"--volume {tmp_path}/private/outputs:{tmp_path}/private/outputs:ro",
    ):
        assert part in line
    assert f"{tmp_path}/private:" not in line
    assert "PATH=" not in line
    assert isinstance(launch.kill, functools.partial)
    *_, remove, force, name = launch.kill.args[0]
    assert (remove, force) == ("rm", "--force")
    assert name in launch.argv


def test_an_office_finds_its_configuration(tmp_path: Path) -> None:
    argv = choose.bwrap_argv(layout(tmp_path / "w", tmp_path / "s"), BWRAP)
    place = "/etc/libreoffice"  # Debian's: without it no document is converted
    assert ["--ro-bind-try", place, place] == argv[argv.index(place) - 1 :][:3]


def test_nono_allows_the_workspace_and_little_else(tmp_path: Path) -> None:
    places = layout(tmp_path / "w", tmp_path / "s")
    backend = choose.Nono(places, BWRAP)
    launch = backend.launch(["sh"], {}, 1)
    rules = launch.confine["nono"]
    assert launch.argv == ("sh",)
    private = tmp_path / "private"
    assert {str(tmp_path / "w"), str(tmp_path / "s"), "/dev/null"} <= set(rules["write"])
    assert str(private / "python") in rules["write"]
    assert str(private / "outputs") in rules["read"]
    assert not {str(private), str(private / "outputs")} & {*rules["write"]}
    assert "/usr" in rules["read"]
    assert not {"/", "/etc", "/proc", "/root", "/home", "/tmp"} & {*rules["read"], *rules["write"]}
    assert not rules["network"]
    assert "key" in backend.warning


def test_charts_fall_back_to_a_font_that_shows_chinese(tmp_path: Path) -> None:
    scratch.make_chart_settings(tmp_path)
    settings = (tmp_path / ".config" / "matplotlib" / "matplotlibrc").read_text()
    assert settings.strip().endswith(scratch.chinese_font() or "sans-serif")


def test_ordinary_user_is_confined_too(tmp_path: Path) -> None:
    """As root, by becoming another user first; else as we are."""
    base = Path("/var/tmp") / f"openmanus-test-{os.getpid()}"
    base.mkdir()
    try:
        places = layout(base / "w", base / "s")
        look = "cat key 2>/dev/null; ls .openmanus; echo mine >f; cat f; ls /root; id -u; ls /home"
        argv = [*choose.bwrap_argv(places, BWRAP), "--", "sh", "-c", f"({look}) 2>&1"]
        if os.geteuid() == 0:
            for path in (base, *base.rglob("*")):
                os.chown(path, 65534, 65534)
            argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *argv]
        done = subprocess.run(
            argv, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
        )
        user = os.geteuid() or 65534
        expected = f"mine\nls: cannot access '/root': No such file or directory\n{user}\nmanus\n"
        assert (done.stdout, done.stderr) == (expected, "")
    finally:
        shutil.rmtree(base)


def test_other_peoples_workspace_can_be_written_by_root(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 12345, 12345)
    with contextlib.closing(tool_session(tmp_path, sandbox=BWRAP)) as opened:
        assert asyncio.run(shell(opened, "echo a >f; cat f; ls /root 2>&1 | head -3")).startswith(
            "a"
        )
        status = Path("/proc/self/status").read_text()
        powers = "print(open('/proc/self/status').read())"
        for seen in (
            asyncio.run(shell(opened, "cat /proc/self/status")),
            asyncio.run(python(opened, powers)),
        ):
            assert power_of(seen) in (0, power_of(status) & 0b1011)  # chown, dac_override, fowner


def power_of(status: str) -> int:
    """Return the capabilities that a process has, by what /proc says of it."""
    return int(status.partition("CapEff:")[2].split()[0], 16)


def test_ordinary_users_processes_are_limited_without_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    limits = rlimits(SandboxSettings(processes=100), None)
    assert limits["RLIMIT_NPROC"] >= 100


def test_group_limits_and_is_removed() -> None:
    group = make_group(SandboxSettings(processes=100))
    if group is None:  # this account may not make any; `rlimits` serves it
        return
    assert all(folder.exists() for folder in group.folders)
    group.remove()
    assert not any(folder.exists() for folder in group.folders)


KILLED_BETWEEN = """
import os, psutil, signal
psutil.Process.kill = lambda process: os.kill(os.getpid(), signal.SIGKILL)
session.close()
"""
"""We are killed when programs have been stopped and none has been killed yet."""


@pytest.mark.parametrize("last_words", ["", KILLED_BETWEEN])
@pytest.mark.parametrize("mode", sampled(["bwrap", "none"], 1, "killed with a sandbox"))
@pytest.mark.slow
def test_nothing_is_left_when_we_are_killed(tmp_path: Path, mode: str, last_words: str) -> None:
    seconds = f"87654.{os.getpid()}"  # tells these sleeps from all others
    # A program in the background is a copy of the shell for a moment yet.
    start = f"sleep {seconds} & until grep -qa {seconds} /proc/$!/cmdline; do :; done"
    code = f"""
import asyncio, pathlib, sys
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash
from openmanus_graph.tools.execution import python_execute
session = tool_session(pathlib.Path({str(tmp_path)!r}), sandbox=SandboxSettings(mode={mode!r}))
async def main():
    runtime = tool_runtime(session)
    await bash.coroutine(command={start!r}, runtime=runtime)
    await python_execute.coroutine(code="1", runtime=runtime)
asyncio.run(main())
print("ready", flush=True)
sys.stdin.readline()
{last_words}
sys.stdin.read()
"""
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        left = psutil.Process(process.pid).children(recursive=True)
        assert any(seconds in line_of(one) for one in left)
        if last_words:
            process.stdin.write(b"\n")
            process.stdin.flush()
        else:
            process.kill()
    _, alive = psutil.wait_procs(left, timeout=BACKSTOP_S)
    assert not alive

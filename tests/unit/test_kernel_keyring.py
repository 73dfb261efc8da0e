"""The kernel's keys, which namespaces and Landlock know nothing of, stay out of every sandbox."""

import asyncio
import contextlib
import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.backends.sandbox import choose, forked_python
from openmanus_graph.backends.sandbox.backend import LAUNCHER, Layout
from openmanus_graph.backends.sandbox.confinement import run_read_only, sandbox_of
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import SandboxMode
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash, python_execute
from tests.support import keyring
from tests.support.sandboxes import MODES

CONFINED: list[SandboxMode] = [mode for mode in MODES if mode != "none"]
PROGRAM = "keyring.py"
pytestmark = pytest.mark.xdist_group("kernel keyring")  # a user's keys are limited
OTHER_USER = 60_000 + os.getpid() % 5000
"""Has no keys yet, and no limit that others have used up."""
AS_ANOTHER = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]


@pytest.fixture
def serials() -> Iterator[list[int]]:
    """Put keys that everybody may read into all keyrings of the user, under one name."""
    rings = (keyring.SESSION, keyring.USER, keyring.USER_SESSION)
    persistent = keyring.native(keyring.KEYCTL, keyring.PERSISTENT, -1, keyring.PROCESS)
    made: list[int] = []
    for ring in (*rings, persistent):
        made.append(
            keyring.add_key(keyring.native, keyring.ADD_KEY, ring, keyring.NAME, keyring.SECRET)
        )
        assert made[-1] > 0, f"this kernel gives no keys: {errno.errorcode[-made[-1]]}"
        keyring.native(keyring.KEYCTL, keyring.SETPERM, made[-1], keyring.EVERYBODY)
    yield [*rings, *made]
    for key in made:
        keyring.native(keyring.KEYCTL, keyring.INVALIDATE, key)


def opened(root: Path, mode: SandboxMode) -> Session:
    root.mkdir()
    shutil.copyfile(keyring.__file__, root / PROGRAM)
    return tool_session(root, sandbox=SandboxSettings(mode=mode))


def shell(session: Session, serials: list[int]) -> Any:
    command = f"python {PROGRAM} {shlex.join(map(str, serials))}"
    return called(bash, session, command=command)


def python(session: Session, serials: list[int]) -> Any:
    code = f"import json, keyring_\nprint(json.dumps(keyring_.main({serials})))"
    (session.workspace.root / PROGRAM).rename(session.workspace.root / "keyring_.py")
    try:
        return called(python_execute, session, code=code)
    finally:
        (session.workspace.root / "keyring_.py").rename(session.workspace.root / PROGRAM)


def called(tool: Any, session: Session, **arguments: str) -> Any:
    shown, _ = asyncio.run(tool.coroutine(**arguments, runtime=tool_runtime(session)))
    return json.loads(str(shown))


def check(session: Session, serials: list[int]) -> Any:
    command = f"python {PROGRAM} {shlex.join(map(str, serials))}"
    done = run_read_only(
        command,
        session.workspace,
        session.settings.sandbox,
        limit_s=60,
        stop=threading.Event(),
        max_chars=100_000,
    )
    return json.loads(done.text)


def assert_nothing_is_reached(found: Any) -> None:
    for way, tries in found["tries"].items():
        passed = {what: result for what, result in tries.items() if result != -errno.EPERM}
        assert not passed, way
    assert found["listed"] == ""
    assert set(found["read"]) == {""}


def test_the_keys_are_there_for_whoever_is_not_confined(serials: list[int]) -> None:
    argv = [sys.executable, keyring.__file__, *map(str, serials)]
    found = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    assert keyring.SECRET.decode() in found["read"]
    assert keyring.NAME.decode() in found["listed"]
    assert found["tries"]["native"][f"find {keyring.SESSION}"] in serials
    assert found["tries"].get("i386", found["tries"]["native"])["request"] in serials


@pytest.mark.parametrize("mode", CONFINED)
@pytest.mark.parametrize("run", [shell, python, check])
def test_no_program_reaches_a_key(
    tmp_path: Path, serials: list[int], mode: SandboxMode, run: Any
) -> None:
    with contextlib.closing(opened(tmp_path / "work", mode)) as session:
        assert_nothing_is_reached(run(session, serials))


def test_a_kernel_that_was_started_and_not_forked_reaches_none(
    tmp_path: Path, serials: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked_python, "use_fork_server", lambda: None)
    with contextlib.closing(opened(tmp_path / "work", "bwrap")) as session:
        assert_nothing_is_reached(python(session, serials))


def test_a_process_of_the_sandbox_itself_is_refused_the_keys_too(tmp_path: Path) -> None:
    """Programs inside could else have bubblewrap's first process call for them, as debuggers do."""
    with contextlib.closing(opened(tmp_path / "work", "bwrap")) as session:
        sandbox = sandbox_of(session)
        code = "cat /proc/1/status"
        with open(tmp_path / "out", "wb") as output:  # noqa: PTH123  # a descriptor is needed
            tree = sandbox.start(["sh", "-c", code], output=output.fileno())
            tree.process.wait()
    assert "Seccomp:\t2" in (tmp_path / "out").read_text()


def test_without_a_sandbox_the_session_keyring_is_another(
    tmp_path: Path, serials: list[int]
) -> None:
    with contextlib.closing(opened(tmp_path / "work", "none")) as session:
        for run in (shell, python):
            found = run(session, serials)["tries"]["native"]
            assert found[f"find {keyring.SESSION}"] < 0
            assert found[f"id {keyring.SESSION}"] > 0


@pytest.mark.parametrize("keys", ["few", "as many as there may be"])
def test_an_ordinary_user_reaches_no_key_either(tmp_path: Path, keys: str) -> None:
    """As root, by becoming another user first; else as we are."""
    base = Path("/var/tmp") / f"openmanus-keys-{os.getpid()}"
    root, scratch = base / "work", base / "scratch"
    for folder in (root, *(scratch / name for name in ("tmp", "home", "run"))):
        folder.mkdir(parents=True)
    system_python = "/usr/bin/python3"
    try:
        shutil.copyfile(keyring.__file__, root / PROGRAM)
        shutil.copyfile(LAUNCHER[-1], base / "launch.py")
        layout = Layout(Workspace(root, base / "private"), scratch, Path(system_python))
        layout.workspace.prepare()
        layout.workspace.python.mkdir()
        inside = [*choose.bwrap_argv(layout, SandboxSettings()), "--", system_python, PROGRAM]
        spec = json.dumps({"no_keys": True})
        launch = [system_python, "-I", "-S", str(base / "launch.py"), spec, *inside]
        plant = f"""
import subprocess, sys
sys.path.insert(0, {str(root)!r})
import keyring as k
k.native(k.KEYCTL, k.JOIN, 0)
[k.native(k.KEYCTL, k.LINK, ring, k.SESSION) for ring in (-4, -5)]
keys = [k.add_key(k.native, k.ADD_KEY, ring, k.NAME, k.SECRET) for ring in (-3, -4, -5)]
assert min(keys) > 0, keys
more = keys[:1]
while {keys != "few"} and more[-1] > 0:
    more.append(k.add_key(k.native, k.ADD_KEY, -4, b"full-%d" % len(more), b"x"))
assert more[-1] in (keys[0], -122), more[-1]  # EDQUOT
for key in keys:
    assert k.native(k.KEYCTL, k.SETPERM, key, k.EVERYBODY) == 0
try:
    subprocess.run({launch} + [str(key) for key in keys])
finally:
    for key in keys + more:
        k.native(k.KEYCTL, k.INVALIDATE, key)
"""
        argv = [system_python, "-c", plant]
        if os.geteuid() == 0:
            for path in (base, *base.rglob("*")):
                os.chown(path, OTHER_USER, OTHER_USER)
            argv = [*AS_ANOTHER, *argv]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.stderr == ""
        assert_nothing_is_reached(json.loads(done.stdout))
    finally:
        shutil.rmtree(base)

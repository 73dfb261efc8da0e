"""Root inside bubblewrap has no more power over the machine than anybody else there."""

import asyncio
import contextlib
import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.backends.sandbox.backend import LAUNCHER
from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash, python_execute

BWRAP = SandboxSettings(mode="bwrap")
OTHER_USER = 12345
FILE_POWERS = 0b1011  # chown, dac_override, fowner
ATTACK = """
import contextlib, ctypes, json, os, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
done, opened = [], []
mask = os.path.abspath("key").encode()
REMOUNT, BIND, NEW_USER, NEW_MOUNTS, ATTACH = 32, 4096, 1 << 28, 1 << 17, 16

def attempt(what, failed):
    if not failed:
        done.append(what)

def attack_mounts(where):
    attempt(where + "umount", libc.umount2(mask, 0))
    attempt(where + "umount -l", libc.umount2(mask, 2))
    attempt(where + "umount proc", libc.umount2(b"/proc", 2))
    for place in (b"/usr", b"/proc", b"/"):
        attempt(f"{where}remount {place}", libc.mount(None, place, None, REMOUNT | BIND, None))
        attempt(f"{where}remount fs {place}", libc.mount(None, place, None, REMOUNT, None))
    os.makedirs("/tmp/place", exist_ok=True)
    for kind in (b"proc", b"sysfs"):
        attempt(where + f"mount {kind}", libc.mount(b"x", b"/tmp/place", kind, 0, None))

def device(folder):
    with contextlib.suppress(OSError):
        os.mknod(folder + "/device", stat.S_IFBLK | 0o600, os.makedev(8, 0))
        done.append("device")

attack_mounts("")
for folder in ("/tmp", ".", "/dev"):
    device(folder)
attempt("ptrace", libc.ptrace(ATTACH, int(sys.argv[1]), 0, 0))
reading, writing = os.pipe()
if os.fork() == 0:  # in a user namespace of its own it has every power there
    if libc.unshare(NEW_USER | NEW_MOUNTS) == 0:
        done.clear()
        attack_mounts("nested ")
        os.write(writing, json.dumps(done).encode())
    os._exit(0)
os.close(writing)
done += json.loads(os.read(reading, 65536) or b"[]")
for folder, _, names in os.walk("/proc"):
    for name in names:
        path = os.path.join(folder, name)
        if "/fd" not in folder:
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                opened.append(path)
status = open("/proc/self/status").read()
powers = int(status.partition("CapEff:")[2].split()[0], 16)
key = ""
with contextlib.suppress(PermissionError):
    key = open("key").read()
print(json.dumps([done, opened[:5], powers, key]))
"""
"""Writes nothing: that a file of the machine can be opened for writing is the failure."""


async def call(tool: BaseTool, session: Session, **arguments: str) -> str:
    assert isinstance(tool, StructuredTool)
    assert tool.coroutine is not None
    shown, _ = await tool.coroutine(**arguments, runtime=tool_runtime(session))
    return str(shown)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could do it")
@pytest.mark.parametrize("owner", [0, OTHER_USER])
def test_root_cannot_undo_mounts_or_write_the_kernels_files(tmp_path: Path, owner: int) -> None:
    root = tmp_path / "here"
    root.mkdir()
    (root / "key").write_text("secret")
    for path in (root, root / "key"):
        os.chown(path, owner, owner)
    with contextlib.closing(tool_session(root, sandbox=BWRAP)) as opened:
        opened.workspace = replace(opened.workspace, protected=(root / "key",))
        (root / "attack.py").write_text(ATTACK)
        host = str(psutil.Process().ppid())
        python = shlex.quote(sandbox_of(opened).backend.python)
        in_bash = asyncio.run(call(bash, opened, command=f"{python} attack.py {host}"))
        cell = f"import sys; sys.argv = ['', '{host}']; exec(open('attack.py').read())"
        in_python = asyncio.run(call(python_execute, opened, code=cell))
        for shown in (in_bash, in_python):
            assert shown.startswith("["), shown
            done, writable, powers, key = json.loads(shown.splitlines()[0])
            assert (done, writable, key) == ([], [], "")
            assert powers == (FILE_POWERS if owner else 0)
        written = asyncio.run(
            call(bash, opened, command="echo a >f && chmod 600 f && mv f g && cat g && rm g")
        )
        assert written.strip() == "a"


@pytest.mark.skipif(os.geteuid() != 0, reason="others have no powers")
@pytest.mark.parametrize("kept", [0, FILE_POWERS])
def test_the_launcher_leaves_root_the_powers_that_are_named(kept: int) -> None:
    command = [*LAUNCHER, json.dumps({"no_keys": True, "powers": kept}), "cat"]
    shown = subprocess.run([*command, "/proc/self/status"], capture_output=True, text=True).stdout
    assert int(shown.partition("CapEff:")[2].split()[0], 16) == kept

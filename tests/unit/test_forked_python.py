"""Kernels that are forked from one process that has loaded their modules."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from openmanus_graph.backends.sandbox import confinement, forked_python
from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.kernel import Kernel
from openmanus_graph.backends.sandbox.scratch import site_packages
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import close_all
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_session
from tests.support.cli import until
from tests.support.limits import BACKSTOP_S
from tests.support.processes import line_of

pytestmark = pytest.mark.slow

BWRAP = SandboxSettings(mode="bwrap")
SERVER = Path(forked_python.__file__).with_name("fork_server.py")
SURROUNDINGS = """
import json, os, re, resource, site, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
kept = ("Uid", "Gid", "Groups", "Umask", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff",
        "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
limits = {name: resource.getrlimit(getattr(resource, name))
          for name in dir(resource) if name.startswith("RLIMIT_")}
print(json.dumps({
    "path": sys.path, "executable": sys.executable, "argv": sys.argv, "flags": str(sys.flags),
    "prefixes": [sys.prefix, sys.exec_prefix, sys.base_prefix, site.PREFIXES],
    "environment": dict(os.environ), "folder": os.getcwd(), "limits": limits,
    "groups": [line.partition(":")[2] for line in open("/proc/self/cgroup")],
    "mounts": [line.split()[3:5] for line in open("/proc/self/mountinfo")],
    **{name: status[name].strip() for name in kept},
}))
"""
IS_FORKED = "import os; os.getppid() == 0"
"""Whether its parent is outside of its namespace."""


@pytest.fixture(autouse=True)
def no_other_sandboxes() -> None:
    """Close the sessions that other tests left open: they share the process that forks."""
    close_all()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with opened(tmp_path / "work") as one:
        yield one


def opened(root: Path) -> AbstractContextManager[Session]:
    return contextlib.closing(tool_session(root, sandbox=BWRAP))


def kernel_of(session: Session) -> Kernel:
    sandbox = sandbox_of(session)
    return session.handle("python", lambda: Kernel(sandbox))


def run(session: Session, code: str) -> str:
    kernel = kernel_of(session)
    return kernel.pool.submit(kernel.execute, code, BACKSTOP_S, 100_000).result().text.strip()


def install(session: Session) -> None:
    """Put a package into the thread's own environment."""
    sandbox_of(session)
    (site_packages(session.workspace.python) / "mine.py").write_text("")


def servers() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if "fork_server.py" in line_of(p)]


def environment(session: Session) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(session, SURROUNDINGS))
    return found


def test_a_forked_kernel_finds_what_a_started_one_finds(session: Session) -> None:
    assert run(session, IS_FORKED) == "True"
    forked = environment(session)
    session.drop("python")
    install(session)
    assert run(session, IS_FORKED) == "False"
    assert forked == environment(session)


def test_kernels_of_two_sandboxes_see_nothing_of_each_other(
    session: Session, tmp_path: Path
) -> None:
    with opened(tmp_path / "other") as other:
        run(session, "secret = 1; open('/tmp/mine', 'w').close()")
        assert [run(one, IS_FORKED) for one in (session, other)] == ["True", "True"]
        assert "NameError" in run(other, "secret")
        assert run(other, "import os; os.path.exists('/tmp/mine')") == "False"
        assert run(other, f"os.path.exists({str(session.workspace.root)!r})") == "False"
        programs = (
            "[open(f'/proc/{n}/comm').read().strip() for n in os.listdir('/proc') if n.isdigit()]"
        )
        assert run(other, programs).count("python") == 1
        random = "import random, os; random.random(), os.urandom(8)"
        assert run(session, random) != run(other, random)


def test_a_kernel_cannot_change_the_program_that_it_runs(session: Session) -> None:
    code = "import os\nos.open('/proc/self/exe', os.O_WRONLY)"
    assert "OSError" in run(session, code)
    assert "memfd" in run(session, "os.readlink('/proc/self/exe')")


def test_the_process_that_forks_ends_with_the_last_sandbox(tmp_path: Path) -> None:
    before = psutil.Process().children()
    with opened(tmp_path / "a") as first:
        with opened(tmp_path / "b") as second:
            run(first, "1")
            run(second, "1")
            [server] = servers()
        assert run(first, "2") == "2"
        assert server.is_running()
    assert not server.is_running()
    assert set(psutil.Process().children()) <= set(before)


def test_a_kernel_loads_no_debugger_and_has_one(session: Session) -> None:
    assert run(session, "import sys; 'debugpy' in sys.modules") == "False"
    assert run(session, "import debugpy; debugpy.__name__") == "'debugpy'"


def test_the_bytecode_of_pandas_is_written_where_an_installation_has_none(tmp_path: Path) -> None:
    package = tmp_path / "pandas"
    package.mkdir()
    (package / "__init__.py").write_text("import pandas.part, pandas.missing")
    (package / "part.py").touch()
    (package / "unused.py").touch()

    def written() -> set[str]:
        return {path.name.partition(".")[0] for path in package.glob("__pycache__/*.pyc")}

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        server = subprocess.Popen(
            [sys.executable, SERVER, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={"PYTHONPATH": str(tmp_path)},
            stderr=subprocess.DEVNULL,
        )
        until(lambda: written() == {"__init__", "part"})
    assert server.wait() == 0


def test_a_kernel_has_loaded_no_library_that_a_cell_may_install_otherwise(session: Session) -> None:
    assert run(session, "import sys; {'numpy', 'pandas'} & set(sys.modules)") == "set()"


def test_without_python_nothing_is_started(session: Session) -> None:
    sandbox_of(session)
    assert not servers()


def test_a_kernel_is_started_where_the_process_that_forks_is_gone(
    session: Session, tmp_path: Path
) -> None:
    assert run(session, "x = 1; x") == "1"
    [server] = servers()
    server.kill()
    server.wait()
    with opened(tmp_path / "other") as other:
        assert run(other, IS_FORKED) == "False"
    assert run(session, "x") == "1"


def test_a_kernel_starts_where_programs_have_removed_its_environment(session: Session) -> None:
    sandbox_of(session)
    shutil.rmtree(session.workspace.python)
    assert run(session, IS_FORKED) == "False"


def test_a_kernel_is_started_where_nothing_can_be_forked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refused)
    assert run(session, IS_FORKED) == "False"


def test_a_kernel_that_is_confined_otherwise_is_not_run(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = forked_python.confining_process

    def elsewhere(tree: Any) -> int:
        usual(tree)
        return os.getpid()  # whose namespaces are the host's

    monkeypatch.setattr(forked_python, "confining_process", elsewhere)
    assert run(session, IS_FORKED) == "False"
    assert len(sandbox_of(session).trees) == 1


def test_the_memory_of_a_forked_kernel_counts_without_a_control_group(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: SandboxSettings) -> None:
        return None

    monkeypatch.setattr(confinement, "make_group", none)
    assert run(session, IS_FORKED) == "True"
    [tree] = sandbox_of(session).trees
    names = [process.name() for process in tree.members()]
    assert "python" in names


def test_nothing_is_left_of_a_forked_kernel_when_we_are_killed(tmp_path: Path) -> None:
    seconds = f"76543.{os.getpid()}"  # tells this sleep from all others
    code = f"""
import pathlib, sys
from tests.unit.test_forked_python import IS_FORKED, opened, run, servers
with opened(pathlib.Path({str(tmp_path / "work")!r})) as session:
    run(session, "import subprocess; subprocess.Popen(['sleep', '{seconds}'])")
    print(run(session, IS_FORKED), servers()[0].pid, flush=True)
    sys.stdin.read()
"""
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        forked, server = process.stdout.readline().split()
        assert forked == b"True"
        left = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(int(server))]
        assert any(seconds in line_of(one) for one in left)
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(left, timeout=BACKSTOP_S)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]

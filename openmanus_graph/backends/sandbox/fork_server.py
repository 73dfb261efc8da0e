"""Forks kernels, whose modules it has loaded already: `fork_server.py SOCKET`.

It runs with our own packages and without our package, outside of any sandbox, and does nothing but
load them and fork. What it forks joins a sandbox: the namespaces that bubblewrap has made for a
process, that process's capabilities, and the limits that any program of it gets. It checks that it
is confined as that process is, and becomes the kernel.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import signal
import site
import socket
import sys
from pathlib import Path
from typing import Any

MAX_REQUEST_BYTES = 1 << 17
FDS = 4
"""File descriptors of a request: the kernel's input and output, where its start is reported, and
where its end is."""
_NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
_STATUS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
_CAPABILITY_VERSION = 0x20080522
_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_AMBIENT_RAISE, _AMBIENT_CLEAR = 2, 4
_MOST_CAPABILITIES = 64
_PACKAGES = ("site-packages", "dist-packages")
_MODULES = (
    "IPython.core.completerlib", "IPython.core.debugger", "IPython.core.oinspect",
    "IPython.extensions.storemagic", "faulthandler", "stringprep", "tornado.platform.asyncio",
)  # fmt: skip
"""What a kernel loads at its start in addition to its program's imports."""
_LIBRARY = "pandas"
"""The library that takes cells longest to load; it includes numpy."""


def _program(name: str) -> Any:
    """Load a program of this folder that also needs nothing of our package."""
    path = Path(__file__).with_name(f"{name}.py")
    spec: Any = importlib.util.spec_from_file_location(f"openmanus_{name}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


del sys.path[0]  # our folder: the names in it are not meant for others
libc = ctypes.CDLL(None, use_errno=True)
launch, kernel_program = _program("launch"), _program("kernel_program")


def main() -> None:
    """Load what kernels need and serve requests; in a forked process, run the kernel."""
    launch.reset_signals()
    launch.leave_keyring()
    launch.refuse_keys()  # by what is forked, too
    for module in _MODULES:
        importlib.import_module(module)
    _compile_library()
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy all of it
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        kernel_program.main()


def _compile_library() -> None:
    """Have Python write the library's bytecode once, if it is missing and can be written.

    uv installs none, and in a sandbox it cannot be written. Each kernel would compile the library
    again, which takes a second and a quarter more memory. A separate process loads it, so that
    forked ones do not have it: a cell may install another version.
    """
    found = importlib.util.find_spec(_LIBRARY)
    if found is None or found.origin is None or found.cached is None:
        return
    if Path(found.cached).exists() or not os.access(Path(found.origin).parent, os.W_OK):
        return
    parent = os.getpid()
    if os.fork() == 0:
        try:
            libc.prctl(launch.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.nice(19)
            if os.getppid() == parent:  # else it ended before we asked
                importlib.import_module(_LIBRARY)
        finally:
            os._exit(0)


def _serve(control: socket.socket) -> bool:
    """Fork for each request until the other side ends; return True in a forked process."""
    # Forked processes and their orphans need no wait: they leave no zombies.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, FDS)
        if not message:
            return False
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _start(json.loads(message), *fds)
            return True
        for fd in fds:
            os.close(fd)


def _start(request: dict[str, Any], given: int, output: int, report: int, ended: int) -> None:
    """Fork again into the sandbox. Return in that process, and wait here for its end."""
    try:
        launch.join_groups(request["groups"])
        os.write(report, b"%d\n" % os.getpid())
        target = request["target"]
        confinement = _confinement(f"/proc/{target}")
        _join_namespaces(target, confinement)
        child = os.fork()
        if child == 0:
            _confine(request, confinement)
            _become(request, given, output)
            os.write(report, b"ready\n")
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            return
        for fd in (given, output, report):
            os.close(fd)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):  # the sandbox was ended, and this with it
            os.write(ended, b"%d\n" % (code if code >= 0 else 128 - code))
    except Exception as error:  # noqa: BLE001  # the other side starts the program without us
        with contextlib.suppress(OSError):
            os.write(report, repr(error).encode())
    os._exit(0)


def _confinement(process: str) -> dict[str, str]:
    """Return a process's namespaces and capabilities, for a process that joins it."""
    found = {name: str(Path(process, "ns", name).readlink()) for name in _NAMESPACES}
    for line in Path(process, "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in _STATUS:
            found[name] = value.strip()
    with contextlib.suppress(OSError):  # only where there is such a security module
        found["label"] = Path(process, "attr/current").read_text()
    return found


def _join_namespaces(target: int, confinement: dict[str, str]) -> None:
    """Join the namespaces of a process that we are not in. For `pid`, only our children join."""
    own = _confinement("/proc/self")
    flags = sum(flag for name, flag in _NAMESPACES.items() if own[name] != confinement[name])
    if libc.setns(os.pidfd_open(target), flags):
        raise OSError(ctypes.get_errno(), "setns")


def _confine(request: dict[str, Any], confinement: dict[str, str]) -> None:
    """Take on limits and capabilities. Raise PermissionError if that does not confine us."""
    os.setsid()
    launch.limit(request["limits"])
    launch.reset_signals()
    capabilities = {name: int(confinement[name], 16) for name in _STATUS if name.startswith("Cap")}
    launch.keep_powers(capabilities["CapBnd"])
    libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    words = [
        capabilities[name] >> shift & 0xFFFFFFFF
        for shift in (0, 32)
        for name in ("CapEff", "CapPrm", "CapInh")
    ]
    libc.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)(*words))
    for number in range(_MOST_CAPABILITIES):
        if capabilities["CapAmb"] >> number & 1:
            libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, number, 0, 0)
    if confinement["NoNewPrivs"] == "1":
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_NAME, b"python", 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after exec: else its own /proc is not its own
    if (found := _confinement("/proc/self")) != confinement:
        raise PermissionError(f"confined by {found}, not by {confinement}")


def _become(request: dict[str, Any], given: int, output: int) -> None:
    """Take on the state of a process that was started with that Python in the sandbox."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"] | {"PWD": request["folder"]})
    for fd, standard in ((given, 0), (output, 1), (output, 2)):
        os.dup2(fd, standard)
    python = Path(request["python"])
    sys.executable, sys.argv = str(python), request["argv"]
    sys.prefix = sys.exec_prefix = str(python.parents[1])
    site.PREFIXES[:] = [sys.prefix]
    library = [path for path in sys.path if Path(path).is_relative_to(sys.base_prefix)]
    library = [path for path in library if not any(name in path for name in _PACKAGES)]
    sys.path[:] = [str(Path(sys.argv[0]).parent), *library]
    site.addsitedir(request["packages"])


if __name__ == "__main__":
    main()

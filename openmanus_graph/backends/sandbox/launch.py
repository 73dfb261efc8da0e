"""Becomes a program after taking on its limits: `python -I -S launch.py SPEC PROGRAM ...`.

Runs by itself, before any sandbox and without our package: only the standard library here.
Doing this between fork and exec instead would not be safe in a process with threads.
"""

import contextlib
import ctypes
import errno
import importlib
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any

PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_PR_CAPBSET_DROP, _MOST_CAPABILITIES = 24, 64
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_KEYCTL_JOIN_SESSION_KEYRING = 1
_KEY_CALLS = {
    "x86_64": (0xC000003E, 248),
    "i686": (0x40000003, 286),
    "aarch64": (0xC00000B7, 217),
    "armv7l": (0x40000028, 309),
    "riscv64": (0xC00000F3, 217),
    "loongarch64": (0xC0000102, 217),
    "ppc64le": (0xC0000015, 269),
    "s390x": (0x80000016, 278),
}
"""By machine, the kind of its system calls as filters see it, and the number of `add_key`.

`request_key` and `keyctl` are the next two.
"""
_X32 = 0x40000000
"""Marks the calls of x86_64 that are made with short pointers."""


def main() -> None:
    reset_signals()
    spec: dict[str, Any] = json.loads(sys.argv[1])
    join_groups(spec.get("groups", ()))
    if spec.get("network"):
        join_network(int(spec["network"]))
    if spec.get("die_with"):  # after that: a change of rights would undo it
        _die_with(int(spec["die_with"]))
    if sys.platform == "linux":
        leave_keyring()
        if spec.get("no_keys"):
            refuse_keys()
    if spec.get("nono"):
        _confine(spec["nono"])
    if "powers" in spec:
        keep_powers(int(spec["powers"]))
    limit(spec.get("limits", {}))
    os.execvp(sys.argv[2], sys.argv[2:])


def join_groups(entries: Iterable[str]) -> None:
    """Join control groups by the files that their members write themselves to."""
    for entry in entries:
        with open(entry, "w") as file:  # noqa: PTH123  # pathlib costs a third of the start
            file.write(str(os.getpid()))


def join_network(process: int) -> None:
    """Join a process's network, and the user namespace that owns it. OSError: it has ended.

    Other rights that this gives end with the exec of the sandbox's own program.
    """
    users = [os.stat(f"/proc/{name}/ns/user").st_ino for name in ("self", process)]  # noqa: PTH116  # as above
    spaces = _CLONE_NEWNET | (_CLONE_NEWUSER if users[0] != users[1] else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(os.pidfd_open(process), spaces):
        raise OSError(ctypes.get_errno(), "the sandbox's network cannot be joined (setns)")


def limit(limits: Mapping[str, int]) -> None:
    """Limit this process and those that it starts, by the limits' names in `resource`."""
    for name, value in limits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS knows some of them only by name
            resource.setrlimit(which, (bounded, bounded))


def reset_signals() -> None:
    """Let signals end the program, also those that our parent ignores, for example by nohup.

    Blocked signals that have arrived are dropped: they were meant for our parent's group.
    """
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def leave_keyring() -> None:
    """Join an empty session keyring. If there can be none, `refuse_keys` must be enough."""
    _, add_key = _KEY_CALLS.get(os.uname().machine, (0, 0))
    if add_key:
        ctypes.CDLL(None).syscall(add_key + 2, _KEYCTL_JOIN_SESSION_KEYRING, None)


def refuse_keys() -> None:
    """Refuse the kernel's keys to this process and those that it starts, permanently.

    A separate keyring is not enough: a process reaches its user's other keyrings by the user's
    number, and keys by theirs. Calls of an unknown kind are all refused. OSError: the kernel has no
    such filters.
    """
    load, mask, equal, at_least, above, answer = 0x20, 0x54, 0x15, 0x35, 0x25, 0x06
    number, kind = 0, 4  # their offsets in the filter's input
    refused, allowed = 0x00050000 | errno.EPERM, 0x7FFF0000
    steps = [(load, 0, 0, kind)]
    for known, first in _KEY_CALLS.values():
        steps += [
            (equal, 0, 6, known),
            (load, 0, 0, number),
            (mask, 0, 0, 0xFFFFFFFF ^ _X32),
            (at_least, 0, 1, first),
            (above, 0, 1, first + 2),
            (answer, 0, 0, allowed),
            (answer, 0, 0, refused),
        ]
    steps.append((answer, 0, 0, refused))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if failed or libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel's keys cannot be refused (seccomp)")


def keep_powers(kept: int) -> None:
    """Drop all capabilities of root's programs but these (a bit for each); others have none."""
    if sys.platform == "linux":
        for number in range(_MOST_CAPABILITIES):
            if not kept >> number & 1:
                ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)


def _die_with(parent: int) -> None:
    """Ask Linux to hang up when the thread that started us ends; bash then ends its jobs too."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _confine(rules: dict[str, Any]) -> None:
    sys.path.append(rules["package"])
    nono_py: Any = importlib.import_module("nono_py")
    allowed = nono_py.CapabilitySet()
    modes = (("read", nono_py.AccessMode.READ), ("write", nono_py.AccessMode.READ_WRITE))
    for key, mode in modes:
        for path in rules[key]:
            allow = allowed.allow_path if os.path.isdir(path) else allowed.allow_file  # noqa: PTH112  # as above
            allow(path, mode)
    for path in rules["deny"]:
        shown = " ".join(f'(require-not (subpath "{shown}"))' for shown in rules["shown"])
        hidden = f'(require-all (subpath "{path}") {shown})'
        allowed.platform_rule(f"(deny file-read* file-write* {hidden})")
    if not rules["network"]:
        allowed.block_network()
    nono_py.apply(allowed)


if __name__ == "__main__":
    main()

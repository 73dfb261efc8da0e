"""Tries every way to the kernel's keys: `python keyring.py SERIAL ...`, or `KEYS` set before.

Runs inside a sandbox, without our package: only the standard library here.
"""

import ctypes
import json
import mmap
import platform
import sys
from collections.abc import Callable
from pathlib import Path

NAME, SECRET, LEFT = b"openmanus-test-key", b"for-this-user-only", b"left-by-a-thread"
THREAD, PROCESS, SESSION, USER, USER_SESSION = -1, -2, -3, -4, -5
KEYRINGS = (THREAD, PROCESS, SESSION, USER, USER_SESSION)
GET_ID, JOIN, REVOKE, SETPERM, DESCRIBE, LINK, SEARCH, READ = 0, 1, 3, 5, 6, 8, 10, 11
PERSISTENT, INVALIDATE = 22, 21
EVERYBODY = 0x3F3F3F3F
X32 = 0x40000000
ROOM = 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
Call = Callable[..., int]
"""Makes a system call by its number: the result, or the negative number of the error."""

ADD_KEY = {"x86_64": 248}.get(platform.machine(), 217)
REQUEST_KEY, KEYCTL = ADD_KEY + 1, ADD_KEY + 2


def native(number: int, *values: int | bytes) -> int:
    """Make a system call as programs of this machine do."""
    words = [v if isinstance(v, bytes) else ctypes.c_long(v) for v in values]
    found = libc.syscall(ctypes.c_long(number), *words)
    return int(found) if found >= 0 else -ctypes.get_errno()


def add_key(call: Call, first: int, keyring: int, name: bytes, content: bytes) -> int:
    """Put a key into a keyring; `first` is the number of add_key."""
    return call(first, b"user\0", name + b"\0", content, len(content), keyring)


def i386() -> Call:
    """Return what makes system calls as 32-bit programs do: by interrupt 80, of low addresses."""
    # push rbx; eax, ebx, ecx, edx, esi, edi from an array in rdi; int 0x80; pop rbx; ret
    code = bytes.fromhex("5356574989f8418b00418b5804418b4808418b500c418b7010418b7814cd805f5e5bc3")
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    below_4_gb = 0x40
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | below_4_gb
    room = libc.mmap(None, 8 * ROOM, 7, flags, -1, 0)
    ctypes.memmove(room, code, len(code))
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(room)

    def call(number: int, *values: int | bytes) -> int:
        words: list[int] = []
        for place, value in enumerate(values, start=2):
            if isinstance(value, bytes):
                ctypes.memmove(room + place * 512, value + b"\0", len(value) + 1)
                value = room + place * 512
            words.append(value & 0xFFFFFFFF)
        array = (ctypes.c_uint32 * 6)(number, *words)
        ctypes.memmove(room + 256, array, 24)
        return int(run(room + 256))

    return call


def tried(call: Call, first: int, serials: list[int]) -> dict[str, int]:
    """Try to read, find, link, list and leave keys; `first` is the number of add_key."""
    request, control = first + 1, first + 2
    found: dict[str, int] = {}
    for ring in KEYRINGS:
        found[f"find {ring}"] = call(control, SEARCH, ring, b"user\0", NAME + b"\0", 0)
        found[f"id {ring}"] = call(control, GET_ID, ring, 0)
        found[f"list {ring}"] = call(control, READ, ring, 0, 0)
        found[f"link {ring}"] = call(control, LINK, ring, SESSION)
    for serial in serials:
        found[f"describe {serial}"] = call(control, DESCRIBE, serial, 0, 0)
        found[f"link {serial}"] = call(control, LINK, serial, SESSION)
        found[f"read {serial}"] = call(control, READ, serial, 0, 0)
    found["persistent"] = call(control, PERSISTENT, -1, SESSION)
    found["request"] = call(request, b"user\0", NAME + b"\0", 0, SESSION)
    found["find what was left"] = call(control, SEARCH, USER, b"user\0", LEFT + b"\0", 0)
    for ring in KEYRINGS:
        found[f"leave {ring}"] = add_key(call, first, ring, LEFT, LEFT)
    found["join"] = call(control, JOIN, 0)
    return found


def content(serial: int) -> bytes:
    """Return what a key holds; empty if it cannot be read."""
    room = ctypes.create_string_buffer(ROOM)
    libc.syscall(KEYCTL, READ, serial, room, ROOM)
    return room.value


def main(serials: list[int]) -> dict[str, object]:
    """Try all ways of this machine."""
    tries = {"native": tried(native, ADD_KEY, serials)}
    if platform.machine() == "x86_64":
        tries["x32"] = tried(native, ADD_KEY | X32, serials)
        tries["i386"] = tried(i386(), 286, serials)
    listed = Path("/proc/keys")
    try:
        names = listed.read_text() if listed.exists() else ""
    except OSError:
        names = ""
    ours = [line for line in names.splitlines() if NAME.decode() in line]
    return {
        "tries": tries,
        "listed": "\n".join(ours[:10]) or names[:1000],  # other users may have hundreds
        "read": [content(one)[: len(SECRET)].decode("ascii", "ignore") for one in serials],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main([int(word) for word in sys.argv[1:]])))

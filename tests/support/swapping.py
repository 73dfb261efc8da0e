"""A program that swaps files and folders of a workspace for links to the host, and for pipes."""

import contextlib
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

FOLDER = "d"
"""It is swapped, too, for a link to the host's folder."""

_PROGRAM = """
import ctypes, os, sys
root, host, *names = sys.argv[1:]
libc = ctypes.CDLL(None)
top, folder = os.open(root, os.O_RDONLY), os.open(f"{root}/d", os.O_RDONLY)
os.symlink(host, ".link to d", dir_fd=top)
swaps = [(top, b"d", b".link to d")]
for below, prefix in ((top, host), (folder, host)):
    for name in names:
        os.symlink(f"{prefix}/{name}", f".link to {name}", dir_fd=below)
        os.mkfifo(f".pipe of {name}", dir_fd=below)
        swaps += [(below, os.fsencode(name), os.fsencode(f".{kind} {name}"))
                  for kind in ("link to", "pipe of")]
print("ready", flush=True)
while True:
    for where, one, other in swaps:
        for _ in range(3):  # an odd number: what is there changes from one round to the next
            libc.renameat2(where, one, where, other, 2)  # RENAME_EXCHANGE
"""


@contextlib.contextmanager
def swapping(root: Path, host: Path, *names: str) -> Generator[None]:
    """Swap files of these names, in the root and in its folder, as long as the block runs."""
    program = [sys.executable, "-c", _PROGRAM, str(root), str(host), *names]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout
            assert swapper.stdout.readline() == b"ready\n", "the swapper did not start"
            yield
            assert swapper.poll() is None, "the swapper has ended too early"
        finally:
            swapper.kill()

"""A thread's own folder on the host: temporary files, home, sockets."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from openmanus_graph.backends.sandbox.environment import pip_configuration
from openmanus_graph.backends.sandbox.fonts import make_chart_settings

_PREFIX = "openmanus-"
_LONGEST = 40
"""Characters of the temporary folder's path: a socket's path ends at 107."""


def make_scratch() -> IO[bytes]:
    """Create the folder; return its lock, which lies in it and is held while it is used."""
    base = Path(tempfile.gettempdir())
    base = base if len(str(base)) <= _LONGEST else Path("/tmp")
    _sweep(base)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    lock = (scratch / "lock").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for name in ("tmp", "home", "run", "etc"):
        (scratch / name).mkdir()
    (scratch / "tmp").chmod(0o1777)
    return lock


def fill_scratch(scratch: Path, *, network: bool, host: Mapping[str, str], prefix: Path) -> str:
    """Write what programs find there; return pip's configuration, empty without network."""
    user, group = os.getuid(), os.getgid()
    root = "root:x:0:0:root:/home/manus:/bin/bash\n"
    manus = f"manus:x:{user}:{group}::/home/manus:/bin/bash\n" if user else ""
    etc = scratch / "etc"
    (etc / "passwd").write_text(root + manus + "nobody:x:65534:65534::/:/bin/false\n")
    groups = f"manus:x:{group}:\n" if group else ""
    (etc / "group").write_text(f"root:x:0:\n{groups}nogroup:x:65534:\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    make_chart_settings(scratch / "home")
    if not network:
        return ""
    configuration = pip_configuration(host, prefix, Path.home())
    place = scratch / "home" / ".config" / "pip"
    place.mkdir(parents=True)
    (place / "pip.conf").write_text(configuration)
    return configuration


def remove_folder(folder: Path) -> None:
    """Remove a folder, even if programs inside have taken away rights."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(path).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(base: Path) -> None:
    """Remove the folders of processes that were killed: nobody holds their locks."""
    for folder in base.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            status = folder.stat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < 60:
                continue  # somebody else's, or one whose maker has not locked it yet
            with (folder / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(folder)

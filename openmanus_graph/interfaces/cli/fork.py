"""`openmanus fork`: start a new thread from an earlier checkpoint of another."""

import asyncio
import dataclasses
import json
import shlex
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.forks import Point, find_point, fork, points_of
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import (
    database_url,
    openmanus_home,
    private_folder,
    safe_name,
)
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.lock import hold_thread
from openmanus_graph.interfaces.service.run_setup import new_thread
from openmanus_graph.interfaces.service.threads import find_thread, open_threads, whole_thread
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.workspace import Workspace

DEFAULT_PARENT = "workspace"


def fork_thread(thread: str, at: str | None, name: str | None, *, as_json: bool) -> int:
    """List a thread's points, or begin a new thread at one of them."""
    known = whole_thread(thread)
    points = asyncio.run(_points(thread))
    if at is None:
        _list(points, thread, as_json=as_json)
        return 0
    point = find_point(points, at)
    if point is None:
        raise ConfigError(
            f"Thread {thread} has no point {at!r}. `openmanus fork {shlex.quote(thread)}` lists "
            "them by number."
        )
    new = new_thread() if name is None else name
    if not new.strip() or find_thread(new) is not None:
        raise ConfigError(f"A thread {new!r} exists already, or has no name. Choose another.")
    home = openmanus_home()
    with hold_thread(home, new):
        files, copied = _workspace_for(known, new)
        _inherit_outputs(known, new, files)
        asyncio.run(_fork(thread, point, new))
        options = {**known.options, "workspace": str(files)}
        threads = open_threads()
        threads.begin(new, known.agent, known.task, options, None)
        threads.end(new, "forked")
    _print_summary(known, point, new, f"{'copied to' if copied else 'shared, in'} {files}")
    shown = {"thread": new, "checkpoint": point.checkpoint, "workspace": str(files)}
    sys.stdout.write((json.dumps(shown) if as_json else new) + "\n")
    return 0


async def _points(thread: str) -> list[Point]:
    async with open_checkpointer(database_url()) as saver:
        return await points_of(saver, thread)


async def _fork(thread: str, point: Point, new: str) -> None:
    async with open_checkpointer(database_url()) as saver:
        await fork(saver, thread, point.checkpoint, new)


def _list(points: Sequence[Point], thread: str, *, as_json: bool) -> None:
    """Print the points; those without a description only as JSON."""
    for point in points:
        if as_json:
            sys.stdout.write(json.dumps(dataclasses.asdict(point), ensure_ascii=False) + "\n")
        elif point.what:
            sys.stdout.write(printable(f"{point.number:>5}  {point.ts[:19]}  {point.what}") + "\n")
    if points and not as_json:
        sys.stderr.write(f"Begin anew after one: openmanus fork {shlex.quote(thread)} --at N\n")


def _workspace_for(known: Thread, new: str) -> tuple[Path, bool]:
    """Return the new thread's workspace, and whether it is a copy.

    A workspace that the person named is shared; a thread's default workspace is copied.
    """
    files = Path(known.options["workspace"])
    if (files.parent.name, files.name) != (DEFAULT_PARENT, safe_name(known.id)):
        return files, False
    target = files.with_name(safe_name(new))
    try:
        shutil.copytree(files, target, symlinks=True, ignore=_uncopyable)
    except (OSError, shutil.Error) as error:
        raise ConfigError(
            f"The files in {files} cannot be copied to {target}: {error}. Make room, or choose "
            "another --thread."
        ) from error
    return target, True


def _inherit_outputs(known: Thread, new: str, files: Path) -> None:
    """Let the new thread read the long outputs that its conversation names."""
    home, root = openmanus_home(), files.resolve()
    old_root = Path(known.options["workspace"]).resolve()
    older = Workspace(old_root, private_folder(home, old_root, known.id))
    try:
        Workspace(root, private_folder(home, root, new)).inherit_outputs(older)
    except OSError as error:
        raise ConfigError(
            f"The long outputs in {older.outputs} cannot be copied: {error}. Make room."
        ) from error


def _uncopyable(folder: str, names: list[str]) -> list[str]:
    """Return the entries that cannot be copied: sockets and pipes."""
    modes = {name: (Path(folder) / name).lstat().st_mode for name in names}
    plain = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return [name for name, mode in modes.items() if not any(is_kind(mode) for is_kind in plain)]


def _print_summary(known: Thread, point: Point, new: str, files: str) -> None:
    name = shlex.quote(new)
    go_on = f"run --thread {name} TASK" if point.ended else f"resume {name}"
    sys.stderr.write(
        f"Thread {new} begins after point {point.number} of {known.id}. "
        f"Its files ({files}) are as they are now: they were not turned back.\n"
        f"Go on with: openmanus {go_on}\n"
        f"Say first what to do differently: openmanus tell {name} TEXT\n"
    )

"""`openmanus fork`: start a new thread from an earlier checkpoint of another."""

import asyncio
import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from openmanus_graph.backends.charts.report import inherit_own_pages
from openmanus_graph.backends.persistence.checkpoints import (
    Point,
    find_point,
    fork,
    open_checkpointer,
    points_of,
)
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.backends.snapshots.restore import copy_snapshot
from openmanus_graph.backends.snapshots.thread_snapshots import (
    ThreadSnapshots,
    describe_gap,
    describe_restore,
    named_paths,
)
from openmanus_graph.config import resolve_settings
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import (
    database_url,
    private_folder,
    safe_name,
)
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.safe_console import SafeConsole
from openmanus_graph.interfaces.service.lock import hold_thread
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.run_setup import new_thread
from openmanus_graph.interfaces.service.threads import (
    find_thread,
    open_threads,
    whole_thread,
    with_stored,
)
from openmanus_graph.runtime.checkpoint_lineage import snapshot_at
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.tree_copy import copy_entry
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

DEFAULT_PARENT = "workspace"


@dataclass(frozen=True)
class FilesChoice:
    """What becomes of the files."""

    keep: bool = False
    """They stay as they are now."""
    in_place: bool = False
    """They are turned back in the old thread's folder, which the new one uses as well."""


@dataclass
class ForkedFiles:
    """The new thread's folder, and what lies there."""

    folder: Path
    state: str
    """`restored` or `kept`, as they are now."""
    notices: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class NewFork:
    """A thread that begins at a point of another one."""

    thread: str
    point: Point
    files: ForkedFiles
    lines: Sequence[str]
    """What a person should know of it."""


def fork_thread(
    thread: str, at: str | None, name: str | None, files: FilesChoice, *, as_json: bool
) -> int:
    """List a thread's points, or begin a new thread at one of them."""
    if at is None:
        if list_points(thread, as_json=as_json) and not as_json:
            sys.stderr.write(f"Begin anew after one: openmanus fork {shlex.quote(thread)} --at N\n")
        return 0
    made = new_fork(thread, at, name, files)
    known = shlex.quote(made.thread)
    go_on = f"run --thread {known} TASK" if made.point.ended else f"resume {known}"
    lines = (
        *made.lines,
        f"Go on with: openmanus {go_on}",
        f"Say first what to do differently: openmanus tell {known} TEXT",
    )
    sys.stderr.writelines(f"{printable(line)}\n" for line in lines)
    shown = {"thread": made.thread, "checkpoint": made.point.checkpoint}
    shown |= {"workspace": str(made.files.folder), "files": made.files.state}
    sys.stdout.write((json.dumps(shown) if as_json else made.thread) + "\n")
    return 0


def new_fork(
    thread: str, at: str, name: str | None = None, files: FilesChoice | None = None
) -> NewFork:
    """Begin a new thread at a point of another one.

    Args:
        thread: The other one.
        at: The point's number or checkpoint.
        name: The new thread's id; None for one of ours.
        files: What becomes of the files; by default they are turned back beside the old ones.

    Raises:
        ConfigError: There is no such thread or point, or the new thread cannot be made.
    """
    known, files = whole_thread(thread), files or FilesChoice()
    point = require_point(asyncio.run(read_points(thread)), at, thread)
    if files.keep and files.in_place:
        raise ConfigError("--keep-files and --in-place exclude each other. Give one of them.")
    new = new_thread() if name is None else name
    if not new.strip() or find_thread(new) is not None:
        raise ConfigError(f"A thread {new!r} exists already, or has no name. Choose another.")
    with hold_thread(openmanus_home(), new):
        found = begin_fork(known, point, new, files, with_stored(RunOptions(), known).stored())
    state = "as they were then" if found.state == "restored" else "as they are now"
    reported = (
        f"Thread {new} begins after point {point.number} of {known.id}. "
        f"Its files, {state}, lie in {found.folder}."
    )
    return NewFork(new, point, found, [reported, *found.notices])


def begin_fork(
    known: Thread, point: Point, new: str, files: FilesChoice, options: Mapping[str, Any]
) -> ForkedFiles:
    """Make a thread that begins at a point of another one. The new thread is held by the caller.

    Args:
        known: The other one.
        point: Where.
        new: The new thread's id.
        files: What becomes of the files.
        options: Of the new thread's runs; the folder is added.

    Raises:
        ConfigError: The files cannot be put there.
    """
    found = _fork_files(known, point, new, files)
    _inherit_outputs(known, new, found.folder)
    asyncio.run(_fork(known.id, point, new))
    threads = open_threads()
    folder = str(found.folder)
    threads.begin(
        new, known.agent, known.task, {**options, "workspace": folder}, None, title=known.title
    )
    threads.end(new, "forked")
    return found


def require_point(points: Sequence[Point], at: str, thread: str) -> Point:
    """Return the point that a person named. ConfigError if there is none."""
    point = find_point(points, at)
    if point is None:
        raise ConfigError(
            f"Thread {thread} has no point {at!r}. `openmanus fork {shlex.quote(thread)}` lists "
            "them by number."
        )
    return point


async def read_points(thread: str) -> list[Point]:
    """Return the points of a thread."""
    async with open_checkpointer(database_url()) as saver:
        return await points_of(saver, thread)


async def _fork(thread: str, point: Point, new: str) -> None:
    async with open_checkpointer(database_url()) as saver:
        await fork(saver, thread, point.checkpoint, new)


async def _snapshot_at(thread: str, point: Point) -> tuple[str, str]:
    async with open_checkpointer(database_url()) as saver:
        return await snapshot_at(saver, thread, point.checkpoint)


def list_points(thread: str, *, as_json: bool = False) -> int:
    """Print a thread's points, those without a description only as JSON; return how many it has."""
    whole_thread(thread)
    points = asyncio.run(read_points(thread))
    if as_json:
        for point in points:
            sys.stdout.write(json.dumps(dataclasses.asdict(point), ensure_ascii=False) + "\n")
        return len(points)
    shown = [(f"{one.number:>5}", one.ts[:19], printable(one.what)) for one in points if one.what]
    if sys.stdout.isatty():  # what is long goes on in its own column
        rows = Table.grid(padding=(0, 2))
        for row in shown:
            rows.add_row(*map(Text, row))
        SafeConsole(highlight=False).print(rows)
    else:
        sys.stdout.writelines(f"{'  '.join(row)}\n" for row in shown)
    return len(points)


def settings_of(known: Thread) -> Settings:
    """Return the settings of a thread's runs, as far as its files need them."""
    options = known.options
    context = Context(workspace=options.get("workspace"), config=options.get("config"))
    return resolve_settings(context, known.id, without_model=True)


def _fork_files(known: Thread, point: Point, new: str, choice: FilesChoice) -> ForkedFiles:
    """Give the new thread its files: those of the point, or as they are now."""
    snapshot, gap = ("", "") if choice.keep else asyncio.run(_snapshot_at(known.id, point))
    home = openmanus_home()
    snapshots = ThreadSnapshots(known.id, home)
    absence = snapshots.absence(snapshot)
    if absence or choice.keep:
        found = _keep_files(known, new)
        found.notices += [] if choice.keep else [absence]
    elif choice.in_place:
        with hold_thread(home, known.id):
            found = _turn_back(known, snapshot, snapshots)
    else:
        found = _write_beside(known, snapshot, snapshots, new)
    found.notices += describe_gap(gap)
    snapshots.store.share(known.id, new, found.folder.resolve())
    return found


def _turn_back(known: Thread, snapshot: str, snapshots: ThreadSnapshots) -> ForkedFiles:
    """Restore a snapshot in the old thread's folder."""
    settings = settings_of(known)
    workspace = Workspace.of(settings)
    workspace.prepare()
    if refusal := snapshots.refusal(snapshot, workspace.root):
        raise ConfigError(f"{refusal} Leave --in-place out to get them in a folder of their own.")
    notices = snapshots.restore(snapshot, workspace, settings.storage)
    return ForkedFiles(settings.workspace, "restored", notices)


def _write_beside(
    known: Thread, snapshot: str, snapshots: ThreadSnapshots, new: str
) -> ForkedFiles:
    """Write a snapshot to a new folder beside the old thread's."""
    settings = settings_of(known)
    files = settings.workspace
    own = safe_name(new) if _is_default(files, known) else f"{files.name}-{safe_name(new)}"
    folder = files.with_name(own)
    source = Workspace.of(settings)
    try:
        done = copy_snapshot(snapshots.store, snapshot, source, folder, settings.storage)
    except OSError as error:
        raise ConfigError(
            f"The files cannot be put into {folder}: {error.strerror}. Choose another --thread, or "
            "give --in-place or --keep-files."
        ) from error
    copied, done.left_alone, done.written = done.left_alone, [], []
    notices = list(describe_restore(done, folder))
    if copied:
        as_now = "Copied as they are now, since snapshots leave them alone"
        notices.append(f"{as_now}: {named_paths(copied)}.")
    return ForkedFiles(folder, "restored", notices)


def _is_default(files: Path, known: Thread) -> bool:
    """Say whether a folder is a thread's default workspace, which nobody named."""
    return (files.parent.name, files.name) == (DEFAULT_PARENT, safe_name(known.id))


def _keep_files(known: Thread, new: str) -> ForkedFiles:
    """Share a workspace that the person named; copy a thread's default one."""
    files = settings_of(known).workspace
    if not _is_default(files, known):
        return ForkedFiles(files, "kept")
    target = files.with_name(safe_name(new))
    try:
        with opened_folder(Workspace(files, files), files) as folder:
            copy_entry(folder, ".", target)
    except OSError as error:
        raise ConfigError(
            f"The files in {files} cannot be copied to {target}: {error}. Make room, or choose "
            "another --thread."
        ) from error
    return ForkedFiles(target, "kept")


def _inherit_outputs(known: Thread, new: str, files: Path) -> None:
    """Let the new thread read the long outputs that its conversation names."""
    home, root = openmanus_home(), files.resolve()
    old_root = settings_of(known).workspace
    older = Workspace(old_root, private_folder(home, old_root, known.id))
    newer = Workspace(root, private_folder(home, root, new))
    try:
        newer.inherit_outputs(older)
        inherit_own_pages(newer, older)
    except OSError as error:
        raise ConfigError(
            f"The long outputs in {older.outputs} cannot be copied: {error}. Make room."
        ) from error

"""`openmanus fork` and `diff`: earlier points of a thread, to begin at or to compare."""

import asyncio
import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from openmanus_graph.backends.charts.report import inherit_own_pages
from openmanus_graph.backends.persistence import checkpoints
from openmanus_graph.backends.persistence.checkpoints import Point, open_checkpointer
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.backends.snapshots import thread_snapshots
from openmanus_graph.backends.snapshots.objects import MissingObjectError, SnapshotStore
from openmanus_graph.backends.snapshots.restore import copy_snapshot
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url, private_folder, resolve_settings, safe_name
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.console import SafeConsole
from openmanus_graph.interfaces.cli.threads import JsonLinesOption, ThreadArgument
from openmanus_graph.interfaces.service import threads
from openmanus_graph.interfaces.service.options import RunOptions, StorageOptions, takes
from openmanus_graph.interfaces.service.run_setup import new_thread
from openmanus_graph.runtime.atomic_files import copy_entry
from openmanus_graph.runtime.checkpoint_lineage import snapshot_at
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

FilesChoice = Literal["copy", "keep", "in place"]
"""The files of a fork: restored in another folder, kept unchanged, or restored in place."""

DEFAULT_PARENT = "workspace"
COLORS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}


@dataclass
class ForkedFiles:
    folder: Path
    state: Literal["restored", "kept"]
    notices: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        state = "as they were then" if self.state == "restored" else "as they are now"
        return f"Its files, {state}, are in {self.folder}."


@takes(StorageOptions)
def fork(
    thread: ThreadArgument,
    at: Annotated[
        str | None, typer.Option(help="Number or id of the point; without it they are listed.")
    ] = None,
    name: Annotated[str | None, typer.Option("--thread", help="Name of the new thread.")] = None,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Leave the files as they are now.")
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Restore the files where they are.")
    ] = False,
    as_json: JsonLinesOption = False,
) -> int:
    """Try again from an earlier point of a thread, as a new thread."""
    known = threads.thread_id(thread)
    if at is None:
        if list_points(known, as_json=as_json) and not as_json:
            sys.stderr.write(f"Start again after one: openmanus fork {shlex.quote(known)} --at N\n")
        return 0
    if keep_files and in_place:
        raise ConfigError("--keep-files and --in-place cannot be used together. Give one of them.")
    choice: FilesChoice = "keep" if keep_files else "in place" if in_place else "copy"
    new = new_thread() if name is None else name
    point, files, lines = new_fork(known, at, new, choice)
    quoted = shlex.quote(new)
    command = f"run --thread {quoted} TASK" if point.ended else f"resume {quoted}"
    lines += [
        f"Continue with: openmanus {command}",
        f"Say first what to do differently: openmanus tell {quoted} TEXT",
    ]
    sys.stderr.writelines(f"{printable(line)}\n" for line in lines)
    shown = {"thread": new, "checkpoint": point.checkpoint}
    shown |= {"workspace": str(files.folder), "files": files.state}
    sys.stdout.write((json.dumps(shown) if as_json else new) + "\n")
    return 0


def new_fork(
    thread: str, at: str, new: str, choice: FilesChoice = "copy"
) -> tuple[Point, ForkedFiles, list[str]]:
    """Begin a new thread at a point of another one: `at` is its number or checkpoint.

    Returns:
        The point, the files, and what a person should know.
    """
    known = threads.whole_thread(thread)
    point = _require_point(asyncio.run(read_points(thread)), at, thread)
    if not new.strip() or threads.find_thread(new) is not None:
        raise ConfigError(f"A thread {new!r} already exists, or has no name. Choose another.")
    options = threads.with_stored(RunOptions(), known).stored()
    with threads.hold_thread(openmanus_home(), new):
        files = begin_fork(known, point, new, choice, options)
    begun = f"Thread {new} begins after point {point.number} of {known.id}. {files}"
    return point, files, [begun, *files.notices]


def begin_fork(
    known: Thread, point: Point, new: str, choice: FilesChoice, options: Mapping[str, Any]
) -> ForkedFiles:
    """Make a thread, which the caller holds, that begins at a point of another one.

    The workspace is added to `options`, those of its runs. ConfigError if the files cannot be put
    there.
    """

    async def fork_checkpoints() -> None:
        async with open_checkpointer(database_url()) as saver:
            await checkpoints.fork(saver, known.id, point.checkpoint, new)

    options_of_files = {name: known.options.get(name) for name in ("workspace", "config")}
    settings = resolve_settings(Context(**options_of_files), known.id, without_model=True)
    files = _fork_files(known, settings, point, new, choice)
    _inherit_outputs(settings, known.id, files.folder.resolve(), new)
    asyncio.run(fork_checkpoints())
    table = threads.open_threads()
    kept = {**options, "workspace": str(files.folder)}
    table.begin(new, known.agent, known.task, kept, None, title=known.title)
    table.end(new, "forked")
    return files


def _require_point(points: Sequence[Point], at: str, thread: str) -> Point:
    point = checkpoints.find_point(points, at)
    if point is None:
        raise ConfigError(
            f"Thread {thread} has no point {at!r}. `openmanus fork {shlex.quote(thread)}` lists "
            "them by number."
        )
    return point


async def read_points(thread: str) -> list[Point]:
    async with open_checkpointer(database_url()) as saver:
        return await checkpoints.points_of(saver, thread)


def list_points(thread: str, *, as_json: bool = False) -> int:
    """Print a thread's points, those without a description only as JSON; return how many it has."""
    threads.whole_thread(thread)
    points = asyncio.run(read_points(thread))
    if as_json:
        for point in points:
            sys.stdout.write(json.dumps(dataclasses.asdict(point), ensure_ascii=False) + "\n")
        return len(points)
    shown = [(f"{one.number:>5}", one.ts[:19], printable(one.what)) for one in points if one.what]
    if sys.stdout.isatty():  # a long description is wrapped in its own column
        rows = Table.grid(padding=(0, 2))
        for row in shown:
            rows.add_row(*map(Text, row))
        SafeConsole(highlight=False).print(rows)
    else:
        sys.stdout.writelines(f"{'  '.join(row)}\n" for row in shown)
    return len(points)


def _fork_files(
    known: Thread, settings: Settings, point: Point, new: str, choice: FilesChoice
) -> ForkedFiles:
    """Give the new thread its files: those of the point, or as they are now."""

    async def snapshot_of_point() -> tuple[str, str]:
        async with open_checkpointer(database_url()) as saver:
            return await snapshot_at(saver, known.id, point.checkpoint)

    snapshot, gap = ("", "") if choice == "keep" else asyncio.run(snapshot_of_point())
    home = openmanus_home()
    snapshots = thread_snapshots.ThreadSnapshots(known.id, home)
    absence = snapshots.absence(snapshot)
    files = settings.workspace
    is_default = (files.parent.name, files.name) == (DEFAULT_PARENT, safe_name(known.id))
    if absence or choice == "keep":
        target = files.with_name(safe_name(new)) if is_default else files
        found = _keep_files(files, target)
        found.notices += [] if choice == "keep" else [absence]
    elif choice == "in place":
        workspace = Workspace.of(settings)
        with threads.hold_thread(home, known.id):
            workspace.prepare()
            if refusal := snapshots.refusal(snapshot, workspace.root):
                raise ConfigError(f"{refusal} Leave --in-place out to get them in another folder.")
            notices = snapshots.restore(snapshot, workspace, settings.storage)
        found = ForkedFiles(files, "restored", notices)
    else:
        own = safe_name(new) if is_default else f"{files.name}-{safe_name(new)}"
        found = _restore_copy(settings, snapshot, snapshots.store, files.with_name(own))
    found.notices += thread_snapshots.describe_gap(gap)
    snapshots.store.share(known.id, new, found.folder.resolve())
    return found


def _keep_files(files: Path, target: Path) -> ForkedFiles:
    """Share a workspace that the person named; copy a thread's default one to the target."""
    try:
        if target != files:
            with opened_folder(Workspace(files, files), files) as folder:
                copy_entry(folder, ".", target)
    except OSError as error:
        raise ConfigError(
            f"The files in {files} cannot be copied to {target}: {error}. Make room, or choose "
            "another --thread."
        ) from error
    return ForkedFiles(target, "kept")


def _restore_copy(
    settings: Settings, snapshot: str, store: SnapshotStore, folder: Path
) -> ForkedFiles:
    source = Workspace.of(settings)
    try:
        done = copy_snapshot(store, snapshot, source, folder, settings.storage)
    except OSError as error:
        raise ConfigError(
            f"The files cannot be put into {folder}: {error.strerror}. Choose another --thread, or "
            "give --in-place or --keep-files."
        ) from error
    copied, done.left_alone, done.written = done.left_alone, [], []
    notices = list(thread_snapshots.describe_restore(done, folder))
    if copied:
        names = thread_snapshots.named_paths(copied)
        notices.append(f"Copied as they are now, because snapshots leave them alone: {names}.")
    return ForkedFiles(folder, "restored", notices)


def _inherit_outputs(settings: Settings, known: str, root: Path, new: str) -> None:
    """Let the new thread read the long outputs that its conversation names."""
    home = openmanus_home()
    older = Workspace(settings.workspace, private_folder(home, settings.workspace, known))
    newer = Workspace(root, private_folder(home, root, new))
    try:
        newer.inherit_outputs(older)
        inherit_own_pages(newer, older)
    except OSError as error:
        raise ConfigError(
            f"The long outputs in {older.outputs} cannot be copied: {error}. Make room."
        ) from error


def diff(
    thread: Annotated[str, typer.Argument(help="The thread whose files to compare.")],
    begin: Annotated[
        str | None, typer.Option("--from", help="Number or id of a point; default the first.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="Number or id of a point; default the newest.")
    ] = None,
    as_json: JsonLinesOption = False,
) -> int:
    """Show what changed in a thread's files between two of its points."""
    known = threads.known_thread(threads.thread_id(thread)).id
    before, after, gap = asyncio.run(_snapshots(known, begin, end))
    store = SnapshotStore(openmanus_home())
    try:
        changes = thread_snapshots.changes_between(store, before, after)
    except MissingObjectError as error:
        raise ConfigError(
            f"A snapshot of thread {known} is not in {store.file}, or damaged: it was deleted, or "
            "taken on another machine. Compare the files there."
        ) from error
    for change in changes:
        if as_json:
            sys.stdout.write(json.dumps(thread_snapshots.change_as_json(store, change)) + "\n")
            continue
        for line in (
            printable(thread_snapshots.unified_diff(store, change)).removesuffix("\n").split("\n")
        ):
            color = COLORS.get(line[:1], "") if sys.stdout.isatty() else ""
            sys.stdout.write(f"{color}{line}\x1b[0m\n" if color else f"{line}\n")
    if gap:
        sys.stderr.write(f"The newest changes are in no snapshot: {gap}\n")
    elif not changes:
        sys.stderr.write("No file changed.\n")
    return 0


async def _snapshots(thread: str, begin: str | None, end: str | None) -> tuple[str, str, str]:
    """Return the snapshots of two points, and why the later one misses the newest changes."""
    async with open_checkpointer(database_url()) as saver:
        points = await checkpoints.points_of(saver, thread)
        if not points and (begin is None or end is None):
            raise ConfigError(f"Thread {shlex.quote(thread)} has no points yet: nothing ran on it.")
        first = points[0] if begin is None else _require_point(points, begin, thread)
        last = points[-1] if end is None else _require_point(points, end, thread)
        after, gap = await snapshot_at(saver, thread, last.checkpoint)
        before, _ = await snapshot_at(saver, thread, first.checkpoint)
    if not after or not before:
        raise ConfigError(
            f"Thread {thread} has no snapshots of its files: none of its calls may have changed "
            "any, or snapshots were turned off."
        )
    return before, after, gap

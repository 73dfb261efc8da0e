"""`openmanus diff`: what changed in a thread's files between two of its points."""

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence

from openmanus_graph.backends.persistence.checkpoints import Point, open_checkpointer, points_of
from openmanus_graph.backends.snapshots.objects import MissingObjectError, SnapshotStore
from openmanus_graph.backends.snapshots.thread_snapshots import (
    change_as_json,
    changes_between,
    unified_diff,
)
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.fork import require_point
from openmanus_graph.interfaces.service.threads import known_thread
from openmanus_graph.runtime.checkpoint_lineage import snapshot_at
from openmanus_graph.runtime.output import printable

COLORS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
RESET = "\x1b[0m"


def show_changes(thread: str, begin: str | None, end: str | None, *, as_json: bool) -> int:
    """Print the changes of a thread's files between two points, by default all of them."""
    known_thread(thread)
    before, after, gap = asyncio.run(_snapshots(thread, begin, end))
    store = SnapshotStore(openmanus_home())
    try:
        changes = changes_between(store, before, after)
    except MissingObjectError as error:
        raise ConfigError(
            f"A snapshot of thread {thread} is not in {store.file}, or damaged: it was deleted, or "
            "taken on another machine. Compare the files there."
        ) from error
    for change in changes:
        if as_json:
            sys.stdout.write(json.dumps(change_as_json(store, change)) + "\n")
        else:
            _print_diff(unified_diff(store, change))
    if gap:
        sys.stderr.write(f"The newest changes are in no snapshot: {gap}\n")
    elif not changes:
        sys.stderr.write("No file changed.\n")
    return 0


async def _snapshots(thread: str, begin: str | None, end: str | None) -> tuple[str, str, str]:
    """Return the snapshots of two points, and why the later one lacks the newest changes."""
    async with open_checkpointer(database_url()) as saver:
        points = await points_of(saver, thread)
        first = _chosen(points, begin, thread)
        last = _chosen(points, end, thread, newest=True)
        after, gap = await snapshot_at(saver, thread, last.checkpoint)
        before, _ = await snapshot_at(saver, thread, first.checkpoint)
    if not after or not before:
        raise ConfigError(
            f"Thread {thread} has no snapshots of its files: none of its calls may have changed "
            "any, or snapshots were turned off."
        )
    return before, after, gap


def _chosen(points: Sequence[Point], at: str | None, thread: str, *, newest: bool = False) -> Point:
    if at is not None:
        return require_point(points, at, thread)
    if not points:
        raise ConfigError(f"Thread {shlex.quote(thread)} has no points yet: nothing ran on it.")
    return points[-1 if newest else 0]


def _print_diff(text: str) -> None:
    for line in printable(text).removesuffix("\n").split("\n"):
        color = COLORS.get(line[:1], "") if sys.stdout.isatty() else ""
        sys.stdout.write(f"{color}{line}{RESET if color else ''}\n")

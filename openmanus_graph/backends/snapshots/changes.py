"""What differs between two snapshots: the changed files, and their lines as a unified diff."""

import difflib
import io
from collections.abc import Iterator
from dataclasses import dataclass

from openmanus_graph.backends.snapshots.objects import (
    MissingObjectError,
    SnapshotStore,
    TreeEntry,
)
from openmanus_graph.backends.snapshots.scan import join
from openmanus_graph.safety.open_beneath import shown

MAX_TEXT_BYTES = 1 << 20
"""A larger file is compared by size and digest only: its lines would take minutes."""


@dataclass(frozen=True)
class Change:
    """One path that differs."""

    path: str
    before: TreeEntry | None
    """None: it was not there."""
    after: TreeEntry | None
    """None: it is gone."""

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def changes_between(store: SnapshotStore, before: str, after: str) -> list[Change]:
    """Return what differs between two snapshots, by path. Blocks.

    Args:
        store: Of the home folder.
        before: A snapshot; empty for none, in which nothing is.
        after: Another.

    Raises:
        MissingObjectError: A snapshot is gone.
    """
    return sorted(_compare(store, before, after), key=lambda change: change.path)


def _compare(store: SnapshotStore, before: str, after: str) -> Iterator[Change]:
    waiting = [(before, after, "")]
    while waiting:
        before, after, folder = waiting.pop()
        if before == after:
            continue
        old = store.tree(before) if before else {}
        new = store.tree(after) if after else {}
        for name in old.keys() | new.keys():
            was, now, path = old.get(name), new.get(name), join(folder, name)
            if was == now:
                continue
            tree_before = was.content if was is not None and was.kind == "folder" else ""
            tree_after = now.content if now is not None and now.kind == "folder" else ""
            if not (tree_before and tree_after and was and now and was.mode == now.mode):
                yield Change(path, was, now)
            waiting.append((tree_before, tree_after, path))


def unified_diff(store: SnapshotStore, change: Change) -> str:
    """Return a change as text: a unified diff, or a line that says what is different. Blocks."""
    name = shown(change.path)
    old, new = _lines(store, change.before), _lines(store, change.after)
    if old is None or new is None or old == new:
        return f"{change.kind} {name}: {_described(change.before)} -> {_described(change.after)}\n"
    old_name = f"a/{name}" if change.before else "/dev/null"
    new_name = f"b/{name}" if change.after else "/dev/null"
    lines = difflib.unified_diff(old, new, old_name, new_name)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def change_as_json(store: SnapshotStore, change: Change) -> dict[str, object]:
    """Return a change as programs and the page read it. Blocks."""
    return {
        "path": change.path.encode("utf-8", "replace").decode(),
        "change": change.kind,
        "before": _entry_as_json(change.before),
        "after": _entry_as_json(change.after),
        "diff": unified_diff(store, change),
    }


def _entry_as_json(entry: TreeEntry | None) -> dict[str, object] | None:
    if entry is None:
        return None
    target = shown(entry.content) if entry.kind == "link" else None
    return {"kind": entry.kind, "mode": f"{entry.mode:o}", "size": entry.size, "target": target}


def _lines(store: SnapshotStore, entry: TreeEntry | None) -> list[str] | None:
    """Return the lines of a text file; None for anything else."""
    if entry is None:
        return []
    if entry.kind != "file" or entry.size > MAX_TEXT_BYTES:
        return None
    try:
        text = b"".join(map(store.read, store.pieces(entry))).decode()
    except (UnicodeDecodeError, MissingObjectError):
        return None
    return None if "\0" in text else list(io.StringIO(text, newline="\n"))


def _described(entry: TreeEntry | None) -> str:
    if entry is None:
        return "nothing"
    if entry.kind == "file":
        return f"file of {entry.size} bytes, mode {entry.mode:o}, {entry.content[:12]}"
    if entry.kind == "folder":
        return f"folder, mode {entry.mode:o}"
    return f"link to {shown(entry.content)}" if entry.kind == "link" else entry.content

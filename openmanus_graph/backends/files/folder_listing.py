"""Two levels of a folder, as the model sees them."""

import heapq
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from openmanus_graph.runtime.workspace import (
    Workspace,
    as_tool_error,
    find,
    names_in,
    opened_folder,
)
from openmanus_graph.safety.open_beneath import kind, shown, size_text

MAX_ENTRIES = 300
_MAX_BELOW = 50


@dataclass(frozen=True)
class _Entry:
    name: str
    status: os.stat_result
    target: str | None


def list_folder(workspace: Workspace, real: Path) -> str:
    """List a folder: sorted, with sizes, hidden entries left out. OSError if that fails."""
    entries, left_out = _entries(workspace, real, MAX_ENTRIES)
    room = MAX_ENTRIES - len(entries)
    rows = [f"{shown(workspace.relative(real))}/ (two levels, hidden entries left out)"]
    for entry in entries:
        rows.append("  " + _row(entry))
        if stat.S_ISDIR(entry.status.st_mode):
            below = _folder_rows(workspace, real / entry.name, min(room, _MAX_BELOW))
            room -= min(len(below), room)
            rows += ["    " + row for row in below]
    if left_out:
        rows.append(f"  [{left_out} more entries left out; list them with bash: ls]")
    return "\n".join(rows) if entries else f"{rows[0]}\n  (nothing)"


def folder_shown(workspace: Workspace, path: str) -> str | None:
    """List what the model named, if it is a folder; else None. ToolError if that fails."""
    found = find(workspace, path, outputs=True)
    if found is None or not found.is_folder:
        return None
    with as_tool_error("view", path):
        return list_folder(workspace, workspace.root / found.path)


def _folder_rows(workspace: Workspace, real: Path, limit: int) -> list[str]:
    try:
        entries, left_out = _entries(workspace, real, limit)
    except OSError as error:
        return [f"[cannot be listed: {error.strerror}]"]
    rows = [_row(entry) for entry in entries]
    return [*rows, f"[{left_out} more entries left out]"] if left_out else rows


def _entries(workspace: Workspace, real: Path, limit: int) -> tuple[list[_Entry], int]:
    """Return the first entries by name, and how many more there are."""
    with opened_folder(workspace, real) as folder:
        names = [
            name
            for name in names_in(folder)
            if not name.startswith(".") and not workspace.hides(real / name)
        ]
        entries: list[_Entry] = []
        for name in heapq.nsmallest(limit, names):
            with suppress(FileNotFoundError):  # it may vanish meanwhile
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                link = stat.S_ISLNK(status.st_mode)
                target = os.readlink(name, dir_fd=folder) if link else None
                entries.append(_Entry(name, status, target))
    return entries, max(0, len(names) - limit)


def _row(entry: _Entry) -> str:
    mode = entry.status.st_mode
    name = shown(entry.name)
    if stat.S_ISDIR(mode):
        return f"{name}/"
    if entry.target is not None:
        return f"{name} -> {shown(entry.target)}"
    return f"{name}  {size_text(entry.status.st_size) if stat.S_ISREG(mode) else kind(mode)}"

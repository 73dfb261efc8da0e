"""Finds the files that a run created or changed, by comparing the workspace with a baseline.

Modification times alone are not enough: clocks jump, and copies keep old times.
"""

import ast
import difflib
import hashlib
import itertools
import json
import mimetypes
import os
import tomllib
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, BinaryIO, cast

from openmanus_graph.conversation import announcements
from openmanus_graph.errors import NamesError, ToolError
from openmanus_graph.runtime.atomic_files import is_part
from openmanus_graph.runtime.workspace import (
    HOME_FOLDER,
    Workspace,
    find,
    names_in,
    opened_file,
    opened_folder,
    put_file,
)
from openmanus_graph.safety.folder_walk import walk
from openmanus_graph.safety.open_beneath import open_beneath, shown
from openmanus_graph.state.manus import Artifact

DRAFTS_FOLDER = ".steps"
"""In the workspace: holds one folder of drafts for each plan step."""
SKIPPED_FOLDERS = {
    HOME_FOLDER, DRAFTS_FOLDER, ".git", ".venv", "venv", "node_modules", "__pycache__",
    ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".cache",
}  # fmt: skip
MAX_FILES = 50_000
"""Most files in a baseline. In a larger folder, modification times are compared instead."""
_BASELINE_BYTES = 512 << 20

_READERS: Mapping[str, Callable[[str], object]] = {
    ".json": json.loads,
    ".toml": tomllib.loads,
    ".py": ast.parse,
}
_MOST_READ = 50_000
"""Bytes of a created file whose form and figures are checked."""

_Stamp = list[int]
"""Size in bytes, modification time in ns."""


def take_baseline(workspace: Workspace, run: str, *, fresh: bool) -> None:
    """Save the baseline: the files of the workspace when a run starts. Blocks.

    Only a fresh one replaces that of the run: after a crash that lost its first checkpoints, a run
    that starts again keeps the old one.
    """
    if not fresh:
        with suppress(OSError), _opened_baseline(workspace, run):
            return
    stamps = dict(itertools.islice(files_in(workspace), MAX_FILES + 1))
    data = json.dumps(stamps if len(stamps) <= MAX_FILES else None).encode()
    put_file(workspace, _baseline_path(workspace, run), data, synced=False)


def changed_files(workspace: Workspace, run: str) -> list[Artifact]:
    """List what the run created or changed, by path. Blocks."""
    before, began = _baseline(workspace, run)
    found = _changed(files_in(workspace), before, began)
    artifacts: list[Artifact] = []
    for name, stamp in sorted(itertools.islice(found, MAX_FILES)):
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        artifacts.append(Artifact(path=name, size=stamp[0], media_type=media_type))
    return artifacts


def _changed(
    files: Iterable[tuple[str, _Stamp]], before: Mapping[str, _Stamp] | None, began: int
) -> Iterator[tuple[str, _Stamp]]:
    """Yield the files that differ from a baseline; without one, those written since then."""
    for name, stamp in files:
        if stamp[1] >= began if before is None else before.get(name) != stamp:
            yield name, stamp


def find_named_files(
    workspace: Workspace, run: str, task: str, answer: str = ""
) -> announcements.NamedFiles:
    """Return what a run has done with the files that its task and its answer name. Blocks.

    A file that existed when the run began and no longer exists counts as handled.
    """
    before, began = _baseline(workspace, run)
    folders = list[str]()
    now = dict(files_in(workspace, folders))
    changed = dict(_changed(now.items(), before, began))
    missing, empty, given, there = list[str](), list[str](), list[str](), list[str]()
    for name in announcements.named_files(task):
        try:
            found = find(workspace, name)
        except ToolError:
            continue  # outside of the workspace
        if found is None:
            if name not in (before or {}):
                missing.append(name)
            continue
        if before is None or found.path in before:
            given.append(name)
        elif not found.status.st_size:
            empty.append(name)
        there.append(found.path)
    # It may lie in a folder that the task does not name.
    elsewhere = {PurePath(name).name for name in changed}
    written = [name for name in there if name in changed]
    texts = {name: _text_of(workspace, name) for name in written}
    whole = (item for item in texts.items() if now[item[0]][0] <= _MOST_READ)
    invalid = [name for name, text in whole if not _is_well_formed(name, text)]
    invalid += [name for name, text in texts.items() if _lacks_columns(name, text, task)]
    shrunk = [one for one in written if 2 * now[one][0] < (before or {}).get(one, [0])[0]]
    written += [name for name in missing if PurePath(name).name in elsewhere]
    missing = [name for name in missing if PurePath(name).name not in elsewhere]
    if before != {} and not given and announcements.means_folder(task):
        given.append(".")
    gone = before is not None and not before.keys() <= now.keys()
    unmade = [one for one in announcements.folders_to_make(task) if not _is_among(one, folders)]
    delivered = bool(written) and not missing and not unmade
    return announcements.NamedFiles(
        missing=missing,
        delivered=delivered,
        given=given,
        empty=empty,
        changed=bool(changed) or gone,
        invalid=invalid,
        text="\n".join(texts.values())[:_MOST_READ],
        folders=unmade,
        there=[*_existing(announcements.named_files(answer), now)],
        shrunk=shrunk,
    )


def _existing(names: Iterable[str], files: Iterable[str]) -> Iterator[str]:
    """Yield the names of existing files, in whatever folder."""
    known = {PurePath(one).name for one in files}
    yield from (one for one in names if PurePath(one).name in known)


def _is_among(folder: str, paths: Iterable[str]) -> bool:
    """Return True if paths contain a folder of that name or path, or if it is never searched."""
    return PurePath(folder).name in SKIPPED_FOLDERS or any(
        f"/{path}".casefold().endswith(f"/{folder}".casefold()) for path in paths
    )


def _text_of(workspace: Workspace, path: str) -> str:
    """Return the beginning of a file; empty if it cannot be read."""
    try:
        with opened_file(workspace, path) as file:
            return file.read(_MOST_READ).decode("utf-8-sig")
    except (ToolError, OSError, ValueError):
        return ""


def _lacks_columns(path: str, text: str, task: str) -> bool:
    if PurePath(path).suffix.lower() not in (".csv", ".tsv"):
        return False
    head = text.lstrip().partition("\n")[0].lower()
    columns = announcements.columns_of(PurePath(path).name, task)
    return any(one.lower() not in head for one in columns)


def _is_well_formed(path: str, text: str) -> bool:
    """Return False if the text cannot be parsed as its kind of file."""
    read = _READERS.get(PurePath(path).suffix.lower())
    if read is None or not text:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of Python's parser
            read(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _baseline(workspace: Workspace, run: str) -> tuple[Mapping[str, _Stamp] | None, int]:
    """Return the files when the run began, None if they were too many, and that time in ns."""
    try:
        with _opened_baseline(workspace, run) as file:
            known: Any = json.load(file)
            began = os.fstat(file.fileno()).st_mtime_ns
        # Without a sandbox a command may have written something else there.
        is_valid = known is None or isinstance(known, dict)
        return cast("dict[str, _Stamp] | None", known) if is_valid else {}, began
    except (OSError, ValueError, RecursionError):
        return {}, 0  # without a baseline all files are listed rather than none


def _opened_baseline(workspace: Workspace, run: str) -> BinaryIO:
    return open_beneath(workspace.private, _baseline_path(workspace, run), limit=_BASELINE_BYTES)


def _baseline_path(workspace: Workspace, run: str) -> Path:
    name = hashlib.sha256(run.encode("utf-8", "replace")).hexdigest()[:16]
    return workspace.private / "baselines" / f"{name}.json"


def files_in(
    workspace: Workspace, folders: list[str] | None = None
) -> Iterator[tuple[str, _Stamp]]:
    """Yield path, size and time of the workspace's files except caches and our own. Blocks.

    The paths of the folders, including empty ones, are added to `folders`.
    """
    protected = workspace.protected_inside()
    with suppress(OSError), opened_folder(workspace, workspace.root) as top:
        for folder in walk(top):
            if folders is not None:
                folders.append(folder.path)
            with suppress(OSError), os.scandir(folder.descriptor) as listed:
                for entry in listed:
                    path = f"{folder.path}/{entry.name}" if folder.path else entry.name
                    if path in protected or entry.is_symlink():
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folder.below.extend({entry.name} - SKIPPED_FOLDERS)
                    elif not is_part(entry.name):
                        with suppress(OSError):  # gone since it was listed
                            found = entry.stat(follow_symlinks=False)
                            half = path != path.encode("utf-8", "replace").decode()
                            yield shown(path) if half else path, [found.st_size, found.st_mtime_ns]


_MOST_NAMED = 5
_MOST_COMPARED = 2000
_CLOSE = 0.6
"""Similarity of a misspelt name. If no name reaches it, the most similar ones are named."""


@contextmanager
def naming_neighbours(workspace: Workspace, path: str) -> Generator[None]:
    """Add the names of similar files to the error about a missing file.

    NamesError: The block raised a ToolError, the file does not exist, and similar ones do.
    """
    try:
        yield
    except ToolError as error:
        is_missing = isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
        may_be = is_missing or (path.startswith("/") and isinstance(error.__cause__, OSError))
        if not may_be or not (names := near_names(workspace, path)):
            raise
        listed = ", ".join(map(shown, names))
        is_same = path.lower().endswith(names[0].lower())
        meant = f"Did you mean {listed}?" if is_same else f"There is: {listed}."
        raise NamesError(f"{error} {meant}") from error


def near_names(workspace: Workspace, path: str) -> list[str]:
    """Return the files whose paths are most like a missing one, the likeliest first.

    The path is as the model named it. Absolute paths are also looked for below the root.
    """
    named = PurePosixPath(os.path.normpath(path))
    if named.is_relative_to(workspace.root):
        named = named.relative_to(workspace.root)
    is_elsewhere, parts = named.is_absolute(), [part for part in named.parts if part != "/"]
    if not parts or ".." in parts or "\0" in path:
        return []
    if is_elsewhere:
        for start in range(min(len(parts), 3)):  # such as /workspace/NAME
            inside = "/".join(parts[start:])
            with suppress(ToolError):
                if find(workspace, inside) is not None:
                    return [inside]
        parts = parts[-1:]
    folder, name = "/".join(parts[:-1]), parts[-1]
    there = _names(workspace, folder)
    if not there and name in _names(workspace, ""):
        return [name]
    found = [one for one in there if one.lower() == name.lower()][:_MOST_NAMED]
    for likeness in (_CLOSE,) if is_elsewhere else (_CLOSE, 0.0):
        compared = there[:_MOST_COMPARED]
        found = found or difflib.get_close_matches(name, compared, _MOST_NAMED, likeness)
    return [f"{folder}/{one}" if folder else one for one in found]


def _names(workspace: Workspace, folder: str) -> list[str]:
    """Return the names in a folder except hidden ones and our own."""
    place = workspace.root / folder
    with suppress(OSError), opened_folder(workspace, place) as opened:
        names = (one for one in names_in(opened) if not one.startswith("."))
        return [one for one in names if not workspace.hides(place / one)]
    return []

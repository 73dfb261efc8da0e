"""Overviews of a workspace: names, sizes, columns of tables, beginnings of texts."""

import csv
import heapq
import io
import json
import os
import stat
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast

from openmanus_graph.backends.files import text_file
from openmanus_graph.backends.files.documents import read_document
from openmanus_graph.backends.files.file_content import TABLE_DELIMITERS, binary_kind
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.artifacts import changed_files, files_in
from openmanus_graph.runtime.workspace import (
    Workspace,
    as_tool_error,
    find,
    names_in,
    opened_file,
    opened_folder,
    read_file,
)
from openmanus_graph.safety.open_beneath import kind, named, shown, size_text

MAX_COUNTED = 20_000  # at most so many files are counted
_MAX_FOLDERS = 6  # folders that the note on omitted files names
_NAME_CHARS = 160
_VALUE_CHARS = 40
_LINE_CHARS = 120
_WITHOUT_HEAD = (", a ", ", no valid ", ", which cannot ")
"""Beginnings of the notes on files whose content is not shown."""
_MAX_VALUES = 20  # columns, or fields, that are named
_SAMPLE_BYTES = 64 * 1024
_WORKBOOK_BYTES = 5 * 1024 * 1024
_WORKBOOK_S = 5.0
_JSON, _JSON_LINES = "json", ("jsonl", "ndjson")
_WORKBOOK = "xlsx"
_TABLES = (*TABLE_DELIMITERS, _JSON, *_JSON_LINES, _WORKBOOK)


@dataclass(frozen=True)
class _Limits:
    """How much is shown, and how much is read for it."""

    files: int
    chars: int  # of the whole
    list_chars: int  # of the names and sizes; the rest is for the contents
    head_lines: int  # of a text; 0: only tables are shown
    parsed_bytes: int
    """Of a larger table the rows are estimated; the head of a larger text is not shown."""
    workbooks: int  # each is read by a separate process, which takes half a second
    as_text: bool = False  # whether the first lines of tables are shown as text, too


MAX_FILES = 60
MAX_CHARS = 4000  # of a planner's overview
_OVERVIEW = _Limits(MAX_FILES, MAX_CHARS, 2400, 4, 2 << 20, 3)
LISTED_FILES = 40
LISTED_CHARS = 680  # of the listing that every agent is shown: about 300 tokens with its frame
_LISTING = _Limits(LISTED_FILES, LISTED_CHARS, 420, 0, 128 << 10, 0)
_SMALL = _Limits(LISTED_FILES, 2500, 1000, 12, 128 << 10, 0, as_text=True)
"""Of the listing that small models are shown."""
_MADE = _Limits(4, 1000, 300, 8, 128 << 10, 0, as_text=True)
"""Of the files that a run made, as small models are shown them."""

_GIT_S, _MAX_HEAD_BYTES, _BRANCH = 2.0, 1000, "# branch.head "
_GIT_STATUS = [
    "git", "status", "--porcelain=2", "--branch", "--no-renames", "--ignore-submodules=all",
]  # fmt: skip
_GIT_QUIET = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}
_GIT_CONFIG = "[core]\nrepositoryformatversion = 0\nbare = false\n"
_GIT_LINKED = ("index", "info", "objects", "packed-refs", "refs", "shallow")

_File = tuple[str, int]  # its path in the workspace, and its size in bytes


def workspace_overview(workspace: Workspace, without: Collection[str] = ()) -> str:
    """List a workspace's files with the contents of tables and short texts. Blocks.

    Files near the root come first. Links, caches, our own and hidden files (which hold secrets) are
    left out. The text is empty if there are no files.
    """
    text = _overview(workspace, _OVERVIEW, _files(workspace, without))[0]
    return "\n".join(filter(None, (_git_state(workspace), text)))


def workspace_listing(
    workspace: Workspace, only: Collection[str] | None = None, *, small: bool = False
) -> tuple[str, list[str]]:
    """Return a shorter and faster overview, and the names of the files whose content it shows.

    Contents are shown of the files in `only`; None for all tables. A small model is also shown the
    first lines of texts.
    """
    limits = _SMALL if small else _LISTING
    text, heads = _overview(workspace, limits, _files(workspace), only)
    return "\n".join(filter(None, (_git_state(workspace), text))), heads


def made_files(workspace: Workspace, run: str) -> str:
    """List the files that the run with this id made or changed, and their first lines. Blocks."""
    made = ((one["path"], one["size"]) for one in changed_files(workspace, run))
    return _overview(workspace, _MADE, [one for one in made if not _is_hidden(one[0])])[0]


def _git_state(workspace: Workspace) -> str:
    """Return the workspace's branch and how many files differ; empty if it is no repository.

    Git could run programs that the repository's configuration names (filters, monitors, those of
    submodules). So it is given a folder with a configuration of our own, and links to the rest.
    """
    root, environment = workspace.root, {"PATH": os.environ.get("PATH", os.defpath)}
    with (
        tempfile.TemporaryDirectory() as own,
        suppress(OSError, ToolError, subprocess.SubprocessError),
    ):
        Path(own, "HEAD").write_bytes(read_file(workspace, ".git/HEAD", _MAX_HEAD_BYTES))
        Path(own, "config").write_text(_GIT_CONFIG)
        for name in _GIT_LINKED:
            Path(own, name).symlink_to(root / ".git" / name)
        environment |= {"GIT_DIR": own, "GIT_WORK_TREE": str(root), "HOME": own, **_GIT_QUIET}
        output = subprocess.run(
            _GIT_STATUS, cwd=root, env=environment, check=True, capture_output=True, timeout=_GIT_S
        ).stdout
        lines = os.fsdecode(output).splitlines()
        kinds = Counter(line[:1] for line in lines)
        branch = next((one[len(_BRANCH) :] for one in lines if one.startswith(_BRANCH)), "")
        changed, new = kinds["1"] + kinds["u"], kinds["?"]
        branch = _short(shown(branch), _VALUE_CHARS)
        return f"[git: branch {branch}, {changed} changed, {new} untracked]"
    return ""


def _files(workspace: Workspace, without: Collection[str] = ()) -> list[_File]:
    walked = islice(files_in(workspace), MAX_COUNTED + 1)
    return [
        (name, size) for name, (size, _) in walked if not _is_hidden(name) and name not in without
    ]


def _is_hidden(path: str) -> bool:
    return "/." in f"/{path}"


def _overview(
    workspace: Workspace,
    limits: _Limits,
    found: Sequence[_File],
    only: Collection[str] | None = None,
) -> tuple[str, list[str]]:
    listed: list[_File] = []
    rows: list[str] = []
    room = limits.list_chars
    for name, size in heapq.nsmallest(limits.files, found, key=lambda f: (f[0].count("/"), f[0])):
        row = f"{_short(shown(name), _NAME_CHARS)}  {size_text(size)}"
        room -= len(row) + 1
        if room < 0:
            break
        listed.append((name, size))
        rows.append(row)
    rest = _left_out(found, listed)
    room = limits.chars - sum(len(row) + 1 for row in (*rows, *rest))
    readable = [one if only is None or one[0] in only else (one[0], 0) for one in listed]
    contents = _contents(workspace, readable, room, limits)
    text = "\n".join([row + contents.get(n, "") for n, row in enumerate(rows)] + rest)
    heads = (n for n in sorted(contents) if not contents[n].startswith(_WITHOUT_HEAD))
    return text, [listed[n][0] for n in heads]


def _left_out(found: Sequence[_File], listed: Sequence[_File]) -> list[str]:
    tops = Counter(name.partition("/")[0] if "/" in name else "" for name, _ in found)
    tops -= Counter(name.partition("/")[0] if "/" in name else "" for name, _ in listed)
    if not tops:
        return []
    more = "more than " if len(found) > MAX_COUNTED else ""
    places = ", ".join(
        f"{f'{_short(shown(top), _VALUE_CHARS)}/' if top else 'the workspace itself'} ({count})"
        for top, count in tops.most_common(_MAX_FOLDERS)
    )
    return [f"[{more}{tops.total()} other files are left out, most of them in {places}]"]


def _contents(
    workspace: Workspace, files: Sequence[_File], room: int, limits: _Limits
) -> dict[int, str]:
    contents: dict[int, str] = {}
    workbooks = 0
    order = sorted(
        range(len(files)), key=lambda n: (_suffix(files[n][0]) not in _TABLES, files[n][1])
    )
    for place in order:
        name, size = files[place]
        if _suffix(name) == _WORKBOOK:
            workbooks += 1
            if workbooks > limits.workbooks or size > _WORKBOOK_BYTES:
                continue
        text = _content(workspace, name, size, limits)
        if text and len(text) <= room:
            contents[place] = text
            room -= len(text)
        if room < _VALUE_CHARS:
            break
    return contents


def _content(workspace: Workspace, name: str, size: int, limits: _Limits) -> str:
    suffix = _suffix(name)
    if not size or not (limits.head_lines or suffix in _TABLES):
        return ""
    try:
        with opened_file(workspace, name) as file:
            if suffix == _WORKBOOK:
                text = read_document(
                    file, _WORKBOOK, None, text_file.Lines(1, 3), timeout_s=_WORKBOOK_S
                )
                return _indented(text.splitlines(), limits.head_lines)
            return _text_content(file, suffix, size, limits)
    except (ToolError, OSError):
        return ", which cannot be read"


def _text_content(file: BinaryIO, suffix: str, size: int, limits: _Limits) -> str:
    head = file.read(_SAMPLE_BYTES)
    sample = text_file.whole_characters(head, cut=size > len(head))
    small = size <= limits.parsed_bytes
    encoding = text_file.encoding_of(file) if small else text_file.detect_encoding(sample)
    if encoding is None:
        return f", a {binary_kind(head)}"
    text = text_file.printable(sample.removeprefix(encoding.bom).decode(encoding.name, "replace"))
    try:
        with text_file.opened_text(file, encoding) as whole:
            if suffix in TABLE_DELIMITERS and not limits.as_text:
                rows = whole if small else None
                return _table(text, TABLE_DELIMITERS[suffix], rows, size / len(sample))
            if not small:
                return ""
            if suffix in (_JSON, *_JSON_LINES):
                held = _json(whole.read(), lines=suffix != _JSON)
                return held + _first_lines(text, limits) if limits.as_text else held
    except (ValueError, csv.Error, RecursionError):
        return f", no valid {suffix}"
    return _first_lines(text, limits)


def _first_lines(text: str, limits: _Limits) -> str:
    lines = text.splitlines()
    count = f", {len(lines)} lines" if limits.as_text else ""
    return f"{count}{_indented(lines, limits.head_lines)}"


def _table(sample: str, separators: str, rows: Iterable[str] | None, times: float) -> str:
    """Return a table's columns, its number of rows, and its first row.

    The rows are estimated if `rows` is None, as the sample's `times` the table's length.
    """
    header = sample.partition("\n")[0]
    separator = max(separators, key=header.count)
    columns, *first = islice(csv.reader(io.StringIO(sample, newline=""), delimiter=separator), 2)
    if rows is None:
        lines = sample.count("\n") * times
        count = f"about {round(lines, -3):,.0f} rows"
    else:
        filled = sum(any(row) for row in csv.reader(rows, delimiter=separator))
        count = f"{filled - 1:,} row{'' if filled == 2 else 's'}"
    found = f", {count}; columns: {_listed(columns)}"
    return f"{found}; the first: {_listed(first[0])}" if first else found


def _json(text: str, *, lines: bool) -> str:
    """Return how many items a JSON text holds, and their fields; `lines`: one value per line."""
    if lines:
        first, *more = filter(None, map(str.strip, text.splitlines()))
        value: Any = [json.loads(first), *more]
    else:
        value = json.loads(text)
    if isinstance(value, dict):
        return f", an object with {_listed(cast('dict[str, Any]', value))}"
    if not isinstance(value, list):
        return ""
    items = cast("list[Any]", value)
    found = f", {len(items):,} items"
    if not items or not isinstance(items[0], dict):
        return found
    return f"{found} with {_listed(cast('dict[str, Any]', items[0]))}"


def _listed(values: Iterable[object]) -> str:
    found = [" ".join(str(value).split()) for value in values]
    more = f" and {len(found) - _MAX_VALUES} more" if len(found) > _MAX_VALUES else ""
    return ", ".join(_short(one, _VALUE_CHARS) for one in found[:_MAX_VALUES]) + more


def _indented(lines: Sequence[str], most: int) -> str:
    filled = (line for line in lines if line.strip())
    return "".join(f"\n    {_short(line, _LINE_CHARS)}" for line in islice(filled, most))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _suffix(name: str) -> str:
    return PurePath(named(name)).suffix.lower().removeprefix(".")


MAX_ENTRIES = 300
_MAX_BELOW = 50


def list_folder(workspace: Workspace, real: Path) -> str:
    """List a folder: sorted, with sizes, hidden entries left out. OSError if that fails."""
    entries, left_out = _rows(workspace, real, MAX_ENTRIES)
    room = MAX_ENTRIES - len(entries)
    rows = [f"{shown(workspace.relative(real))}/ (two levels, hidden entries left out)"]
    for name, row in entries.items():
        rows.append(f"  {row}")
        if row == f"{shown(name)}/":
            below = _folder_rows(workspace, real / name, min(room, _MAX_BELOW))
            room -= min(len(below), room)
            rows += [f"    {inner}" for inner in below]
    if left_out:
        rows.append(f"  [{left_out} more entries left out; list them with bash: ls]")
    return "\n".join(rows) if entries else f"{rows[0]}\n  (nothing)"


def folder_shown(workspace: Workspace, path: str) -> str | None:
    """List the path that the model named; None if it is not a folder. ToolError if that fails."""
    found = find(workspace, path, outputs=True)
    if found is None or not found.is_folder:
        return None
    with as_tool_error("view", path):
        return list_folder(workspace, workspace.root / found.path)


def _folder_rows(workspace: Workspace, real: Path, limit: int) -> list[str]:
    try:
        rows, left_out = _rows(workspace, real, limit)
    except OSError as error:
        return [f"[cannot be listed: {error.strerror}]"]
    more = [f"[{left_out} more entries left out]"] if left_out else []
    return [*rows.values(), *more]


def _rows(workspace: Workspace, real: Path, limit: int) -> tuple[dict[str, str], int]:
    """Return rows on the first entries, by their names, and how many more there are."""
    rows: dict[str, str] = {}
    with opened_folder(workspace, real) as folder:
        visible = (name for name in names_in(folder) if not name.startswith("."))
        names = [name for name in visible if not workspace.hides(real / name)]
        for name in heapq.nsmallest(limit, names):
            with suppress(FileNotFoundError):  # it may vanish meanwhile
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                mode, ending = status.st_mode, "/"
                if stat.S_ISLNK(mode):
                    ending = f" -> {shown(os.readlink(name, dir_fd=folder))}"
                elif not stat.S_ISDIR(mode):
                    size = size_text(status.st_size) if stat.S_ISREG(mode) else kind(mode)
                    ending = f"  {size}"
                rows[name] = f"{shown(name)}{ending}"
    return rows, max(0, len(names) - limit)

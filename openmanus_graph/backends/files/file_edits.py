"""Edits of one file: read it, change its text, store the old content, replace the file."""

import collections
import difflib
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from openmanus_graph.backends.files import text_file
from openmanus_graph.backends.files.file_content import binary_kind
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.atomic_files import replace_file, rewrite_file, status
from openmanus_graph.runtime.workspace import (
    Workspace,
    find,
    names_in,
    opened_folder,
    opened_place,
    require_writable,
)
from openmanus_graph.safety.open_beneath import Place, open_to_read, shown, size_text

MAX_EDITS = 100  # kept for one path
MAX_BYTES = 200 * 1024 * 1024  # kept for all paths of a workspace together; the oldest go first


@dataclass(frozen=True)
class PastEdit:
    place: Path  # the stored content
    before: bytes | None  # none: the edit created the file
    after: str  # digest of the content that the edit wrote


def digest(content: bytes | None) -> str:
    return "none" if content is None else hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class EditHistory:
    """The past edits of a workspace's files. Methods block and raise OSError."""

    workspace: Workspace

    @property
    def _root(self) -> Path:
        return self.workspace.private / "edit_history"

    def _folder(self, path: str) -> Path:
        return self._root / hashlib.sha256(os.fsencode(path)).hexdigest()[:24]

    def add(self, path: str, before: bytes | None, after: bytes) -> PastEdit:
        """Store a file's content before an edit."""
        place = self._folder(path)
        with opened_folder(self.workspace, place, create=True) as folder:
            names = _entries(folder)
            number = int(names[-1].split(".")[0]) + 1 if names else 1
            kind = "absent" if before is None else "before"
            name = f"{number:06}.{digest(after)}.{kind}"
            replace_file(folder, name, before or b"", like=None)
            for old in names[: max(0, len(names) + 1 - MAX_EDITS)]:
                os.unlink(old, dir_fd=folder)
        self._limit_size(spare=name)
        return PastEdit(place / name, before, digest(after))

    def last(self, path: str) -> PastEdit | None:
        place = self._folder(path)
        try:
            with opened_folder(self.workspace, place) as folder:
                names = _entries(folder)
                if not names:
                    return None
                with open_to_read(folder, names[-1], names[-1], limit=MAX_BYTES) as file:
                    before = file.read()
        except FileNotFoundError:
            return None
        _, after, kind = names[-1].split(".")
        return PastEdit(place / names[-1], None if kind == "absent" else before, after)

    def drop(self, edit: PastEdit) -> None:
        with (
            suppress(FileNotFoundError),
            opened_folder(self.workspace, edit.place.parent) as folder,
        ):
            os.unlink(edit.place.name, dir_fd=folder)

    def _limit_size(self, spare: str) -> None:
        """Delete the oldest entries of all files until the rest is small enough."""
        kept: list[tuple[int, int, str, str]] = []
        with opened_folder(self.workspace, self._root) as root:
            below = names_in(root)
        for folder_name in below:
            with (
                suppress(OSError),
                opened_folder(self.workspace, self._root / folder_name) as folder,
            ):
                for name in _entries(folder):
                    entry = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    kept.append((entry.st_mtime_ns, entry.st_size, folder_name, name))
        total = sum(size for _, size, _, _ in kept)
        for _, size, folder_name, name in sorted(kept):
            if total <= MAX_BYTES:
                return
            if name != spare:
                self.drop(PastEdit(self._root / folder_name / name, None, ""))
                total -= size


def _entries(folder: int) -> list[str]:
    names = (name for name in names_in(folder) if name.endswith((".before", ".absent")))
    return sorted(name for name in names if name.count(".") == 2 and name.split(".")[0].isdecimal())


MAX_TEXT_BYTES = 20 * 1024 * 1024
_MAX_POSITIONS = 20
_SEARCHED_LINES = 20_000
_CONTEXT_LINES, _SNIPPET_CHARS = 4, 800  # shown around an edit
_LINE_NUMBER = re.compile(r"\s*\d+\t")
_MOST_COMPARED_LINES, _MOST_COMPARED_WIDTH = 200, 500
_SHOWN_ROWS, _SHOWN_WIDTH = 8, 200
_WORD = re.compile(r"\w+")
_MARKS = str.maketrans("‘’“”«»‐‑–—−`", '\'\'""""-----\'')  # what models confuse


def _loose(text: str) -> str:
    return text.translate(_MARKS).lower()


_LOOKALIKES: dict[str, Callable[[str], str]] = {
    "whitespace": str,
    "quotes or dashes": lambda text: text.translate(_MARKS),
    "upper and lower case": _loose,
}


@dataclass(frozen=True)
class Edit:
    """A changed text and which of its lines are new."""

    content: str
    first: int
    last: int


def create_file(workspace: Workspace, path: str, text: str, *, overwrite: bool = False) -> str:
    """Write a new file and its folders; `overwrite` may replace a file, which undo restores."""
    found = find(workspace, path)
    data = _encode_text(text_file.Encoding("utf-8"), text, "file_text")
    require_text_size(len(data), path)
    if path.endswith("/") and found is None:
        raise ToolError(f"{shown(path)} names a folder. Add the name of the file to create.")
    if found is not None and not overwrite:
        raise ToolError(
            f"{shown(path)} already exists; it was not changed. To replace it, call create "
            "again with overwrite=true; to change parts of it, use str_replace or insert."
        )
    with opened_place(workspace, path, "create", create=True) as place:
        before = _read_file(place, path)
        require_writable(place.folder, place.name, path)
        _write_with_history(EditHistory(workspace), place, before=before, after=data)
    done = "Created" if before is None else "Replaced"
    return f"{done} {shown(place.path)} ({len(text_file.split_lines(text))} lines)."


def edit_file(workspace: Workspace, path: str, change: Callable[[str], Edit]) -> str:
    """Change a file's text; `change` gets it with its own line ends."""
    with opened_place(workspace, path, "edit") as place:
        before = _read_file(place, path)
        if before is None:
            text = f"{shown(path)} does not exist. Use create for a new file."
            raise TrustedToolError(text) from FileNotFoundError(path)
        require_writable(place.folder, place.name, path)
        encoding, text = decode_text(before, path)
        edit = change(text)
        after = _encode_text(encoding, edit.content, "new_str")
        require_text_size(len(after), path)
        _write_with_history(EditHistory(workspace), place, before=before, after=after)
    lines = text_file.split_lines(edit.content)
    first, last = max(1, edit.first - _CONTEXT_LINES), min(len(lines), edit.last + _CONTEXT_LINES)
    around = text_file.numbered(lines, first, last, _SNIPPET_CHARS) or "(the file is empty now)"
    return f"Edited {shown(place.path)}. Around the change:\n{around}"


def undo_edit(workspace: Workspace, path: str) -> str:
    """Undo the last edit, unless something else changed the file after it."""
    history = EditHistory(workspace)
    with opened_place(workspace, path, "undo the edit of") as place:
        name = shown(place.path)
        edit = history.last(place.path)
        if edit is None:
            raise TrustedToolError(f"There is no edit history for {name}: nothing to undo.")
        now = _read_file(place, path)
        if digest(now) == digest(edit.before):  # a crash came between history and file
            history.drop(edit)
            return f"{name} already is as it was before the last edit."
        if digest(now) != edit.after:
            what = "was deleted" if now is None else "was changed by something else"
            if edit.before is None:
                rest = "after it was created; it was left as it is. Use bash to remove it."
                raise ToolError(f"{name} {what} {rest}")
            kept = workspace.keep(edit.before, Path(name).suffix)
            raise ToolError(
                f"{name} {what} after the last edit; it was left as it is. The version before that "
                f"edit is in {kept}; copy from there what you need."
            )
        require_writable(place.folder, place.name, path)
        if edit.before is None:
            os.unlink(place.name, dir_fd=place.folder)
        else:
            _write_file(workspace, place, edit.before, status(place.folder, place.name))
        history.drop(edit)
    if edit.before is None:
        return f"Undone: {name}, which that edit had created, is removed again."
    return f"Undone: {name} is as it was before the last edit ({size_text(len(edit.before))})."


def replace_once(content: str, old: str, new: str) -> Edit:
    """Replace the only occurrence of a text; ToolError if there is none or more than one."""
    plain, old, new = (
        text_file.with_newlines(content),
        text_file.with_newlines(old),
        text_file.with_newlines(new),
    )
    if not old:
        raise ToolError("old_str is empty. Use insert to add lines, or create for a new file.")
    if old == new:
        raise ToolError("old_str and new_str are the same (line ends apart, which are kept).")
    found, position = list[int](), plain.find(old)
    while position >= 0 and len(found) <= _MAX_POSITIONS:
        found.append(position)
        position = plain.find(old, position + 1)  # overlapping ones are ambiguous too
    if not found:
        raise ToolError(_why_missing(plain, old))
    if len(found) > 1:
        lines = (plain.count("\n", 0, at) + 1 for at in found[:_MAX_POSITIONS])
        more = " and more" if len(found) > _MAX_POSITIONS else ""
        raise ToolError(
            f"old_str occurs more than once, at lines {', '.join(map(str, lines))}{more}; the file "
            "was not changed. Add lines around it so that it occurs once."
        )
    # Only what differs is written: in a file of mixed line ends the common lines keep theirs.
    head = len(os.path.commonprefix([old, new]))
    tail = len(os.path.commonprefix([old[head:][::-1], new[head:][::-1]]))
    begin, stop = found[0] + head, found[0] + len(old) - tail
    return _splice(content, plain, begin, stop, new[head : len(new) - tail])


def insert_after(content: str, line: int, text: str) -> Edit:
    """Insert whole lines after a line; 0 is the top."""
    lines = text_file.split_lines(content)
    if not 0 <= line <= len(lines):
        raise ToolError(
            f"insert_line is {line}, but must be from 0 to {len(lines)}, the last line."
        )
    added = text_file.with_newlines(text)
    count = max(1, added.count("\n") + (not added.endswith("\n")))
    end = _line_end(lines, line - 1)
    if line and not lines[line - 1].endswith(("\r", "\n")):
        added = "\n" + added  # after a last line without an end: the new last line has none either
    elif not added.endswith("\n"):
        added += "\n"
    pieces = [*lines[:line], added.replace("\n", end), *lines[line:]]
    return Edit("".join(pieces), line + 1, line + count)


def _splice(content: str, plain: str, begin: int, stop: int, text: str) -> Edit:
    lines = text_file.split_lines(content)
    first = plain.count("\n", 0, begin)
    text_as_there = text.replace("\n", _line_end(lines, first))
    before, after = (_offset(lines, plain, position) for position in (begin, stop))
    changed = content[:before] + text_as_there + content[after:]
    if text_file.with_newlines(changed) != plain[:begin] + text + plain[stop:]:
        raise ToolError(
            "The edit would join a lone CR and a LF into one line end; the file was not changed. "
            "Use python_execute for files with such mixed line ends."
        )
    return Edit(changed, first + 1, first + 1 + text.count("\n"))


def _offset(lines: list[str], plain: str, position: int) -> int:
    row = plain.count("\n", 0, position)
    column = position - (plain.rfind("\n", 0, position) + 1)
    return sum(map(len, lines[:row])) + column


def _line_end(lines: list[str], index: int) -> str:
    """Return the end of a line, or of a neighbour if it has none."""
    for near in (index, index - 1, index + 1):
        if 0 <= near < len(lines):
            end = lines[near][len(lines[near].rstrip("\r\n")) :]
            if end:
                return end
    return "\n"


def _why_missing(plain: str, old: str) -> str:
    start = "old_str was not found exactly; the file was not changed."
    wanted = old.strip("\n").split("\n")
    if all(_LINE_NUMBER.match(line) for line in wanted if line.strip()) and old.strip():
        return f"{start} It begins with the line numbers that view shows; leave them out."
    lines, wanted = plain.split("\n")[:_SEARCHED_LINES], old.removesuffix("\n").split("\n")
    wanted = wanted[:_MOST_COMPARED_LINES]
    at, end = _nearest(lines, wanted)
    if end <= at:
        return f"{start} No line resembles it. View the file and copy the text."
    there = lines[at:end]
    where = f"lines {at + 1}-{end}" if len(there) > 1 else f"line {end}"
    what = _only_difference(wanted, there)
    how = f"differs only in {what}" if what else "is"
    rows = _differing(wanted, there, repr if what else text_file.printable)
    rows = rows or "(These lines are the same: the difference is after them.)"
    return f"{start} The nearest text, {where}, {how} (- old_str, + file):\n{rows}"


def _only_difference(wanted: list[str], there: list[str]) -> str:
    """Return in what alone the lines differ from those of the file; empty if in more."""
    if wanted == there:
        return ""
    if [line.lstrip() for line in wanted] == [line.lstrip() for line in there]:
        return "indentation"
    for what, alike in _LOOKALIKES.items():
        text, other = (" ".join(alike("\n".join(rows)).split()) for rows in (wanted, there))
        if text and text in other:
            return what
    return ""


def _nearest(lines: list[str], wanted: list[str]) -> tuple[int, int]:
    """Return where the lines most like the wanted ones begin and end; (0, 0) if none is."""
    places = collections.defaultdict[str, list[int]](list)
    for number, line in enumerate(lines):
        places[_key(line)].append(number)
    keys = [_key(line) for line in wanted]
    votes = collections.Counter[int]()
    for row, key in enumerate(keys):
        for number in places.get(key, ())[:_MAX_POSITIONS]:
            votes[number - row] += len(key)
    if not votes.total():
        longest = max(keys, key=len)
        words = {*_WORD.findall(longest)}
        sharing = sorted(places, key=lambda key: -len(words.intersection(_WORD.findall(key))))
        for key in difflib.get_close_matches(longest, sharing[:_MOST_COMPARED_LINES], n=1):
            votes[places[key][0] - keys.index(longest)] = 1
    if not votes.total():
        return 0, 0
    at = max(0, votes.most_common(1)[0][0])
    around = [_key(line) for line in lines[at : at + 2 * len(keys)]]
    *same, _ = difflib.SequenceMatcher(None, keys, around, autojunk=False).get_matching_blocks()
    after = len(keys) - same[-1].a if same else len(keys)
    return at, min(len(lines), at + after + (same[-1].b if same else 0))


def _key(line: str) -> str:
    return " ".join(_loose(line[:_MOST_COMPARED_WIDTH]).split())


def _differing(wanted: list[str], there: list[str], show: Callable[[str], str]) -> str:
    """Return the lines that differ, `-` before wanted ones and `+` before those of the file."""
    most = _MOST_COMPARED_LINES
    compared = [*difflib.unified_diff(wanted[:most], there[:most], n=1, lineterm="")][3:]
    changed = [row[1:] for row in compared if row[0] in "-+"]
    begin = len(os.path.commonprefix(changed[:1] + changed[-1:]))
    skipped = max(0, begin - 40) if max(map(len, changed), default=0) > _SHOWN_WIDTH else 0
    rows, kinds = list[str](), collections.Counter[str]()
    for row in compared:
        kinds[row[0]] += 1
        if row[0] != "@" and kinds[row[0]] <= _SHOWN_ROWS:
            rows.append(f"{row[0]} {show(row[1:][skipped : skipped + _SHOWN_WIDTH])}")
    if more := len(compared) - kinds["@"] - len(rows):
        rows.append(f"[{more} more lines]")
    return "\n".join(rows)


def decode_text(data: bytes, path: str) -> tuple[text_file.Encoding, str]:
    # A PDF may well decode as text.
    encoding = None if data.startswith(b"%PDF-") else text_file.detect_encoding(data)
    if encoding is None:
        raise ToolError(
            f"{shown(path)} is not text but a {binary_kind(data)} of {size_text(len(data))}. Use "
            "read_file for PDF, Word, Excel and PowerPoint, python_execute for anything else."
        )
    return encoding, encoding.decode(data)


def require_text_size(size: int, path: str) -> None:
    if size > MAX_TEXT_BYTES:
        raise ToolError(
            f"{shown(path)} has {size_text(size)}; the limit here is {size_text(MAX_TEXT_BYTES)}. "
            "Read parts with read_file (lines=...), change it with python_execute or sed in bash."
        )


def _read_file(place: Place, path: str) -> bytes | None:
    if status(place.folder, place.name) is None:
        return None
    with open_to_read(place.folder, place.name, path) as file:
        require_text_size(os.fstat(file.fileno()).st_size, path)
        return file.read()


def _encode_text(encoding: text_file.Encoding, text: str, parameter: str) -> bytes:
    try:
        data = encoding.encode(text)
        if encoding.errors != "strict" or encoding.decode(data) == text:
            return data
        problem = "some character"
    except UnicodeEncodeError as error:
        problem = ascii(error.object[error.start : error.end][:20])
    raise ToolError(
        f"{parameter} holds {problem}, which {encoding.name}, the file's encoding, cannot express; "
        "no file was changed. Use other characters, or convert the file with python_execute."
    )


def _write_with_history(
    history: EditHistory, place: Place, *, before: bytes | None, after: bytes
) -> None:
    """Write the history first: undoing an edit that never happened does no harm."""
    like = status(place.folder, place.name) if before is not None else None
    past = history.add(place.path, before, after)
    try:
        _write_file(history.workspace, place, after, like)
    except OSError:
        history.drop(past)
        raise


def _write_file(
    workspace: Workspace, place: Place, content: bytes, like: os.stat_result | None
) -> None:
    """Replace a file. The remains of a crash are in a separate folder.

    A file with several hard links is changed in place, so that all names show the new content. A
    protected file is not changed so: only the name is replaced.
    """
    hidden = workspace.hidden()
    if like and like.st_nlink > 1 and (like.st_dev, like.st_ino) not in hidden:
        rewrite_file(place.folder, place.name, content, like)
        return
    with opened_folder(workspace, workspace.incoming, create=True) as scratch:
        replace_file(place.folder, place.name, content, like, scratch)

"""Changing one file: read it, change its text, remember what it was, put the new one in place."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from openmanus_graph.backends.files.edit_history import EditHistory, PastEdit, digest
from openmanus_graph.backends.files.file_kinds import binary_kind, is_pdf
from openmanus_graph.backends.files.text_edit import Edit
from openmanus_graph.backends.files.text_file import (
    Encoding,
    detect_encoding,
    size_text,
    split_lines,
)
from openmanus_graph.backends.files.text_view import snippet
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.contained import (
    opened_entry,
    opened_folder,
    replace_file,
    require_file,
    require_writable,
    rewrite_file,
    shown,
    status,
    told_as,
)
from openmanus_graph.runtime.workspace import Workspace

MAX_TEXT_BYTES = 20 * 1024 * 1024


def decoded(data: bytes, path: str) -> tuple[Encoding, str]:
    """Turn a file's bytes into text; ToolError if they are none."""
    encoding = None if is_pdf(data) else detect_encoding(data)
    if encoding is None:
        raise ToolError(
            f"{shown(path)} is no text but a {binary_kind(data)} of {size_text(len(data))}. Use "
            "read_file for PDF, Word, Excel and PowerPoint, python_execute for anything else."
        )
    return encoding, encoding.decode(data)


def require_text_size(size: int, path: str) -> None:
    """Raise ToolError if a file is too large for viewing and editing as text."""
    if size > MAX_TEXT_BYTES:
        raise ToolError(
            f"{shown(path)} has {size_text(size)}; the limit here is {size_text(MAX_TEXT_BYTES)}. "
            "Read parts with read_file (lines=...), change it with python_execute or sed in bash."
        )


def create_file(workspace: Workspace, path: str, text: str) -> str:
    """Write a new file, and the folders on the way to it."""
    real = workspace.resolve(path)
    data = _encoded(Encoding("utf-8"), text, "file_text")
    require_text_size(len(data), path)
    with told_as("create", path):
        if path.endswith("/") and not real.exists():
            raise ToolError(f"{shown(path)} names a folder. Add the name of the file to create.")
        if real.exists():
            raise ToolError(
                f"{shown(path)} exists already; it was not changed. Change it with str_replace or "
                "insert, or create another path."
            )
        with opened_folder(workspace, real.parent, create=True) as folder:
            require_writable(folder, real.name, path)
            _replace(EditHistory(workspace), real, folder, before=None, after=data)
    return f"Created {shown(workspace.relative(real))} ({len(split_lines(text))} lines)."


def edit_file(workspace: Workspace, path: str, change: Callable[[str], Edit]) -> str:
    """Change a file's text; `change` gets it with the line ends it has."""
    real = workspace.resolve(path)
    with told_as("edit", path), opened_folder(workspace, real.parent) as folder:
        before = _content(folder, real.name, path)
        if before is None:
            raise ToolError(f"{shown(path)} does not exist. Use create for a new file.")
        require_writable(folder, real.name, path)
        encoding, text = decoded(before, path)
        edit = change(text)
        after = _encoded(encoding, edit.content, "new_str")
        require_text_size(len(after), path)
        _replace(EditHistory(workspace), real, folder, before=before, after=after)
    lines = split_lines(edit.content)
    name = shown(workspace.relative(real))
    return f"Edited {name}. Around the change:\n{snippet(lines, edit.first, edit.last)}"


def undo_edit(workspace: Workspace, path: str) -> str:
    """Take back the last edit, unless something else changed the file after it."""
    real = workspace.resolve(path)
    history = EditHistory(workspace)
    name = shown(workspace.relative(real))
    with told_as("undo the edit of", path):
        edit = history.last(real)
        if edit is None:
            raise ToolError(f"There is no edit history for {name}: nothing to undo.")
        with opened_folder(workspace, real.parent) as folder:
            now = _content(folder, real.name, path)
            if digest(now) == digest(edit.before):  # a crash came between history and file
                history.drop(edit)
                return f"{name} already is as it was before the last edit."
            if digest(now) != edit.after:
                raise ToolError(_changed_since(workspace, name, edit, gone=now is None))
            require_writable(folder, real.name, path)
            _restore(workspace, folder, real.name, edit.before)
        history.drop(edit)
    if edit.before is None:
        return f"Undone: {name}, which that edit had created, is removed again."
    return f"Undone: {name} is as it was before the last edit ({size_text(len(edit.before))})."


def _content(folder: int, name: str, path: str) -> bytes | None:
    """Read an existing file; None if there is none."""
    entry = status(folder, name)
    if entry is None:
        return None
    require_file(path, entry.st_mode)
    require_text_size(entry.st_size, path)
    with opened_entry(folder, name, path) as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    require_text_size(len(data), path)
    return data


def _encoded(encoding: Encoding, text: str, parameter: str) -> bytes:
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


def _replace(
    history: EditHistory, real: Path, folder: int, *, before: bytes | None, after: bytes
) -> None:
    """Write history first: an edit that can be undone without having happened does no harm."""
    like = status(folder, real.name) if before is not None else None
    past = history.add(real, before, after)
    try:
        _put(history.workspace, folder, real.name, after, like)
    except OSError:
        history.drop(past)
        raise


def _restore(workspace: Workspace, folder: int, name: str, content: bytes | None) -> None:
    if content is None:
        os.unlink(name, dir_fd=folder)
    else:
        _put(workspace, folder, name, content, status(folder, name))


def _put(
    workspace: Workspace, folder: int, name: str, content: bytes, like: os.stat_result | None
) -> None:
    """Replace a file; what a crash leaves of that lies among our own files.

    A file with other names is changed in place, as they would not get a new one's content. The
    history holds what it was. Protected files are not reached in this way: their name is left.
    """
    if like is not None and like.st_nlink > 1 and not _is_protected(workspace, like):
        rewrite_file(folder, name, content, like)
        return
    with opened_folder(workspace, workspace.own, create=True) as scratch:
        replace_file(folder, name, content, like, scratch)


def _is_protected(workspace: Workspace, entry: os.stat_result) -> bool:
    for place in workspace.protected:
        with suppress(OSError):
            if os.path.samestat(place.stat(), entry):
                return True
    return False


def _changed_since(workspace: Workspace, name: str, edit: PastEdit, *, gone: bool) -> str:
    what = "was deleted" if gone else "was changed by something else"
    if edit.before is None:
        return f"{name} {what} after it was created; it was left as it is. Use bash to remove it."
    return (
        f"{name} {what} after the last edit; it was left as it is. The version before that edit "
        f"is in {workspace.relative(edit.place)}; copy from there what you need."
    )

"""`openmanus memory`: the notes that agents keep across threads."""

import json
import sys

import click

from openmanus_graph.backends.persistence.memory import Memory, Note
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError, TrustedToolError
from openmanus_graph.interfaces.service.failures import RunError
from openmanus_graph.interfaces.service.threads import note_row, own_notes, save_note
from openmanus_graph.runtime.output import printable

UNTRUSTED = "written after untrusted content was read"


def list_notes(*, as_json: bool) -> int:
    """List the notes of the person and of the working folder's project, newest change first."""
    url = database_url()
    notes = [] if url.is_local and not url.file.exists() else own_notes().notes()
    for note in notes:
        row = f"{json.dumps(note_row(note), ensure_ascii=False)}\n"
        sys.stdout.write(row if as_json else _line(note))
    if not notes:
        sys.stderr.write("There are no notes.\n")
    return 0


def show_note(path: str, *, as_json: bool) -> int:
    """Print a note."""
    note = _found(path)
    if as_json:
        sys.stdout.write(
            f"{json.dumps({**note_row(note), 'text': note.text}, ensure_ascii=False)}\n"
        )
        return 0
    if note.untrusted:
        sys.stderr.write(f"{note.path} was {UNTRUSTED}.\n")
    sys.stdout.write(f"{printable(note.text)}\n")
    return 0


def edit_note(path: str, text: str | None, *, trusted: bool) -> int:
    """Change a note, write a new one, or confirm one.

    Args:
        path: Of the note.
        text: The new text; `-` reads it from stdin. None opens the person's editor, unless all that
            is wanted is to confirm it.
        trusted: Whether the person confirms all of it, also for what was foreign.
    """
    memory = own_notes()
    before = _known(memory, path)
    in_editor = text is None and not trusted
    if in_editor:
        text = _typed(before)
    elif text == "-":
        text = sys.stdin.read()
    try:
        save_note(memory, path, text, None if before is None else before.text, trusted=trusted)
    except TrustedToolError as error:
        if in_editor and text is not None:
            sys.stdout.write(f"{text}\n")  # what the person wrote is not lost
        raise RunError(str(error)) from error
    return 0


def _typed(before: Note | None) -> str | None:
    """Let the person write in an editor; None if nothing was saved."""
    if not sys.stdin.isatty():
        raise ConfigError("An editor needs a terminal. Give the text: --text TEXT, or --text -.")
    return click.edit(before.text if before else "")


def delete_note(path: str) -> int:
    """Delete a note."""
    try:
        own_notes().delete(path)
    except TrustedToolError as error:
        raise RunError(str(error)) from error
    return 0


def _known(memory: Memory, path: str) -> Note | None:
    try:
        return memory.find(path)
    except TrustedToolError as error:
        raise ConfigError(str(error)) from error


def _found(path: str) -> Note:
    note = _known(own_notes(), path)
    if note is None:
        raise RunError(f"There is no note {path}. `openmanus memory list` names those there are.")
    return note


def _line(note: Note) -> str:
    mark = f"  ({UNTRUSTED})" if note.untrusted else ""
    return f"{note.changed:%Y-%m-%d %H:%M}  {len(note.text):6}  {printable(note.path)}{mark}\n"

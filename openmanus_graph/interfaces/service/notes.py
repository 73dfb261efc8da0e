"""What a person does to the notes that agents keep, in the terminal and on the page."""

from typing import Any

from openmanus_graph.backends.persistence.memory import Memory, Note, open_memory
from openmanus_graph.config.resolve import database_url, storage_settings
from openmanus_graph.errors import TrustedToolError


def own_notes() -> Memory:
    """Return the notes of the person and of the working folder's project. Blocks."""
    return open_memory(database_url(), storage_settings())


def save_note(
    memory: Memory, path: str, text: str | None, before: str | None, *, trusted: bool
) -> None:
    """Write a new note, change one, or confirm one. Blocks.

    Args:
        memory: Holds it.
        path: Of the note.
        text: The new text; None: it stays.
        before: The text that the person saw; None: there was no note.
        trusted: Whether the person confirms all of it, also for what was foreign.

    Raises:
        TrustedToolError: It was changed meanwhile, or cannot be as it is wanted.
    """
    if before is None and text is not None:
        memory.create(path, text, foreign=False)
    elif text is not None and text != before:
        memory.edit(path, lambda now: _unless_changed(path, now, before, text), foreign=None)
    if trusted:
        memory.trust(path, before if text is None else text)


def note_row(note: Note) -> dict[str, Any]:
    """Return what is known of a note but its text."""
    return {
        "path": note.path,
        "characters": len(note.text),
        "changed": note.changed.isoformat(),
        "foreign": note.foreign,
    }


def _unless_changed(path: str, now: str, before: str | None, text: str) -> str:
    if now != before:
        raise TrustedToolError(
            f"{path} was changed while you edited it; it was left as it is. Edit it again."
        )
    return text

"""Routes about the notes that agents keep, as `openmanus memory` shows and changes them."""

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from openmanus_graph.errors import TrustedToolError
from openmanus_graph.interfaces.server.admission import Refused
from openmanus_graph.interfaces.service.threads import note_row, own_notes, save_note

router = APIRouter(prefix="/app/api/memory")


class NoteForm(BaseModel):
    """What a person wrote; `before` is the text that the person saw, null of a new note."""

    model_config = ConfigDict(extra="forbid")

    path: str
    text: str
    before: str | None = None
    trusted: bool = False


@router.get("")
async def list_notes() -> dict[str, Any]:
    """List the notes of the person and of the server's project, newest change first."""
    notes = await asyncio.to_thread(lambda: own_notes().notes())
    return {"notes": [note_row(note) for note in notes]}


@router.get("/note")
async def show_note(path: str) -> dict[str, Any]:
    """Return a note with its text."""
    try:
        note = await asyncio.to_thread(lambda: own_notes().find(path))
    except TrustedToolError as error:
        raise Refused(422, str(error)) from error
    if note is None:
        raise Refused(404, f"There is no note {path}.")
    return {**note_row(note), "text": note.text}


@router.put("/note", status_code=204)
async def write_note(form: NoteForm) -> Response:
    """Write a new note, change one, or confirm one."""

    def write() -> None:
        save_note(own_notes(), form.path, form.text, form.before, trusted=form.trusted)

    return await _done(write)


@router.delete("/note", status_code=204)
async def delete_note(path: str) -> Response:
    """Delete a note."""
    return await _done(lambda: own_notes().delete(path))


async def _done(change: Callable[[], None]) -> Response:
    """Make a change. Refused: it cannot be made, and why."""
    try:
        await asyncio.to_thread(change)
    except TrustedToolError as error:
        raise Refused(409, str(error)) from error
    return Response(status_code=204)

"""`memory`: notes that outlast the conversation."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.files.file_edits import insert_after, replace_once
from openmanus_graph.backends.files.text_file import checked_range, numbered, split_lines
from openmanus_graph.backends.persistence.accounts import Accounts
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.memory import ROOT, Memory, note_path, open_memory
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.model_calls.recorder import fact_of_run
from openmanus_graph.prompts import render
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import CallRuntime, call_runtime
from openmanus_graph.state.tool_traits import Effects, InformationFlow, Observation
from openmanus_graph.tool_calls.declaration import MaybeNumber, MaybeText, manus_tool
from openmanus_graph.tools.files import LineRange

MAX_LISTED = 100
"""Notes that a list names."""

Command = Literal["view", "create", "str_replace", "insert", "delete", "rename"]


# A change is safe to repeat: it knows its own note by the call's key.
@manus_tool(
    effect="read_only",
    resource="memory",
    untrusted=True,
    effects=Effects(outlasts_thread=True),
    flow=InformationFlow(composed=True),
)
async def memory(  # the model is not shown `runtime`
    command: Command,
    runtime: ToolRuntime[Any, Any],
    path: MaybeText = None,
    file_text: MaybeText = None,
    old_str: MaybeText = None,
    new_str: MaybeText = None,
    insert_line: MaybeNumber = None,
    insert_text: MaybeText = None,
    view_range: LineRange = None,
    old_path: MaybeText = None,
    new_path: MaybeText = None,
) -> Observation:
    """Keep notes for later conversations: what the person wants, what you found out.

    View /memories before you begin; correct what is out of date.

    Args:
        command: What to do.
        path: /memories/NAME.md: this project's; /memories/user/NAME.md: the person's, everywhere.
        file_text: For create.
        old_str: Exact, unique text.
        new_str: Text instead.
        insert_line: Line before the new ones; 0: top.
        insert_text: The new lines.
        view_range: [first, last]; -1: end.
        old_path: For rename.
        new_path: For rename.
    """
    call = call_runtime(runtime)
    given = {
        "path": path, "file_text": file_text, "old_str": old_str, "new_str": new_str,
        "insert_line": insert_line, "insert_text": insert_text, "view_range": view_range,
        "old_path": old_path, "new_path": new_path,
    }  # fmt: skip
    return await asyncio.to_thread(_run, command, _Arguments(command, given), call)


class _Arguments:
    """What a call gives. TrustedToolError names a missing parameter."""

    def __init__(self, command: str, given: Mapping[str, Any]) -> None:
        self._command, self._given = command, given

    def __getitem__(self, name: str) -> Any:
        if self._given[name] is None:
            raise TrustedToolError(f"The command {self._command} needs the parameter {name}.")
        return self._given[name]

    def get(self, name: str) -> Any:
        """Return what may be left out."""
        return self._given[name]


def _run(command: Command, given: _Arguments, call: CallRuntime) -> Observation:
    notes = _memory_of(call.session)
    untrusted, key = call.tainted, call.idempotency_key
    match command:
        case "view":
            lines = given.get("view_range")
            return _view(notes, given["path"], lines, call.session.max_observation_chars)
        case "create":
            made = notes.create(given["path"], given["file_text"], untrusted=untrusted, key=key)
            done = f"Created {made.path} ({len(made.text)} characters)."
        case "str_replace" | "insert":
            change = _change(command, given)
            made = notes.edit(given["path"], change, untrusted=untrusted, key=key)
            done = f"Edited {made.path}, which has {len(made.text)} characters now."
        case "delete":
            notes.delete(given["path"])
            done = f"Deleted {note_path(given['path'])}."
        case "rename":
            notes.rename(given["old_path"], given["new_path"], untrusted=untrusted, key=key)
            done = f"Renamed {note_path(given['old_path'])} to {note_path(given['new_path'])}."
    return Observation(done, trusted_text=True)


def _change(command: str, given: _Arguments) -> Callable[[str], str]:
    """Return what an edit makes of a note's text."""
    if command == "insert":
        line, added = given["insert_line"], given["insert_text"]
        return lambda text: insert_after(text, line, added).content
    old, new = given["old_str"], given.get("new_str") or ""
    return lambda text: replace_once(text, old, new).content


def _view(notes: Memory, path: str, view_range: list[int] | None, max_chars: int) -> Observation:
    """Show a note, or which notes a folder has. Untrusted words and names count."""
    note = None if note_path(path) == ROOT else notes.find(path)
    if note is not None:
        lines = split_lines(note.text)
        first, last = note.apply(lambda _: checked_range(view_range, len(lines)))
        shown = numbered(lines, first, last, max_chars) if lines else f"{note.path} is empty."
        return Observation(shown, bounded=True, trusted_text=not note.untrusted)
    found = notes.notes(path)
    if not found:
        return Observation(f"There are no notes in {note_path(path)}.", trusted_text=True)
    shown = f"{len(found)} notes in {note_path(path)}, the newest change first:"
    for one in found[:MAX_LISTED]:
        shown += f"\n- {one.path} ({len(one.text)} characters, {one.changed:%Y-%m-%d})"
    if len(found) > MAX_LISTED:
        shown += f"\nand {len(found) - MAX_LISTED} older ones: view a folder of them."
    trusted = not any(note.untrusted for note in found[:MAX_LISTED])
    return Observation(shown, bounded=True, trusted_text=trusted)


def _memory_of(session: Session) -> Memory:
    """Return the notes that a session's runs share; settings stay the same within one. Blocks."""
    settings = session.settings

    def opened() -> Memory:
        owner = Accounts(open_database(settings.database)).owner_of(session.thread)
        return open_memory(settings.database, settings.storage, owner or "")

    return session.cached(Memory, opened)


async def memory_prompt(session: Session) -> str:
    """Return the system prompt's text on the notes that existed when the run began.

    Empty if there were none. It stays the same within a run, so that the prompt does too.
    """
    found = await fact_of_run(session, "count of notes", lambda: len(_memory_of(session).notes()))
    return render("memory", count=str(found)) if found else ""

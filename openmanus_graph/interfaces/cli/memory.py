"""`openmanus memory`: the notes that agents keep across threads."""

import json
import sys
from typing import Annotated

import click
import typer

from openmanus_graph.backends.persistence.memory import Memory, Note
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError, TrustedToolError
from openmanus_graph.interfaces.cli.threads import JsonOption
from openmanus_graph.interfaces.service.options import StorageOptions, takes
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.threads import note_row, own_notes, save_note
from openmanus_graph.runtime.output import printable

UNTRUSTED = "written after untrusted content was read"

app = typer.Typer(
    help="Notes that agents keep for later conversations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
NoteArgument = Annotated[str, typer.Argument(help="Its path, for example /memories/NAME.md.")]


@app.command("list")
@takes(StorageOptions)
def list_notes(as_json: JsonOption = False) -> int:
    """List the notes, the newest change first."""
    url = database_url()
    notes = [] if url.is_local and not url.file.exists() else own_notes().notes()
    for note in notes:
        if as_json:
            sys.stdout.write(f"{json.dumps(note_row(note), ensure_ascii=False)}\n")
            continue
        mark = f"  ({UNTRUSTED})" if note.untrusted else ""
        changed = f"{note.changed:%Y-%m-%d %H:%M}"
        sys.stdout.write(f"{changed}  {len(note.text):6}  {printable(note.path)}{mark}\n")
    if not notes:
        sys.stderr.write("There are no notes.\n")
    return 0


@app.command("show")
@takes(StorageOptions)
def show_note(path: NoteArgument, as_json: JsonOption = False) -> int:
    """Print a note."""
    note = _find(own_notes(), path)
    if note is None:
        raise RunError(f"There is no note {path}. `openmanus memory list` lists the notes.")
    if as_json:
        row = {**note_row(note), "text": note.text}
        sys.stdout.write(f"{json.dumps(row, ensure_ascii=False)}\n")
        return 0
    if note.untrusted:
        sys.stderr.write(f"{note.path} was {UNTRUSTED}.\n")
    sys.stdout.write(f"{printable(note.text)}\n")
    return 0


@app.command("edit")
@takes(StorageOptions)
def edit_note(
    path: NoteArgument,
    text: Annotated[
        str | None, typer.Option(help="The new text; - reads it from stdin. Default: your editor.")
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="You confirm all of it: it counts as yours.")
    ] = False,
) -> int:
    """Change a note, or write a new one."""
    memory = own_notes()
    before = _find(memory, path)
    in_editor = text is None and not trusted
    if in_editor:
        if not sys.stdin.isatty():
            raise ConfigError(
                "An editor needs a terminal. Give the text: --text TEXT, or --text -."
            )
        text = click.edit(before.text if before else "")  # None if nothing was saved
    elif text == "-":
        text = sys.stdin.read()
    try:
        save_note(memory, path, text, None if before is None else before.text, trusted=trusted)
    except TrustedToolError as error:
        if in_editor and text is not None:
            sys.stdout.write(f"{text}\n")  # so that it is not lost
        raise RunError(str(error)) from error
    return 0


@app.command("delete")
@takes(StorageOptions)
def delete_note(path: NoteArgument) -> int:
    """Delete a note."""
    try:
        own_notes().delete(path)
    except TrustedToolError as error:
        raise RunError(str(error)) from error
    return 0


def _find(memory: Memory, path: str) -> Note | None:
    try:
        return memory.find(path)
    except TrustedToolError as error:
        raise ConfigError(str(error)) from error

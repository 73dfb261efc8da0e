"""`openmanus memory`: the notes that agents keep."""

from typing import Annotated

import typer

from openmanus_graph.interfaces.cli.commands.arguments import JsonOption
from openmanus_graph.interfaces.service.options import StorageOptions, takes

app = typer.Typer(
    help="Notes that agents keep for later conversations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_NoteArgument = Annotated[str, typer.Argument(help="Its path, /memories/NAME.md for example.")]


@app.command("list")
@takes(StorageOptions)
def memory_list(as_json: JsonOption = False) -> None:
    """List the notes, the newest change first."""
    from openmanus_graph.interfaces.cli.memory import list_notes

    raise typer.Exit(list_notes(as_json=as_json))


@app.command("show")
@takes(StorageOptions)
def memory_show(path: _NoteArgument, as_json: JsonOption = False) -> None:
    """Print a note."""
    from openmanus_graph.interfaces.cli.memory import show_note

    raise typer.Exit(show_note(path, as_json=as_json))


@app.command("edit")
@takes(StorageOptions)
def memory_edit(
    path: _NoteArgument,
    text: Annotated[
        str | None, typer.Option(help="The new text; - reads it from stdin. Default: your editor.")
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="You confirm all of it: it counts as yours.")
    ] = False,
) -> None:
    """Change a note, or write a new one."""
    from openmanus_graph.interfaces.cli.memory import edit_note

    raise typer.Exit(edit_note(path, text, trusted=trusted))


@app.command("delete")
@takes(StorageOptions)
def memory_delete(path: _NoteArgument) -> None:
    """Delete a note."""
    from openmanus_graph.interfaces.cli.memory import delete_note

    raise typer.Exit(delete_note(path))

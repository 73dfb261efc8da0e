"""`openmanus threads`, `tell` and `memory`: threads, messages to them, and agents' notes.

It loads little, so that lists and completion answer at once.
"""

import asyncio
import datetime
import json
import shlex
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from openmanus_graph.errors import ConfigError, TrustedToolError
from openmanus_graph.interfaces.service.options import StorageOptions, takes

if TYPE_CHECKING:
    from openmanus_graph.backends.persistence.threads import Thread

MAX_COMPLETIONS = 200
SHOWN_TITLE_CHARS = 60
PIPE_WIDTH = 1000
SHORT_ID_CHARS = 16
"""Of an id on a terminal: for ids of ours the minute and the second of their start."""
UNTRUSTED = "written after untrusted content was read"


def complete_thread(incomplete: str) -> list[str]:
    """Return the ids of threads with this beginning, for the shell's completion."""
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.interfaces.service.threads import open_threads

    url = database_url()
    if url.is_local and not url.file.exists():
        return []
    return open_threads().beginning_with([incomplete])[:MAX_COMPLETIONS]


ThreadArgument = Annotated[
    str,
    typer.Argument(help="Its id, or a unique beginning of it.", autocompletion=complete_thread),
]
LatestThread = Annotated[
    str | None,
    typer.Argument(
        help="Its id, or a unique beginning of it. Default: the latest.",
        autocompletion=complete_thread,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="As JSON lines.")]
NoteArgument = Annotated[str, typer.Argument(help="Its path, for example /memories/NAME.md.")]

memory = typer.Typer(
    help="Notes that agents keep for later conversations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@takes(StorageOptions)
def threads(
    delete: Annotated[
        str | None, typer.Option(help="Delete this thread.", autocompletion=complete_thread)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: JsonLinesOption = False,
) -> int:
    """List the newest threads."""
    return _delete_thread(delete) if delete else list_threads(limit, as_json=as_json)


def _delete_thread(named: str) -> int:
    """Delete a thread with everything that is kept of it, but not its workspace."""
    from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
    from openmanus_graph.config.homes import openmanus_home
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.interfaces.service import threads as known

    thread = known.known_thread(known.thread_id(named)).id

    async def delete_checkpoints() -> None:
        async with open_checkpointer(database_url()) as checkpointer:
            await checkpointer.adelete_thread(thread)

    with known.hold_thread(openmanus_home(), thread):
        asyncio.run(delete_checkpoints())
        known.forget_thread(thread)
    sys.stderr.write(f"Deleted thread {thread}. Its workspace was kept.\n")
    return 0


def list_threads(limit: int = 50, *, as_json: bool = False) -> int:
    """List the newest threads, and say on stderr if there are more."""
    from openmanus_graph.config.homes import openmanus_home
    from openmanus_graph.interfaces.service.threads import is_running, open_threads, short_ids

    table = open_threads()
    found = [thread for _, thread in table.page(limit + 1, None, "")]
    known = [
        replace(thread, status="interrupted")  # its process ended before the run did
        if thread.status == "running" and not is_running(openmanus_home(), thread.id)
        else thread
        for thread in found[:limit]
    ]
    if as_json:
        for thread in known:
            sys.stdout.write(json.dumps(thread.__dict__, ensure_ascii=False) + "\n")
    else:
        short: dict[str, str] = {}
        if sys.stdout.isatty():
            # A shortened id must be unique, so that it can be typed into the next command.
            similar = table.beginning_with([thread.id[:SHORT_ID_CHARS] for thread in known])
            short = dict(zip(similar, short_ids(similar, SHORT_ID_CHARS), strict=True))
        _print(known, [short.get(thread.id, thread.id) for thread in known])
    if len(found) > limit:
        sys.stderr.write(f"There are more. To see them: openmanus threads --limit {2 * limit}\n")
    return 0


def _print(known: "Sequence[Thread]", ids: Sequence[str]) -> None:
    from rich.cells import cell_len, set_cell_size

    from openmanus_graph.runtime.output import printable

    on_terminal = sys.stdout.isatty()
    rows: list[tuple[str, ...]] = [("thread", "status", "agent", "updated", "title")]
    for name, one in zip(ids, known, strict=True):
        updated = _age(one.updated) if on_terminal else one.updated
        title = " ".join(printable(one.title).split())[:SHOWN_TITLE_CHARS]
        rows.append((*map(printable, (name, one.status, one.agent, updated)), title))
    widths = [max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    columns = shutil.get_terminal_size().columns if on_terminal else PIPE_WIDTH
    for row in rows:
        cells = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=False)]
        line = " " + "  ".join((*cells, row[-1]))
        shown = line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 1)}…"
        sys.stdout.write(f"{shown.rstrip()}\n")


def _age(updated: str) -> str:
    """Return how long ago a thread was worked on, rounded down to the largest unit."""
    try:
        then = datetime.datetime.fromisoformat(updated).replace(tzinfo=datetime.UTC)
    except ValueError:  # a damaged row
        return updated
    seconds = (datetime.datetime.now(tz=datetime.UTC) - then).total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"


@takes(StorageOptions)
def tell(
    thread: ThreadArgument,
    text: Annotated[str, typer.Argument(help="The message; - reads it from stdin.")],
) -> int:
    """Send a running agent a message, which it reads at its next step."""
    from openmanus_graph.backends.persistence import steering
    from openmanus_graph.config.homes import openmanus_home
    from openmanus_graph.interfaces.service.threads import is_running, known_thread, thread_id

    known = known_thread(thread_id(thread)).id
    message = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    asyncio.run(steering.tell(known, message))
    if is_running(openmanus_home(), known):
        sys.stderr.write("The agent reads it at its next step.\n")
    else:
        again = f"openmanus resume {shlex.quote(known)}"
        sys.stderr.write(f"The agent is not running. It reads this when you resume it: {again}\n")
    return 0


@memory.command("list")
@takes(StorageOptions)
def list_notes(as_json: JsonOption = False) -> int:
    """List the notes, the newest change first."""
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.interfaces.service.threads import note_row, own_notes
    from openmanus_graph.runtime.output import printable

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


@memory.command("show")
@takes(StorageOptions)
def show_note(path: NoteArgument, as_json: JsonOption = False) -> int:
    """Print a note."""
    from openmanus_graph.interfaces.service.own_process import RunError
    from openmanus_graph.interfaces.service.threads import note_row, own_notes
    from openmanus_graph.runtime.output import printable

    with _refusals(ConfigError):
        note = own_notes().find(path)
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


@memory.command("edit")
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
    import click

    from openmanus_graph.interfaces.service.own_process import RunError
    from openmanus_graph.interfaces.service.threads import own_notes, save_note

    notes = own_notes()
    with _refusals(ConfigError):
        before = notes.find(path)
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
        save_note(notes, path, text, None if before is None else before.text, trusted=trusted)
    except TrustedToolError as error:
        if in_editor and text is not None:
            sys.stdout.write(f"{text}\n")  # so that it is not lost
        raise RunError(str(error)) from error
    return 0


@memory.command("delete")
@takes(StorageOptions)
def delete_note(path: NoteArgument) -> int:
    """Delete a note."""
    from openmanus_graph.interfaces.service.own_process import RunError
    from openmanus_graph.interfaces.service.threads import own_notes

    with _refusals(RunError):
        own_notes().delete(path)
    return 0


@contextmanager
def _refusals(kind: type[Exception]) -> Generator[None]:
    """Raise what the memory refuses as an error of this kind."""
    try:
        yield
    except TrustedToolError as error:
        raise kind(str(error)) from error

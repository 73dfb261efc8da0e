"""`openmanus threads`, `tell` and `memory`: threads, messages to them, and agents' notes.

It loads little, so that lists and completion answer at once.
"""

import asyncio
import datetime
import json
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from openmanus_graph.errors import ConfigError, TrustedToolError
from openmanus_graph.interfaces.cli import process
from openmanus_graph.interfaces.service.options import StorageOptions, takes
from openmanus_graph.runtime.output import printable

if TYPE_CHECKING:
    from openmanus_graph.backends.persistence.threads import Thread

MAX_COMPLETIONS = 200
SHOWN_TITLE_CHARS = 60
PIPE_WIDTH, NARROW = 1000, 60
LARGEST = 10
"""How many threads `storage` names."""
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
ThreadArguments = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="Or its beginning.", autocompletion=complete_thread),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="As JSON lines.")]
NoteArgument = Annotated[str, typer.Argument(help="Its path, for example /memories/NAME.md.")]


def command_group(about: str) -> typer.Typer:
    return typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None)


memory = command_group("Notes that agents keep for later conversations.")


threads = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@threads.callback()
@takes(StorageOptions)
def threads_command(
    context: typer.Context,
    delete: Annotated[
        str | None, typer.Option(help="Delete this thread.", autocompletion=complete_thread)
    ] = None,
    search: Annotated[
        str, typer.Option(metavar="WORDS", help="Only threads with these words, or beginnings.")
    ] = "",
    archived: Annotated[bool, typer.Option("--archived", help="Only archived threads.")] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Also archived threads, and those of batch and eval.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: JsonLinesOption = False,
) -> int:
    """List, find, pin, archive and delete threads."""
    if context.invoked_subcommand is not None:
        return 0
    if delete:
        return int(delete_threads(named=[delete]))
    return list_threads(limit, search, archived=None if all_ else archived, as_json=as_json)


def _marking(name: str, done: str, mark: Literal["pinned", "archived"], *, on: bool) -> None:
    """Add a command that pins or archives threads, or ends that."""

    @takes(StorageOptions)
    def change(named: ThreadArguments) -> int:
        from openmanus_graph.interfaces.service import threads as known

        for thread in [known.known_thread(known.thread_id(one)).id for one in named]:
            known.open_threads().mark(thread, mark, on=on)
            sys.stderr.write(f"{done} thread {thread}.\n")
        return 0

    threads.command(name, help=f"{name.capitalize()} threads.")(change)


_marking("pin", "Pinned", "pinned", on=True)
_marking("unpin", "Unpinned", "pinned", on=False)
_marking("archive", "Archived", "archived", on=True)
_marking("unarchive", "Unarchived", "archived", on=False)


@threads.command("delete")
@takes(StorageOptions)
def delete_threads(named: ThreadArguments) -> int:
    """Delete threads with everything that is kept of them, but not their workspaces."""
    from openmanus_graph.interfaces.service import threads as known
    from openmanus_graph.interfaces.service.retention import Storage

    for thread in [known.known_thread(known.thread_id(one)).id for one in named]:
        with closing(Storage()) as storage, known.hold_thread(storage.home, thread):
            storage.delete(thread)
        sys.stderr.write(f"Deleted thread {thread}. Its workspace was kept.\n")
    return 0


@threads.command("prune")
@takes(StorageOptions)
def prune(
    older_than: Annotated[
        str | None, typer.Option(help="Such as 30d. Default: as [storage] keep says.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be deleted.")
    ] = False,
) -> int:
    """Delete old threads whose runs have ended, with all that is kept of them."""
    from openmanus_graph.config.resolve import storage_settings
    from openmanus_graph.interfaces.service.retention import Storage
    from openmanus_graph.state.setting_declaration import times_by_state

    keep = times_by_state(older_than) if older_than else storage_settings().keep
    if not keep:
        raise ConfigError("Threads are kept forever. Give --older-than 30d, or set [storage] keep.")
    with closing(Storage()) as storage:
        gone, freed = storage.expired(keep) if dry_run else storage.prune(keep)
    sys.stdout.writelines(f"{thread}\n" for thread in gone)
    verb, more = ("Would delete", ", and their snapshots") if dry_run else ("Deleted", "")
    count = "1 thread" if len(gone) == 1 else f"{len(gone)} threads"
    sys.stderr.write(f"{verb} {count}: {_megabytes(freed)}{more}.\n")
    return 0


@takes(StorageOptions)
def storage(as_json: JsonOption = False) -> int:
    """Show what is stored, and where the megabytes are."""
    from openmanus_graph.backends.snapshots.objects import SNAPSHOTS, SnapshotStore
    from openmanus_graph.interfaces.service.retention import Storage, folder_bytes

    with closing(Storage()) as opened:
        used = opened.used()
        kinds = {kind: one.total() for kind, one in used.items()}
        for kind, name in (("runs without a thread", "runs"), ("files put aside", "aside")):
            kinds[kind] = folder_bytes(opened.home / name)
        if (opened.home / SNAPSHOTS).exists():
            kinds["snapshots"] = SnapshotStore(opened.home).stored_bytes()
    largest = sum(used.values(), Counter[str]()).most_common(LARGEST)
    if as_json:
        threads = [{"id": thread, "bytes": size} for thread, size in largest]
        sys.stdout.write(f"{json.dumps({'bytes': kinds, 'largest': threads})}\n")
        return 0
    ordered = sorted(kinds.items(), key=lambda one: -one[1])
    for name, size in (*ordered, ("total", sum(kinds.values())), ("", 0), *largest):
        sys.stdout.write(f"{_megabytes(size):>12}  {printable(name)}\n" if name else "\n")
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


@takes(StorageOptions)
def backup(
    file: Annotated[str, typer.Argument(help="A new file.")],
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Also tokens, logins, and the options' key.")
    ] = False,
) -> int:
    """Write all threads into one file, while runs go on."""
    from openmanus_graph.interfaces.service.backup import write_backup

    size = write_backup(Path(file), with_keys=with_keys)
    sys.stderr.write(f"Wrote {file}: {_megabytes(size)}. Workspaces are not in it.\n")
    return 0


def restore(
    file: Annotated[str, typer.Argument(help="A file of `openmanus backup`.")],
    to: Annotated[str | None, typer.Option(help="The new home folder.")] = None,
) -> int:
    """Restore threads into a new or empty home folder."""
    from openmanus_graph.config.homes import home_place
    from openmanus_graph.interfaces.service.backup import restore_backup

    home = Path(to).expanduser().absolute() if to else home_place()
    restore_backup(Path(file), home)
    sys.stderr.write(f"Restored into {home}.\n")
    return 0


def list_threads(
    limit: int = 50, query: str = "", *, archived: bool | None = False, as_json: bool = False
) -> int:
    """List the newest threads, for a person without those of `batch`; say if there are more."""
    from openmanus_graph.config.homes import openmanus_home
    from openmanus_graph.interfaces.service.threads import (
        SHORT_ID_CHARS,
        is_running,
        open_threads,
        short_ids,
    )

    table = open_threads()
    batch = None if as_json or query or archived is None else False
    found = [one for _, one in table.page(limit + 1, None, query, archived=archived, batch=batch)]
    known = [
        replace(thread, status="interrupted")  # its process ended before the run did
        if thread.status == "running" and not is_running(openmanus_home(), thread.id)
        else thread
        for thread in found[:limit]
    ]
    lines = table.lines([thread.id for thread in known], query)
    if as_json:
        for thread in known:
            row = thread.__dict__ | ({"found": lines.get(thread.id, "")} if query else {})
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    else:
        short: dict[str, str] = {}
        if sys.stdout.isatty():
            # A shortened id must be unique, so that it can be typed into the next command.
            similar = table.beginning_with([thread.id[:SHORT_ID_CHARS] for thread in known])
            short = dict(zip(similar, short_ids(similar, SHORT_ID_CHARS), strict=True))
        _print(known, [short.get(thread.id, thread.id) for thread in known], lines)
    if len(found) > limit:
        sys.stderr.write(f"There are more. To see them: openmanus threads --limit {2 * limit}\n")
    return 0


def _print(known: "Sequence[Thread]", ids: Sequence[str], lines: Mapping[str, str]) -> None:
    from rich.cells import cell_len, set_cell_size

    on_terminal = sys.stdout.isatty()
    rows: list[tuple[str, ...]] = [("thread", "status", "agent", "updated", "title")]
    for name, one in zip(ids, known, strict=True):
        updated = _age(one.updated) if on_terminal else one.updated
        title = " ".join(printable(one.title).split())[:SHOWN_TITLE_CHARS]
        marks = [name for name in ("pinned", "archived") if getattr(one, name)]
        title = f"[{', '.join(marks)}] {title}" if marks else title
        rows.append((*map(printable, (name, one.status, one.agent, updated)), title))
    columns = shutil.get_terminal_size().columns if on_terminal else PIPE_WIDTH
    if columns < NARROW:  # the title counts more than the agent
        rows = [(name, status, updated, title) for name, status, _, updated, title in rows]
    widths = [max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    texts = ("", *(" ".join(printable(lines.get(one.id, "")).split()) for one in known))
    for row, text in zip(rows, texts, strict=True):
        cells = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=False)]
        line = " " + "  ".join((*cells, row[-1]))
        shown = line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 1)}…"
        sys.stdout.write(f"{shown.rstrip()}\n")
        if text:
            sys.stdout.write(f"{set_cell_size(f'     {text}', columns - 1).rstrip()}\n")


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
    message = process.read_stdin() if text == "-" else text
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


def show_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Write rows as JSON lines, or these columns as a table.

    On a terminal that is too narrow for it, each cell has its own line.
    """
    if as_json:
        sys.stdout.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        return
    cells = [[" ".join(printable(str(row[name])).split()) for name in columns] for row in rows]
    table = [list(columns), *cells] if rows else []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if sys.stdout.isatty() and sum(widths) + 2 * len(widths) > shutil.get_terminal_size().columns:
        for texts in cells:
            lines = [f"{name}: {text}\n" for name, text in zip(columns, texts, strict=True)]
            sys.stdout.writelines([*lines, "\n"])
        return
    for texts in table:
        line = "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True))
        sys.stdout.write(f" {line}".rstrip() + "\n")

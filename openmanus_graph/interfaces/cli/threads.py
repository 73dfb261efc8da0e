"""`openmanus threads` and `tell`, and how a thread is named. Loads little, to answer at once."""

import asyncio
import datetime
import json
import shlex
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from openmanus_graph.interfaces.service.options import StorageOptions, takes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openmanus_graph.backends.persistence.threads import Thread

MAX_COMPLETIONS = 200
SHOWN_TITLE_CHARS = 60
PIPE_WIDTH = 1000
SHORT_ID_CHARS = 16
"""Of an id on a terminal: for ids of ours the minute and the second of their start."""


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
    from openmanus_graph.interfaces.service.threads import (
        forget_thread,
        hold_thread,
        known_thread,
        thread_id,
    )

    thread = known_thread(thread_id(named)).id

    async def delete_checkpoints() -> None:
        async with open_checkpointer(database_url()) as checkpointer:
            await checkpointer.adelete_thread(thread)

    with hold_thread(openmanus_home(), thread):
        asyncio.run(delete_checkpoints())
        forget_thread(thread)
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
    elif sys.stdout.isatty():
        # An id that is cut cannot be typed into the next command, unless its beginning is unique.
        beginnings = [thread.id[:SHORT_ID_CHARS] for thread in known]
        similar = table.beginning_with(beginnings)
        short = dict(zip(similar, short_ids(similar, SHORT_ID_CHARS), strict=True))
        _print(known, [short.get(thread.id, thread.id) for thread in known])
    else:
        _print(known, [thread.id for thread in known])
    if len(found) > limit:
        sys.stderr.write(f"There are more. To see them: openmanus threads --limit {2 * limit}\n")
    return 0


def _print(known: "Sequence[Thread]", ids: "Sequence[str]") -> None:
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
    units = ((86400, "d"), (3600, "h"), (60, "min"))
    return next(
        (f"{int(seconds // size)} {unit}" for size, unit in units if seconds >= size), "now"
    )


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

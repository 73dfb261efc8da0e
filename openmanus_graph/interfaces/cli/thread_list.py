"""`openmanus threads`: a page of them, newest first. It loads little, and answers at once."""

import datetime
import json
import shutil
import sys
from dataclasses import replace

from rich.cells import cell_len, set_cell_size

from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.interfaces.service.threads import is_running, open_threads, short_ids
from openmanus_graph.runtime.output import printable

SHOWN_TITLE_CHARS = 60
PIPE_WIDTH = 1000
SHORT_ID_CHARS = 16
"""Of an id on a terminal: for ids of ours the minute and the second of their start."""


def list_threads(limit: int = 50, *, as_json: bool = False) -> int:
    """List the newest threads, and say on stderr if there are more."""
    threads = open_threads()
    found = [thread for _, thread in threads.page(limit + 1, None, "")]
    known = [
        replace(thread, status="interrupted")  # its process has ended without an end of the run
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
        similar = threads.beginning_with(beginnings)
        short = dict(zip(similar, short_ids(similar, SHORT_ID_CHARS), strict=True))
        _print(known, [short.get(thread.id, thread.id) for thread in known])
    else:
        _print(known, [thread.id for thread in known])
    if len(found) > limit:
        sys.stderr.write(f"There are more. To see them: openmanus threads --limit {2 * limit}\n")
    return 0


def _print(known: list[Thread], ids: list[str]) -> None:
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
    """Say how long ago a thread was worked on, shortly."""
    try:
        then = datetime.datetime.fromisoformat(updated).replace(tzinfo=datetime.UTC)
    except ValueError:  # a damaged row
        return updated
    seconds = (datetime.datetime.now(tz=datetime.UTC) - then).total_seconds()
    units = ((86400, "d"), (3600, "h"), (60, "min"))
    return next(
        (f"{int(seconds // size)} {unit}" for size, unit in units if seconds >= size), "now"
    )

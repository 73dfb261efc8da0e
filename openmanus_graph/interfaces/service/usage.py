"""What runs and model calls have used, in rows for the command, the page and Prometheus.

This module loads nothing of graphs and models, so that the command answers at once.
"""

import datetime
import re
from operator import itemgetter
from typing import Any, Literal

from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.backends.persistence.threads import DEMO
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.threads import is_running

By = Literal["day", "model", "agent", "user", "trigger", "thread"]
EXPENSIVE_THREADS = 10
COLUMNS = (
    "model_calls", "input_tokens", "cached_tokens", "output_tokens", "cost_usd", "model_seconds",
    "runs", "finished", "seconds",
)  # fmt: skip
"""What a row sums up: of model calls, and then of runs that ended."""
Sums = dict[str, dict[str, float]]


def end_killed_runs(database: Database) -> None:
    """Count the runs whose process was killed as interrupted. Blocks."""
    for run, thread in database.run("SELECT id, thread FROM run_usage WHERE status = 'running'"):
        if not is_running(openmanus_home(), thread):
            database.run("UPDATE run_usage SET status = 'interrupted' WHERE id = ?", (run,))


def report(
    database: Database, by: By, since: str, owner: str | None, threads_of: str | None
) -> dict[str, Any]:
    """Return the usage of one user or (None) of all: rows, their total, and costly threads. Blocks.

    The threads are those of `threads_of`, or (None) of all users.

    `since` is a number of days, such as 30d. If the rows are models, one without a name has the
    runs. ConfigError: `since` is wrong.
    """
    if not re.fullmatch(r"[1-9]\d{0,4}d", since):
        raise ConfigError(f"{since!r} is no number of days; write it like 30d.")
    today = datetime.datetime.now(tz=datetime.UTC).date()
    first = (today - datetime.timedelta(days=int(since[:-1]) - 1)).isoformat()
    end_killed_runs(database)
    rows, total = (
        sums(database, column, first, owner) for column in ("owner" if by == "user" else by, "''")
    )
    threads = sums(database, "thread", first, threads_of)
    by_cost = itemgetter("cost_usd", "input_tokens", "output_tokens")
    costly = sorted(threads.items(), key=lambda item: by_cost(item[1]), reverse=True)
    costly = costly[:EXPENSIVE_THREADS]
    marks = ", ".join("?" * len(costly)) or "NULL"
    named = f"SELECT thread, title FROM titles WHERE thread IN ({marks})"
    titles: dict[str, str] = dict(database.run(named, [name for name, _ in costly]))
    return {
        "since": first,
        "rows": [{"name": name, **row} for name, row in sorted(rows.items())],
        "total": total.get("", {}),
        "threads": [
            {"name": titles.get(name, name), "thread": name, **row} for name, row in costly
        ],
    }


def sums(database: Database, column: str, since: str = "", owner: str | None = None) -> Sums:
    """Return what was used since a day, for each value of a column. Blocks."""
    of_runs = column.replace("model", "''")
    rows = database.run(
        f"SELECT name, {', '.join(f'SUM({one})' for one in COLUMNS)} FROM ("
        f" SELECT owner, day, {column} AS name, calls AS model_calls, input AS input_tokens,"
        " cached AS cached_tokens, output AS output_tokens, dollars AS cost_usd,"
        " seconds AS model_seconds, 0 AS runs, 0 AS finished, 0 AS seconds FROM call_usage"
        f" UNION ALL SELECT owner, day, {of_runs}, 0, 0, 0, 0, 0, 0,"
        " CASE WHEN status IN ('running', 'waiting') THEN 0 ELSE 1 END,"
        " CASE WHEN status = 'finished' THEN 1 ELSE 0 END, seconds"
        f" FROM run_usage WHERE trigger <> '{DEMO}'"
        ") AS used WHERE day >= ? AND (owner = ? OR ?) GROUP BY name",
        (since, owner or "", owner is None),
    )
    return {name: dict(zip(COLUMNS, map(float, numbers), strict=True)) for name, *numbers in rows}

"""`openmanus usage` and `openmanus users quota`: what was used, and how much users may use."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.cells import set_cell_size

from openmanus_graph.interfaces.cli.threads import PIPE_WIDTH, JsonOption
from openmanus_graph.interfaces.service.options import StorageOptions, takes
from openmanus_graph.interfaces.service.threads import open_threads
from openmanus_graph.interfaces.service.usage import By, report
from openmanus_graph.runtime.output import money, printable

MIN_NAME_CELLS = 8
_Most = Annotated[float | None, typer.Option(help="Negative: as in the configuration.")]


@takes(StorageOptions)
def usage(
    by: Annotated[By, typer.Option(help="What each line is about.")] = "day",
    since: Annotated[str, typer.Option(help="How many days, such as 30d.")] = "30d",
    as_json: JsonOption = False,
) -> int:
    """Show runs, tokens, dollars and time.

    The most expensive threads follow.
    """
    found = report(open_threads().database, by, since, None, None)
    if as_json:
        sys.stdout.write(f"{json.dumps(found, ensure_ascii=False)}\n")
        return 0
    if not found["rows"]:
        sys.stderr.write(f"Nothing was used since {found['since']}.\n")
        return 0
    _print(by, [*found["rows"], {"name": "total", **found["total"]}])
    sys.stdout.write("\n")
    _print("most expensive threads", found["threads"])
    return 0


def _print(heading: str, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = ("runs", "success", "tokens in", "cached", "tokens out", "cost", "minutes")
    lines: list[tuple[str, Sequence[str]]] = [(heading, columns)]
    for row in rows:
        success, cached = (
            f"{row[part] / row[whole]:.0%}" if row[whole] else "-"
            for part, whole in (("finished", "runs"), ("cached_tokens", "input_tokens"))
        )
        runs, given, made = (row[one] for one in ("runs", "input_tokens", "output_tokens"))
        counts = f"{runs:,.0f}", success, f"{given:,.0f}", cached, f"{made:,.0f}"
        spent = money(row["cost_usd"]), f"{row['seconds'] / 60:,.1f}"
        lines.append((" ".join(printable(row["name"]).split()) or "(all)", (*counts, *spent)))
    widths = [max(map(len, column)) + 2 for column in zip(*(c for _, c in lines), strict=True)]
    columns_left = shutil.get_terminal_size().columns - 1 if sys.stdout.isatty() else PIPE_WIDTH
    room = max(MIN_NAME_CELLS, min(36, columns_left - sum(widths)))
    for name, cells in lines:
        figures = "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        sys.stdout.write(f"{set_cell_size(name, room)}{figures}\n")


@dataclass(frozen=True)
class QuotaOptions:
    usd_per_day: _Most = None
    usd_per_month: _Most = None
    tokens_per_day: _Most = None
    tokens_per_month: _Most = None
    runs: _Most = None
    workspace_mb: _Most = None


@takes(QuotaOptions, StorageOptions)
def quota(options: QuotaOptions, name: Annotated[str, typer.Argument(help="The user.")]) -> int:
    """Show a user's quotas, after setting those that are given."""
    from openmanus_graph.backends.persistence.usage import quotas_of_user

    database = open_threads().database
    for kind, most in asdict(options).items():
        if most is not None:
            database.run("DELETE FROM quotas WHERE owner = ? AND kind = ?", (name, kind))
        if most is not None and most >= 0:
            database.run("INSERT INTO quotas VALUES (?, ?, ?)", (name, kind, most))
    for kind, most in sorted(quotas_of_user(database, name).items()):
        sys.stdout.write(f"{kind}  {most:.10g}\n")
    return 0

"""Threads of former days in a home folder: very many, and one that is very long."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.state.addresses import DatabaseUrl

MANY_THREADS = 1000
MANY_EVENTS = 10_000
LONG = str(uuid.uuid4())


def write_past(home: Path) -> None:
    """Write down threads of former days, one of them very long."""
    home.mkdir()
    database: Database = open_database(DatabaseUrl.in_folder(home))
    threads = Threads(database)
    for number in range(MANY_THREADS):
        threads.begin(str(uuid.uuid4()), "manus", f"Old task {number}", {}, None)
    threads.begin(LONG, "manus", "A very long task", {}, None)
    threads.end(LONG, "finished")
    table, events = JournalTable(database), list(long_run())
    for start in range(0, len(events), 1000):
        part = events[start : start + 1000]
        table.write(LONG, [(event["seq"], json.dumps(event)) for event in part])
    close_databases()


def long_run() -> Iterator[dict[str, Any]]:
    """Yield the events of one run with very many steps."""
    usage = {"input_tokens": 9, "cached_tokens": 0, "output_tokens": 3, "model_calls": 1,
             "cost_usd": 0.0}  # fmt: skip
    reported: list[dict[str, Any]] = [
        {"type": "run_start", "task": "A very long task", "agent": "manus", "model": "m",
         "workspace": "/w"}
    ]  # fmt: skip
    for step in range(1, MANY_EVENTS // 4):
        call = {"call_id": f"c{step}", "tool": "bash", "args": {"command": f"echo {step}"}}
        reported += [
            {"type": "think_start", "step": step},
            {"type": "think_end", "step": step, "text": f"Now **{step}**. " * (step % 9),
             "tool_calls": [call], "usage": usage, "seconds": 1.0},
            {"type": "tool_start", **call},
            {"type": "tool_end", "call_id": f"c{step}", "tool": "bash", "ok": True, "seconds": 0.1,
             "output": f"line {step}\n" * 80},
        ]  # fmt: skip
    reported.append({"type": "final", "status": "finished", "stop_reason": "answer", "answer":
    "Over.",
                 "structured": None, "usage": usage, "artifacts": []})  # fmt: skip
    for number, event in enumerate(reported, 1):
        yield {**event, "seq": number, "run": "r", "ns": "", "thread": LONG,
               "ts": "2026-01-01T00:00:00.000+00:00"}  # fmt: skip
